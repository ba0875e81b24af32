"""Kernel stacks of tasks that block: where they wait, and for how long."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from overnight import instruments
from overnight.instruments import _bpftrace
from overnight.model.instrument import Reading, ReadingKind

MIN_US = 1_000
FRAMES = 20
PRINTED, KEPT = 60, 20  # stacks each second: those of idle kernel threads are left out in between
# PID, stack and process: the stack is made of lines that begin with four spaces.
KEY = re.compile(r"(\d+),\n((?:    [^\n]*\n)*),(.*)", re.DOTALL)
IDLE = "kthread"  # the outermost function of kernel threads, which wait for work most of the time


class OffCpu(instruments.Instrument):
    name = "off-cpu"
    about = "kernel stacks in which tasks blocked for 1 ms or longer, and for how long"
    target = "process"

    def prepare(self, target: str, root: pathlib.Path = instruments.ROOT) -> instruments.Pipeline:
        return make_program(target).pipeline(make_reader(bool(target)), root)


def make_program(target: str) -> _bpftrace.Program:
    chosen = f" && {instruments.match_process(target)}" if target else ""
    return _bpftrace.Program(
        {"sched:sched_switch": ("prev_pid", "prev_state", "next_pid", "next_comm")},
        f"""
tracepoint:sched:sched_switch {{
  if ((args->prev_state & 0xff) != 0{chosen}) {{
    @at[args->prev_pid] = nsecs;
    @stack[args->prev_pid] = kstack({FRAMES});
  }}
  $at = @at[args->next_pid];
  if ($at) {{
    $us = (nsecs - $at) / 1000;
    if ($us >= {MIN_US}) {{ @off[args->next_pid, @stack[args->next_pid], args->next_comm] = sum($us); }}
    delete(@at[args->next_pid]);
    delete(@stack[args->next_pid]);
  }}
}}
""",
        {"off": PRINTED},
        ("at", "stack"),
    )


def make_reader(with_kernel: bool) -> _bpftrace.JsonReader:
    """Without `with_kernel`, kernel threads are left out."""

    def read_maps(maps: _bpftrace.Maps) -> Iterator[Reading]:
        kept = 0
        for key, total in reversed(list(maps.get("@off", {}).items())):  # the longest is last
            match = KEY.fullmatch(key)
            if match is None or kept == KEPT:
                continue
            frames = [line.strip().rpartition("+")[0] or line.strip() for line in match[2].splitlines()]  # fmt: skip
            if IDLE in frames and not with_kernel:
                continue
            kept += 1
            yield Reading(
                0, ReadingKind.OFF_CPU, -1, int(match[1]), match[3], ";".join(frames),
                {"total_us": float(total)},
            )  # fmt: skip

    return _bpftrace.JsonReader(read_maps)


INSTRUMENT = OffCpu()
