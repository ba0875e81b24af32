"""How long work waited for cores, memory or disks, from /proc/pressure.

The text of one resource; `total` is in microseconds since boot::

    some avg10=2.76 avg60=3.23 avg300=12.75 total=1663749378
    full avg10=0.00 avg60=0.00 avg300=0.00 total=0

`irq` (since 6.1) has only a `full` line, `cpu` has none before 5.13. The averages are not kept: they follow
from two totals, over any period. Where pressure is not accounted (`psi=0`), there is no data. Do not read it
more often than every few jiffies: the kernel adds whole ones (psi.c, collect_percpu_times) and loses the
fractions (measured: with two tasks on one core, read without a pause, the total did not change).
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from overnight import sources

RESOURCES = ("cpu", "memory", "io", "irq")


def parse_pressure(data: bytes) -> tuple[int, int]:
    """Parse the microseconds in which some, and in which all non-idle tasks waited.

    >>> parse_pressure(b"full avg10=0.00 avg60=0.00 avg300=0.00 total=7\\n")
    (0, 7)
    """
    some = full = 0
    for line in data.split(b"\n"):
        if line.startswith(b"some "):
            some = int(line[line.rfind(b"=") + 1 :])
        elif line.startswith(b"full "):
            full = int(line[line.rfind(b"=") + 1 :])
    return some, full


def open_pressure(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of every resource that this kernel accounts."""

    def open_resource(path: pathlib.Path) -> Callable[[], tuple[int, int]]:
        file = sources.KeptFile(path)
        return lambda: parse_pressure(file.read())

    readers = {
        resource: open_resource(root / "proc/pressure" / resource)
        for resource in RESOURCES
        # irq depends on the kernel's build: a missing file is not opened again.
        if (root / "proc/pressure" / resource).exists()
    }
    problem = (
        "the kernel does not account pressure (it was built without it, or booted without psi=1)"
    )
    return lambda: sources.read_each(readers, problem)


SIGNALS = (sources.Signal("pressure", 1.0, "resource", ("some", "full"), open_pressure),)
