"""An assistant's side: start of `overnight mcp`, and calls of tools over both transports of the SDK's client.

The peer of the start is a server of the same SDK with one empty tool; that of a call is the same question over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

from benchmarks import Result, median_of

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests/support"))

OVERNIGHT = str(pathlib.Path(sys.executable).with_name("overnight"))
EMPTY = """
import anyio, mcp.server.stdio, mcp_types as types
from mcp.server.lowlevel import Server
async def tools(_, __): return types.ListToolsResult(tools=[types.Tool(name="none", input_schema={"type": "object"})])
async def main():
    server = Server("empty", on_list_tools=tools)
    async with mcp.server.stdio.stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())
anyio.run(main)
"""
CALLS = 200
POOL = {"name": "ci", "template_id": "plain", "target_size": 3, "max_size": 5}


def measure() -> list[Result]:
    import serverprocesses

    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder) / "home"
        with serverprocesses.running(home, "--interval", "500ms") as server:
            words = ("token", "create", "--role", "admin", "--assistant", "--name", "bench")
            token = server.run(*words)
            try:
                return asyncio.run(_measure(server.url, token))
            finally:
                serverprocesses.end_members(home)


async def _measure(url: str, token: str) -> list[Result]:
    environment = {"OVERNIGHT_TOKEN": token}
    ours = mcp.StdioServerParameters(
        command=OVERNIGHT, args=["--server", url, "mcp"], env=environment
    )
    empty = mcp.StdioServerParameters(command=sys.executable, args=["-c", EMPTY])
    start, bare = (
        await asyncio.to_thread(_time_start, ours),
        await asyncio.to_thread(_time_start, empty),
    )
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with mcp.Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
            await _fill(client)
            tools = (await client.list_tools()).tools
            over_http = await _time_calls(client)
            claim = await _time_claims(client)
        async with mcp.Client(ours) as client:
            over_stdio = await _time_calls(client)
    listed = sum(len(tool.model_dump_json(exclude_none=True)) for tool in tools)
    asked = sum(len(tool.description or "") + len(json.dumps(tool.input_schema)) for tool in tools)
    return [
        Result("overnight mcp: start, connect, list the tools", start, "ms", peer="an empty server of the SDK", peer_value=bare),
        Result("tool call over /mcp: a pool with its members", over_http, "ms"),
        Result("tool call over stdio, to the same server", over_stdio, "ms"),
        Result("claim and return over /mcp", claim, "ms"),
        Result(f"list of {len(tools)} tools", listed / 1e3, "kB"),
        Result("of that, names of arguments and descriptions, as a model reads them", asked / 1e3, "kB"),
    ]  # fmt: skip


def _time_start(of: mcp.StdioServerParameters) -> float:
    async def start() -> None:
        async with mcp.Client(of) as client:
            await client.list_tools()

    return median_of(5, lambda: asyncio.run(start())) * 1000


async def _fill(client: mcp.Client) -> None:
    await client.call_tool("system_create_instance_pool", POOL)
    for _ in range(600):  # a minute
        found = (
            await client.call_tool("system_get_instance_pool", {"id": "ci"})
        ).structured_content
        if found["instance_pool"]["ready_count"] == POOL["target_size"]:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"the members are not ready: {found}")


async def _time_calls(client: mcp.Client) -> float:
    return await _median(lambda: client.call_tool("system_get_instance_pool", {"id": "ci"}))


async def _time_claims(client: mcp.Client) -> float:
    """Return the median time of a claim and its return; members that are launched meanwhile are waited for."""
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        claimed = (
            await client.call_tool("system_acquire_pooled_instance", {"pool_id": "ci"})
        ).structured_content
        instance = {"pool_id": "ci", "instance_id": claimed["instance"]["id"]}
        await client.call_tool("system_return_pooled_instance", instance)
        times.append((time.perf_counter() - begin) * 1000)
        await asyncio.sleep(1)
    return sorted(times)[len(times) // 2]


async def _get(http: httpx2.AsyncClient, url: str) -> None:
    (await http.get(url)).raise_for_status()


async def _median(call: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        await call()
        times.append((time.perf_counter() - begin) * 1000)
    return sorted(times)[CALLS // 2]
