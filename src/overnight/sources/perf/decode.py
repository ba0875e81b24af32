"""Decodes the record stream of a perf.data file in pure Python, like `perfdata.c` in C.

Both give the same result on the same bytes, including hostile ones
(tests/unit/sources/perf/test_decode.py). This one is for hosts without a C compiler, and documents in five
hundred lines what the other does in seventeen hundred.
"""

from __future__ import annotations

import bisect
import itertools
import struct
from array import array
from collections.abc import Callable
from typing import TypeAlias

from overnight.sources.perf import process_table

# Columns of the samples: time u64, cpu i32, task u32, stack u32, event u8, period u64; the tasks:
# pid i32, tid i32, thread u32, process u32 (strings), row u32 of the processes; where each stack ends and
# all stacks' frames, root first; the frames: module u32, address u64; the strings; the modules: name, pid,
# build id; the processes: pid i32, parent u32 (row), start u64, end u64 (0: outside the recording), name u32,
# executable u32 (strings), exec u64; samples lost. 2**32 - 1 is an unknown row or string.
Decoded: TypeAlias = tuple[
    tuple[bytes, bytes, bytes, bytes, bytes, bytes],
    tuple[bytes, bytes, bytes, bytes, bytes],
    tuple[bytes, bytes],
    tuple[bytes, bytes],
    list[bytes],
    list[tuple[int, int, bytes]],
    tuple[bytes, ...],
    int,
]

MMAP, LOST, COMM, EXIT, FORK, SAMPLE, MMAP2, LOST_SAMPLES = 1, 2, 3, 4, 7, 9, 10, 13
SIDE_BAND = {COMM: 17, FORK: 24, EXIT: 24, MMAP: 41, MMAP2: 73}  # and how long each must be
MODE_KERNEL, MODE_USER = 1, 2
MISC_DATA = MISC_COMM_EXEC = MISC_FORK_EXEC = 1 << 13
MISC_BUILD_ID = 1 << 14
# From PERF_CONTEXT_MAX on a word is a marker, not an address.
CONTEXT_LIMIT, CONTEXT_KERNEL, CONTEXT_USER = 2**64 - 4095, 2**64 - 128, 2**64 - 512
KERNEL_MODULE, UNKNOWN_MODULE = 0, 1
ANONYMOUS = (
    b"//anon", b"/dev/zero", b"/anon_hugepage", b"[heap]", b"[stack", b"/SYSV", b"/memfd:",
)  # fmt: skip
# A hostile file may have endless mappings: real processes have hundreds of executable ones.
MAPPINGS_A_PROCESS, MAPPINGS_SOFT, MAPPINGS_HARD = 1 << 14, 1 << 20, 1 << 23
# And endless forks: a night of builds has 10 million forks of processes with 20 mappings each.
MAPPINGS_COPIED = 1 << 28

RECORD = struct.Struct("<IHH")
U64 = struct.Struct("<Q")
TASK = struct.Struct("<ii")
FORKED = struct.Struct("<iiii")
MAPPED = struct.Struct("<iiQQQ")

# Bits of sample_type in the order the kernel writes their fields, eight bytes each.
IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD, STREAM_ID = (1 << bit for bit in range(10))
IDENTIFIER = 1 << 16
FIXED = (IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, PERIOD)
TAIL = TID | TIME | ID | STREAM_ID | CPU | IDENTIFIER
READ_GROUP = 1 << 3


