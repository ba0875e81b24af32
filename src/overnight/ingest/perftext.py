"""Parses the lines of `perf script`: header, thread names, frames."""

from __future__ import annotations

import dataclasses
import re
import time

from overnight.ingest import formats

ENTRY = re.compile(r"# ?([a-z][a-z ]*?)\s*: ?(.*)")
EVENT = re.compile(r"name = ([^,]+),.*\{ sample_period, sample_freq \} = (\d{1,18}),")
REFERENCE = re.compile(r"= (\d{1,10})\.(\d{6}) \(TOD\) = (\d{1,9})\.(\d{9}) \(")
CPU_LIST = re.compile(r" (?:-C|--cpu[= ]) ?([\d,-]+)(?= |$)")
MAX_CORES = 1 << 16
MAX_PATH = 4200  # PATH_MAX, the parentheses, and what perf may add
OFFSET = re.compile(r"\+0x[0-9a-f]+$")
FRAME = re.compile(r"\s*(?:([0-9a-f]{1,16})(?:\s|$))?\s*(.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Header:
    """The header's facts; empty, 0 or None where they are missing."""

    host: str = ""
    cores: tuple[int, ...] = ()
    frequencies: dict[str, int] = dataclasses.field(default_factory=dict)  # by event
    written: int | None = None  # ns since the epoch, to the second: when perf closed its file
    shift: int | None = None  # to add to a sample's time for ns since the epoch


def parse_header(lines: list[str]) -> Header:
    entries: dict[str, str] = {}
    frequencies: dict[str, int] = {}
    for line in lines:
        match = ENTRY.match(line)
        if match is None:
            continue
        key, value = match[1], match[2].strip()
        if key == "event":
            event = EVENT.match(value)
            if event is not None and int(event[2]):
                rate = int(event[2])
                if "freq = 1," in value or value.endswith("freq = 1"):
                    frequencies[event[1]] = rate
                elif event[1].startswith(("cpu-clock", "task-clock")):  # a period, in ns
                    frequencies[event[1]] = max(1, round(1e9 / rate))
        else:
            entries.setdefault(key, value)
    return Header(
        host=entries.get("hostname", ""),
        cores=_cores(entries.get("nrcpus online", ""), entries.get("cmdline", "")),
        frequencies=frequencies,
        written=_written(entries.get("captured on", "")),
        shift=_shift(entries.get("reference time", "")),
    )


def _cores(online: str, command: str) -> tuple[int, ...]:
    """Return the cores of -C, else the number that was on-line."""
    chosen = CPU_LIST.search(command.partition(" -- ")[0])
    if chosen is not None:
        cores: set[int] = set()
        for part in chosen[1].split(","):
            first, _, last = part.partition("-")
            if first.isdigit() and int(first) < MAX_CORES:
                end = int(last) if last.isdigit() else int(first)
                cores.update(range(int(first), min(end, MAX_CORES) + 1))
        return tuple(sorted(cores))
    if online.isdecimal() and len(online) < 6:
        return tuple(range(int(online)))
    return ()


def _written(text: str) -> int | None:
    """Parse `Sun Nov 15 06:26:59 2026`, assuming that perf script ran in the local time zone."""
    try:
        seconds = time.mktime(time.strptime(text, "%a %b %d %H:%M:%S %Y"))
    except (ValueError, OverflowError):
        return None
    return round(seconds) * 1_000_000_000 if 0 <= seconds < 1 << 33 else None


def _shift(text: str) -> int | None:
    """Parse the instant that `perf record -k` writes on both clocks (header feature CLOCK_DATA)."""
    match = REFERENCE.search(text)
    if match is None:
        return None
    wall = int(match[1] + match[2]) * 1000
    return wall - int(match[3] + match[4]) if wall < 1 << 62 else None


def parse_frame(line: str) -> tuple[str, str, int]:
    """Parse name, module and kind of one line of a stack.

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
    kernel = formats.is_kernel(module) or (
        len(address) == 16 and address[0] in "89abcdef" and module != "[vsyscall]"
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
    """Find the parenthesis that opens the module; -1 where there is none."""
    if not text.endswith(")"):
        return -1
    depth = 0
    for at in range(len(text) - 1, max(-1, len(text) - MAX_PATH), -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            if at == 0 or text[at - 1] == " ":
                return at
            break
    # A path may contain unbalanced parentheses.
    return max(text.rfind(" (/"), text.rfind(" ([")) + 1 or -1


def thread_name(before: bytes, digits: int) -> bytes:
    """Extract the name from the text before the first id, which has `digits` digits; keep its own spaces."""
    padding = 1 + max(0, 5 - digits)
    name = before[:-padding]
    if before[len(name) :].strip(b" "):  # not perf's own columns: another tool removed spaces
        return before.strip(b" ")
    return name.lstrip(b" ") if len(name) > 15 else name  # perf pads it to 16 without stacks
