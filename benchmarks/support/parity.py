"""Compare our reader with `perf script --no-inline` on a perf.data file, sample by sample."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
import re
import subprocess
from collections.abc import Iterable, Iterator

from overnight.ingest import perfdata
from overnight.sources.perf import perfdata as raw

__all__ = ["Parity", "compare"]

HEAD = re.compile(rb"^\s*(.*?)\s+(-?\d+) \[(\d+)\]\s+(\d+)\.(\d+):\s*$")
UNKNOWN = "[unknown]"

# Microsecond on perf's clock, core, thread, its name, and the stack, innermost first.
Sample = tuple[int, int, int, str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Parity:
    """Numbers of identical samples and of the known differences."""

    samples: int
    identical: int
    plt: int  # perf says [unknown] where we name the PLT entry
    emptied: int  # perf drops a whole stack for one invalid word in it
    others: tuple[str, ...]

    @property
    def strictly(self) -> float:
        """Percent of identical samples."""
        return 100 * self.identical / max(1, self.samples)

    @property
    def explained(self) -> float:
        """Percent of samples that are identical or have one of the two known differences."""
        return 100 * (self.identical + self.plt + self.emptied) / max(1, self.samples)


def compare(path: pathlib.Path) -> Parity:
    """Read the file both ways."""
    theirs = collections.Counter(_theirs(path))
    ours = collections.Counter(_ours(path))
    same = sum((ours & theirs).values())
    only_ours, only_theirs = ours - theirs, theirs - ours
    partner: dict[tuple[int, int, int], list[Sample]] = collections.defaultdict(list)
    for sample in only_theirs.elements():
        partner[sample[:3]].append(sample)
    kinds: collections.Counter[str] = collections.Counter()
    for sample in only_ours.elements():
        candidates = partner[sample[:3]]
        kinds[_difference(sample, candidates.pop()) if candidates else "no such sample"] += 1
    return Parity(
        sum(theirs.values()), same, kinds.pop("plt", 0), kinds.pop("emptied", 0),
        tuple(f"{n} x {kind}" for kind, n in kinds.most_common(5)),
    )  # fmt: skip


def _difference(ours: Sample, theirs: Sample) -> str:
    if ours[3] != theirs[3]:
        return f"name {ours[3]} for {theirs[3]}"
    if not theirs[4] or (len(theirs[4]) < len(ours[4]) and ours[4][: len(theirs[4])] == theirs[4]):
        return "emptied"
    if len(ours[4]) != len(theirs[4]):
        return f"depth {len(ours[4])} for {len(theirs[4])}, in {ours[3]}"
    apart = [(a, b) for a, b in zip(ours[4], theirs[4], strict=True) if a != b]
    if all(a.endswith("@plt") and b == UNKNOWN for a, b in apart):
        return "plt"
    return "{} for {}, in {}".format(*apart[0], ours[3])


def _ours(path: pathlib.Path) -> Iterator[Sample]:
    profile = perfdata.read(path, perfdata.live_symbols())
    with raw.open_perfdata(path) as file:
        clock = file.clock
    assert clock is not None
    offset, frame, name = profile.stacks.offset.tolist(), profile.stacks.frame, profile.frames.name
    stacks = [
        tuple(name[f] for f in frame[a:b][::-1].tolist()) for a, b in itertools.pairwise(offset)
    ]
    time = ((profile.time - (clock.wall - clock.samples)) // 1000).tolist()
    for when, core, task, stack in zip(
        time, profile.cpu.tolist(), profile.task.tolist(), profile.stack.tolist(), strict=True
    ):
        yield when, core, int(profile.tasks.tid[task]), profile.tasks.thread[task], stacks[stack]


def _theirs(path: pathlib.Path) -> Iterator[Sample]:
    command = ["perf", "script", "--no-inline", "-i", str(path), "-F", "comm,tid,cpu,time,ip,sym"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        yield from _parsed(running.stdout)


def _parsed(lines: Iterable[bytes]) -> Iterator[Sample]:
    head: re.Match[bytes] | None = None
    frames: list[str] = []
    names: dict[bytes, str] = {}
    stacks: dict[tuple[str, ...], tuple[str, ...]] = {}
    for raw_line in lines:
        line = raw_line.rstrip(b"\n")
        if line.startswith(b"\t"):
            word = line.split(None, 1)[1] if len(line.split(None, 1)) > 1 else b""
            frames.append(names.setdefault(word, word.decode(errors="replace")))
        elif not line.strip():
            if head:
                stack = tuple(frames)
                yield (
                    int(head[4]) * 1_000_000 + int(head[5]),
                    int(head[3]),
                    int(head[2]),
                    head[1].decode(errors="replace"),
                    stacks.setdefault(stack, stack),
                )
            head = None
        else:
            head, frames = HEAD.match(line), []
