"""Kernel stacks of tasks that block: where they wait, and for how long."""

from __future__ import annotations

import re
from collections.abc import Iterator

from overnight.instruments import _bpftrace
from overnight.model.instrument import Reading, ReadingKind

MIN_US = 1_000
FRAMES = 20
PRINTED, KEPT = 60, 20  # stacks each second: those of idle kernel threads are left out in between
# PID, stack and process: the stack is made of lines that begin with four spaces.
KEY = re.compile(r"(\d+),\n((?:    [^\n]*\n)*),(.*)", re.DOTALL)
IDLE = "kthread"  # the outermost function of kernel threads, which wait for work most of the time


def make_program(target: str) -> _bpftrace.Program:
    chosen = f" && {_bpftrace.match_process(target)}" if target else ""
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
        ("off",),
        ("at", "stack"),
        PRINTED,
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
            values, stack = {"total_us": float(total)}, ";".join(frames)
            yield Reading(0, ReadingKind.OFF_CPU, -1, int(match[1]), match[3], stack, values)

    return _bpftrace.JsonReader(read_maps)


INSTRUMENT = _bpftrace.Instrument(
    "off-cpu",
    "kernel stacks in which tasks blocked for 1 ms or longer, and for how long",
    make_program,
    lambda target, _: make_reader(bool(target)),
    target="process",
)
