"""Softirqs that each core has run, by kind, from /proc/softirqs.

One line per kind, one column per core::

                        CPU0       CPU1
              HI:         13          0
           TIMER:     307533     238648
          NET_RX:     136045      30551

The columns are the *possible* cores (fs/proc/softirqs.c): a guest that could grow to 256 cores has 256 of
them, so off-line cores are left out. The counters have 32 bits and wrap to zero.
"""

from __future__ import annotations

import pathlib

from overnight import sources

KINDS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")  # fmt: skip
# These tick on every core all the time and would be a third of the ring: watches see each second, the
# ring stores one a minute (docs/decisions/0014).
NOISE = dict.fromkeys(("TIMER", "NET_TX", "BLOCK", "SCHED", "HRTIMER", "RCU"), 60.0)
# The name before 4.5.
_OLD_NAMES = {"BLOCK_IOPOLL": "IRQ_POLL"}


def parse_softirqs(data: bytes) -> dict[str, tuple[int, ...]]:
    """Parse the counts of every core in the order of KINDS; 0 for a kind that this kernel does not have.

    >>> parse_softirqs(b"  CPU0   CPU5\\n  HI:  1  2\\n  RCU:  3  4\\n")["5"]
    (2, 0, 0, 0, 0, 0, 0, 0, 0, 4)
    """
    head, *lines = data.split(b"\n")
    cores = head.decode("ascii").replace("CPU", "").split()
    nothing = [0] * len(cores)
    counts = dict.fromkeys(KINDS, nothing)
    for line in lines:
        kind, colon, numbers = line.partition(b":")
        if colon:
            name = kind.strip().decode("ascii", "replace")
            counts[_OLD_NAMES.get(name, name)] = list(map(int, numbers.split()))
    return dict(zip(cores, zip(*(counts[kind] for kind in KINDS), strict=True), strict=True))


def open_softirqs(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    file = sources.KeptFile(root / "proc/softirqs", room=65536)
    online = sources.open_online(root)

    def read() -> dict[str, tuple[int, ...]]:
        rows = parse_softirqs(file.read())
        try:
            cores = online()
        except sources.NoDataError:
            return rows
        if len(rows) > len(cores):
            rows = {str(core): rows[str(core)] for core in cores if str(core) in rows}
        return rows

    return read


SIGNALS = (sources.Signal("softirqs", 1.0, "core", KINDS, open_softirqs, NOISE),)
