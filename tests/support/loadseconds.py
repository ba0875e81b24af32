"""Seconds of a load, built from columns, and their verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from overnight.load import constancy, measurement

if TYPE_CHECKING:
    from overnight import load


def judge(
    values: Mapping[load.Metric, Sequence[float]],
    *,
    sys: Mapping[int, Sequence[float]] | None = None,
    steal: Sequence[float] = (),
    waits: Sequence[float] = (),
    pressure: Mapping[str, Sequence[float]] | None = None,
    **more,
) -> constancy.Verdict:
    """Judge a load of one second per value; an empty column is zero throughout."""
    seconds = [
        measurement.Second(
            us=n * 1_000_000,
            at=float(n),
            warm=True,
            values={metric.name: float(column[n]) for metric, column in values.items()},
            sys={core: column[n] for core, column in (sys or {}).items()},
            steal=steal[n] if steal else 0.0,
            waits=waits[n] if waits else 0.0,
            pressure={name: column[n] for name, column in (pressure or {}).items()},
            trials=0,
        )
        for n in range(len(next(iter(values.values()))))
    ]
    return constancy.judge(seconds, tuple(values), **more)
