"""Reads captures of other tools: one module per format, each a `Reader`.

This module has what they share: opening compressed files, and building a `Capture`.
"""

from __future__ import annotations

import os
import pathlib
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import zstandard

from overnight import errors
from overnight.model.times import SECOND_NS
from overnight.store import capture, writer

HEAD_SIZE = 64 * 1024
MAX_TEXT = 64 << 30

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
READ_SIZE = 1 << 17
# Compressed input that expands to at most about 16 MiB: deflate reaches 1:1032, a zstd run-length block
# turns 4 bytes into 128 KiB.
GZIP_STEP = 16 * 1024
ZSTD_STEP = 512
ZSTD_WINDOW = 128 << 20  # the zstd tool's default limit; a hostile header may ask for 2 TiB

# 64 Mi frames in distinct stacks are 256 MB; a night of 96 cores has about 10 Mi.
MAX_STACK_FRAMES = 64 << 20
MAX_FRAMES = 4 << 20
MAX_NAMES = 256 << 20  # characters in all names of frames, and of tasks
MAX_TASKS = 4 << 20  # Linux's largest number of PIDs
MAX_EVENTS = 256
MAX_ROWS = 128 << 20  # 5 GB; a night of 4 cores at 97 Hz has 17 Mi
# A small file must not cost much: some per byte of the file, beyond what a file of any size may have. A
# perf script text of a busy host: 1:19 with gzip, 1:42 with zstd -19, 0.6 lines per byte (measured).
FREE_TEXT, TEXT_PER_BYTE = 32 << 20, 200
FREE_LINES, LINES_PER_BYTE = 1 << 20, 4
FREE_STACK_FRAMES, STACK_FRAMES_PER_BYTE = 1 << 20, 16
FREE_PARTS, ROWS_PER_PART = 5000, 10  # a week of almost nothing
FREE_CELLS, CELLS_PER_ROW = 64 << 20, 100  # seconds of cores, 8 bytes each: two days of 192 cores
TRUNCATED = "the compressed file is truncated; everything before the damage was read"
KERNEL_NAMES = frozenset(
    {"[kernel]", "[kernel.kallsyms]", "[kernel.vmlinux]", "[guest.kernel.kallsyms]", "vmlinux"}
)
# The columns of a capture's rows, with their types as `array` and numpy call them.
ROWS = {
    "time": "l",
    "cpu": "i",
    "task": "I",
    "stack": "I",
    "event": "B",
    "count": "I",
    "period": "L",
}
USER_NAMES = frozenset({"[vdso]", "[vdso32]", "[vsyscall]", "[heap]", "[stack]", "[unknown]"})


class Reader(Protocol):
    """One format. Each module of this package is a reader."""

    NAME: str

    def sniff(self, head: bytes) -> bool:
        """Return whether a file with these first bytes, decompressed, has this format."""

    def read(self, path: pathlib.Path, host: str) -> capture.Capture:
        """Read the whole file, by default as of the host that it names. Raise only DamagedFileError."""


