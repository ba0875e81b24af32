"""`overnight mcp`: the concierge over standard input and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp.server.stdio

from overnight.interfaces.mcp import server

if TYPE_CHECKING:
    from overnight.app import concierge

AT_ONCE = 8  # calls


def serve(backend: concierge.Backend) -> None:
    """Serve one client until it closes standard input."""
    anyio.run(_serve, backend)


async def _serve(backend: concierge.Backend) -> None:
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def run(_: bool, call: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(call, limiter=limiter, abandon_on_cancel=True)

    served = server.Concierge(lambda _: backend, run).build()
    async with mcp.server.stdio.stdio_server() as (reader, writer):
        await served.run(reader, writer, served.create_initialization_options())
