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

from overnight import errors, instruments
from overnight.model.instrument import Reading, ReadingKind

# Tasks that wait, cgroups, stacks: more of them than bpftrace's 4096 exist on a large host.
# Each setting by its name before and since bpftrace 0.20.
ENVIRONMENT = {
    **dict.fromkeys(("BPFTRACE_MAP_KEYS_MAX", "BPFTRACE_MAX_MAP_KEYS"), "16384"),
    **dict.fromkeys(("BPFTRACE_STRLEN", "BPFTRACE_MAX_STRLEN"), "200"),
}
WIDE = re.compile(rb"\\uffffff([89a-f][0-9a-f])")  # how bpftrace 0.17 escapes a byte of UTF-8
MAX_ROWS = 400  # of a map; a program prints its top rows
PROCESS = re.compile(r"[A-Za-z0-9_.:/@+-]{1,64}")
COMM = 15  # the kernel cuts names there

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
    """A bpftrace program and what it needs; `maps` are those that it prints each second."""

    tracepoints: instruments.Tracepoints
    probes: str
    maps: tuple[str, ...]
    kept: tuple[str, ...]  # maps that hold what has begun and not ended
    most: int = 0  # rows of a map that it prints; 0: all

    def text(self) -> str:
        limit = f", {self.most}" if self.most else ""
        prints = "".join(f"print(@{name}{limit}); clear(@{name}); " for name in self.maps)
        tick = prints + 'printf("tick %llu\\n", nsecs);'
        # bpftrace prints all maps when it ends, also those of tasks that still wait.
        clears = " ".join(f"clear(@{name});" for name in self.kept)
        return f"{self.probes.strip()}\ninterval:s:1 {{ {tick} }}\nEND {{ {tick} {clears} }}"

    def pipeline(self, reader: JsonReader, root: pathlib.Path) -> instruments.Pipeline:
        binary = instruments.find_tool("bpftrace")
        instruments.need_tracepoints(self.tracepoints, root)
        command = (binary, "-f", "json", "-e", self.text())
        environment = instruments.own_environment() | ENVIRONMENT
        return instruments.Pipeline((command,), reader, environment, announces=True)


@dataclasses.dataclass
class Instrument(instruments.Instrument):
    """An instrument that is a program; program and reader are made for its target."""

    name: str
    about: str
    make_program: Callable[[str], Program]
    make_reader: Callable[[str, pathlib.Path], JsonReader]
    target: str = ""
    needs_target: bool = False

    def prepare(self, target: str, root: pathlib.Path = instruments.ROOT) -> instruments.Pipeline:
        return self.make_program(target).pipeline(self.make_reader(target, root), root)


def match_process(target: str) -> str:
    """Return the condition of a program that selects a process by name or PID.

    >>> match_process("kubelet"), match_process("812")
    ('comm == "kubelet"', 'pid == 812')
    """
    if not PROCESS.fullmatch(target):
        raise errors.UsageError(
            f"{target!r} is not a process",
            why="a process is a PID, or a name of letters, digits and _ . : / @ + -",
            todo="write the name as top shows it, or the PID",
        )
    return f"pid == {target}" if target.isdigit() else f'comm == "{target[:COMM]}"'


def read_latency(maps: Maps, kind: ReadingKind, subject: str = "") -> Iterator[Reading]:
    """Yield a reading for each core, from the histogram @wait and the maximum @max by core, in microseconds."""
    longest = maps.get("@max", {})
    for core, buckets in maps.get("@wait", {}).items():
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


def read_sums(maps: Maps, name: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each key with count, total_us and max_us, of the maps @name and @name_max in nanoseconds."""
    longest = maps.get(f"@{name}_max", {})
    for key, row in list(maps.get(f"@{name}", {}).items())[-MAX_ROWS:]:
        highest = float(longest.get(key, 0)) / 1e3
        yield key, {"count": row["count"], "total_us": row["total"] / 1e3, "max_us": highest}


def find_reason(stderr: bytes) -> str:
    """Return the first error message of bpftrace, without the place in the program.

    >>> find_reason(b"stdin:1:1-15: ERROR: kfunc/kretfunc not available for your kernel version.\\nkfunc:vfs_read")
    'kfunc/kretfunc not available for your kernel version.'
    """
    lines = list(filter(None, map(str.strip, stderr.decode("utf-8", "replace").splitlines())))
    # Without CAP_SYS_RESOURCE it says that it cannot raise this limit, and works.
    failed = [line for line in lines if "ERROR: " in line and "RLIMIT_MEMLOCK" not in line]
    reasons = [*(line.partition("ERROR: ")[2] for line in failed), *reversed(lines)]
    return reasons[0][:300] if reasons else ""
