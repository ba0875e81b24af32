"""A verdict and the evidence shown with it as a report, one module per format; none of them reads a disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.diagnosis import knowledge
    from overnight.model.event import Event
    from overnight.model.finding import Finding
    from overnight.model.flame import Folded
    from overnight.model.instrument import Recording, Row
    from overnight.model.selection import Window
    from overnight.queries import diff, signals, top
    from overnight.reports.pictures import difference


@dataclasses.dataclass(frozen=True)
class Census:
    """Memory cgroups at one instant: tracked by the kernel, with a directory, and dying."""

    time_us: int
    tracked: int
    in_use: int
    dying: int


@dataclasses.dataclass(frozen=True)
class Material:
    """The evidence shown with a verdict; None or empty if it was not recorded."""

    core: int = -1  # in focus
    incident: Window | None = None
    baseline: Window | None = None
    cores: signals.Cores | None = None  # of more than `incident`: a reader sees it begin and end
    events: tuple[Event, ...] = ()
    processes: top.Top | None = None  # of `core` in `incident`
    flame: Folded | None = None
    compared: difference.Compared | None = None  # both flame graphs of that core
    difference: diff.Difference | None = None
    lifts: tuple[Finding, ...] = ()  # of kind stack.lift
    census: tuple[Census, ...] = ()
    fleet: tuple[Finding, ...] = ()
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the host: zone, kernel
    recordings: tuple[Recording, ...] = ()  # of instruments that ran in the shown window
    readings: tuple[Row, ...] = ()  # theirs, summed up
    # The longest waits for a core: core, then time and microseconds.
    waits: Mapping[int, tuple[tuple[int, float], ...]] = dataclasses.field(default_factory=dict)
    problems: tuple[str, ...] = ()  # what could not be read, and why
    known: knowledge.Knowledge | None = None  # None: the built-in knowledge


EMPTY = Material()
