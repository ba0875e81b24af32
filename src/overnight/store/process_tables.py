"""The processes of a segment and what they started: two small tables that older segments do not have."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import numpy as np

from overnight.model.times import SECOND_NS
from overnight.store import capture, parquet_writer

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
    here = np.flatnonzero((spawns.second >= first) & (spawns.second < last))
    kept = _with_ancestors(processes.parent, {*row.tolist(), *spawns.launcher[here].tolist()})
    place = np.full(len(processes.pid) + 1, -1, np.int32)
    place[kept] = np.arange(len(kept))
    rows = kept.tolist()
    parquet_writer.write(
        folder / PROCESSES,
        {
            **{name: getattr(processes, name)[kept] for name in NUMBERS},
            "parent": place[processes.parent[kept]],
            **{name: [getattr(processes, name)[i] for i in rows] for name in TEXTS},
        },
    )
    parquet_writer.write(
        folder / SPAWNS,
        {
            "launcher": place[spawns.launcher[here]],
            "name": [spawns.name[i] for i in here.tolist()],
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
