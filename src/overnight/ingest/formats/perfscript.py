"""Reads the text of `perf script` with any fields that include the time.

A sample is a line, its stack with one frame per line (leaf first), and an empty line::

    swapper     0 [000]    82.739145:   10309278 cpu-clock:ppp:
        ffffffff821f1eab pv_native_safe_halt+0xb ([kernel.kallsyms])

Names are never truncated: a thread may be called `a [b] c: d`, a function `operator+(X, Y)`.
"""

from __future__ import annotations

import pathlib
import re
from typing import TYPE_CHECKING

import numpy as np

from overnight import errors
from overnight.ingest import formats, perftext

if TYPE_CHECKING:
    from overnight.store import capture

NAME = "perf script"

# perf prints the name, a space, the ids to five places: builtin-script.c, perf_sample__fprintf_start.
REST = (
    rb" {1,16}-?\d{1,10}(?:/-?\d{1,10})?) {1,16}(?:\[(\d{1,6})\] {1,16})?"
    rb"(\d{1,9})\.(\d{9}|\d{6}): *([^\n]*)"
)
# A thread's name is 15 bytes (TASK_COMM_LEN), padded to 16 without stacks. The longest match is right: a
# name may itself look like ids and a time. Workers' names may be longer.
SHORT = re.compile(rb"([^\n]{0,16}" + REST)
LONG = re.compile(rb"([^\n]{0,80}" + REST)
IDS = re.compile(rb"(-?\d+)(?:/(-?\d+))?$")
EVENT = re.compile(rb"(?:(\d{1,20})(?: +|$))?(?:(\S+?):(?: |$))?(.*)", re.DOTALL)
PRECISION = re.compile(r":(p{1,3}|P)$")  # perf adds it; the event is the same
LOST = re.compile(rb"PERF_RECORD_LOST(?:_SAMPLES)? \D*(\d{1,18})")

ADDRESS = re.compile(rb"\s*([0-9a-f]{1,16}) ")

MAX_LINE = 1 << 20
MAX_NO_SAMPLE = 8 << 20
MAX_BAD_LINES = 100_000
CACHE_BYTES = 256 << 20
CACHE_ENTRY = 150  # bytes of Python's own overhead per entry
I32 = range(-1, 1 << 31)
U64_MAX = (1 << 64) - 1
HEADER_LINES = 1000
INLINED = "inlined"


def sniff(head: bytes) -> bool:
    """Return whether there is a sample in the first lines, or the header of `perf script --header`."""
    if head.startswith(b"# ========\n# captured on"):
        return True
    return any(SHORT.match(line) or LONG.match(line) for line in head.split(b"\n")[:2000])


def read(path: pathlib.Path, host: str) -> capture.Capture:
    """Read every sample, in time order; see `formats.Reader`."""
    text = formats.Text(path)
    parser = _Parser(path)
    left = b""
    for piece in text:
        left = parser.feed(left + piece)
        samples = len(parser.builder)
        if samples > formats.MAX_ROWS:
            raise parser.builder.too_much(f"{formats.MAX_ROWS} samples in one file")
        if not samples and parser.offset > MAX_NO_SAMPLE:
            raise parser.no_sample()
        if parser.bad_lines > MAX_BAD_LINES + 10 * samples:
            why = f"{parser.bad_lines} lines that are not output of perf script"
            raise errors.DamagedFileError(str(path), parser.first_bad, why)
    parser.finish(left)
    if text.cut_short:
        parser.notes.append(formats.TRUNCATED)
    return parser.capture(host)


