"""Verifies the rings: every byte against its checksum, every block against its head."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from overnight.store.ring import blocks, columns, frames, journal, layout, open_block, retention

TODO = "nothing else is affected; delete {path} to silence this message"


@dataclasses.dataclass(frozen=True)
class Problem:
    path: str
    what: str
    todo: str


@dataclasses.dataclass(frozen=True)
class Report:
    blocks: int
    readings: int
    bytes: int
    problems: tuple[Problem, ...]


def check(home: pathlib.Path) -> Report:
    """Read everything, change nothing. A record that a killed writer cut off is not damage."""
    ring = _Check()
    for host in layout.hosts(home):
        folder = layout.host_folder(home, host)
        for name, path in layout.files(folder, layout.OPEN) + layout.files(folder, layout.RING):
            ring.check_file(name, path)
        for path in (*sorted(folder.glob("events-*.jsonl")), folder / "gaps.jsonl"):
            for number, entry in list(journal.read_lines(path))[:-1]:
                if entry is None:
                    ring.add(path, f"line {number} is invalid")
    return Report(ring.blocks, ring.readings, ring.bytes, tuple(ring.problems))


class _Check:
    def __init__(self) -> None:
        self.blocks = self.readings = self.bytes = 0
        self.problems: list[Problem] = []

    def add(self, path: pathlib.Path, what: str, *, is_newer: bool = False) -> None:
        todo = "update overnight: a later version wrote it" if is_newer else TODO.format(path=path)
        self.problems.append(Problem(str(path), what, todo))

    def check_file(self, name: layout.Name, path: pathlib.Path) -> None:
        try:
            with path.open("rb") as file:
                self.bytes += os.fstat(file.fileno()).st_size
                if name.suffix == layout.OPEN:
                    self._check_open(path, file.read(layout.MAX_BYTES))
                else:
                    self._check_ring(name, path, file.fileno())
        except FileNotFoundError:
            pass
        except OSError as error:
            self.add(path, f"cannot be read: {error.strerror}")

    def _check_open(self, path: pathlib.Path, data: bytes) -> None:
        try:
            block = open_block.parse(data)
        except columns.EmptyError:
            return
        except columns.DamagedError as error:
            self.add(path, str(error), is_newer=isinstance(error, columns.NewerVersionError))
            return
        self.readings += sum(len(table.readings) for table in block.tables)
        if block.damage:
            self.add(path, block.damage)

    def _check_ring(self, name: layout.Name, path: pathlib.Path, descriptor: int) -> None:
        last = 0
        for block in blocks.blocks_of(path, descriptor):
            if isinstance(block, blocks.Damage):
                self.add(path, f"the data at byte {block.begin} {block.what}")
                continue
            self.blocks += 1
            self.readings += block.head.readings
            try:
                for what in _contradictions(name, block, last):
                    self.add(path, f"the block at byte {block.offset} {what}")
            except columns.NewerVersionError as error:
                self.add(path, f"the block at byte {block.offset} {error}", is_newer=True)
            last = block.head.begin_mono_us


def _contradictions(name: layout.Name, block: blocks.Block, last: int) -> list[str]:
    """Return how a block contradicts its bytes, its file, or the block before."""
    head = block.head
    problems = []
    earliest, latest = retention.span_us(name.stamp_us)
    if head.boot != name.boot:
        problems.append("belongs to another boot than its file")
    if head.begin_mono_us < last:
        problems.append("is older than the one before it")
    if not earliest <= head.begin_us <= head.end_us <= latest:
        problems.append("belongs to another time than its file")
    try:
        clocks = wall, mono = frames.clocks_of(block)
        times = (head.begin_us, head.end_us, head.begin_mono_us, head.end_mono_us)
        if wall and times != (min(wall), max(wall), min(mono), max(mono)):
            problems.append("has readings outside of the times in its head")
        signals = {str(entry["signal"]) for entry in frames.tables_of(block)}
        for signal in sorted(signals):
            frames.frames_of(block, clocks, signal, (-(1 << 63), 1 << 63))
        if "facts" in block.directory():
            block.chunk(block.directory()["facts"])
    except columns.NewerVersionError:
        raise
    except columns.DamagedError as error:
        problems.append(str(error))
    except columns.INVALID as error:
        problems.append(f"is invalid ({error})")
    return problems
