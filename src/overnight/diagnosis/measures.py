"""Numbers that clear a suspect, and how a check reads them from a case."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from overnight.model.suspect import SuspectOutcome
from overnight.model.times import SECOND_US
from overnight.queries import freshness, levels

if TYPE_CHECKING:
    from overnight.model.event import Value
    from overnight.model.selection import Window
    from overnight.queries import case as cases
    from overnight.queries import samples

ONE = 0.5  # the floor of a count: any whole number is above it
STACK_CORES = 0.05  # used in marked functions: below it no core is saturated by them
BEFORE_US = SECOND_US  # a reset changes links and interrupts itself: readings must be older


class NoDataError(Exception):
    """A suspect cannot be checked; the message is the reason."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number with the words around it; `name` is that of the value, with its denominator."""

    name: str
    level: levels.Level
    floor: float
    lead: str = ""
    tail: str = ""
    unit: str = ""
    digits: int = 1
    shown: tuple[str, str] | None = None  # instead of the numbers of incident window and baseline

    @property
    def now(self) -> str:
        number = self.shown[0] if self.shown else self._format(self.level.now)
        return f"{self.lead}{number}{self.tail}"

    @property
    def baseline(self) -> str:
        if self.shown:
            return self.shown[1]
        return "unknown" if self.level.before is None else self._format(self.level.before)

    @property
    def is_same(self) -> bool:
        """Whether incident window and baseline show the same number."""
        return self.shown is None and self._format(self.level.now) == self.baseline

    def describe_change(self) -> str:
        if self.shown or self.level.highest is None:
            return f"{self.now} (baseline {self.baseline})"
        return f"{self.now} (baseline {self.baseline}, at most {self._format(self.level.highest)})"

    def values(self) -> dict[str, Value]:
        numbers = (self.level.now, self.level.before, self.level.highest)
        names = (self.name, f"baseline_{self.name}", f"highest_baseline_{self.name}")
        pairs = zip(names, numbers, strict=True)
        return {name: round(number, 4) for name, number in pairs if number is not None}

    def _format(self, number: float) -> str:
        return f"{number:,.{self.digits if number < 100 else 0}f}{self.unit}"


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of one check; `look` replaces the check's command."""

    outcome: SuspectOutcome
    text: str
    values: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    look: str = ""


def judge(measures: Sequence[Measure], *remarks: str, look: str = "") -> Result:
    """Clear a suspect unless one of its numbers rose; remarks are shown with numbers that clear it."""
    values = {name: value for measure in measures for name, value in measure.values().items()}
    rose = [measure.level.rose(measure.floor) for measure in measures]
    changed = [each.describe_change() for each, is_up in zip(measures, rose, strict=True) if is_up]
    if changed:
        text = f"changed at the event: {', '.join(changed)}"
        return Result(SuspectOutcome.NOT_CLEARED, text, values, look)
    numbers = ", ".join(each.now for each in measures)
    is_same = len(measures) > 1 and all(each.is_same for each in measures)
    baseline = "the same" if is_same else ", ".join(each.baseline for each in measures)
    text = "; ".join(filter(None, (f"{numbers} (baseline {baseline})", *remarks)))
    if None in rose:
        return Result(SuspectOutcome.NOT_CHECKED, f"no baseline: {text}", values, look)
    return Result(SuspectOutcome.CLEARED, text, values, look)


def require_order(measures: Sequence[Measure]) -> None:
    """Raise NoDataError where a number that includes the reading after the event rose: it may be the event's effect."""
    for measure in measures:
        if measure.level.rose(measure.floor):
            raise NoDataError(f"{measure.now} shortly before or after the event")


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The case of an event, and its core, or the one that was saturated."""

    case: cases.Case
    core: int | None

    @property
    def cutoff_us(self) -> int:
        """The last moment that the event itself cannot have changed."""
        return self.case.event.time_us - BEFORE_US

    def level(
        self, signal: str, *columns: str, per: Sequence[str] = (), keys: Sequence[str] | None = None
    ) -> levels.Level | None:
        return levels.read_level(self.case, signal, columns, per=per, keys=keys)

    def rise(
        self,
        signal: str,
        *columns: str,
        keys: Sequence[str] | None = None,
        end_us: int | None = None,
    ) -> levels.Level | None:
        """Return how much counters rose until `end_us`, and in as much of the baseline."""
        return levels.read_level(self.case, signal, columns, keys=keys, end_us=end_us, total=True)

    def keys(self, signal: str, column: str) -> tuple[str, ...]:
        return self.case.rates(signal, self.case.window, columns=(column,)).keys

    def facts(self, signal: str) -> Mapping[str, Mapping[str, object]]:
        return self.case.facts(signal, self.cutoff_us) or {}

    def readings(
        self, signal: str, column: str, window: Window, key: str = ""
    ) -> list[tuple[int, int]]:
        """Return time and number of all readings in a window."""
        frames = self.case.ring.numbers(
            self.case.host, signal, window.begin_us, window.end_us, (key,), (column,)
        )
        present = (frame.series(key, column) for frame in frames if key in frame.keys)
        return [pair for times, numbers in present for pair in zip(times, numbers, strict=True)]

    def gauge(self, signal: str, column: str, window: Window, key: str = "") -> list[int]:
        return [number for _, number in self.readings(signal, column, window, key)]

    def is_recorded(self, signal: str) -> bool:
        return signal in self.case.recorded(self.case.window)

    def require_fresh(self, signals: Sequence[str]) -> None:
        """Raise NoDataError where one of the signals was recorded, but not until the event."""
        case = self.case
        recorded = {"events", "nic-queues", *case.recorded(case.whole)}
        recorded |= {"profiles"} if case.has_profile(case.window) else set()
        for signal in recorded.intersection(signals):
            if why := freshness.explain_doubt(case, signal):
                raise NoDataError(why)

    def missing(self, *signals: str) -> NoDataError:
        """Return why these signals are missing, in the recorder's own words where it knows."""
        for signal in signals:
            if problem := self.case.problems.get(signal, {}).get("problem"):
                return NoDataError(str(problem))
        names = " and ".join(signals)
        if self.case.imported is not None:
            return NoDataError(f"not in the imported files: {names}")
        words = f"signal {names} was" if len(signals) == 1 else f"signals {names} were"
        return NoDataError(f"the {words} not recorded around the event")

    def stacks(self, name: str, functions: str, tail: str, without: str = "(?!)") -> list[Measure]:
        """Compare the cores used in some kernel functions; nothing where stacks were not sampled.

        Stacks that contain a function of `without` do not count.
        """
        case = self.case
        if not case.has_profile(case.window):
            return []
        now, before = _cores_in(case.stacks(case.window), functions, without), None
        if case.has_profile(case.baseline):
            earlier = case.stacks(case.baseline, by_second=False)
            before = _cores_in(earlier, functions, without)
        level = levels.Level(now, before, before)
        return [Measure(name, level, STACK_CORES, tail=tail, digits=2)]


def _cores_in(sampled: samples.WindowSamples, functions: str, without: str) -> float:
    count = 0
    for part in sampled.segments:
        below, excluded = (
            part.tables.mark_below(np.flatnonzero(part.kernel_frames(pattern)[part.tables.frame]))
            for pattern in (functions, without)
        )
        count += int(part.count[(below & ~excluded)[part.node]].sum())
    return sampled.cores(count, sampled.seconds)
