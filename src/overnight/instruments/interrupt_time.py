"""How long each core spends in softirqs and in interrupt handlers, by vector and by interrupt."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping

from overnight import instruments
from overnight.instruments import _bpftrace
from overnight.model.instrument import Reading, ReadingKind
from overnight.sources import softirqs

VECTORS = dict(enumerate(softirqs.KINDS))  # in the kernel's order
# A softirq that an interrupt handler interrupts is as long as both.
PROGRAM = _bpftrace.Program(
    {
        "irq:softirq_entry": ("vec",),
        "irq:softirq_exit": ("vec",),
        "irq:irq_handler_entry": ("irq",),
        "irq:irq_handler_exit": ("irq",),
    },
    """
tracepoint:irq:softirq_entry { @soft_at[cpu] = nsecs; }
tracepoint:irq:softirq_exit /@soft_at[cpu]/ {
  $ns = nsecs - @soft_at[cpu];
  delete(@soft_at[cpu]);
  @soft[cpu, args->vec] = stats($ns);
  @soft_max[cpu, args->vec] = max($ns);
}
tracepoint:irq:irq_handler_entry { @hard_at[cpu, args->irq] = nsecs; }
tracepoint:irq:irq_handler_exit /@hard_at[cpu, args->irq]/ {
  $ns = nsecs - @hard_at[cpu, args->irq];
  delete(@hard_at[cpu, args->irq]);
  @hard[cpu, args->irq] = stats($ns);
  @hard_max[cpu, args->irq] = max($ns);
}
""",
    ("soft", "soft_max", "hard", "hard_max"),
    ("soft_at", "hard_at"),
)


def make_reader(devices: Mapping[int, str]) -> _bpftrace.JsonReader:
    """`devices` are the names of interrupts, by their number."""

    def read_maps(maps: _bpftrace.Maps) -> Iterator[Reading]:
        for key, values in _bpftrace.read_sums(maps, "soft"):
            core, vector = map(int, key.split(","))
            name = VECTORS.get(vector, f"softirq {vector}")
            yield Reading(0, ReadingKind.SOFTIRQ, core, subject=name, values=values)
        for key, values in _bpftrace.read_sums(maps, "hard"):
            core, number = map(int, key.split(","))
            name = f"{number} {devices.get(number, '')}".rstrip()
            yield Reading(0, ReadingKind.HARDIRQ, core, subject=name, values=values)

    return _bpftrace.JsonReader(read_maps)


def read_interrupts(root: pathlib.Path = instruments.ROOT) -> dict[int, str]:
    """Return the devices of interrupts, the last words of their lines in /proc/interrupts."""
    try:
        lines = (root / "proc/interrupts").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return {}
    parts = (line.partition(":") for line in lines)
    return {int(n): rest.split()[-1] for n, _, rest in parts if n.strip().isdigit() and rest.split()}  # fmt: skip


INSTRUMENT = _bpftrace.Instrument(
    "interrupt-time",
    "how long each core was in softirqs and interrupt handlers, by vector and interrupt",
    lambda _: PROGRAM,
    lambda _, root: make_reader(read_interrupts(root)),
)