class Text:
    """A file's decompressed bytes in small pieces; plain, gzip or zstd by its first bytes."""

    def __init__(
        self, path: pathlib.Path, limit: int = MAX_TEXT, *, has_lines: bool = True
    ) -> None:
        self.path = path
        self.limit = limit
        self.max_lines = 0  # of compressed text; 0: not limited
        self.has_lines = has_lines
        self.offset = 0  # decompressed bytes so far
        # At the end: its writer was killed, the contents up to there are good.
        self.cut_short = False

    def __iter__(self) -> Iterator[bytes]:
        lines = 0
        for piece in self._pieces():
            self.offset += len(piece)
            if self.max_lines:  # numpy counts ten times as fast as bytes.count
                lines += int(np.count_nonzero(np.frombuffer(piece, np.uint8) == ord("\n")))
            if self.offset > self.limit or lines > self.max_lines > 0:
                most = f"{self.limit} bytes or {self.max_lines} lines"
                why = f"more than {most} when decompressed"
                raise errors.DamagedFileError(str(self.path), self.offset, why)
            for begin in range(0, len(piece), READ_SIZE):
                yield piece[begin : begin + READ_SIZE]

    def _pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            magic = file.read(4)
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if not magic.startswith(GZIP_MAGIC) and magic != ZSTD_MAGIC:
                while piece := file.read(READ_SIZE):
                    yield piece
                return
            self.limit = min(self.limit, FREE_TEXT + TEXT_PER_BYTE * size)
            if self.has_lines:
                self.max_lines = FREE_LINES + LINES_PER_BYTE * size
            at, engine, fresh = 0, _engine(magic), True
            while data := file.read(ZSTD_STEP if magic == ZSTD_MAGIC else GZIP_STEP):
                at += len(data)
                # Appending and pigz create files of several members; zeros pad a block.
                while data and not (fresh and not data.strip(b"\0")):
                    try:
                        piece = engine.decompress(data)
                    except (zlib.error, zstandard.ZstdError) as error:
                        raise errors.DamagedFileError(
                            str(self.path), at - len(data), f"invalid compressed data ({error})"
                        ) from error
                    if piece:
                        yield piece
                    data, fresh = engine.unused_data, engine.eof
                    if fresh:
                        engine = _engine(magic)
                self.cut_short = not fresh


def _engine(magic: bytes) -> zlib._Decompress | zstandard.ZstdDecompressionObj:
    if magic == ZSTD_MAGIC:
        return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
    return zlib.decompressobj(wbits=31)


def read_head(path: pathlib.Path) -> bytes:
    """Read the first decompressed bytes, for `Reader.sniff`."""
    head = b""
    for piece in Text(path):
        head += piece
        if len(head) >= HEAD_SIZE:
            break
    return head[:HEAD_SIZE]


def is_kernel(module: str) -> bool:
    """Return whether a binary, named as perf or pprof do, is the kernel or a kernel module."""
    if module in KERNEL_NAMES:
        return True
    if module.startswith("[") and module.endswith("]"):
        return module not in USER_NAMES and not module.startswith("[anon")
    name = module.rpartition("/")[2]
    suffixes = (".ko", ".ko.gz", ".ko.xz", ".ko.zst")
    return name.startswith(("vmlinux", "bpf_prog_")) or name.endswith(suffixes)


