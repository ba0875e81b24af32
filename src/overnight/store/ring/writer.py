"""Writes the ring: one writer per host, called by one thread."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model import clock, files
from overnight.model.event import boot_name
from overnight.model.times import SECOND_NS
from overnight.store.ring import journal, layout, open_block, retention, sealed_blocks

if TYPE_CHECKING:
    from overnight.model.event import Event

Fact = Mapping[str, str | int | float | bool]
Facts = dict[str, dict[str, object]]
TRIM_NS = 60 * SECOND_NS
MAX_EVENT_BYTES = 64 << 20  # of a month
MAX_OPEN_BYTES = 32 << 20


class Writer:
    """Stores readings within `budget_bytes` and `age_seconds`.

    A full or failing disk never raises: lost readings are counted (`dropped`), and the time is recorded
    as a gap as soon as writing works again. Give all readings of one tick the same clock: different times
    are stored again for each signal.
    """

    def __init__(
        self,
        home: pathlib.Path,
        host: str,
        boot: str,
        *,
        budget_bytes: int,
        age_seconds: float,
        block_seconds: float = layout.BLOCK_SECONDS,
    ) -> None:
        """Raise CannotError if another writer is running, or the folder is not writable."""
        self.folder = layout.host_folder(home, host)
        self.dropped = 0  # readings, facts and events since the start
        self.surplus = 0  # bytes above the budget that pins hold
        self._host, self._boot = host, boot
        self._budget, self._age = budget_bytes, age_seconds
        self._block_ns = round(min(block_seconds, layout.FILE_SECONDS) * SECOND_NS)
        self._pins = layout.ring_pins(home, host)
        self._lock = self._take_folder()
        self._gaps = journal.Journal(self.folder / "gaps.jsonl")
        self._events: dict[str, journal.Journal] = {}
        self._facts: dict[str, Facts] = {}
        self._last_turns: dict[tuple[str, float], int] = {}
        self._tables: dict[tuple[str, tuple[str, ...]], open_block.TableWriter] = {}
        self._descriptor, self._path, self._bytes, self._head_bytes = -1, self.folder, 0, 0
        self._opened: clock.Clock | None = None
        self._file_opened: clock.Clock | None = None
        left = [path for _, path in layout.files(self.folder, layout.OPEN)]
        self._sealed = sealed_blocks.Sealed(self.folder, left, self.note_gap)
        self._trimmed_ns = self._trimmed_blocks = 0
        self._offset_ns = 1 << 63
        self._lost_since: clock.Clock | None = None
        self._lost, self._lost_before, self._lost_why = 0, 0, ""

    def _take_folder(self) -> int:
        with contextlib.ExitStack() as undo:
            try:
                files.make_folder(self.folder)
                lock = files.open_private(self.folder / "lock", os.O_RDWR | os.O_CREAT)
                undo.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                layout.name_folder(self.folder, self._host)
            except BlockingIOError as error:
                raise errors.CannotError(
                    f"signals of {self._host} are already being recorded",
                    why=f"another process holds {self.folder / 'lock'}",
                    todo="stop it, or choose another folder with --home DIR",
                ) from error
            except OSError as error:
                if errors.is_own(error):
                    raise errors.own_error(error, f"cannot write to {self.folder}") from error
                raise errors.MissingPermissionError(
                    f"cannot write to {self.folder}",
                    why=str(error),
                    todo="choose your own folder with --home DIR",
                ) from error
            undo.pop_all()
        return lock

    def numbers(
        self,
        signal: str,
        columns: tuple[str, ...],
        clock: clock.Clock,
        rows: Mapping[str, Sequence[int]],
        *,
        every: Sequence[float] = (),
    ) -> None:
        """Store one reading: one integer per key and column. The order of the keys is not kept.

        `every` is the interval in seconds at which each column is stored; 0: each reading. A counter only
        loses resolution by that. Raise ValueError for rows that do not fit the columns.
        """
        if not any(every):
            self._table(signal, columns, clock, rows)
            return
        for interval in sorted(set(every)):
            chosen = [n for n, seconds in enumerate(every) if seconds == interval]
            if interval:
                turn = int(clock.monotonic_ns // (interval * SECOND_NS))
                if self._last_turns.get((signal, interval)) == turn:
                    continue
                self._last_turns[signal, interval] = turn
            part = {key: tuple([row[n] for n in chosen]) for key, row in rows.items()}
            self._table(signal, tuple(columns[n] for n in chosen), clock, part)

    def _table(
        self,
        signal: str,
        names: tuple[str, ...],
        now: clock.Clock,
        rows: Mapping[str, Sequence[int]],
    ) -> None:
        if not self._ready(now):
            return
        table = self._tables.get((signal, names))
        if table is None:
            table = open_block.TableWriter(len(self._tables), signal, names)
        data = table.record(rows, now.wall_ns // 1000, now.monotonic_ns // 1000)
        if self._append(data, now):
            table.commit()
            self._tables[signal, names] = table

    def facts(self, signal: str, clock: clock.Clock, rows: Mapping[str, Fact]) -> None:
        """Take all facts of a signal; store only those that changed or are gone."""
        if not self._ready(clock):
            return
        known = self._facts.get(signal)
        fresh: Facts = {key: dict(fact) for key, fact in rows.items()}
        before = known or {}
        changed = {key: fact for key, fact in fresh.items() if before.get(key) != fact}
        gone = [key for key in before if key not in fresh]
        full = known is None
        if (full or changed or gone) and self._store_facts(clock, signal, full, changed, gone):
            self._facts[signal] = fresh

    def _store_facts(
        self, now: clock.Clock, signal: str, full: bool, facts: Facts, gone: list[str]
    ) -> bool:
        times = (now.wall_ns // 1000, now.monotonic_ns // 1000)
        changes = open_block.Changes(*times, signal, full, facts, gone)
        return self._append(open_block.facts_record(changes), now)

    def event(self, event: Event) -> None:
        """Store an event; one of the same id is replaced. Synced when this returns, unless the disk is full."""
        path = self.folder / f"events-{layout.month_of(event.time_us)}.jsonl"
        events = self._events.setdefault(path.name, journal.Journal(path))
        with contextlib.suppress(OSError):
            if events.path.stat().st_size > MAX_EVENT_BYTES:
                self.dropped += 1
                return
        dropped = events.dropped
        events.add(event.as_json())
        self.dropped += events.dropped - dropped

    def note_gap(self, begin_us: int, end_us: int, why: str) -> None:
        """Record that nothing was recorded in that time; wall clock."""
        self._gaps.add({"begin_us": begin_us, "end_us": end_us, "why": why})

    def tick(self, clock: clock.Clock) -> None:
        """Call once a second, after the readings: seal a block that is due, pack a little, trim."""
        self._close_gap(clock)
        self._gaps.flush()
        for events in self._events.values():
            events.flush()
        if self._opened is not None and self._is_due(clock, self._opened):
            self._seal()
        for _ in range(1 if len(self._sealed.waiting) < 3 else 8):
            self._sealed.step(clock)
        due = clock.monotonic_ns - self._trimmed_ns >= TRIM_NS or not self._trimmed_ns
        if due or self._trimmed_blocks != self._sealed.stored:
            self._trim(clock)

    def close(self) -> None:
        """Pack everything and close. On a full disk open blocks stay for the next writer."""
        self._seal()
        self._sealed.finish(clock.Clock(0, 1 << 62))
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _is_due(self, now: clock.Clock, opened: clock.Clock) -> bool:
        return (
            now.monotonic_ns - opened.monotonic_ns >= self._block_ns
            or self._bytes >= MAX_OPEN_BYTES
            or abs(now.offset_ns - opened.offset_ns) > layout.STEP_US * 1000
        )

    def _ready(self, now: clock.Clock) -> bool:
        """Open a block if there is none for a reading of now; return whether there is one."""
        if self._opened is not None and self._is_due(now, self._opened):
            self._seal()
        if self._opened is not None:
            return True
        since = self._file_opened
        full = (
            since is None
            or now.monotonic_ns - since.monotonic_ns >= layout.FILE_SECONDS * SECOND_NS
            or abs(now.offset_ns - since.offset_ns) > layout.STEP_US * 1000
            or self._sealed.file_bytes >= max(self._budget // 16, 1 << 16)
        )
        if not self._open(now, full):
            return False
        if full:
            self._file_opened, self._sealed.file_bytes = now, 0
            for signal, known in tuple(self._facts.items()):
                if not self._store_facts(now, signal, True, known, []):
                    del self._facts[signal]  # stored in full the next time
        return True

    def _open(self, now: clock.Clock, full: bool) -> bool:
        stamp_us = max(0, now.wall_ns // 1000)
        while True:
            name = layout.Name(stamp_us, boot_name(self._boot), layout.OPEN)
            path = self.folder / str(name)
            if not path.exists() and not path.with_suffix(layout.RING).exists():
                break
            stamp_us += 1
        try:
            self._descriptor = files.open_private(path, sealed_blocks.APPEND)
        except OSError as error:
            self._drop(now, str(error.strerror))
            return False
        self._path, self._bytes = path, 0
        self._tables = {}
        head = open_block.head_record(self._host, self._boot, stamp_us, full=full)
        if not self._append(head, now):
            os.close(self._descriptor)
            self._descriptor = -1
            with contextlib.suppress(OSError):
                path.unlink()
            return False
        self._opened, self._head_bytes = now, self._bytes
        return True

    def _append(self, data: bytes, now: clock.Clock) -> bool:
        try:
            written = os.write(self._descriptor, data)
            if written == len(data):
                self._bytes += written
                return True
            why = os.strerror(errno.ENOSPC)
        except OSError as error:
            why = str(error.strerror)
        self._drop(now, why)
        try:
            os.ftruncate(self._descriptor, self._bytes)
        except OSError:
            self._seal()  # a reader would not find what follows half a record
        return False

    def _drop(self, now: clock.Clock, why: str) -> None:
        self.dropped += 1
        self._lost += 1
        self._lost_why = why
        if self._lost_since is None:
            self._lost_since = now

    def _close_gap(self, now: clock.Clock) -> None:
        """Record what was dropped, after a whole tick without a drop."""
        if self._lost_since is None or self._lost > self._lost_before:
            self._lost_before = self._lost
            return
        why = f"{self._lost} readings were dropped: {self._lost_why}"
        self.note_gap(self._lost_since.wall_ns // 1000, now.wall_ns // 1000, why)
        self._lost_since, self._lost, self._lost_before = None, 0, 0

    def _seal(self) -> None:
        if self._opened is None:
            return
        os.close(self._descriptor)
        self._descriptor, self._opened = -1, None
        if self._bytes == self._head_bytes:
            self._file_opened = None  # it is empty: the next one begins the file
        self._sealed.waiting.append(self._path)

    def _trim(self, now: clock.Clock) -> None:
        self._trimmed_ns, self._trimmed_blocks = now.monotonic_ns, self._sealed.stored
        # A clock that is set forward, maybe by mistake, does not make the recording older.
        self._offset_ns = min(self._offset_ns, now.offset_ns)
        with contextlib.suppress(OSError):
            self.surplus = retention.trim(
                self.folder,
                self._pins.pins(),
                now_us=(now.monotonic_ns + self._offset_ns) // 1000,
                budget_bytes=self._budget,
                age_seconds=self._age,
            )
