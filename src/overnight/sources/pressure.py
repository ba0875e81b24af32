"""Time that work waited for cores, memory or disks, from /proc/pressure.

The text of one resource; `total` is in microseconds since boot::

    some avg10=2.76 avg60=3.23 avg300=12.75 total=1663749378
    full avg10=0.00 avg60=0.00 avg300=0.00 total=0

`irq` (since 6.1) has a `full` line alone, `cpu` has none before 5.13. The averages are left out: they
follow from two totals, over any time. Where pressure is not accounted (`psi=0`), there is no data.
Never read it more often than some jiffies: the kernel weighs what it adds by whole ones (psi.c,
collect_percpu_times), and loses what lies between (measured: two tasks on one core, read without a
pause, and the total stood still).
"""

from __future__ import annotations

import pathlib

from overnight import sources

__all__ = ["RESOURCES", "SIGNALS", "open_pressure", "parse_pressure", "read_pressure"]

RESOURCES = ("cpu", "memory", "io", "irq")


def parse_pressure(data: bytes) -> tuple[int, int]:
    """Microseconds in which some, and in which all of the tasks that were not idle had to wait.

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
    """The look at every resource this kernel accounts."""
    files = {
        resource: sources.KeptFile(root / "proc/pressure" / resource)
        for resource in RESOURCES
        # irq is a matter of the kernel's making: a file that is not there is not asked for again.
        if (root / "proc/pressure" / resource).exists()
    }

    def read() -> dict[str, tuple[int, ...]]:
        rows: dict[str, tuple[int, ...]] = {}
        for resource, file in files.items():
            try:
                rows[resource] = parse_pressure(file.read())
            except sources.NoDataError:
                continue
        if not rows:
            raise sources.NoDataError(
                "the kernel does not account pressure: it was built or started without it (psi=1)"
            )
        return rows

    return read


def read_pressure(root: pathlib.Path = sources.ROOT) -> sources.Rows:
    """One look, now."""
    return open_pressure(root)()


SIGNALS = (
    sources.Signal(
        "pressure",
        1.0,
        "resource",
        (sources.Column("some", unit="us"), sources.Column("full", unit="us")),
        open_pressure,
        "/proc/pressure: how long work waited for a core, for memory, for disks or behind interrupts",
    ),
)
