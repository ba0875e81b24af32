"""Which process creates and removes cgroups, and when the kernel releases them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from overnight import instruments
from overnight.instruments import _bpftrace
from overnight.model.instrument import Reading, ReadingKind

KINDS = {
    "mkdir": ReadingKind.CGROUP_CREATED,
    "rmdir": ReadingKind.CGROUP_REMOVED,
    "release": ReadingKind.CGROUP_RELEASED,
}
WORDS = tuple(KINDS)
MAX_EVENTS = 50  # a second, with the cgroup; all are counted by process
# Two lines for an event, with the same time: names of processes and of cgroups may hold anything, also our separators.
PROGRAM = _bpftrace.Program(
    {f"cgroup:cgroup_{word}": ("root", "path") for word in WORDS},
    "\n".join(
        f"""
tracepoint:cgroup:cgroup_{word} {{
  @count[{number}, args->root, pid, comm] = count();
  @seen += 1;
  if (@seen <= {MAX_EVENTS}) {{
    $ns = nsecs;
    printf("by %llu %s\\n", $ns, comm);
    printf("{word} %llu %d %d %s\\n", $ns, args->root, pid, str(args->path));
  }}
}}"""
        for number, word in enumerate(WORDS)
    )
    + "\ninterval:s:1 { @seen = 0; }",
    ("count",),
    ("seen",),
)


def make_reader(memory: int) -> _bpftrace.JsonReader:
    """`memory` is the hierarchy with the memory controller; its cgroups have the value memory = 1."""
    by = ("", "")

    def make_reading(kind: ReadingKind, text: str, path: str, **values: float) -> Reading:
        hierarchy, pid, rest = text.split(",", 2)
        values["memory"] = float(int(hierarchy) == memory)
        return Reading(0, kind, -1, int(pid), rest, path, values)

    def read_maps(maps: _bpftrace.Maps) -> Iterator[Reading]:
        for key, count in list(maps.get("@count", {}).items())[-_bpftrace.MAX_ROWS :]:
            number, _, rest = key.partition(",")
            yield make_reading(KINDS[WORDS[int(number)]], rest, "", count=count)

    def read_event(word: str, nanoseconds: str, rest: str) -> Iterator[Reading]:
        nonlocal by
        if word == "by":
            by = (nanoseconds, rest)
        elif word in KINDS:
            hierarchy, pid, path = rest.split(" ", 2)
            comm = by[1] if by[0] == nanoseconds else ""
            yield make_reading(KINDS[word], f"{hierarchy},{pid},{comm}", path)

    return _bpftrace.JsonReader(read_maps, read_event)


def read_memory_hierarchy(root: pathlib.Path = instruments.ROOT) -> int:
    """Return the number of the hierarchy with the memory controller, 0 for cgroup v2."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return 0
    parts = (line.split(":", 2) for line in lines)
    return next((int(n) for n, controllers, _ in parts if "memory" in controllers.split(",")), 0)


INSTRUMENT = _bpftrace.Instrument(
    "cgroup-churn",
    "which process creates and removes each cgroup, and when the kernel releases it",
    lambda _: PROGRAM,
    lambda _, root: make_reader(read_memory_hierarchy(root)),
)
