"""Reads the processes of a segment, and what they started; apart from the writer, which needs no DuckDB."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.store import capture, parquet, process_tables

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Tables:
    """What a segment says about its processes; `row` and `launcher` are of its tasks."""

    processes: capture.Processes
    spawns: capture.Spawns
    row: npt.NDArray[np.int32]
    launcher: list[str]

    def ancestors(self, row: int) -> list[int]:
        """Return the rows above, the nearest first."""
        above: list[int] = []
        while (row := int(self.processes.parent[row])) >= 0 and len(above) < len(
            self.processes.pid
        ):
            above.append(row)
        return above


def read(folder: pathlib.Path) -> Tables:
    """Read both tables and the tasks' columns; raise DamagedFileError where they contradict each other."""
    processes = parquet.read(
        folder / process_tables.PROCESSES, (*process_tables.NUMBERS, *process_tables.TEXTS)
    )
    spawns = parquet.read(folder / process_tables.SPAWNS, ("launcher", "name", "second", "count"))
    tasks = parquet.read(folder / "tasks.parquet", ("row", "launcher"))
    size = len(processes["pid"])
    for file, column, least in (
        (process_tables.PROCESSES, processes["parent"], -1),
        (process_tables.SPAWNS, spawns["launcher"], 0),
        ("tasks.parquet", tasks["row"], -1),
    ):
        if len(column) and not (int(column.min()) >= least and int(column.max()) < size):
            raise errors.DamagedFileError(str(folder / file), 0, "it refers to a missing process")
    return Tables(
        capture.Processes(
            processes["pid"],
            processes["parent"],
            processes["started_us"],
            processes["count"],
            *(processes[name].tolist() for name in process_tables.TEXTS),
        ),
        capture.Spawns(
            spawns["launcher"], spawns["name"].tolist(), spawns["second"], spawns["count"]
        ),
        tasks["row"],
        tasks["launcher"].tolist(),
    )