class _Space:
    """An address space: mappings in order of address, shared after a fork until one side maps."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.maps: list[tuple[int, int, int, int]] = []  # start, end, page offset, module
        self.owners = 1

    def copy(self) -> _Space:
        fresh = _Space()
        fresh.ends, fresh.maps = self.ends[:], self.maps[:]
        return fresh

    def map_over(self, start: int, end: int, page_offset: int, module: int) -> int:
        """Replace the mapped range, keeping what is outside it; return the number of mappings gained."""
        first = last = bisect.bisect_right(self.ends, start)
        while last < len(self.maps) and self.maps[last][0] < end:
            last += 1
        kept = [(start, end, page_offset, module)]
        if first < last:
            left, right = self.maps[first], self.maps[last - 1]
            if left[0] < start:
                kept.insert(0, (left[0], start, left[2], left[3]))
            if right[1] > end:
                kept.append((end, right[1], (right[2] + end - right[0]) % 2**64, right[3]))
        gained = len(kept) - (last - first)
        if len(self.maps) + gained > MAPPINGS_A_PROCESS:
            return 0
        self.maps[first:last] = kept
        self.ends[first:last] = [mapping[1] for mapping in kept]
        return gained

    def find(self, address: int) -> tuple[int, int]:
        """Return the module and the address within it."""
        at = bisect.bisect_right(self.ends, address)
        if at == len(self.maps) or self.maps[at][0] > address:
            return UNKNOWN_MODULE, 0
        start, _, page_offset, module = self.maps[at]
        return module, (address - start + page_offset) % 2**64


class _World:
    """The processes and their mappings over time, according to the side-band records."""

    def __init__(self, build_ids: bool) -> None:
        self.build_ids = build_ids
        self.strings: dict[bytes, int] = {}
        self.modules: dict[tuple[int, bytes, bytes], int] = {}
        self.module_rows: list[tuple[int, int, bytes]] = []
        self.names: dict[int, int] = {0: 2}
        self.table = process_table.ProcessTable(self.names)
        self.spaces: dict[int, _Space] = {}
        self.exited: set[int] = set()
        self.mappings, self.copied, self.forget_above = 0, 0, MAPPINGS_SOFT
        for name in (b"[kernel]", b"[unknown]", b"swapper"):
            self.intern(name)
        self.module(0, -1)
        self.module(1, -1)

    def intern(self, text: bytes) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def module(self, name: int, pid: int, place: bytes = bytes(16), build_id: bytes = b"") -> int:
        key = (name, place, build_id)
        if key not in self.modules:
            self.modules[key] = len(self.modules)
            self.module_rows.append((name, pid, build_id))
        return self.modules[key]

    def task(self, pid: int, tid: int) -> tuple[int, int, int, int, int]:
        """Return a thread and its process with their names, ":123" like perf where unknown, and its row."""
        thread = self.names.get(tid)
        process = self.names.get(pid, thread)
        thread = self.intern(b":%d" % tid) if thread is None else thread
        process = self.intern(b":%d" % pid) if process is None else process
        return pid, tid, thread, process, self.table.number(pid)

    def space(self, pid: int) -> _Space:
        return self.spaces.setdefault(pid, _Space())

    def disown(self, space: _Space) -> None:
        space.owners -= 1
        if not space.owners:
            self.mappings -= len(space.maps)

    def apply(self, record: memoryview, kind: int, misc: int, time: int) -> None:
        if kind == COMM:
            pid, tid = TASK.unpack_from(record, 8)
            self.names[tid] = self.intern(_text(record[16:]))
            if pid == tid:
                execed = (time or 1) if misc & MISC_COMM_EXEC else 0
                self.table.rename(pid, self.names[tid], execed)
        elif kind == FORK:
            self._fork(misc, time, *FORKED.unpack_from(record, 8))
        elif kind == EXIT:
            pid, _, tid, _ = FORKED.unpack_from(record, 8)
            self.table.exit(pid, tid, time)
            if pid == tid:
                self.exited.add(pid)
        else:
            self._mmap(record, kind, misc, time)

    def _fork(self, misc: int, time: int, pid: int, parent: int, tid: int, parent_tid: int) -> None:
        if parent_tid in self.names:
            self.names[tid] = self.names[parent_tid]
        else:
            self.names.pop(tid, None)
        if pid == parent:
            return
        self.table.fork(pid, parent, time, inherits=not misc & MISC_FORK_EXEC)
        self.exited.discard(pid)
        before = self.spaces.get(pid)
        if misc & MISC_FORK_EXEC:  # perf's own record of a process that existed before
            if before is not None:
                self.disown(self.spaces.pop(pid))
            return
        shared = self.space(parent)
        if before is shared:
            return
        if before is not None:
            self.disown(before)
        self.spaces[pid] = shared
        shared.owners += 1

    def _mmap(self, record: memoryview, kind: int, misc: int, time: int) -> None:
        pid, _, start, length, page_offset = MAPPED.unpack_from(record, 8)
        second = kind == MMAP2
        executable = record[64] & 4 if second else not misc & MISC_DATA
        if pid < 0 or misc & 7 == MODE_KERNEL or not executable:
            return
        if not length or start + length >= 2**64:
            return
        name = _text(record[72 if second else 40 :])
        place, build_id = bytes(16), b""
        anonymous = name.startswith(ANONYMOUS)
        if anonymous:
            name, page_offset = b"/tmp/perf-%d.map" % pid, start
        elif second and self.build_ids and misc & MISC_BUILD_ID:
            build_id = bytes(record[44 : 44 + min(record[40], 20)])
        elif second:
            place = bytes(record[40:56])
        number = self.intern(name)
        if name.startswith(b"/") and not anonymous:
            self.table.map_file(pid, number, time)
        module = self.module(number, pid, place, build_id)
        space = self.space(pid)
        if space.owners > 1:
            space.owners -= 1
            space = self.spaces[pid] = space.copy()
            self.mappings += len(space.maps)
            self.copied += len(space.maps)
        self.mappings += space.map_over(start, start + length, page_offset, module)
        if self.mappings > self.forget_above:
            for gone in self.exited & self.spaces.keys():
                self.disown(self.spaces.pop(gone))
            self.forget_above = max(MAPPINGS_SOFT, 2 * self.mappings)


def _text(field: memoryview) -> bytes:
    return bytes(field).partition(b"\0")[0]


class _Layout:
    """The offsets of a sample's fields, from the event's attributes."""

    def __init__(self, sample_type: int, read_format: int, sample_id_all: bool) -> None:
        self.type = sample_type
        self.at: dict[int, int] = {}
        self.fixed = RECORD.size
        for field in FIXED:
            if sample_type & field:
                self.at[field] = self.fixed
                self.fixed += 8
        self.identity = self.at.get(ID, self.at.get(IDENTIFIER))
        self.tail = 8 * (sample_type & TAIL).bit_count()
        self.timed_tail = sample_id_all and bool(sample_type & TIME)
        self.tail_time = 8 if sample_type & TID else 0
        self.group = bool(read_format & READ_GROUP)
        self.read_values = 1 + (read_format & 0x14).bit_count()
        self.read_head = (read_format & 3).bit_count()

    def chain(self, record: memoryview) -> tuple[int, int] | None:
        """Return offset and number of the call chain's words; None where the record is too short."""
        offset, size = self.fixed, len(record)
        if size < offset:
            return None
        if self.type & READ:
            words = self.read_values + self.read_head
            if self.group:
                if size - offset < 8:
                    return None
                members = U64.unpack_from(record, offset)[0]
                if members > (size - offset) // 8:
                    return None
                words = 1 + self.read_head + members * self.read_values
            offset += 8 * words
            if offset > size:
                return None
        if not self.type & CALLCHAIN:
            return 0, 0
        if size - offset < 8:
            return None
        depth = U64.unpack_from(record, offset)[0]
        return (offset + 8, depth) if depth <= (size - offset - 8) // 8 else None

    def field(self, record: memoryview, which: int) -> int:
        at = self.at.get(which)
        return U64.unpack_from(record, at)[0] if at is not None else 0

    def side_time(self, record: memoryview) -> int:
        if not self.timed_tail or len(record) < RECORD.size + self.tail:
            return 0
        at = len(record) - self.tail + self.tail_time
        return int(U64.unpack_from(record, at)[0])


