"""Reads pprof profiles, as Go, Parca, Pyroscope and many others write them (profile.proto).

A profile is one time span without times inside: every row gets its beginning. Where there is a count of
samples, that is the event; otherwise each measure becomes an event. Labels `comm`, `thread`, `pid`, `tid` and
`cpu` name the task and the core, and others that tools use for them. An outermost frame that only repeats the
process, as overnight and others write it, is not taken for a function.
"""

from __future__ import annotations

import collections
import functools
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from overnight import errors
from overnight.ingest import formats, protobuf

if TYPE_CHECKING:
    from overnight.store import capture

NAME = "pprof"

MAX_SIZE = 1 << 30  # of the decompressed message, which is held in memory
# profile.proto, message Profile: the number of each field that is a message or a string.
SAMPLE_TYPE, SAMPLE, MAPPING, LOCATION, FUNCTION, STRING = 1, 2, 3, 4, 5, 6
TIME, DURATION, PERIOD_TYPE, PERIOD = 9, 10, 11, 12
MESSAGES = frozenset({1, 2, 3, 4, 5, 6, 11, 16})
NUMBERS = frozenset({7, 8, 9, 10, 12, 14})  # 13, the comments, may be packed
FIELDS = range(1, 17)
# Of overnight, Parca and perf_to_profile, among others.
THREAD_NAMES = ("thread", "thread_name", "thread name", "thread_comm")
PROCESS_NAMES = ("comm", "process", "process_name")
PROCESS_IDS = ("pid", "process_id")
THREAD_IDS = ("tid", "thread_id", "thread id")
UNITS = ("unit", "systemd_unit", "cgroup")
CORES = ("cpu", "core")
MAX_NAME = 1 << 20
# An empty string takes two bytes of the message, one in a thousand of the file, and 250 in memory.
FREE_ENTRIES, ENTRIES_PER_BYTE = 1 << 20, 4
MAX_DEPTH = 1 << 16
I31 = range(1 << 31)
U64 = 1 << 64
MAX_TIME = 1 << 62
MAX_COUNT = (1 << 32) - 1


def sniff(head: bytes) -> bool:
    """Return whether the bytes are fields of a Profile, with the samples' type among the first."""
    seen = 0
    try:
        for field in protobuf.fields(memoryview(head)):
            wrong = NUMBERS if isinstance(field.value, memoryview) else MESSAGES
            if field.number not in FIELDS or field.number in wrong:
                return False
            seen |= 1 << field.number
    except protobuf.WireError as error:
        if not error.ends_early:  # the head may end within a field
            return False
    return bool(seen & (1 << SAMPLE_TYPE | 1 << SAMPLE | 1 << STRING))


def read(path: pathlib.Path, host: str) -> capture.Capture:
    """Read each sample as one row per measure; see `formats.Reader`."""
    text = formats.Text(path, MAX_SIZE, has_lines=False)
    data = b"".join(text)
    if text.cut_short:
        raise errors.DamagedFileError(str(path), path.stat().st_size, "the file is truncated")
    try:
        return _Profile(path, memoryview(data)).capture(host)
    except protobuf.WireError as error:
        raise errors.DamagedFileError(str(path), error.offset, error.problem) from error


