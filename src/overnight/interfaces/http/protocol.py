"""HTTP/1.1 of uvicorn with limits on connections and on the time that a request's headers take.

uvicorn limits the idle time between requests, but waits for ever for the rest of a header.
"""

from __future__ import annotations

import asyncio
import collections
from typing import ClassVar

import h11
from uvicorn.protocols.http import h11_impl

from overnight.interfaces.http import clients, problems

CLOSE_SECONDS = 0.5


class Protocol(h11_impl.H11Protocol):
    """A connection. Set `most_connections`, `head_seconds`, `proxies` and `counts` on a subclass.

    One address may have half of the connections, unless it is a trusted proxy's.
    """

    most_connections = 8192
    head_seconds = 10.0
    proxies: clients.Networks = ()
    counts: ClassVar[collections.Counter[str]] = collections.Counter()
    _head_timer: asyncio.TimerHandle | None = None
    _group = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = clients.parse((self.client or ("",))[0])
        if not clients.is_within(address, self.proxies):
            self._group = clients.find_group(address)
            self.counts[self._group] += 1
        is_one = self.counts[self._group] > (self.most_connections + 1) // 2
        if len(self.connections) > self.most_connections or is_one:
            transport.write(
                b"HTTP/1.1 503 Too many connections\r\nConnection: close\r\n"
                b"Retry-After: 5\r\nContent-Length: 0\r\n\r\n"
            )
            transport.close()
        else:
            self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self._head_timer is None and not self.transport.is_closing():
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self.counts[self._group] -= 1
        if self.counts[self._group] <= 0:
            del self.counts[self._group]
        super().connection_lost(exc)

    def shutdown(self) -> None:
        cycle: h11_impl.RequestResponseCycle | None = self.cycle
        super().shutdown()
        # TLS would wait half a minute for an idle client to end the connection.
        if cycle is None or cycle.response_complete:
            self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        refusal = problems.HttpError(400, msg.rstrip("."), headers=problems.CLOSE)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = problems.respond(refusal)
            events = (
                h11.Response(status_code=400, headers=answer.raw_headers, reason=b"Bad Request"),
                h11.Data(data=bytes(answer.body)),
                h11.EndOfMessage(),
            )
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self._end_slow_head)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_slow_head(self) -> None:
        self._head_timer = None
        self.transport.abort()
