"""The heatmap of cores from the flight recorder's readings, for windows without stacks."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from overnight.model.selection import Coverage, Window
from overnight.model.times import HOUR_US, SECOND_US
from overnight.queries import core_history, heatmap, signals

if TYPE_CHECKING:
    from overnight.store.ring import reader

NOTE = "this is the CPU time of each core (`overnight cpu`)"


def by_core(
    source: reader.Reader,
    window: Window,
    hosts: tuple[str, ...],
    *,
    cores: Collection[int] = (),
    step_us: int = SECOND_US,
    mode: str = "busy",
    why: str = "no stacks were recorded in this window",
) -> heatmap.Heatmap:
    """Return percent of each core's time: the mean of the readings at evenly spaced instants of each column.

    `why` there are no stacks is said in a note.
    """
    heatmap.check(mode, step_us)
    begin_us = window.begin_us // SECOND_US * SECOND_US
    columns = -(-(window.end_us - begin_us) // step_us)
    whole = Window(begin_us, begin_us + columns * step_us)
    found: dict[tuple[str, int], signals.Floats] = {}
    gaps: list[tuple[int, int, str]] = []
    seconds = core_seconds = 0.0
    heatmap.make_cells(columns, 1)
    for host in hosts:
        for part in core_history.parts(source, host, whole, max(1, HOUR_US // step_us) * step_us):
            first, last = ((us - begin_us) // step_us for us in (part.begin_us, part.end_us))
            series = signals.core_series(source, host, part)
            values = _sample(series, mode, part, step_us)
            for core, shares in zip(series.cores, values.T, strict=True):
                if not cores or core in cores:
                    row = found.setdefault((host, core), np.full(columns, np.nan))
                    row[first:last] = shares
            seconds += series.coverage.covered_seconds
            core_seconds += series.coverage.covered_seconds * len(series.cores)
            gaps += (gap for gap in series.coverage.missing if gap[1] - gap[0] > SECOND_US)
    cells = heatmap.make_cells(columns, len(found))
    keys = sorted(found, key=lambda key: (hosts.index(key[0]), key[1]))
    shares = np.array([found[key] for key in keys]).reshape(-1, columns).T
    cells[:] = np.rint(np.nan_to_num(shares))
    covered = Coverage(
        hosts,
        whole,
        seconds,
        core_seconds,
        0.0,
        0,
        0,
        0,
        0,
        tuple(gaps),
        (f"{why}; {NOTE}", *source.problems),
    )
    rows = tuple(str(core) if len(hosts) == 1 else f"{host} {core}" for host, core in keys)
    return heatmap.Heatmap(
        "core", mode, begin_us, step_us, rows, cells, 100.0, covered, ~np.isnan(shares), "signals"
    )


def _sample(series: signals.Cores, mode: str, part: Window, step_us: int) -> signals.Floats:
    """Return by column and core the mean of as many instants as a column has readings; NaN: not recorded."""
    columns = (part.end_us - part.begin_us) // step_us
    lengths = series.end_us - series.begin_us
    if not len(lengths):
        return np.full((columns, len(series.cores)), np.nan)
    each = max(1, round(step_us / float(np.median(lengths))))
    order = np.argsort(series.begin_us, kind="stable")
    instants = part.begin_us + ((np.arange(columns * each) + 0.5) * step_us / each).astype(np.int64)
    at = order[np.searchsorted(series.begin_us[order], instants, "right") - 1]
    inside = (series.begin_us[at] <= instants) & (instants < series.end_us[at])
    shares = np.where(inside[:, None], series.values[mode][at], np.nan)
    shares = shares.reshape(columns, each, len(series.cores))
    known = (~np.isnan(shares)).sum(axis=1)
    means = np.nansum(shares, axis=1) / np.where(known > 0, known, np.nan)
    return np.asarray(means, np.float64)
