"""Samples from `perf script` compared with samples from our reader."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
import re
import struct
import subprocess
from collections.abc import Iterator
from typing import TypeAlias

from overnight.ingest import perfdata as ingest
from overnight.sources.perf import decode, perfdata

# time in us, core, tid, name, functions leaf first
Sample: TypeAlias = tuple[int, int, int, str, tuple[str, ...]]
# PERF_CONTEXT_HV, _KERNEL, _USER: those that perf itself handles.
CONTEXTS = {2**64 - 32, decode.CONTEXT_KERNEL, decode.CONTEXT_USER}
HEAD = re.compile(r"^\s*(.*?)\s+(-?\d+) \[(\d+)\]\s+(\d+)\.(\d{6}):\s*$")
# "7ffc8d1f2a31 [unknown] ([vdso])"; perf derives the module from its own maps.
FRAME = re.compile(r"^\s*[0-9a-f]+ (?P<name>.*?)(?: \((?P<module>[/\[].*)\))?$")
UNKNOWN = "[unknown]"
IN_VDSO = "[unknown] in [vdso]"
FORK = 7  # PERF_RECORD_FORK: pid, ppid, tid, ptid, time


def read_perf_script(path: pathlib.Path) -> collections.Counter[Sample]:
    """Read samples with perf script, through standard input: so it reads both pipes and files."""
    fields = "comm,tid,cpu,time,ip,sym,dso"
    with path.open("rb") as file:
        text = subprocess.run(
            ["perf", "script", "--no-inline", "-i", "-" if _is_pipe(path) else path, "-F", fields],
            stdin=file,
            capture_output=True,
            check=True,
        ).stdout.decode("utf-8", "replace")
    return collections.Counter(_printed(text))


def _is_pipe(path: pathlib.Path) -> bool:
    with path.open("rb") as file:
        return file.read(16)[8:] == struct.pack("<Q", 16)


def _printed(text: str) -> Iterator[Sample]:
    for block in text.split("\n\n"):
        head, *frames = block.strip("\n").split("\n")
        if match := HEAD.match(head):
            comm, tid, cpu, seconds, fraction = match.groups()
            names = tuple(_name(*FRAME.match(frame).group("name", "module")) for frame in frames)  # type: ignore[union-attr]  # else the format changed
            yield int(seconds) * 1_000_000 + int(fraction), int(cpu), int(tid), comm, names


def _name(name: str, module: str | None) -> str:
    return IN_VDSO if name == UNKNOWN and module == "[vdso]" else name


def read_samples(path: pathlib.Path, symbols: ingest.Symbols) -> collections.Counter[Sample]:
    """Read samples with our reader, with times on the clock of the samples."""
    recording = ingest.read(path, symbols)
    with perfdata.open_perfdata(path, ingest._zstd) as file:
        time = struct.unpack(f"<{len(recording.time)}Q", file.decode()[0][0])
    offset, frame = recording.stacks.offset.tolist(), recording.stacks.frame.tolist()
    stacks = [
        tuple(
            _name(recording.frames.name[f], recording.frames.module[f])
            for f in reversed(frame[begin:end])
        )
        for begin, end in itertools.pairwise(offset)
    ]
    rows = zip(
        time, recording.cpu.tolist(), recording.task.tolist(), recording.stack.tolist(), strict=True
    )
    return collections.Counter(
        (
            at // 1000,
            cpu,
            int(recording.tasks.tid[task]),
            recording.tasks.thread[task],
            stacks[stack],
        )
        for at, cpu, task, stack in rows
    )


@dataclasses.dataclass(frozen=True)
class Comparison:
    total: int
    identical: int
    explained: int
    unexplained: list[tuple[Sample | None, Sample | None]]  # ours, theirs
    own: int = 0  # samples of `root` and its descendants
    own_identical: int = 0


def odd_chains(path: pathlib.Path) -> set[tuple[int, int]]:
    """Return (time in us, tid) of samples with a word that is neither an address nor a context."""
    odd = set()
    with perfdata.open_perfdata(path, ingest._zstd) as file:
        event, stream, offset = file.events[0], file.stream, 0
        layout = decode._Layout(event.sample_type, event.read_format, event.sample_id_all)
        while offset + 8 <= len(stream):
            kind, _, size = struct.unpack_from("<IHH", stream, offset)
            with stream[offset : offset + size] as record:
                offset += size
                if kind != decode.SAMPLE or len(record) < size:
                    continue
                at, depth = layout.chain(record) or (0, 0)
                words = struct.unpack_from(f"<{depth}Q", record, at)
                if any(word >= decode.CONTEXT_LIMIT and word not in CONTEXTS for word in words):
                    tid = layout.field(record, decode.TID) >> 32
                    odd.add((layout.field(record, decode.TIME) // 1000, tid))
    return odd


def descendants(path: pathlib.Path, root: int) -> set[int]:
    """Return the threads of a process and of its descendants, from fork records."""
    pids, tids = {root}, {root}
    with perfdata.open_perfdata(path, ingest._zstd) as file:
        stream, offset, forks = file.stream, 0, []
        while offset + 8 <= len(stream):
            kind, _, size = struct.unpack_from("<IHH", stream, offset)
            if kind == FORK and offset + 32 <= len(stream):
                pid, parent, tid, _, time = struct.unpack_from("<4iQ", stream, offset + 8)
                forks.append((time, pid, parent, tid))
            offset += max(8, size)
    for _, pid, parent, tid in sorted(forks):  # each core has its own order
        if parent in pids:
            pids.add(pid)
            tids.add(tid)
    return tids


def compiling(path: pathlib.Path) -> set[int]:
    """Return the threads of processes that generate code: their maps grow between the two reads."""
    with perfdata.open_perfdata(path, ingest._zstd) as file:
        _, tasks, _, _, strings, modules, *_ = file.decode()
    pids = {pid for name, pid, _ in modules if strings[name].startswith(b"/tmp/perf-")}
    pairs = zip(
        *(struct.unpack(f"<{len(tasks[0]) // 4}i", part) for part in tasks[:2]), strict=True
    )
    return {tid for pid, tid in pairs if pid in pids}


def compare(path: pathlib.Path, symbols: ingest.Symbols, root: int = -1) -> Comparison:
    """Compare sample by sample; two differences are known limits of perf.

    perf does not name some calls through the PLT, which we call `x@plt`, and not the vdso where it could not
    copy it into /tmp. It drops a whole stack with a word that is neither address nor context; we keep the
    frames.

    `own` counts the samples of the process `root` and its descendants separately.
    """
    odd, moving = odd_chains(path), compiling(path)
    ours, theirs = (
        collections.Counter({sample: n for sample, n in some.items() if sample[2] not in moving})
        for some in (read_samples(path, symbols), read_perf_script(path))
    )
    both = ours & theirs
    tids = descendants(path, root) if root >= 0 else set()
    unmatched = collections.defaultdict(list)
    for sample in (theirs - ours).elements():
        unmatched[sample[:4]].append(sample)
    explained, unexplained = 0, []
    for sample in (ours - theirs).elements():
        near = unmatched[sample[:4]]
        dropped = (sample[0], sample[2]) in odd
        other = next(
            (o for o in near if (dropped and not o[4]) or _we_name_more(sample[4], o[4])), None
        )
        if other is not None:
            near.remove(other)
            explained += 1
        else:
            unexplained.append((sample, near.pop() if near else None))
    unexplained += [(None, sample) for some in unmatched.values() for sample in some]
    return Comparison(
        total=theirs.total(),
        identical=both.total(),
        explained=explained,
        unexplained=unexplained,
        own=sum(n for sample, n in theirs.items() if sample[2] in tids),
        own_identical=sum(n for sample, n in both.items() if sample[2] in tids),
    )


def _we_name_more(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    return len(ours) == len(theirs) and all(
        a == b
        or (b == UNKNOWN and a.endswith("@plt"))
        or (b == IN_VDSO and a.startswith("__vdso_"))
        for a, b in zip(ours, theirs, strict=True)
    )