def _list_records(stream: memoryview, layout: _Layout) -> tuple[list[tuple[int, int, int]], int]:
    """List (time, offset, size) of samples and side-band in file order, and the samples lost."""
    entries = []
    # Since Linux 6.0 both kinds of record report the same losses.
    lost_records = lost_samples = 0
    offset, end = 0, len(stream)
    while end - offset >= RECORD.size:
        kind, _, size = RECORD.unpack_from(stream, offset)
        if size < RECORD.size:
            raise ValueError(f"a record of {size} bytes", offset)
        if size > end - offset:
            break  # a killed recorder leaves half a record
        record = stream[offset : offset + size]
        if kind == SAMPLE:
            if layout.chain(record) is None:
                problem = f"a sample of {size} bytes, too short for what it carries"
                raise ValueError(problem, offset)
            entries.append((layout.field(record, TIME), offset, size))
        elif size >= SIDE_BAND.get(kind, 2**16):
            entries.append((layout.side_time(record), offset, size))
        elif kind == LOST and size >= 24:
            lost_records += U64.unpack_from(record, 16)[0]
        elif kind == LOST_SAMPLES and size >= 16:
            lost_samples += U64.unpack_from(record, 8)[0]
        offset += size
    return entries, max(lost_records % 2**64, lost_samples % 2**64)