class _Profile:
    def __init__(self, path: pathlib.Path, data: memoryview) -> None:
        self.path = path
        self.strings: list[memoryview] = []
        self.samples: list[protobuf.Field] = []
        self.types: list[tuple[int, int]] = []
        self.period_type = 0, 0
        self.functions: dict[int, int] = {}  # id -> string
        self.mappings: dict[int, int] = {}
        self.locations: dict[int, tuple[int, int, list[int]]] = {}  # mapping, address, functions
        self.numbers: dict[int, int] = {}
        self._string = functools.cache(self._decode_string)
        self._frames: dict[int, list[int]] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._expanded = 0
        most = FREE_ENTRIES + ENTRIES_PER_BYTE * path.stat().st_size
        for number, field in enumerate(protobuf.fields(data)):
            if number >= most:
                raise protobuf.WireError(f"more than {most} entries", field.offset)
            self._add_field(field)
        if not self.samples:
            raise protobuf.WireError("no sample", len(data))

    def _add_field(self, field: protobuf.Field) -> None:
        if isinstance(field.value, int):
            self.numbers[field.number] = field.value
        elif field.number == STRING:
            self.strings.append(field.value)
        elif field.number == SAMPLE:
            self.samples.append(field)
        elif field.number in {SAMPLE_TYPE, PERIOD_TYPE, MAPPING, FUNCTION, LOCATION}:
            numbers = collections.defaultdict(int, protobuf.numbers(field))
            if field.number == SAMPLE_TYPE:
                self.types.append((numbers[1], numbers[2]))
            elif field.number == PERIOD_TYPE:
                self.period_type = numbers[1], numbers[2]
            elif field.number == MAPPING:
                self.mappings[numbers[1]] = numbers[5]
            elif field.number == FUNCTION:
                self.functions[numbers[1]] = numbers[2] or numbers[3]
            else:
                functions = [
                    protobuf.numbers(line).get(1, 0)
                    for line in protobuf.inside(field)
                    if line.number == 4 and not isinstance(line.value, int)
                ]
                self.locations[numbers[1]] = numbers[2], numbers[3], functions

    def _decode_string(self, index: int) -> str:
        if not 0 <= index < len(self.strings):
            raise protobuf.WireError(f"string {index} of {len(self.strings)}", 0)
        if len(self.strings[index]) > MAX_NAME:
            raise protobuf.WireError(f"a name of {len(self.strings[index])} bytes", 0)
        return bytes(self.strings[index]).decode("utf-8", "replace")

    def _measures(self, builder: formats.Builder) -> list[tuple[int, int, int]]:
        """Return index, event and period of the count of samples if there is one, else of every measure."""
        names = [(self._string(kind), self._string(unit)) for kind, unit in self.types]
        period = self.numbers.get(PERIOD, 0)
        for index, (kind, unit) in enumerate(names):
            if unit == "count" and kind in {"samples", "sample"}:
                event = self._string(self.period_type[0]) if any(self.period_type) else ""
                return [(index, builder.event(event or kind), period if period < U64 // 2 else 0)]
        return [(i, builder.event(kind or "samples"), 0) for i, (kind, _) in enumerate(names)]

    def _expand(self, builder: formats.Builder, location: int) -> list[int]:
        """Return the frames of one address, outermost first: inlined functions share it."""
        known = self._frames.get(location)
        if known is not None:
            return known
        if location not in self.locations:
            raise protobuf.WireError(f"undefined location {location}", 0)
        mapping, address, functions = self.locations[location]
        module = self._string(self.mappings.get(mapping, 0)) if mapping else ""
        kernel = formats.is_kernel(module) or (address >= 1 << 63 and module != "[vsyscall]")
        if kernel and module in formats.KERNEL_NAMES:
            module = "[kernel]"
        frames = [
            builder.frame(self._string(self.functions.get(function, 0)), module, int(kernel))
            for function in reversed(functions)
        ] or [builder.frame("[unknown]", module, int(kernel))]
        self._frames[location] = frames
        return frames

    def _is_process(self, location: int, process: str) -> bool:
        """Return whether a frame is a process name at the root of its stacks: it has no binary."""
        mapping, address, functions = self.locations.get(location, (0, 0, []))
        names = [self._string(self.functions.get(function, 0)) for function in functions]
        return not mapping and not address and names == [process]

    def _stack(self, builder: formats.Builder, sample: protobuf.Field, process: str) -> int:
        locations = tuple(protobuf.repeated(sample, 1))
        if process and locations and self._is_process(locations[-1], process):
            locations = locations[:-1]
        known = self._stacks.get(locations)
        if known is not None:
            return known
        frames: list[int] = []
        for location in reversed(locations):
            frames.extend(self._expand(builder, location))
            # One byte may expand to many frames, so that a small file could take hours.
            deep = len(frames) > MAX_DEPTH
            if deep or self._expanded + len(frames) > builder.max_stack_frames:
                raise protobuf.WireError("too many frames in its stacks", sample.offset)
        self._expanded += len(frames)
        number = self._stacks[locations] = builder.stack(frames)
        return number

    def _labels(self, sample: protobuf.Field) -> Iterator[tuple[str, str | int]]:
        for field in protobuf.inside(sample):
            if field.number == 3 and not isinstance(field.value, int):
                numbers = protobuf.numbers(field)
                text = self._string(numbers.get(2, 0)) if numbers.get(2) else ""
                yield self._string(numbers.get(1, 0)), text or numbers.get(3, 0)

    def capture(self, host: str) -> capture.Capture:
        builder = formats.Builder(self.path)
        measures = self._measures(builder)
        time = self.numbers.get(TIME, 0)
        notes: list[str] = []
        if not 0 < time < MAX_TIME:
            time = self.path.stat().st_mtime_ns
            notes.append("the profile has no time: the file's modification time is used")
        largest, rows = 0, []
        for sample in self.samples:
            builder.at = sample.offset
            values = protobuf.repeated(sample, 2)
            labels = dict(self._labels(sample))
            cpu = _number(_first(labels, CORES))
            thread, process = _first(labels, THREAD_NAMES), _first(labels, PROCESS_NAMES)
            stack = self._stack(builder, sample, process or thread)
            task = builder.task(
                _number(_first(labels, PROCESS_IDS)),
                _number(_first(labels, THREAD_IDS)),
                thread,
                process,
                _first(labels, UNITS),
            )
            for index, event, period in measures:
                value = protobuf.signed(values[index]) if index < len(values) else 0
                if value > 0:
                    rows.append((cpu, task, stack, event, value, period))
                    largest = max(largest, value)
        if not rows:
            raise protobuf.WireError("no sample with a positive value", 0)
        scale = 1
        while largest // scale > MAX_COUNT:
            scale *= 10
        if scale > 1:
            notes.append(f"counts were divided by {scale} to fit")
        for cpu, task, stack, event, value, period in rows:
            builder.add(time, cpu, task, stack, event, max(1, value // scale), period)
        duration = self.numbers.get(DURATION, 0)
        end = time + (duration if 0 < duration < MAX_TIME else 1)
        return builder.build(
            host=host, span=(time, end), frequency=self._frequency(), timed=False, notes=notes
        )

    def _frequency(self) -> int:
        period = self.numbers.get(PERIOD, 0)
        in_ns = self.period_type[1] and self._string(self.period_type[1]) == "nanoseconds"
        return round(1e9 / period) if in_ns and 0 < period <= 1_000_000_000 else 0


def _first(labels: dict[str, str | int], names: tuple[str, ...]) -> str:
    return next((str(labels[name]) for name in names if name in labels), "")


def _number(text: str) -> int:
    """Return an id or a core; -1: unknown."""
    return int(text) if text.isdecimal() and len(text) < 11 and int(text) in I31 else -1
