"""How long tasks that could run waited for a core: the effect of a saturated core on everything else there."""

from __future__ import annotations

from collections.abc import Iterator

from overnight.instruments import _bpftrace
from overnight.model.instrument import Reading, ReadingKind

LONG_US = 20_000  # waits from here on are readings of their own, with the task that waited

# A task waits from its wake-up, or from the moment it was preempted: then its state is 0, or has the bit above those
# that are reported (kernel 3f5fe9fef5b2, shown as R+).
PROGRAM = _bpftrace.Program(
    {
        "sched:sched_switch": ("prev_pid", "prev_state", "next_pid", "next_comm"),
        "sched:sched_wakeup": ("pid",),
        "sched:sched_wakeup_new": ("pid",),
    },
    f"""
tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new {{ @at[args->pid] = nsecs; }}
tracepoint:sched:sched_switch {{
  if (args->prev_pid != 0 && (args->prev_state & 0xff) == 0) {{ @at[args->prev_pid] = nsecs; }}
  $at = @at[args->next_pid];
  if ($at) {{
    $us = (nsecs - $at) / 1000;
    delete(@at[args->next_pid]);
    @wait[cpu] = hist($us);
    @max[cpu] = max($us);
    if ($us >= {LONG_US}) {{ printf("wait %llu %d %d %llu %s\\n", nsecs, cpu, args->next_pid, $us, args->next_comm); }}
  }}
}}
""",
    ("wait", "max"),
    ("at",),
)


def make_reader() -> _bpftrace.JsonReader:
    def read_event(word: str, _time: str, rest: str) -> Iterator[Reading]:
        if word == "wait":
            core, pid, us, comm = rest.split(" ", 3)
            values = {"max_us": float(us)}
            yield Reading(0, ReadingKind.RUN_QUEUE, int(core), int(pid), comm, values=values)

    return _bpftrace.JsonReader(
        lambda maps: _bpftrace.read_latency(maps, ReadingKind.RUN_QUEUE), read_event
    )


INSTRUMENT = _bpftrace.Instrument(
    "runqueue-latency",
    "how long tasks waited for each core, and which tasks waited 20 ms or longer",
    lambda _: PROGRAM,
    lambda *_: make_reader(),
)