class _Parser:
    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.builder = formats.Builder(path)
        self.header: list[str] = []
        self.notes: list[str] = []
        self.lost = 0
        self.bad_lines = 0
        self.first_bad = -1
        self.offset = 0
        self._stacks: dict[bytes, int] = {}
        self._cached_bytes = 0
        self._frames: dict[bytes, int] = {}
        self._inside: dict[int, tuple[str, int]] = {}  # module and kind, by frame
        self._parsed: dict[tuple[bytes, bool], tuple[int, tuple[str, int]]] = {}
        self._tasks: dict[bytes, int] = {}
        self._rests: dict[bytes, tuple[int, int]] = {}

    def feed(self, text: bytes) -> bytes:
        """Parse all complete samples; return the rest for the next call."""
        blocks = text.split(b"\n\n")
        left = blocks.pop()
        if not blocks and len(left) > MAX_LINE:  # without stacks there are no empty lines
            whole, newline, left = left.rpartition(b"\n")
            if not newline:
                why = f"a line of more than {MAX_LINE} bytes"
                raise errors.DamagedFileError(str(self.path), self.offset, why)
            self._lines_of(whole, self.offset)
            self.offset += len(whole) + 1
        self._blocks(blocks)
        return left

    def finish(self, text: bytes) -> None:
        """Parse the rest, without a sample that is cut off within a line."""
        if text and not text.endswith(b"\n"):
            lines = text.split(b"\n")
            while lines and lines.pop().startswith(b"\t"):  # its frames, then its first line
                pass
            self.notes.append("the file ends within a line; the last sample was skipped")
            text = b"\n".join(lines)
        self._blocks(text.split(b"\n\n"))

    def _blocks(self, blocks: list[bytes]) -> None:
        builder = self.builder
        match_header, stacks = SHORT.match, self._stacks.get
        tasks, rests = self._tasks.get, self._rests.get
        # Appending here instead of calling `add` saves about 5 % of the time.
        appends = (column.append for column in builder.rows.values())
        add_time, add_cpu, add_task, add_stack, add_event, add_count, add_period = appends
        offset = self.offset
        for block in blocks:
            if not block:
                offset += 2
                continue
            head, _, body = block.partition(b"\n")
            match = match_header(head)
            if match is None:
                self._lines_of(block, offset)
                offset += len(block) + 2
                continue
            task_text, cpu, seconds, fraction, rest = match.groups()
            task, stack, event_and_period = tasks(task_text), stacks(body), rests(rest)
            if task is None or stack is None or event_and_period is None or not body:
                if body.startswith(b"\t") and body.count(b"\n") == body.count(b"\n\t"):
                    self._sample(match, body, offset)
                else:
                    self._lines_of(block, offset)
            else:
                time = int(seconds + fraction)
                add_time(time * 1000 if len(fraction) == 6 else time)
                add_cpu(-1 if cpu is None else int(cpu))
                add_task(task)
                add_stack(stack)
                add_event(event_and_period[0])
                add_count(1)
                add_period(event_and_period[1])
            offset += len(block) + 2
        self.offset = offset

    def _lines_of(self, block: bytes, offset: int) -> None:
        """Parse one block line by line: comments, other records, samples seen for the first time."""
        self.builder.at = began = offset
        header: re.Match[bytes] | None = None
        body: list[bytes] = []
        for line in block.split(b"\n"):
            if header is not None and line.startswith(b"\t"):
                body.append(line)
            elif match := SHORT.match(line) or LONG.match(line):
                if header is not None:
                    self._sample(header, b"\n".join(body), began)
                header, body, began = match, [], offset
            elif line.startswith(b"#") and len(self.header) < HEADER_LINES:
                self.header.append(line.decode("utf-8", "replace"))
            elif line == b"\r" and header is not None:  # an empty line with a carriage return
                self._sample(header, b"\n".join(body), began)
                header = None
            elif line and not (body and line.startswith(b"  ")):  # source lines begin like this
                self._bad(offset)
            offset += len(line) + 1
        if header is not None:
            self._sample(header, b"\n".join(body), began)

    def _sample(self, header: re.Match[bytes], body: bytes, offset: int) -> None:
        task_text, cpu, seconds, fraction, rest = header.groups()
        if rest.startswith(b"PERF_RECORD_"):  # --show-lost-events, --show-task-events and so on
            if lost := LOST.match(rest):
                self.lost += int(lost[1])
            return
        task = self._task(task_text)
        if task is None:
            self._bad(offset)
            return
        details = EVENT.match(rest.rstrip(b"\r"))
        assert details is not None  # it matches anything
        event = PRECISION.sub("", (details[2] or b"").decode("utf-8", "replace"))
        number = self.builder.event(event or "samples")
        period, payload = min(int(details[1] or 0), U64_MAX), details[3]
        self._make_room(len(rest))
        self._rests[rest] = number, period
        time = int(seconds + fraction) * (1000 if len(fraction) == 6 else 1)
        stack = self._stack(payload if not body and ADDRESS.match(payload) else body)
        self.builder.add(time, -1 if cpu is None else int(cpu), task, stack, number, 1, period)

    def _task(self, task_text: bytes) -> int | None:
        known = self._tasks.get(task_text)
        if known is not None:
            return known
        ids = IDS.search(task_text)
        assert ids is not None  # the header ends in them
        first, second = int(ids[1]), ids[2]
        # A single number is usually the thread's; 0 is both PID and TID of the idle task.
        pid, tid = (first, int(second)) if second else (0 if first == 0 else -1, first)
        if pid not in I32 or tid not in I32:
            return None
        thread = perftext.thread_name(task_text[: ids.start()], len(ids[1]))
        self._make_room(len(task_text))
        number = self.builder.task(pid, tid, thread.decode("utf-8", "replace"))
        self._tasks[task_text] = number
        return number

    def _stack(self, body: bytes) -> int:
        known = self._stacks.get(body)
        if known is not None:
            return known
        frames = self._frames_of(body.split(b"\n")[::-1] if body else [])
        self._make_room(len(body))
        number = self._stacks[body] = self.builder.stack(frames)
        return number

    def _frames_of(self, lines: list[bytes]) -> list[int]:
        frames: list[int] = []
        outer = "", 0
        known = self._frames.get
        for line in lines:
            number = known(line)
            if number is not None:
                frames.append(number)
                outer = self._inside[number]
                continue
            # A function has a different address in each process: parse its name once.
            address_match = ADDRESS.match(line)
            address = address_match[1] if address_match else b""
            kernel = len(address) == 16 and address >= b"8"
            key = line[address_match.end() :] if address_match else line, kernel
            parsed = self._parsed.get(key)
            if parsed is None:
                name, module, kind = perftext.parse_frame(line.decode("utf-8", "replace"))
                if module == INLINED:  # it belongs to the function on the next line of the text
                    frames.append(self.builder.frame(name, *outer))
                    continue
                self._make_room(len(line))
                parsed = self._parsed[key] = self.builder.frame(name, module, kind), (module, kind)
            number, outer = parsed
            frames.append(number)
            self._make_room(len(line))
            self._frames[line] = number
            self._inside[number] = outer
        return frames

    def _make_room(self, size: int) -> None:
        """Clear the caches when `size` more bytes would exceed their limit."""
        self._cached_bytes += size + CACHE_ENTRY
        if self._cached_bytes > CACHE_BYTES:
            for cache in (self._stacks, self._frames, self._inside, self._parsed):
                cache.clear()
            self._tasks.clear()
            self._rests.clear()
            self._cached_bytes = size

    def _bad(self, offset: int) -> None:
        self.bad_lines += 1
        if self.first_bad < 0:
            self.first_bad = offset

    def no_sample(self) -> errors.DamagedFileError:
        why = "no sample of perf script with a time"
        return errors.DamagedFileError(str(self.path), max(self.first_bad, 0), why)

    def capture(self, host: str) -> capture.Capture:
        builder = self.builder
        if not len(builder):
            raise self.no_sample()
        header = perftext.parse_header(self.header)
        builder.name_processes()
        shift = header.shift
        if shift is None:
            shift = self._approximate_shift(header.written)
        if self.bad_lines:
            skipped = f"{self.bad_lines} unknown lines were skipped"
            self.notes.append(f"{skipped}, the first at byte {self.first_bad}")
        if builder.lacks_processes():
            self.notes.append(
                "the text does not name each thread's process; `perf script -F +pid` adds it"
            )
        return builder.build(
            host=host or header.host,
            shift=shift,
            frequency=self._frequency(header),
            cores=self._cores(header.cores),
            lost=self.lost,
            notes=self.notes,
        )

    def _approximate_shift(self, written: int | None) -> int:
        """Samples have the time since boot; assume that the last one was taken when the file was closed."""
        if written is None:
            end, source = self.path.stat().st_mtime_ns, "the time of the file"
        else:
            end, source = written, '"captured on" in its header, read in the local time zone'
        self.notes.append(
            f"the wall clock is approximate: the last sample is set to {source}; "
            "`perf record -k CLOCK_MONOTONIC` and `perf script --header` make it exact"
        )
        return end - max(self.builder.rows["time"])

    def _frequency(self, header: perftext.Header) -> int:
        """Return that of the event with most samples, from the header or from a clock's period."""
        event_of = self.builder.column("event")
        main = int(np.bincount(event_of).argmax())
        name = tuple(self.builder.events)[main]
        for event, frequency in header.frequencies.items():
            if PRECISION.sub("", event) == name:
                return frequency
        if name.startswith(("cpu-clock", "task-clock")):
            periods = self.builder.column("period")[event_of == main]
            period = float(np.median(periods))
            return round(1e9 / period) if period >= 1 else 0
        return 0

    def _cores(self, cores: tuple[int, ...]) -> tuple[int, ...]:
        """Return the cores: the header counts them, but with off-line cores their numbers are unknown."""
        seen = set(self.builder.rows["cpu"]) - {-1}
        if cores and not seen <= set(cores):
            self.notes.append("some cores were off-line when recording; idle cores are not known")
            return tuple(sorted(seen))
        return cores
