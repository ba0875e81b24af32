"""The processes of a segment and what they started: two small tables that older segments do not have."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

import numpy as np

from overnight import errors
from overnight.model.times import SECOND_NS
from overnight.store import capture, parquet

if TYPE_CHECKING:
    import numpy.typing as npt

PROCESSES, SPAWNS = FILES = ("processes.parquet", "spawns.parquet")
TEXTS = ("name", "comm", "executable", "command", "user", "cgroup", "unit", "container", "pod")
NUMBERS = ("pid", "parent", "started_us", "count")


def write(
    folder: pathlib.Path, captured: capture.Capture, row: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Write what this part of a capture needs; return the tasks' rows in the table that was written."""
    processes, spawns = captured.processes, captured.spawns
    if processes is None or spawns is None:
        return row
    first, last = captured.begin // SECOND_NS, -(-captured.end // SECOND_NS)
    here = np.flatnonzero((spawns.second >= first) & (spawns.second <= last))
    kept = _with_ancestors(processes.parent, {*row.tolist(), *spawns.launcher[here].tolist()})
    place = np.full(len(processes.pid) + 1, -1, np.int32)
    place[kept] = np.arange(len(kept))
    rows = kept.tolist()
    parquet.write(
        folder / PROCESSES,
        {
            **{name: getattr(processes, name)[kept] for name in NUMBERS},
            "parent": place[processes.parent[kept]],
            **{name: parquet.texts([getattr(processes, name)[i] for i in rows]) for name in TEXTS},
        },
    )
    parquet.write(
        folder / SPAWNS,
        {
            "launcher": place[spawns.launcher[here]],
            "name": parquet.texts([spawns.name[i] for i in here.tolist()]),
            "second": spawns.second[here],
            "count": spawns.count[here],
        },
    )
    return place[row]


def _with_ancestors(parent: npt.NDArray[np.int32], rows: set[int]) -> npt.NDArray[np.int64]:
    chosen = rows | {-1}
    for row in sorted(rows - {-1}):
        while (row := int(parent[row])) not in chosen:
            chosen.add(row)
    return np.array(sorted(chosen - {-1}), np.int64)


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
    processes = parquet.read(folder / PROCESSES, (*NUMBERS, *TEXTS))
    spawns = parquet.read(folder / SPAWNS, ("launcher", "name", "second", "count"))
    tasks = parquet.read(folder / "tasks.parquet", ("row", "launcher"))
    size = len(processes["pid"])
    for file, column, least in (
        (PROCESSES, processes["parent"], -1),
        (SPAWNS, spawns["launcher"], 0),
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
            *(processes[name].tolist() for name in TEXTS),
        ),
        capture.Spawns(
            spawns["launcher"], spawns["name"].tolist(), spawns["second"], spawns["count"]
        ),
        tasks["row"],
        tasks["launcher"].tolist(),
    )
