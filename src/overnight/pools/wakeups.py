"""Wake the reaper and waiting callers in whichever process they run: every claim notifies them.

A lost notification costs only time, because every listener also polls. The first notification goes out at
once; those that follow within NOTIFY_SECONDS are sent as one at the end of that interval. A claim leaves
work for the reaper and nothing for waiting callers, so frequent claims notify less often.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pathlib

    from overnight.database import engine

NOTIFY_SECONDS = 0.05
CLAIM_NOTIFY_SECONDS = 0.25
LINGER_SECONDS = 2.0
CHANNEL = "overnight_pools"


Wait = Callable[[float], bool]  # until a notification arrives (True) or the seconds have passed


class Notifier(Protocol):
    def notify(self, *, urgent: bool = True) -> None:
        """Wake every listener; never fails and never blocks. A claim is not urgent."""

    def listen(self) -> contextlib.AbstractContextManager[Wait]:
        """Receive every notification from now on, and yield the function that waits for one."""


def open_notifier(where: engine.Database) -> Notifier:
    folder = where.folder
    return _ServerNotifier(where) if folder is None else LocalNotifier(folder)


class _Throttle:
    """Send the first notification at once, then at most one per interval, however many claims there are.

    A thread sends the later ones and lives as long as they come: starting one for each made every tenth
    claim wait until it was scheduled.
    """

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._sent = -math.inf
        self._due: float | None = None
        self._has_sender = False
        self._changed = threading.Condition()

    def notify(self, *, urgent: bool = True) -> None:
        gap = NOTIFY_SECONDS if urgent else CLAIM_NOTIFY_SECONDS
        due = self._due
        if due is not None and due <= self._sent + gap:
            return  # one is pending, and early enough for us
        with self._changed:
            now = time.monotonic()
            at_once = self._sent + gap <= now
            if at_once:
                self._sent, self._due = now, None
            else:
                self._due = min(self._sent + gap, self._due or math.inf)
                self._changed.notify()
                if not self._has_sender:
                    self._has_sender = True
                    threading.Thread(target=self._send_later, name="wakeups", daemon=True).start()
        if at_once:
            self._send()

    def _send_later(self) -> None:
        atexit.register(self._send_pending)
        while self._wait():
            self._send()
        atexit.unregister(self._send_pending)

    def _wait(self) -> bool:
        """Wait until a notification is due; False when none was requested for LINGER_SECONDS."""
        with self._changed:
            while True:
                now = time.monotonic()
                if self._due is not None and self._due <= now:
                    self._sent, self._due = now, None
                    return True
                wait = LINGER_SECONDS if self._due is None else self._due - now
                if not self._changed.wait(wait) and self._due is None:
                    self._has_sender = False
                    return False

    def _send_pending(self) -> None:
        """Send what is still due when the process exits."""
        if self._due is not None:
            self._send()


class LocalNotifier:
    """Datagram sockets in a folder beside the database, one for each listener."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder / "bells"  # the name since the first release: old reapers use it
        self.notify = _Throttle(self._send).notify

    def _send(self) -> None:
        with contextlib.suppress(OSError), self._short_path() as folder:
            names = [path.name for path in self._folder.iterdir()]
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                for name in names:
                    try:
                        sender.sendto(b"!", f"{folder}/{name}")
                    except ConnectionRefusedError:  # its process was killed
                        (self._folder / name).unlink(missing_ok=True)
                    except OSError:
                        pass  # the buffer is full: a notification is already waiting there

    @contextlib.contextmanager
    def listen(self) -> Iterator[Wait]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            with self._short_path() as folder:
                listening.bind(f"{folder}/{name}")
            listening.setblocking(False)

            def wait(seconds: float) -> bool:
                if not select.select([listening], [], [], max(0.0, seconds))[0]:
                    return False
                with contextlib.suppress(BlockingIOError):
                    while listening.recv(16):
                        pass
                return True

            try:
                yield wait
            finally:
                (self._folder / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _short_path(self) -> Iterator[str]:
        """Yield a short path to the folder: the name of a socket has at most 107 bytes."""
        descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)


class _ServerNotifier:
    """LISTEN and NOTIFY, outside the claim's own transaction: NOTIFY would serialise the commits."""

    def __init__(self, where: engine.Database) -> None:
        self._database = where
        self.notify = _Throttle(self._send).notify

    def _send(self) -> None:
        self._database.notify(CHANNEL)

    @contextlib.contextmanager
    def listen(self) -> Iterator[Wait]:
        listener = _ServerListener(
            self._database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        )
        try:
            yield listener.wait
        finally:
            listener.close()


class _ServerListener:
    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._listen()

    def _listen(self) -> None:
        import psycopg

        with contextlib.suppress(psycopg.Error):
            self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=5)
            self._connection.execute(f"LISTEN {CHANNEL}")

    def wait(self, seconds: float) -> bool:
        import psycopg

        try:
            if self._connection is None:
                raise psycopg.OperationalError
            notified = any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error:
            # The server was restarted: poll until it is back.
            self.close()
            time.sleep(min(seconds, 0.2))
            self._listen()
            return self._connection is not None
        return notified

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
