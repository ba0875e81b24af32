"""Run the server with uvicorn until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio.sslproto
import contextlib
import resource
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator

import anyio.to_thread
import uvicorn

from overnight import errors
from overnight.app import serving
from overnight.interfaces.http import application, protocol
from overnight.interfaces.http import limits as http_limits
from overnight.model import stop_signals

STOP_SECONDS = 20
PEOPLE_THREADS = 16  # each may use one of the database's hundred connections for all servers
SPARE_DESCRIPTORS = 256  # for the database, files and windows
# A long question must not hold up the event loop: with Python's 5 ms, each of its steps would wait that long.
SWITCH_SECONDS = 0.0005
# asyncio gives each connection 256 KiB: 3,000 agents took 1 GB. A record of TLS has 16 KiB.
TLS_BUFFER_BYTES = 16 << 10


def run(request: serving.Request, progress: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; requests that have begun are finished."""
    address, port, tls = serving.check(request)
    sys.setswitchinterval(SWITCH_SECONDS)
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
    with _bind(address, port) as listener:
        host = f"[{address}]" if ":" in address else address
        url = f"{'https' if tls else 'http'}://{host}:{listener.getsockname()[1]}"
        server = serving.Server(request, progress)
        server.start(request.endpoint or url)
        try:
            with stop_signals.stop_on_signals() as stop:
                if not server.fleet.tokens.list():
                    progress("no tokens yet; create one: `overnight token create --role admin`")
                progress(f"serving at {url}")
                _Uvicorn(_configure(server, tls), stop).run([listener])
        finally:
            server.stop()


class _Uvicorn(uvicorn.Server):
    """Stops when `stop` is set: the caller handles the signals."""

    def __init__(self, config: uvicorn.Config, stop: threading.Event) -> None:
        super().__init__(config)
        self._stop = stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = PEOPLE_THREADS
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._stop.is_set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _configure(server: serving.Server, tls: ssl.SSLContext | None) -> uvicorn.Config:
    limits = http_limits.Limits()

    class Connection(protocol.Protocol):
        most_connections = _reserve_descriptors(limits.connections)
        head_seconds = limits.head_seconds
        proxies = server.request.trusted_proxies

    config = uvicorn.Config(
        application.create_app(server, limits),
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",  # clients must not fill the log; problems.as_problem reports bugs
        access_log=False,
        proxy_headers=False,  # or clients could choose their address
        server_header=False,
        backlog=1024,
        h11_max_incomplete_event_size=limits.head_bytes,
        timeout_keep_alive=round(limits.idle_seconds),
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    config.load()
    config.ssl = tls
    return config


def _bind(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=1024)
    except OSError as error:
        raise errors.CannotError(
            f"cannot listen on {address}:{port}",
            why=str(error),
            todo="choose another port: --listen 127.0.0.1:PORT",
        ) from error
    # Inherited by its connections. asyncio does not set it for them, and an answer with TLS took 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _reserve_descriptors(connections: int) -> int:
    """Raise the descriptor limit; return how many connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = connections if soft == resource.RLIM_INFINITY else soft - SPARE_DESCRIPTORS
    return max(16, min(connections, room))
