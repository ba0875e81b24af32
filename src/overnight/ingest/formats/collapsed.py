"""Reads collapsed stacks, as flame graph tools write them: a stack per line, root first, and its count.

::

    nginx;main;ngx_worker;epoll_wait;do_syscall_64_[k];ep_poll_[k] 42

`_[k]` marks a kernel function, `_[j]` a jitted, `_[i]` an inlined one. The format has no times: every row gets
the time of the file. Where each line begins with a name that can only be a process, that becomes the task, with
the `-PID/TID` that stackcollapse-perf.pl may append.
"""

from __future__ import annotations

import math
import pathlib
import re
import sys
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from overnight import errors
from overnight.ingest import formats
from overnight.model.flame import FrameKind

if TYPE_CHECKING:
    from overnight.store import capture

NAME = "collapsed"

LINE = re.compile(rb"(.*\S)\s+(\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?)\s*", re.DOTALL)
MARK = re.compile(r"_\[([kjiw])\]$")
# A number alone at the end stays: `pool-7` is a name.
PROCESS = re.compile(r"(.*?)(?:-([0-9]{1,9}|\?)/([0-9]{1,9})|-\?)?", re.DOTALL)
NO_PROCESS = re.compile(r"\(\)|[(<].*[)>]|::|^\[|_\[[kjiw]\]$", re.DOTALL)
COMM_SIZE = 15  # TASK_COMM_LEN without its zero
MAX_LINE = 1 << 20
MAX_STACKS = 256 << 20  # bytes of different stacks
MAX_OTHER_LINES = 100_000
MAX_COUNT = (1 << 32) - 1
DIGITS = 6  # kept of fractions


def sniff(head: bytes) -> bool:
    """Return whether nearly every line is a stack and a count; perf script texts have a few too."""
    lines = head.split(b"\n")[:-1] or [head]
    lines = [line for line in lines if line.strip() and not line.startswith(b"#")][:1000]
    good = sum(1 for line in lines if LINE.fullmatch(line) and not line.startswith(b"\t"))
    return good > 0 and good >= 0.95 * len(lines) and any(b";" in line for line in lines)


def read(path: pathlib.Path, host: str) -> capture.Capture:
    """Read each distinct stack as one row; see `formats.Reader`."""
    builder = formats.Builder(path)
    weights, notes = _weights(path)
    counts, scale = _counts(list(weights.values()))
    if scale != 1:
        notes.append(f"counts were multiplied by {scale:g} to fit whole numbers")
    processes = _begin_with_processes(weights)
    if processes:
        notes.append("the first name of each line is used as the process")
    mtime = path.stat().st_mtime_ns
    event = builder.event("samples")
    for stack, count in zip(weights, counts, strict=True):
        names = stack.split(";")
        task = _task(builder, names[0]) if processes else builder.task(-1, -1, "")
        frames = [_frame(builder, name) for name in names[processes:]]
        builder.add(mtime, -1, task, builder.stack(frames), event, count, 0)
    return builder.build(host=host, timed=False, notes=notes)


def _weights(path: pathlib.Path) -> tuple[dict[str, float], list[str]]:
    """Return the weight of each distinct stack, and notes."""
    weights: dict[str, float] = {}
    notes: list[str] = []
    bad, first_bad, other, size = 0, 0, 0, 0
    text = formats.Text(path)
    for offset, line in _lines(text):
        match = LINE.fullmatch(line)
        weight = float(match[2]) if match else math.inf
        if match is None or weight == math.inf:
            if line.strip() and not line.startswith(b"#"):
                bad += 1
                first_bad = first_bad if bad > 1 else offset
        elif weight > 0:
            stack = match[1].decode("utf-8", "replace")
            if stack not in weights:
                size += len(stack)
            weights[stack] = min(weights.get(stack, 0.0) + weight, sys.float_info.max)
        if size > MAX_STACKS:
            raise errors.DamagedFileError(str(path), offset, "too many distinct stacks")
        other += match is None
        if other > MAX_OTHER_LINES + 10 * len(weights):
            why = "most lines are not stacks with a count"
            raise errors.DamagedFileError(str(path), first_bad, why)
    if not weights:
        raise errors.DamagedFileError(str(path), first_bad, "no stack with a count")
    if bad:
        notes.append(f"{bad} unknown lines were skipped, the first at byte {first_bad}")
    if text.cut_short:
        notes.append(formats.TRUNCATED)
    return weights, notes


def _lines(text: formats.Text) -> Iterator[tuple[int, bytes]]:
    """Yield each line and its offset; skip an unfinished last line of a truncated file."""
    left, offset = b"", 0
    for piece in text:
        *lines, left = (left + piece).split(b"\n")
        for line in lines:
            yield offset, line
            offset += len(line) + 1
        if len(left) > MAX_LINE:
            why = f"a line of more than {MAX_LINE} bytes"
            raise errors.DamagedFileError(str(text.path), offset, why)
    if left and not text.cut_short:
        yield offset, left


def _counts(weights: list[float]) -> tuple[list[int], float]:
    """Scale to whole numbers of 32 bits; return them and the factor."""
    largest = max(weights)
    scale = 1.0
    if any(weight != int(weight) for weight in weights):
        scale = 10.0 ** min(300, max(0, DIGITS - math.floor(math.log10(largest))))
    while largest * scale > MAX_COUNT:
        scale /= 10
    return [max(1, round(weight * scale)) for weight in weights], scale


def _begin_with_processes(stacks: Collection[str]) -> bool:
    """Return whether all roots can be names of processes, and none is also a function."""
    roots = {stack.partition(";")[0] for stack in stacks}
    for root in roots:
        name = PROCESS.fullmatch(root)
        assert name is not None  # it matches anything
        if not 0 < len(name[1].encode()) <= COMM_SIZE or NO_PROCESS.search(root):
            return False
    if not any(";" in stack for stack in stacks):
        return False
    return all(roots.isdisjoint(stack.split(";")[1:]) for stack in stacks)


def _task(builder: formats.Builder, root: str) -> int:
    match = PROCESS.fullmatch(root)
    assert match is not None  # it matches anything
    pid = int(match[2]) if match[2] and match[2] != "?" else -1
    tid = int(match[3]) if match[3] else -1
    return builder.task(pid, tid, "", match[1])


def _frame(builder: formats.Builder, name: str) -> int:
    mark = MARK.search(name)
    kind = FrameKind.KERNEL if mark and mark[1] == "k" else FrameKind.USER
    return builder.frame(MARK.sub("", name), "", int(kind))
