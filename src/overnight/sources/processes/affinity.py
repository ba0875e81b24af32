"""How many cores the busy processes may run on, from /proc/PID/status.

The affinity of the main thread, already limited by its cpuset::

    Cpus_allowed:       0000000f
    Cpus_allowed_list:  0-3

Reading the file takes 13 us, so only processes that use half a core are read.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from overnight import sources

if TYPE_CHECKING:
    from overnight.sources.processes import table

MAX_PROCESSES = 20
FIELD = b"\nCpus_allowed_list:"


def parse_affinity(data: bytes) -> tuple[int, int] | None:
    """Parse the number of allowed cores and the lowest of them; None where the text has none.

    >>> parse_affinity(b"Name:\\tx\\nCpus_allowed_list:\\t4-6,9\\nMems_allowed:\\t1\\n")
    (4, 4)
    """
    begin = data.find(FIELD)
    line = data[begin + len(FIELD) : data.find(b"\n", begin + 1)] if begin >= 0 else b""
    cores = sources.parse_cpu_list(line.decode("ascii"))
    return (len(cores), cores[0]) if cores else None


class Affinity:
    """Reads `affinity`; the table of processes tells which processes are busy."""

    def __init__(self, processes: table.Table, root: pathlib.Path = sources.ROOT) -> None:
        self._table = processes
        self._proc = str(root / "proc")

    def read(self) -> sources.Rows:
        rows = {}
        for pid in self._table.busy(MAX_PROCESSES):
            text = sources.read_once(f"{self._proc}/{pid}/status") or b""
            if (allowed := parse_affinity(text)) is not None:
                rows[self._table.key_of(pid)] = allowed
        return rows
