"""Wakes the reaper and those who wait, in whichever process they are: every claim rings.

A bell that is not heard loses nothing but time: everybody also looks by the clock. The first ring goes out
at once; those that follow within RINGING seconds are one ring, at the end of that time. A claim leaves work
for the reaper and nothing for those who wait, so where claims come thick they ring less often.
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
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

    from overnight.pools import database

__all__ = ["Bell", "Ear", "LocalBell", "hang"]

RINGING = 0.05
RINGING_OF_CLAIMS = 0.25
LINGER = 2.0
CHANNEL = "overnight_pools"


class Ear(Protocol):
    """Somebody who listens."""

    def wait(self, seconds: float) -> bool:
        """Until it rings, or so long; True when it rang."""


class Bell(Protocol):
    """One bell for a database."""

    def ring(self, *, hurry: bool = True) -> None:
        """Wake everybody; never fails and never waits. A claim is in no hurry."""

    def ear(self) -> contextlib.AbstractContextManager[Ear]:
        """Listen, from now on."""


def hang(where: database.Database) -> Bell:
    """The bell of a database."""
    folder = where.folder
    return _ServerBell(where) if folder is None else LocalBell(folder)


class _Rhythm:
    """The first ring at once, then one in a while: thousands of claims are not as many.

    Those that come later are rung by a thread that lives as long as they come: to start one for each made
    every tenth claim wait for it to be scheduled.
    """

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._rung = -math.inf
        self._due: float | None = None
        self._ringer = False
        self._changed = threading.Condition()

    def ring(self, *, hurry: bool = True) -> None:
        gap = RINGING if hurry else RINGING_OF_CLAIMS
        due = self._due
        if due is not None and due <= self._rung + gap:
            return  # it has yet to ring, and no later than we want
        with self._changed:
            now = time.monotonic()
            at_once = self._rung + gap <= now
            if at_once:
                self._rung, self._due = now, None
            else:
                self._due = min(self._rung + gap, self._due or math.inf)
                self._changed.notify()
                if not self._ringer:
                    self._ringer = True
                    threading.Thread(target=self._ring_later, name="bell", daemon=True).start()
        if at_once:
            self._send()

    def _ring_later(self) -> None:
        atexit.register(self._ring_last)
        while self._wait():
            self._send()
        atexit.unregister(self._ring_last)

    def _wait(self) -> bool:
        """Until a ring is due; False when none came for long, and this thread is no longer needed."""
        with self._changed:
            while True:
                now = time.monotonic()
                if self._due is not None and self._due <= now:
                    self._rung, self._due = now, None
                    return True
                wait = LINGER if self._due is None else self._due - now
                if not self._changed.wait(wait) and self._due is None:
                    self._ringer = False
                    return False

    def _ring_last(self) -> None:
        """The process ends before a ring was due."""
        if self._due is not None:
            self._send()


class LocalBell:
    """Datagram sockets in a folder beside the database, one a listener."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder / "bells"
        self.ring = _Rhythm(self._send).ring

    def _send(self) -> None:
        with contextlib.suppress(OSError), self._short() as folder:
            names = [path.name for path in self._folder.iterdir()]
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
                bell.setblocking(False)
                for name in names:
                    try:
                        bell.sendto(b"!", f"{folder}/{name}")
                    except ConnectionRefusedError:  # its process was killed
                        (self._folder / name).unlink(missing_ok=True)
                    except OSError:
                        pass  # full: it rings already

    @contextlib.contextmanager
    def ear(self) -> Iterator[Ear]:
        """Listen, from now on."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            with self._short() as folder:
                listening.bind(f"{folder}/{name}")
            listening.setblocking(False)
            try:
                yield _LocalEar(listening)
            finally:
                (self._folder / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _short(self) -> Iterator[str]:
        """A path of few bytes: a socket's name has 107 at the most."""
        descriptor = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)


class _LocalEar:
    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening

    def wait(self, seconds: float) -> bool:
        if not select.select([self._socket], [], [], max(0.0, seconds))[0]:
            return False
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(16):
                pass
        return True


class _ServerBell:
    """LISTEN and NOTIFY. Not in the claim's own transaction: its commits would come one at a time."""

    def __init__(self, where: database.Database) -> None:
        self._database = where
        self.ring = _Rhythm(self._send).ring

    def _send(self) -> None:
        self._database.notify(CHANNEL)

    @contextlib.contextmanager
    def ear(self) -> Iterator[Ear]:
        ear = _ServerEar(
            self._database.url.set(drivername="postgresql").render_as_string(hide_password=False)
        )
        try:
            yield ear
        finally:
            ear.close()


class _ServerEar:
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
            rang = any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))
        except psycopg.Error:
            # The server was restarted: by the clock, until it is back.
            self.close()
            time.sleep(min(seconds, 0.2))
            self._listen()
            return self._connection is not None
        return rang

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
