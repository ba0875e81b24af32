"""The text that `perf script` writes, whatever fields it was asked for, as long as time is one.

A sample is a line, its stack leaf first a frame a line, and an empty line::

    swapper     0 [000]    82.739145:   10309278 cpu-clock:ppp:
    	ffffffff821f1eab pv_native_safe_halt+0xb ([kernel.kallsyms])

Names are never cut: a thread may be called `a [b] c: d`, a function `operator+(X, Y)`.
"""

from __future__ import annotations

import pathlib
import re

import numpy as np

from overnight import errors
from overnight.ingest import formats, perfheader
from overnight.store import capture

__all__ = ["NAME", "SUFFIXES", "parse_frame", "read", "sniff"]

NAME = "perf script"
SUFFIXES = (".perf", ".perfscript", ".script", ".txt")

# perf prints the name, a space, the ids to five places: builtin-script.c, perf_sample__fprintf_start.
REST = (
    rb" +-?\d{1,10}(?:/-?\d{1,10})?) +(?:\[(\d{1,6})\] +)?(\d{1,9})\.(\d{9}|\d{6}): *([^\n]*)"
)
# A thread's name is 15 bytes (TASK_COMM_LEN), padded to 16 where there are no stacks. The longest
# that fits is right: a name may itself look like ids and a time. Workers' names may be longer.
SHORT = re.compile(rb"([^\n]{0,16}" + REST)
LONG = re.compile(rb"([^\n]{0,80}" + REST)
IDS = re.compile(rb"(-?\d+)(?:/(-?\d+))?$")
EVENT = re.compile(rb"(?:(\d{1,20})(?: +|$))?(?:(\S+?):(?: |$))?(.*)", re.DOTALL)
PRECISION = re.compile(r":(p{1,3}|P)$")  # perf adds it by itself; it does not name another event
LOST = re.compile(rb"PERF_RECORD_LOST(?:_SAMPLES)? \D*(\d{1,18})")
OFFSET = re.compile(r"\+0x[0-9a-f]+$")
FRAME = re.compile(r"\s*(?:([0-9a-f]{1,16})(?:\s|$))?\s*(.*)", re.DOTALL)

ADDRESS = re.compile(rb"\s*[0-9a-f]{1,16} ")

LINE_LIMIT = 1 << 20
NO_SAMPLE_LIMIT = 64 << 20
CACHE_BYTES = 128 << 20
CACHE_ENTRIES = 1 << 18
I32 = range(-1, 1 << 31)
U64_MAX = (1 << 64) - 1
HEADER_LINES = 1000
INLINED = "inlined"


def sniff(head: bytes) -> bool:
    """A sample in the first lines, or the header of `perf script --header`."""
    if head.startswith(b"# ========\n# captured on"):
        return True
    return any(SHORT.match(line) or LONG.match(line) for line in head.split(b"\n")[:2000])


def read(path: pathlib.Path, host: str) -> capture.Capture:
    """Every sample, in time order; see `formats.Reader`."""
    text = formats.open_text(path)
    parser = _Parser(path)
    left = b""
    for piece in text:
        left = parser.feed(left + piece)
        if not len(parser.builder) and text.offset > NO_SAMPLE_LIMIT:
            raise parser.no_sample()
    parser.finish(left)
    if text.cut_short:
        parser.notes.append("the compressed file ends too early; what it held until then is here")
    return parser.capture(host)


