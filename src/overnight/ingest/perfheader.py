"""What `perf script --header` says about a recording, from the lines that begin with `#`."""

from __future__ import annotations

import dataclasses
import re
import time

__all__ = ["Header", "parse_header"]

ENTRY = re.compile(r"# ?([a-z][a-z ]*?)\s*: ?(.*)")
EVENT = re.compile(r"name = ([^,]+),.*\{ sample_period, sample_freq \} = (\d{1,18}),")
REFERENCE = re.compile(r"= (\d{1,10})\.(\d{6}) \(TOD\) = (\d{1,9})\.(\d{9}) \(")
CPU_LIST = re.compile(r" (?:-C|--cpu[= ]) ?([\d,-]+)(?= |$)")
CORES_LIMIT = 1 << 16


@dataclasses.dataclass(frozen=True)
class Header:
    """Empty, zero or None where the header does not say."""

    host: str = ""
    cores: tuple[int, ...] = ()
    frequencies: dict[str, int] = dataclasses.field(default_factory=dict)  # by event
    written: int | None = None  # ns since the epoch, to the second: when perf closed its file
    shift: int | None = None  # what to add to a sample's time to get ns since the epoch


def parse_header(lines: list[str]) -> Header:
    """Every line that is understood; the others do no harm."""
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
    """Those asked for with -C, or else as many as were on-line."""
    chosen = CPU_LIST.search(command.partition(" -- ")[0])
    if chosen is not None:
        cores: set[int] = set()
        for part in chosen[1].split(","):
            first, _, last = part.partition("-")
            if first.isdigit() and int(first) < CORES_LIMIT:
                end = int(last) if last.isdigit() else int(first)
                cores.update(range(int(first), min(end, CORES_LIMIT) + 1))
        return tuple(sorted(cores))
    if online.isdecimal() and len(online) < 6:
        return tuple(range(int(online)))
    return ()


def _written(text: str) -> int | None:
    """`Sun Nov 15 06:26:59 2026`, in the time zone of whoever ran perf script: taken to be ours."""
    try:
        seconds = time.mktime(time.strptime(text, "%a %b %d %H:%M:%S %Y"))
    except (ValueError, OverflowError):
        return None
    return round(seconds) * 1_000_000_000 if 0 <= seconds < 1 << 33 else None


def _shift(text: str) -> int | None:
    """perf record -k writes one instant on both clocks (header feature CLOCK_DATA)."""
    match = REFERENCE.search(text)
    if match is None:
        return None
    wall = int(match[1] + match[2]) * 1000
    return wall - int(match[3] + match[4]) if wall < 1 << 62 else None
