"""Windows: evidence around events as bundles, offered by hosts, uploaded in pieces, kept for a while."""

from __future__ import annotations

import functools
import hashlib
import pathlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.fleet import agents, context
from overnight.fleet.sql import window_rows
from overnight.model import uplink
from overnight.model.control_plane import AgentIdentity, BlobOffset, OffsetError, WindowRow
from overnight.model.text import printable
from overnight.model.times import DAY_US
from overnight.store.bundle import archive, header

if TYPE_CHECKING:
    from overnight.database import engine

MAX_PIECE = 1 << 20
FETCH = "fetch the window again: `overnight diagnose --server URL --event ID`"


def offer(
    connection: engine.Connection,
    limits: context.Limits,
    host_id: str,
    offers: tuple[uplink.Offer, ...],
    now_us: int,
) -> tuple[str, ...]:
    """Record what a host offers; return what it shall upload."""
    if not offers:
        return ()
    known = window_rows.offer(connection, host_id, offers, now_us, limits.offers)
    return tuple(
        row.sha256
        for row in known.values()
        if row.received_us is None and row.dropped_us is None and row.bytes <= limits.host_bytes
    )


class Windows:
    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._database = control.database
        self._blobs = control.blobs

    def put(
        self, who: AgentIdentity, sha256: str, offset: int, size: int, data: bytes
    ) -> BlobOffset:
        """Store a piece of an offered window; the last one checks and publishes it.

        Raise OffsetError where the piece does not follow, CannotError for a bundle that is not this host's.
        """
        with self._database.read() as connection:
            agents.check(connection, who)
            row = window_rows.find(connection, who.host_id, printable(sha256))
        if row is None or row.bytes != size or row.dropped_us is not None:
            raise errors.NotAllowedError(
                f"window {printable(sha256, limit=80)} of {size} bytes is not wanted",
                why="a host uploads windows that it offered, with the size that it offered",
                todo="offer the window in a report first",
            )
        if row.received_us is not None:
            return BlobOffset(size, complete=True)
        path = self._blobs.path(sha256)
        is_published = path.exists()  # but not recorded before a crash, or from another host
        if not is_published:
            end = size  # also where a server was killed before it published that
            if not self._blobs.is_complete(who.host_id, sha256, size):
                end = self._append(who, sha256, offset, size, data)
            self._database.steps("window: appended")
            if end < size:
                return BlobOffset(end, complete=False)
        try:
            if is_published:
                _check_host(path, sha256, who.host)  # its digest was checked before it got its name
            else:
                check = functools.partial(_check, sha256, who.host)
                self._blobs.publish(who.host_id, sha256, size, check)
        except OffsetError:
            raise
        except errors.CannotError:
            self._blobs.discard(who.host_id, sha256)  # our own; never what another published
            raise
        except FileNotFoundError:  # the same piece arrived twice at once
            raise OffsetError(sha256, 0) from None
        self._database.steps("window: published")
        now = self._control.clock()
        with self._database.write("receive window") as connection:
            window_rows.receive(connection, who.host_id, sha256, now)
        self._trim(who.host_id, self._control.limits.host_bytes, 0)
        return BlobOffset(size, complete=True)

    def _append(self, who: AgentIdentity, sha256: str, offset: int, size: int, data: bytes) -> int:
        if len(data) > MAX_PIECE or offset < 0 or offset + len(data) > size:
            raise errors.UsageError(
                f"the piece at byte {offset} does not fit into {size} bytes",
                why=f"a piece has at most {MAX_PIECE >> 20} MB and ends at the latest with the window",
                todo="send smaller pieces",
            )
        if self._blobs.partial_bytes(who.host_id) + len(data) > self._control.limits.host_bytes:
            raise errors.QuotaError(
                f"host {who.host} has too many unfinished uploads",
                why="unfinished uploads are limited, so that one host cannot fill the disk",
                todo="finish the uploads; unfinished ones are removed after a week",
            )
        return self._blobs.append(who.host_id, sha256, offset, data)

    def search(
        self, host: str, *, event: str = "", begin_us: int = 0, end_us: int = 0
    ) -> list[WindowRow]:
        """Return the windows of a host's event, or those that touch a span of time; not all may be held."""
        with self._database.read() as connection:
            names = (printable(host), printable(event))
            return window_rows.search(connection, *names, begin_us, end_us)

    def open(self, sha256: str) -> pathlib.Path:
        """Return the file of a stored window."""
        with self._database.read() as connection:
            known = uplink.SHA256.fullmatch(sha256) and window_rows.is_held(connection, sha256)
        path = self._blobs.path(sha256)
        if not known or not path.exists():
            context.refuse_unknown("window", printable(sha256, limit=80), FETCH)
        return path

    def trim(self) -> None:
        """Remove old windows, and the oldest while all together are too large."""
        limits = self._control.limits
        before = self._control.clock() - limits.window_days * DAY_US
        self._trim(None, limits.total_bytes, before)
        with self._database.write("forget offers") as connection:
            window_rows.delete_old(connection, before)

    def _trim(self, host_id: str | None, most_bytes: int, before_us: int) -> None:
        with self._database.read() as connection:
            held = window_rows.list_held(connection, host_id)
        total, gone = 0, []
        for row in held:  # the newest first
            total += row.bytes
            if total > most_bytes or row.received_us < before_us:
                gone.append(row)
        if gone:
            with self._database.write("drop windows") as connection:
                unused = window_rows.drop(connection, gone, self._control.clock())
            self._blobs.remove(unused)


def _check(sha256: str, host: str, path: pathlib.Path) -> None:
    """Raise CannotError unless a file has this SHA-256 and is a bundle of this host alone."""
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            path.unlink(missing_ok=True)
            raise _invalid(sha256, "its bytes do not have this SHA-256")
    _check_host(path, sha256, host)


def _check_host(path: pathlib.Path, sha256: str, host: str) -> None:
    """Raise CannotError unless a file is a bundle of this host alone; reads its header."""
    try:
        with path.open("rb") as file:
            data = archive.first_member(file, header.HEADER, header.MAX_HEADER)
            if data is None:
                raise header.NoBundleError(f"it does not begin with {header.HEADER}")
            head = header.parse_header(data)
            if {head.host, *head.hosts, *(span.host for span in head.windows)} != {host}:
                raise errors.NotAllowedError(
                    f"window {sha256} is refused",
                    why=f"it has data of another host than {host}",
                    todo="upload windows of this host alone",
                )
            archive.members(file)  # last: the members of a large bundle take a while
    except (archive.BadArchiveError, header.NoBundleError, header.FutureError) as error:
        raise _invalid(sha256, f"it is not a bundle that this server can read: {error}") from error


def _invalid(sha256: str, why: str) -> errors.CannotError:
    todo = "upload it again from the beginning"
    return errors.CannotError(f"window {sha256} is refused", why=printable(why), todo=todo)