def parse_frame(line: str) -> tuple[str, str, int]:
    """Name, module and kind of one line of a stack.

    >>> parse_frame("ffffffff821f1eab pv_native_safe_halt+0xb ([kernel.kallsyms])")
    ('pv_native_safe_halt', '[kernel]', 1)
    >>> parse_frame("55f0 std::operator+(X const&, Y (*)(int))+0x1f (/opt/a (deleted))")
    ('std::operator+(X const&, Y (*)(int))', '/opt/a (deleted)', 0)
    """
    match = FRAME.match(line)
    assert match is not None  # it matches anything
    address, rest = match[1] or "", match[2].rstrip()
    cut = _module_at(rest)
    name, module = (rest, "") if cut < 0 else (rest[:cut].rstrip(), rest[cut + 1 : -1])
    module = OFFSET.sub("", module)  # perf script -F +dsoff
    kernel = (
        formats.is_kernel(module)
        or (len(address) == 16 and address[0] in "89abcdef" and module != "[vsyscall]")
    )
    if module == "[unknown]":
        module = ""
    elif kernel and module:
        module = _kernel_module(module)
    return OFFSET.sub("", name), module, int(kernel)


def _kernel_module(module: str) -> str:
    if module in formats.KERNEL_NAMES or module.rpartition("/")[2].startswith("vmlinux"):
        return "[kernel]"
    if ".ko" in module:
        return "[" + module.rpartition("/")[2].partition(".ko")[0].replace("-", "_") + "]"
    return module


def _module_at(text: str) -> int:
    """Where the parenthesis that holds the module opens; -1 where there is none."""
    if not text.endswith(")"):
        return -1
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            if at == 0 or text[at - 1] == " ":
                return at
            break
    # A path may hold parentheses that do not pair up.
    return max(text.rfind(" (/"), text.rfind(" ([")) + 1 or -1


def _thread_name(before: bytes, digits: int) -> bytes:
    """The name, from what stands before the first id. Spaces that are its own stay."""
    padding = 1 + max(0, 5 - digits)
    name = before[:-padding]
    if before[len(name) :].strip(b" "):  # not perf's own columns: somebody squeezed the spaces
        return before.strip(b" ")
    return name.lstrip(b" ") if len(name) > 15 else name  # padded to 16 where there are no stacks


