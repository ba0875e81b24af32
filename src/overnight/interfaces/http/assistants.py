"""/mcp: the concierge over streamable HTTP, with the tokens, limits and audit log of the server.

No session is kept between requests, so that any server of a database can answer the next one.
"""

from __future__ import annotations

import dataclasses
import functools
import urllib.parse
from collections.abc import Callable
from typing import Any

import anyio.to_thread
import fastapi
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from overnight.app import concierge, serving
from overnight.interfaces.http import limits, problems, use_cases
from overnight.interfaces.http import operations as ops
from overnight.model import addresses

BACKEND = "overnight.backend"  # in the scope of a request
ROUTER = ops.Router()


class Delegated(fastapi.Response):
    """An answer that another application gives."""

    def __init__(self, run: Callable[[Scope, Receive, Send], Any]) -> None:
        super().__init__()
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._run(scope, receive, send)


async def _not_gone() -> bool:
    return False


def _build(slots: use_cases.Slots) -> Any:
    """Return the MCP server; the SDK is imported with the first request."""
    try:
        from overnight.interfaces.mcp import mounted
    except ImportError as error:
        why = f"a package is missing on the server: {error}"
        raise problems.HttpError(404, "this server has no /mcp", why=why) from None

    async def run(changes: bool, call: Callable[[], Any]) -> Any:
        if changes:
            return await slots.run(lambda _: call(), _not_gone)
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)

    return mounted.Mounted(lambda request: request.scope[BACKEND], run)


@ROUTER.post(limits.ASSISTANTS, include_in_schema=False)
async def answer(request: Request, server: ops.Served, by: ops.Viewer) -> fastapi.Response:
    """Answer one message of an assistant."""
    check_origin(request, server)
    state = request.app.state
    if not hasattr(state, "concierge"):
        state.concierge = await anyio.to_thread.run_sync(functools.partial(_build, state.slots))
    assistant = dataclasses.replace(by, assistant=True)  # whatever the token
    request.scope[BACKEND] = concierge.ServedBackend(server, assistant)
    return Delegated(state.concierge.handle)


def check_origin(request: Request, server: serving.Server) -> None:
    """Refuse pages of other sites, and names that lead a browser to a loopback address (DNS rebinding)."""
    host = request.headers.get("host", "").lower()
    origin = request.headers.get("origin", "").lower()
    if origin and urllib.parse.urlsplit(origin).netloc != host:
        raise problems.HttpError(403, "requests of other sites are refused", why=f"Origin is {origin[:100]!r}")  # fmt: skip
    listen, _ = addresses.parse_address(server.request.listen, "--listen")
    name = urllib.parse.urlsplit(f"//{host}").hostname or ""
    known = urllib.parse.urlsplit(server.url).hostname
    if addresses.is_loopback(listen) and not addresses.is_loopback(name) and name != known:
        raise problems.HttpError(421, f"this server is not {name[:100]!r}", why="it listens on loopback; start it with --endpoint if it has that name")  # fmt: skip
