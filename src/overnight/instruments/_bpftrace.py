r"""Run a bpftrace program, and read its output as JSON lines.

A program counts in maps, prints and clears them each second, and ends the second with a line::

    {"type": "hist", "data": {"@wait": {"0": [{"min": 2, "max": 3, "count": 581}], "1": […]}}}
    {"type": "map", "data": {"@max": {"1": 2929, "0": 3454}}}
    {"type": "stats", "data": {"@time": {"0,3": {"count": 2258, "average": 49, "total": 112375}}}}
    {"type": "printf", "data": "tick 24144007687230\n"}

Other lines of printf are events: a word, nanoseconds, and what the program adds. Only this process formats texts from
the kernel, which may hold anything, so each program prints at most one of them at the end of a line or key.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from overnight import instruments
from overnight.model.instrument import Reading, ReadingKind

# Tasks that wait, cgroups, stacks: more of them than bpftrace's 4096 exist on a large host.
# Each setting by its name before and since bpftrace 0.20.
ENVIRONMENT = {
    **dict.fromkeys(("BPFTRACE_MAP_KEYS_MAX", "BPFTRACE_MAX_MAP_KEYS"), "16384"),
    **dict.fromkeys(("BPFTRACE_STRLEN", "BPFTRACE_MAX_STRLEN"), "200"),
}
WIDE = re.compile(rb"\\uffffff([89a-f][0-9a-f])")  # how bpftrace 0.17 escapes a byte of UTF-8
MAX_ROWS = 400  # of a map; a program prints its top rows

Maps: TypeAlias = Mapping[str, Mapping[str, Any]]


class JsonReader:
    """Calls `sums` with the maps of each second, and `event` with each other line: word, time, the rest."""

    def __init__(
        self,
        sums: Callable[[Maps], Iterable[Reading]],
        event: Callable[[str, str, str], Iterable[Reading]] = lambda _word, _time, _rest: (),
    ) -> None:
        self.lost = 0
        self._sums, self._event = sums, event
        self._maps: dict[str, Mapping[str, Any]] = {}

    def feed(self, line: bytes) -> Iterator[tuple[int, Reading]]:
        try:
            text = WIDE.sub(lambda byte: bytes.fromhex(byte[1].decode()), line)
            message = json.loads(text.decode("utf-8", "replace"))
            kind, data = message["type"], message["data"]
            if kind == "lost_events":
                self.lost += int(data["events"])
            elif kind == "printf":
                yield from self._read_line(str(data).removesuffix("\n"))
            elif kind in ("map", "hist", "stats"):
                self._maps.update({name: rows for name, rows in data.items() if isinstance(rows, dict)})  # fmt: skip
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return  # a line that was cut off

    def _read_line(self, text: str) -> list[tuple[int, Reading]]:
        word, nanoseconds, rest = (*text.split(" ", 2), "", "")[:3]
        readings = self._event(word, nanoseconds, rest)
        if word == "tick":
            maps, self._maps = self._maps, {}
            readings = self._sums(maps)
        return [(int(nanoseconds), reading) for reading in readings]


@dataclasses.dataclass(frozen=True)
class Program:
    """A bpftrace program and what it needs; `maps` are those that it prints, with a limit or 0."""

    tracepoints: Mapping[str, tuple[str, ...]]
    probes: str
    maps: Mapping[str, int]
    kept: tuple[str, ...] = ()  # maps that hold what has begun and not ended

    def text(self) -> str:
        tick = ""
        if self.maps:
            prints = "".join(
                f"print(@{name}{f', {limit}' if limit else ''}); clear(@{name}); "
                for name, limit in self.maps.items()
            )
            tick = prints + 'printf("tick %llu\\n", nsecs);'
        # bpftrace prints all maps when it ends, also those of tasks that still wait.
        clears = " ".join(f"clear(@{name});" for name in self.kept)
        each = f"interval:s:1 {{ {tick} }}" if tick else ""
        return "\n".join(filter(None, (self.probes.strip(), each, f"END {{ {tick} {clears} }}")))

    def pipeline(self, reader: JsonReader, root: pathlib.Path) -> instruments.Pipeline:
        binary = instruments.find_tool("bpftrace")
        instruments.need_tracepoints(self.tracepoints, root)
        command = (binary, "-f", "json", "-e", self.text())
        return instruments.Pipeline((command,), reader, ENVIRONMENT, announces=True)


def read_latency(
    maps: Maps, kind: ReadingKind, subject: str = "", hist: str = "@wait", most: str = "@max"
) -> Iterator[Reading]:
    """Yield a reading for each core, from a histogram and a maximum by core, in microseconds."""
    longest = maps.get(most, {})
    for core, buckets in maps.get(hist, {}).items():
        count = sum(bucket["count"] for bucket in buckets)
        if not count:
            continue
        highest = float(longest.get(core, buckets[-1]["max"]))
        values = {
            "count": count,
            "p50_us": min(highest, find_percentile(buckets, 0.5)),
            "p99_us": min(highest, find_percentile(buckets, 0.99)),
            "max_us": highest,
        }
        yield Reading(0, kind, int(core), subject=subject, values=values)


def find_percentile(buckets: list[dict[str, int]], share: float) -> float:
    """Return the upper end of the bucket that a percentile is in.

    >>> find_percentile([{"min": 1, "max": 1, "count": 98}, {"min": 64, "max": 127, "count": 2}], 0.99)
    127.0
    """
    wanted = share * sum(bucket["count"] for bucket in buckets)
    for bucket in buckets:
        wanted -= bucket["count"]
        if wanted <= 0:
            return float(bucket["max"])
    return 0.0


def read_sums(maps: Maps, stats: str, most: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each key with count, total_us and max_us, of maps in nanoseconds."""
    longest = maps.get(most, {})
    for key, row in list(maps.get(stats, {}).items())[-MAX_ROWS:]:
        highest = float(longest.get(key, 0)) / 1e3
        values = {"count": row["count"], "total_us": row["total"] / 1e3, "max_us": highest}
        yield key, values


def find_reason(stderr: bytes) -> str:
    """Return the first error message of bpftrace, without the place in the program.

    >>> find_reason(b"stdin:1:1-15: ERROR: kfunc/kretfunc not available for your kernel version.\\nkfunc:vfs_read")
    'kfunc/kretfunc not available for your kernel version.'
    """
    lines = [
        line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()
    ]
    # Without CAP_SYS_RESOURCE it says that it cannot raise this limit, and works.
    errors = [line for line in lines if "ERROR: " in line and "RLIMIT_MEMLOCK" not in line]
    reasons = [*(line.partition("ERROR: ")[2] for line in errors), *reversed(lines)]
    return reasons[0][:300] if reasons else ""
