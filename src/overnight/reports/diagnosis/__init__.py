"""A verdict as a report: one module a format, each from the same two values.

A `Verdict` says what was concluded; `Material` is what a reader wants to see beside it, as far as it was
recorded. Nothing in here reads a disk, and every part of the material may be missing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.finding import Finding
    from overnight.model.flame import Folded
    from overnight.model.selection import Window
    from overnight.queries import diff, signals, top
    from overnight.reports.pictures import difference

__all__ = ["EMPTY", "Census", "Lift", "Material"]


@dataclasses.dataclass(frozen=True)
class Lift:
    """How much more one (unit, process, function) ran before events than at other times.

    `lift` is the ratio of the rates, `low` the lower bound of its logarithm, `q_value` the expected share of
    false ones among those that are listed up to here.
    """

    unit: str
    process: str
    function: str
    lift: float
    low: float
    q_value: float
    recurrences: int
    cores_more: float


@dataclasses.dataclass(frozen=True)
class Census:
    """Memory cgroups at one look: those the kernel tracks, those with a directory, those that are dying."""

    time_us: int
    tracked: int
    in_use: int
    dying: int


@dataclasses.dataclass(frozen=True)
class Material:
    """What is shown beside a verdict; None or empty is what nobody recorded.

    `core` is the one the report looks at, `hot` the seconds of it, `baseline` what these are compared with.
    `cores` spans more than `hot`, so that a reader sees it begin and end.
    """

    core: int = -1
    hot: Window | None = None
    baseline: Window | None = None
    cores: signals.Cores | None = None
    events: tuple[Event, ...] = ()
    processes: top.Top | None = None  # of `core` in `hot`
    flame: Folded | None = None
    compared: difference.Compared | None = None  # both flame graphs of that core
    difference: diff.Difference | None = None
    lifts: tuple[Lift, ...] = ()
    census: tuple[Census, ...] = ()
    fleet: tuple[Finding, ...] = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the host: zone, kernel
    problems: tuple[str, ...] = ()  # what could not be gathered, and why


EMPTY = Material()