class Builder:
    """Collects samples in any order, numbers each frame, stack, task and event, and builds the `Capture`."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.at = 0  # the reader's position, for errors
        self.rows = {name: array(kind) for name, kind in ROWS.items()}
        self.events: dict[str, int] = {}
        self._frames: dict[tuple[str, str, int], int] = {}
        self._name_size = self._task_size = 0
        self.max_stack_frames = MAX_STACK_FRAMES
        if path.exists():
            allowed = FREE_STACK_FRAMES + STACK_FRAMES_PER_BYTE * path.stat().st_size
            self.max_stack_frames = min(MAX_STACK_FRAMES, allowed)
        self._stacks: dict[bytes, int] = {}
        self._stack_offset, self._stack_frames = array("I", [0]), array("I")
        self._tasks: dict[tuple[int, int, str, str, str], int] = {}

    def __len__(self) -> int:
        return len(self.rows["time"])

    def too_much(self, what: str) -> errors.DamagedFileError:
        return errors.DamagedFileError(str(self.path), self.at, f"more than {what}")

    def frame(self, name: str, module: str, kind: int) -> int:
        key = name or "[unknown]", module, kind
        number = self._frames.get(key)
        if number is None:
            self._name_size += len(name) + len(module)
            if len(self._frames) >= MAX_FRAMES or self._name_size > MAX_NAMES:
                raise self.too_much(f"{MAX_FRAMES} functions, or names of {MAX_NAMES} bytes,")
            number = self._frames[key] = len(self._frames)
        return number

    def stack(self, frames: Sequence[int]) -> int:
        """Return the number of a stack, given root first."""
        packed = array("I", frames)
        key = packed.tobytes()
        number = self._stacks.get(key)
        if number is None:
            if len(self._stack_frames) + len(packed) > self.max_stack_frames:
                raise self.too_much(f"{self.max_stack_frames} frames in its stacks")
            number = self._stacks[key] = len(self._stacks)
            self._stack_frames.extend(packed)
            self._stack_offset.append(len(self._stack_frames))
        return number

    def task(self, pid: int, tid: int, thread: str, process: str = "", unit: str = "") -> int:
        key = pid, tid, thread, process, unit
        number = self._tasks.get(key)
        if number is None:
            self._task_size += len(thread) + len(process) + len(unit)
            if len(self._tasks) >= MAX_TASKS or self._task_size > MAX_NAMES:
                raise self.too_much(f"{MAX_TASKS} threads, or names of {MAX_NAMES} bytes,")
            number = self._tasks[key] = len(self._tasks)
        return number

    def event(self, name: str) -> int:
        number = self.events.setdefault(name, len(self.events))
        if number >= MAX_EVENTS:
            raise self.too_much(f"{MAX_EVENTS} kinds of events")
        return number

    def add(
        self, time: int, cpu: int, task: int, stack: int, event: int, count: int, period: int
    ) -> None:
        row = (time, cpu, task, stack, event, count, period)
        for column, value in zip(self.rows.values(), row, strict=True):
            column.append(value)

    def column(self, name: str) -> npt.NDArray[Any]:
        return np.frombuffer(self.rows[name], self.rows[name].typecode)

    def name_processes(self) -> None:
        """Give each thread the name of its process: the latest name of its main thread."""
        names = {pid: thread for pid, tid, thread, _, _ in self._tasks if 0 <= pid == tid}
        self._tasks = {
            (pid, tid, thread, thread if 0 <= pid == tid else names.get(pid, ""), unit): number
            for (pid, tid, thread, _, unit), number in self._tasks.items()
        }

    def lacks_processes(self) -> bool:
        """Return whether there are threads with an unknown process."""
        return any(pid < 0 <= tid for pid, tid, *_ in self._tasks)

    def _check_spread(self, cores: tuple[int, ...]) -> None:
        """Refuse samples so far apart that they would fill the disk: each part has all cores' seconds."""
        part = writer.SEGMENT_SECONDS
        parts = len(np.unique(self.column("time") // (part * SECOND_NS)))
        seen = len(np.unique(self.column("cpu")))
        if parts > FREE_PARTS + len(self) // ROWS_PER_PART:
            raise self.too_much(f"{FREE_PARTS} spans of {part} s with few samples")
        if parts * part * max(seen, len(cores)) > FREE_CELLS + CELLS_PER_ROW * len(self):
            raise self.too_much(f"{FREE_CELLS} seconds of cores with few samples")

    def build(
        self,
        *,
        host: str,
        shift: int = 0,
        span: tuple[int, int] | None = None,
        frequency: int = 0,
        cores: tuple[int, ...] = (),
        lost: int = 0,
        timed: bool = True,
        notes: Sequence[str] = (),
    ) -> capture.Capture:
        """Build the capture in time order, times moved by `shift`; `span` is by default that of the samples."""
        self._check_spread(cores)
        order = np.argsort(self.column("time"), kind="stable")
        rows: dict[str, Any] = {name: self.column(name)[order] for name in ROWS}
        rows["time"] += np.int64(shift)
        begin, end = span or (int(rows["time"][0]), int(rows["time"][-1]) + 1)
        return capture.Capture(
            host=host or "unknown",
            begin=begin,
            end=end,
            frequency=frequency,
            cores=cores,
            events=tuple(self.events),
            **rows,
            tasks=capture.Tasks(
                pid=np.array([task[0] for task in self._tasks], np.int32),
                tid=np.array([task[1] for task in self._tasks], np.int32),
                thread=[task[2] for task in self._tasks],
                process=[task[3] for task in self._tasks],
                unit=[task[4] for task in self._tasks],
            ),
            stacks=capture.Stacks(
                np.array(self._stack_offset, np.uint32), np.array(self._stack_frames, np.uint32)
            ),
            frames=capture.Frames(
                name=[frame[0] for frame in self._frames],
                module=[frame[1] for frame in self._frames],
                kind=np.array([frame[2] for frame in self._frames], np.uint8),
            ),
            lost=lost,
            timed=timed,
            notes=tuple(notes),
        )
