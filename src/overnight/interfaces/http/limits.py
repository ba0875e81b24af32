"""Limits on every request, before anything else sees it: rates, bytes and time.

Pure ASGI: 3,000 agents post a hundred times a second, and each layer costs.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import itertools
import math
import time
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from overnight.interfaces.http import access, clients, problems

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from overnight.app import serving_metrics

Shares = tuple[tuple[str, int], ...]
MIB = 1 << 20
AGENTS = "/api/v1/agents/"
ASSISTANTS = "/mcp"
SECURE = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What clients may use of this process."""

    connections: int = 8192  # of one address half of it
    head_bytes: int = 16 << 10
    head_seconds: float = 10.0  # from the first byte of a request to the end of its headers
    idle_seconds: float = 75.0  # between two requests of a connection; agents report every 30 s
    body_seconds: float = 30.0
    answer_seconds: float = 120.0  # with the body and the last byte of the answer
    window_seconds: float = 900.0  # the same for a window, or a diagnosis that is made first
    pool_seconds: float = 3900.0  # the same for a change: a claim may wait for an hour
    anonymous_bytes: int = 16 << 10  # of a body whose credential was not checked
    body_bytes: int = 64 << 10
    report_bytes: int = 4 * MIB  # as sent; decompressed 4 MiB, or 16 MiB with a snapshot
    chunk_bytes: int = MIB  # of an upload
    # Larger bodies; of one address half of it, of one credential an eighth.
    held_bytes: int = 64 * MIB
    address_rate: float = 1000.0  # requests per second; many agents may share one address
    address_burst: float = 4000.0
    credential_rate: float = 20.0
    credential_burst: float = 200.0

    def seconds(self, path: str) -> float:
        if path.startswith(("/api/v1/pool", "/api/v1/reservations")):
            return self.pool_seconds
        slow = path.startswith(("/api/v1/windows/", "/reports/", ASSISTANTS)) or path.endswith(
            "/diagnosis"
        )
        return self.window_seconds if slow else self.answer_seconds

    def body_limit(self, path: str) -> int:
        if path.startswith(f"{AGENTS}blobs/"):
            return self.chunk_bytes
        return self.report_bytes if path == f"{AGENTS}report" else self.body_bytes


class Buckets:
    """Token buckets by key; the least recently used ones are forgotten."""

    def __init__(
        self, rate: float, burst: float, *, keys: int = 20_000, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._rate, self._burst, self._keys, self._clock = rate, burst, keys, clock
        self._levels = collections.OrderedDict[object, tuple[float, float]]()

    def take(self, key: object) -> float:
        """Take a token; return 0, or the seconds until there is one."""
        now = self._clock()
        level, at = self._levels.pop(key, (self._burst, now))
        level = min(self._burst, level + (now - at) * self._rate)
        allowed = level >= 1
        self._levels[key] = (level - 1 if allowed else level, now)
        if len(self._levels) > self._keys:
            self._levels.popitem(last=False)
        return 0.0 if allowed else (1 - level) / self._rate


class Gate:
    """Refuses what exceeds a limit, hands complete bodies to the application, and counts.

    `is_known` says whether a credential is valid at a path: only then is a large body read.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, counters: serving_metrics.Counters,
        is_known: Callable[[str, str], Awaitable[bool]], proxies: clients.Networks = (),
    ) -> None:  # fmt: skip
        self._app, self._limits, self._counters = app, limits, counters
        self._is_known, self._proxies = is_known, proxies
        self._addresses = Buckets(limits.address_rate, limits.address_burst)
        self._credentials = Buckets(limits.credential_rate, limits.credential_burst)
        self._held: collections.Counter[tuple[str, int]] = collections.Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        is_agent = scope["path"].startswith(AGENTS)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if not is_agent:
                    present = {name for name, _ in message["headers"]}
                    message["headers"] = [
                        *message["headers"],
                        *(pair for pair in SECURE if pair[0] not in present),
                    ]
            await send(message)

        try:
            async with asyncio.timeout(self._limits.seconds(scope["path"])):
                async with self._admitted(scope, receive) as complete:
                    await self._app(scope, complete, answer)
        except ClientDisconnect:
            pass
        except Exception as error:
            response = problems.respond(error)
            if not status:
                await response(scope, receive, answer)
        finally:
            self._counters.request(scope["path"], status or 499, time.perf_counter() - began)

    @contextlib.asynccontextmanager
    async def _admitted(self, scope: Scope, receive: Receive) -> AsyncIterator[Receive]:
        """Check the limits; yield a `receive` that has the whole body."""
        headers = dict(scope["headers"])
        client = clients.find_client(scope, self._proxies)
        wait = self._addresses.take(client)
        credential = access.read_credential(scope["headers"])
        if not wait and credential:
            wait = self._credentials.take(hash(credential))
        if wait:
            after = {"retry-after": str(math.ceil(wait))}
            raise problems.HttpError(429, "too many requests", headers=after)
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # A proxy may have used the other one: the rest could be the request of somebody else.
            raise problems.HttpError(
                400, "the length of the body is ambiguous", headers=problems.CLOSE
            )
        fields = (scope["path"], scope["query_string"], *itertools.chain(*scope["headers"]))
        if sum(map(len, fields)) > self._limits.head_bytes:
            raise problems.HttpError(431, "the headers are too large")
        limit = self._limits.body_limit(scope["path"])
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 11 or int(length) > limit):
            raise _too_large(limit)
        # Who holds its bytes, and which part of all that may be held is the most of them.
        shares = (("all", 1), (f"address {client}", 2), (f"credential {credential}", 8))
        body, more, held = bytearray(), True, 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    chunk = message.get("body", b"")
                    if len(body) + len(chunk) > limit:
                        raise _too_large(limit)
                    body += chunk
                    if len(body) > self._limits.anonymous_bytes:
                        if not held and not await self._is_known(scope["path"], credential):
                            why = "a body of this size needs a valid credential"
                            raise problems.HttpError(
                                401, "the body was not read", why=why, headers=problems.CLOSE
                            )
                        self._hold(shares, len(body) - held)
                        held = len(body)
                    more = message.get("more_body", False)
            whole = [{"type": "http.request", "body": bytes(body), "more_body": False}]

            async def complete() -> Message:
                return whole.pop() if whole else await receive()

            yield complete
        finally:
            self._held.subtract(dict.fromkeys(shares, held))
            self._held = +self._held

    def _hold(self, shares: Shares, count: int) -> None:
        most = self._limits.held_bytes
        if any(self._held[share] + count > most // share[1] for share in shares):
            raise problems.HttpError(503, "too many bodies at once")
        self._held.update(dict.fromkeys(shares, count))


def _too_large(limit: int) -> problems.HttpError:
    return problems.HttpError(413, f"the body exceeds {limit} bytes", headers=problems.CLOSE)