class _Parser:
    """The state between two pieces of text."""

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
        self._stack_bytes = 0
        self._frames: dict[bytes, int] = {}
        self._inside: dict[int, tuple[str, int]] = {}  # module and kind, by frame
        self._parsed: dict[tuple[bytes, bool], tuple[str, str, int]] = {}
        self._tasks: dict[bytes, int] = {}
        self._rests: dict[bytes, tuple[int, int]] = {}

    def feed(self, text: bytes) -> bytes:
        """Take in all whole samples; the rest is for the next time."""
        end = text.rfind(b"\n\n") + 2
        if end < 2 and len(text) > LINE_LIMIT:  # without stacks there are no empty lines
            end = text.rfind(b"\n") + 1
            if end == 0:
                raise errors.DamagedFileError(
                    str(self.path), self.offset, f"a line of more than {LINE_LIMIT} bytes"
                )
        if end < 2:
            return text
        self._blocks(text[:end])
        return text[end:]

    def finish(self, text: bytes) -> None:
        """Take in what is left. A sample whose last line is cut off is left out."""
        if text and not text.endswith(b"\n"):
            whole = text.rfind(b"\n") + 1
            lines = text[:whole].split(b"\n")
            if text[whole:].startswith(b"\t"):  # within a stack: drop its sample too
                while lines and (not lines[-1] or lines[-1].startswith(b"\t")):
                    lines.pop()
                if lines:
                    lines.pop()
                self.notes.append("the file ends within a sample, which is left out")
            elif SHORT.match(text, whole) or LONG.match(text, whole):
                lines = text.split(b"\n")
            else:
                self._bad(self.offset + whole)
            text = b"\n".join(lines)
        if text:
            self._blocks(text)

    def _blocks(self, text: bytes) -> None:
        builder = self.builder
        match_header, stacks = SHORT.match, self._stacks.get
        tasks, rests = self._tasks.get, self._rests.get
        add = builder.add
        offset = self.offset
        for block in text.split(b"\n\n"):
            head, _, body = block.partition(b"\n")
            match = match_header(head)
            if match is None:
                self._lines_of(block, offset)
                offset += len(block) + 2
                continue
            who, cpu, seconds, fraction, rest = match.groups()
            task, stack, what = tasks(who), stacks(body), rests(rest)
            if task is None or stack is None or what is None or not body:
                if body.startswith(b"\t") and body.count(b"\n") == body.count(b"\n\t"):
                    self._sample(match, body, offset)
                else:
                    self._lines_of(block, offset)
            else:
                time = int(seconds + fraction)
                add(
                    time * 1000 if len(fraction) == 6 else time,
                    int(cpu) if cpu is not None else -1,
                    task, stack, what[0], 1, what[1],
                )  # fmt: skip
            offset += len(block) + 2
        self.offset += len(text)

    def _lines_of(self, block: bytes, offset: int) -> None:
        """One block, line by line: comments, other records, samples met for the first time."""
        self.builder.at = offset
        header: re.Match[bytes] | None = None
        body: list[bytes] = []
        for line in block.split(b"\n"):
            if header is not None and line.startswith(b"\t"):
                body.append(line)
            elif match := SHORT.match(line) or LONG.match(line):
                if header is not None:
                    self._sample(header, b"\n".join(body), offset)
                header, body = match, []
            elif line.startswith(b"#"):
                if len(self.header) < HEADER_LINES:
                    self.header.append(line.decode("utf-8", "replace"))
            elif line.strip() and not (body and line.startswith(b"  ")):  # source lines have two
                self._bad(offset)
            offset += len(line) + 1
        if header is not None:
            self._sample(header, b"\n".join(body), offset)

    def _sample(self, header: re.Match[bytes], body: bytes, offset: int) -> None:
        who, cpu, seconds, fraction, rest = header.groups()
        if rest.startswith(b"PERF_RECORD_"):  # --show-lost-events, --show-task-events and so on
            if lost := LOST.match(rest):
                self.lost += int(lost[1])
            return
        task = self._task(who)
        if task is None:
            self._bad(offset)
            return
        what = EVENT.match(rest)
        assert what is not None  # it matches anything
        event, period, payload = what[2] or b"", int(what[1] or 0), what[3]
        number = self.builder.event(PRECISION.sub("", event.decode("utf-8", "replace")))
        period = min(period, U64_MAX)
        if len(self._rests) >= CACHE_ENTRIES:
            self._rests.clear()
        self._rests[rest] = number, period
        time = int(seconds + fraction) * (1000 if len(fraction) == 6 else 1)
        stack = self._stack(body) if body or not ADDRESS.match(payload) else self._stack(payload)
        self.builder.add(time, -1 if cpu is None else int(cpu), task, stack, number, 1, period)

    def _task(self, who: bytes) -> int | None:
        known = self._tasks.get(who)
        if known is not None:
            return known
        ids = IDS.search(who)
        assert ids is not None  # the header ends in them
        first, second = int(ids[1]), ids[2]
        # With one number it is the thread's, unless asked for otherwise; 0 is the idle task's both.
        pid, tid = (first, int(second)) if second else (0 if first == 0 else -1, first)
        if pid not in I32 or tid not in I32:
            return None
        thread = _thread_name(who[: ids.start()], len(ids[1])).decode("utf-8", "replace")
        if len(self._tasks) >= CACHE_ENTRIES:
            self._tasks.clear()
        number = self._tasks[who] = self.builder.task(pid, tid, thread)
        return number

    def _stack(self, body: bytes) -> int:
        known = self._stacks.get(body)
        if known is not None:
            return known
        lines = body.split(b"\n")
        lines.reverse()
        frames = [*map(self._frames.get, lines)]
        if None in frames:
            frames = self._new_frames(lines)
        self._stack_bytes += len(body)
        if self._stack_bytes > CACHE_BYTES:
            self._stacks.clear()
            self._stack_bytes = len(body)
        number = self._stacks[body] = self.builder.stack(frames)
        return number

    def _new_frames(self, lines: list[bytes]) -> list[int | None]:
        """The frames of lines, root first, of which some are met for the first time."""
        frames: list[int | None] = []
        outer = "", 0
        known = self._frames.get
        for line in lines:
            number = known(line)
            if number is not None:
                frames.append(number)
                outer = self._inside[number]
                continue
            # The same function has another address in each process: its name is parsed once.
            address, _, rest = line.lstrip().partition(b" ")
            key = rest, len(address) == 16 and address >= b"8"
            frame = self._parsed.get(key)
            if frame is None:
                frame = parse_frame(line.decode("utf-8", "replace"))
                if len(self._parsed) >= CACHE_ENTRIES:
                    self._parsed.clear()
                self._parsed[key] = frame
            name, module, kind = frame
            if module == INLINED:  # it lies in the function that stands below it in the text
                frames.append(self.builder.frame(name, *outer))
                continue
            outer = module, kind
            number = self.builder.frame(name, module, kind)
            frames.append(number)
            if len(self._frames) >= CACHE_ENTRIES:
                self._frames.clear()
                self._inside.clear()
            self._frames[line] = number
            self._inside[number] = outer
        return frames

    def _bad(self, offset: int) -> None:
        self.bad_lines += 1
        if self.first_bad < 0:
            self.first_bad = offset

    def no_sample(self) -> errors.DamagedFileError:
        """The error for a text in which nothing is a sample."""
        return errors.DamagedFileError(
            str(self.path), max(self.first_bad, 0), "no sample with a time, as perf script writes it,"
        )

    def capture(self, host: str) -> capture.Capture:
        """What was read, on the wall clock."""
        builder = self.builder
        if not len(builder):
            raise self.no_sample()
        header = perfheader.parse_header(self.header)
        builder.name_processes()
        builder.rename_event("", "samples")
        notes = self.notes
        if header.shift is not None:
            shift = header.shift
        else:
            shift = self._approximate_shift(header.written)
        if self.bad_lines:
            notes.append(
                f"{self.bad_lines} lines were not understood and left out, "
                f"the first at byte {self.first_bad}"
            )
        if builder.lacks_processes():
            notes.append(
                "the text does not say which process a thread belongs to; "
                "`perf script -F +pid` writes it"
            )
        return builder.build(
            host=host or header.host,
            shift=shift,
            frequency=self._frequency(header),
            cores=self._cores(header.cores),
            lost=self.lost,
            notes=notes,
        )

    def _approximate_shift(self, written: int | None) -> int:
        """Samples carry the time since boot; the last one was taken when the file was closed."""
        if written is None:
            end, source = self.path.stat().st_mtime_ns, "the time of the file"
        else:
            end, source = written, '"captured on" in its header, read in the local time zone'
        self.notes.append(
            f"the wall clock is approximate: the last sample is put at {source}; "
            "`perf record -k CLOCK_MONOTONIC` and `perf script --header` make it exact"
        )
        return end - max(self.builder.time)

    def _frequency(self, header: perfheader.Header) -> int:
        """That of the event with most samples, from the header or from a clock's period."""
        builder = self.builder
        counts = np.bincount(np.frombuffer(builder.event_of, np.uint8))
        main = int(counts.argmax())
        name = tuple(builder.events)[main]
        for event, frequency in header.frequencies.items():
            if PRECISION.sub("", event) == name:
                return frequency
        if name.startswith(("cpu-clock", "task-clock")):
            rows = np.frombuffer(builder.event_of, np.uint8) == main
            period = float(np.median(np.frombuffer(builder.period, np.uint64)[rows]))
            return round(1e9 / period) if period >= 1 else 0
        return 0

    def _cores(self, cores: tuple[int, ...]) -> tuple[int, ...]:
        """The header counts cores; with some off-line the numbers of the others are not known."""
        seen = set(self.builder.cpu) - {-1}
        if cores and not seen <= set(cores):
            self.notes.append("cores beyond the number on-line were seen; idle ones are not known")
            return tuple(sorted(seen))
        return cores
