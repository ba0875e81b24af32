"""The concierge for an HTTP server that has authenticated the caller: one message a request, no session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from overnight.interfaces.mcp import server

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from overnight.app import concierge

logging.getLogger("mcp").setLevel(logging.CRITICAL)  # clients must not fill the log


class Mounted:
    """`find_backend` returns where the calls of a request go."""

    def __init__(
        self, find_backend: Callable[[Request], concierge.Backend], run: server.Run[Any]
    ) -> None:
        def find(context: Any) -> concierge.Backend:
            return find_backend(context.request)

        self._server = server.Concierge(find, run).build()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A manager for each request: it has tasks that must end with it, and nothing else would start it.
        manager = StreamableHTTPSessionManager(self._server, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)