def _walk(words: tuple[int, ...], mode: int, space: _Space) -> list[tuple[int, int]]:
    """Return (module, address) of each frame, leaf first."""
    frames = []
    for word in words:
        if word >= CONTEXT_LIMIT:
            mode = {CONTEXT_KERNEL: MODE_KERNEL, CONTEXT_USER: MODE_USER}.get(word, 0)
        elif mode == MODE_KERNEL:
            frames.append((KERNEL_MODULE, word))
        else:
            frames.append(space.find(word) if mode == MODE_USER else (UNKNOWN_MODULE, 0))
    return frames


def decode(
    stream: memoryview,
    sample_type: int,
    read_format: int,
    sample_id_all: bool,
    build_ids: bool,
    ids: bytes,
    events: bytes,
    forget: Callable[[int], None] | None = None,
) -> Decoded:
    """Decode samples in time order, as columns, with the tables they point into.

    `forget` is called now and then with an offset up to which the stream is no longer needed. A truncated
    last record is skipped: a killed recorder leaves one. Raises ValueError(problem, offset) where the
    bytes contradict themselves.
    """
    del forget  # this decoder reads the stream twice
    layout = _Layout(sample_type, read_format, sample_id_all)
    entries, lost = _list_records(stream, layout)
    event_of = dict(
        zip((U64.unpack_from(ids, at)[0] for at in range(0, len(ids) - 7, 8)), events, strict=False)
    )
    world, nowhere = _World(build_ids), _Space()
    columns = array("Q"), array("i"), array("I"), array("I"), array("B"), array("Q")
    tasks: dict[tuple[int, int, int, int, int], int] = {}
    frames: dict[tuple[int, int], int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    for time, offset, size in sorted(entries, key=lambda entry: entry[0]):
        record = stream[offset : offset + size]
        kind, misc, _ = RECORD.unpack_from(record)
        if kind != SAMPLE:
            world.apply(record, kind, misc, time)
            if world.mappings > MAPPINGS_HARD or world.copied > MAPPINGS_COPIED:
                raise ValueError("more memory mappings than any host has", offset)
            continue
        pid, tid = TASK.unpack_from(record, layout.at[TID]) if TID in layout.at else (-1, -1)
        task = world.task(pid, tid)
        at, depth = layout.chain(record) or (0, 0)
        words = struct.unpack_from(f"<{depth}Q", record, at) if at else (layout.field(record, IP),)
        leaf_first = [
            frames.setdefault(frame, len(frames))
            for frame in _walk(words, misc & 7, world.spaces.get(pid, nowhere))
        ]
        identity = U64.unpack_from(record, layout.identity)[0] if layout.identity else 0
        cpu = layout.field(record, CPU) & 0xFFFFFFFF if CPU in layout.at else 0xFFFFFFFF
        row = (
            time,
            cpu - 2**32 if cpu >= 2**31 else cpu,
            tasks.setdefault(task, len(tasks)),
            stacks.setdefault(tuple(reversed(leaf_first)), len(stacks)),
            event_of.get(identity, 0),
            layout.field(record, PERIOD),
        )
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    time_, cpu_, task_, stack_, event_, period_ = (column.tobytes() for column in columns)
    pids, tids, threads, processes, rows = zip(*tasks, strict=True) if tasks else ((),) * 5
    owners, addresses = zip(*frames, strict=True) if frames else ((), ())
    table = world.table.columns(world.intern)
    return (
        (time_, cpu_, task_, stack_, event_, period_),
        (
            array("i", pids).tobytes(),
            array("i", tids).tobytes(),
            array("I", threads).tobytes(),
            array("I", processes).tobytes(),
            array("I", rows).tobytes(),
        ),
        (
            array("I", itertools.accumulate(len(stack) for stack in stacks)).tobytes(),
            array("I", itertools.chain.from_iterable(stacks)).tobytes(),
        ),
        (array("I", owners).tobytes(), array("Q", addresses).tobytes()),
        list(world.strings),
        world.module_rows,
        table,
        lost,
    )
