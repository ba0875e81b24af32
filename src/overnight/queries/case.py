"""One event and everything recorded around it: the input of the detectors.

A case reads a data home; an opened bundle is one, too. It caches what it read, because detectors ask
for the same windows again and again.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from overnight.model import times
from overnight.model.event import DEATHS, IMPORTED, is_outcome
from overnight.model.finding import Need
from overnight.model.selection import Selection, Window
from overnight.model.times import SECOND_US
from overnight.queries import baselines, consumers, freshness, processes, samples, signals
from overnight.queries import diff as diffs
from overnight.queries import flame as flames
from overnight.queries import reader as profiles
from overnight.queries import top as tops
from overnight.store import loads, readings, segments
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.actor import Actor
    from overnight.model.event import Event
    from overnight.model.instrument import Reading, Recording
    from overnight.model.load import Load

Result = TypeVar("Result")
Facts = Mapping[str, Mapping[str, object]]
# What the flight recorder reports of itself; see agent/recorder_loop.py.
PROBLEMS = "agent-problems"

BEFORE_US = 30 * SECOND_US
AFTER_US = 10 * SECOND_US
BASELINE_US = 600 * SECOND_US
# Between baseline and incident window: the incident may have begun before the event.
GUARD_US = 60 * SECOND_US
# A recording that began shortly before the event is divided into incident window, guard and baseline.
SHORT_US = BEFORE_US + GUARD_US + 60 * SECOND_US
INCIDENT_SHARE, GUARD_SHARE = 0.4, 0.1
STATE_US = 120 * SECOND_US  # nothing shorter counts as a state, however short the recording
MAX_RECURRENCES = 50
EVER = 1 << 62


class Case:
    """The evidence for one event on one host; `home` may hold other hosts, too."""

    def __init__(
        self,
        home: pathlib.Path,
        event: Event,
        within: Window | None = None,
        outcome: Event | None = None,
    ) -> None:
        """Read everything recorded, or what was recorded `within` a window: an arm of an investigation.

        The event may belong to the incident that an application's `outcome` falls into.
        """
        self.home = home
        self.event = event
        self.outcome = outcome or (event if is_outcome(event.kind) else None)
        self.host = event.host
        self.ring = rings.Reader(home, (within.begin_us, within.end_us) if within else (0, EVER))
        self.profiles = profiles.Reader(segments.Catalogue(home))
        self._cores: dict[Window, signals.Cores] = {}
        self._readings: dict[tuple[Window, tuple[str, ...]], tuple[Reading, ...]] = {}
        self._stacks: dict[tuple[Window, bool], samples.WindowSamples] = {}
        self._processes: dict[
            tuple[Window, Selection], dict[Actor, tuple[processes.Process, ...]]
        ] = {}
        self._results: dict[Callable[..., Any], Any] = {}

    def once(self, compute: Callable[[Case], Result]) -> Result:
        """Return what a function makes of this case, computed once for all that ask."""
        if compute not in self._results:
            self._results[compute] = compute(self)
        result: Result = self._results[compute]
        return result

    @property
    def window(self) -> Window:
        """The incident window: 30 s before the event to 10 s after it, as far as it is recorded."""
        end = max(self.event.time_us, min(self.event.until_us, self.event.time_us + 60 * SECOND_US))
        incident, _, _ = self._lengths(self.event)
        return Window(self.event.time_us - incident, self._until(end))

    @property
    def baseline(self) -> Window:
        """Ten minutes until a minute before the incident window, if they are recorded and undisturbed."""
        return self.compared.window

    @property
    def whole(self) -> Window:
        """The time from the begin of the baseline to the end of the incident window."""
        return Window(self.baseline.begin_us, self.window.end_us)

    @functools.cached_property
    def compared(self) -> baselines.Baseline:
        """The baseline, and how it was chosen."""
        _, guard, length = self._lengths(self.event)
        end = self.window.begin_us - guard
        wanted = Window(end - length, end)
        extent = self._extent
        sampled = self.has_profile(self.window)
        return baselines.choose(
            wanted,
            extent[0] if extent else wanted.begin_us,
            [self._other_incidents(guarded=True), self._other_incidents(guarded=False)],
            lambda window: self.has_profile(window) or not sampled,
        )

    def _other_incidents(self, *, guarded: bool) -> list[tuple[int, int]]:
        """Return the incident windows of other events of this kind, begin and end.

        Only of this kind: a baseline without any saturated core would make every saturated core look new.
        An event that lasts as long as a baseline is a state, such as a core that is polled on all night,
        and belongs to the baseline.
        """
        _, _, length = self._lengths(self.event)
        spans = []
        for event in self.events(Window(0, self.event.time_us), self.event.kind):
            if event.id == self.event.id or event.until_us - event.time_us >= max(length, STATE_US):
                continue
            incident, guard, _ = self._lengths(event)
            begin, end = event.time_us - incident, max(event.time_us, event.until_us) + AFTER_US
            spans.append((begin - guard, end + guard // 3) if guarded else (begin, end))
        return spans

    @property
    def baseline_text(self) -> str:
        """The baseline in words, for brackets."""
        than = " an earlier event" if self.compared.moved else ""
        return f"the {times.format_duration(self.baseline.seconds)} before{than}"

    def _until(self, end: int) -> int:
        """Return the end of the incident window: a recording may end sooner than 10 s after the event."""
        if self.event.kind in DEATHS:
            return self.event.time_us + 1
        extent = self._extent
        recorded = extent[1] + 1 if extent else end + AFTER_US
        return max(end, self.event.time_us + SECOND_US, min(end + AFTER_US, recorded))

    @functools.cached_property
    def _extent(self) -> tuple[int, int] | None:
        return self.ring.extent(self.host)

    def _lengths(self, event: Event) -> tuple[int, int, int]:
        """Return the lengths of incident window (before the event), guard and baseline."""
        extent = self._extent
        known = event.time_us - extent[0] if extent else 0
        if known <= 0:
            return BEFORE_US, GUARD_US, BASELINE_US
        if known >= SHORT_US:  # a baseline is not longer than the recording
            return BEFORE_US, GUARD_US, min(BASELINE_US, known - BEFORE_US - GUARD_US)
        incident, guard = min(BEFORE_US, int(INCIDENT_SHARE * known)), int(GUARD_SHARE * known)
        return incident, guard, max(known - incident - guard, 1)

    @functools.cached_property
    def recurrences(self) -> tuple[Event, ...]:
        """Other events of the same kind, on any host; the latest first."""
        same = [
            event
            for event in self.ring.events(0, EVER, kinds=[self.event.kind])
            if event.id != self.event.id
        ]
        return tuple(sorted(same, key=lambda event: -event.time_us)[:MAX_RECURRENCES])

    def loads(self) -> tuple[Load, ...]:
        """Return the loads that ran on this host during the baseline or the incident window."""
        return loads.read_loads(self.home, self.host, self.baseline.begin_us, self.window.end_us)

    def recordings(self, window: Window) -> tuple[Recording, ...]:
        """Return the instruments that ran on this host in a window."""
        return readings.read_recordings(self.home, self.host, window.begin_us, window.end_us)

    def readings(self, window: Window, *kinds: str) -> tuple[Reading, ...]:
        """Return the readings of instruments in a window, of these kinds."""
        key = (window, kinds)
        if key not in self._readings:
            begin, end = window.begin_us, window.end_us
            stored = readings.read_readings(self.home, self.host, begin, end, kinds)
            self._readings[key] = tuple(reading for _, reading in stored)
        return self._readings[key]

    @functools.cached_property
    def _event(self) -> int | str:
        """The sampled event of the incident window, and of what is compared with it."""
        before = self.profiles.metas((self.host,), self.baseline)
        return self.profiles.resolved(Selection(), (self.host,), self.window, before).event

    def _select(self, chosen: Selection) -> Selection:
        return chosen if chosen.event else dataclasses.replace(chosen, event=self._event)

    def events(self, window: Window, *kinds: str) -> tuple[Event, ...]:
        """Return the events of this host in a window; a kind that ends with a dot is a prefix."""
        return tuple(
            event
            for event in self._own_events
            if event.overlaps(window.begin_us, window.end_us)
            and (not kinds or any(map(event.is_of, kinds)))
        )

    @functools.cached_property
    def _own_events(self) -> tuple[Event, ...]:
        """All events of this host: they are stored by the month, and detectors ask a dozen times."""
        return self.ring.events(0, EVER, (self.host,))

    def cores(self, window: Window) -> signals.Cores:
        """Return what each core did, second by second."""
        if window not in self._cores:
            self._cores[window] = signals.core_series(self.ring, self.host, window)
        return self._cores[window]

    def rates(
        self,
        signal: str,
        window: Window,
        *,
        keys: Collection[str] | None = None,
        columns: Collection[str] | None = None,
    ) -> signals.Rates:
        return signals.counter_rate(
            self.ring, self.host, signal, window, keys=keys, columns=columns
        )

    def ran(
        self, windows: Sequence[Window], chosen: Selection = Selection()
    ) -> tuple[tuple[consumers.Consumer, ...], int]:
        """Return what ran in any of the windows, the top consumer first; and the idle samples."""
        return consumers.rank_processes(self.profiles, self.host, windows, self._select(chosen))

    def tally(self, windows: Sequence[Window]) -> consumers.Tally:
        """Count the samples of every unit, process and function in each window."""
        chosen = self._select(Selection())
        return consumers.count_functions(self.profiles, self.host, windows, chosen)

    @functools.cached_property
    def problems(self) -> Facts:
        """What the flight recorder could not read at the event, by signal, and why."""
        return self.ring.facts(self.host, PROBLEMS, self.event.time_us).state or {}

    def facts(self, signal: str, at_us: int | None = None) -> Facts | None:
        """Return a signal's facts at the event or shortly before; None: unknown, or too old (`freshness`)."""
        if freshness.explain_silence(self, signal):
            return None
        at_us = self.event.time_us if at_us is None else at_us
        return self.ring.facts(self.host, signal, at_us).state

    def recorded(self, window: Window) -> Mapping[str, tuple[str, ...]]:
        """Return the signals with numbers that the flight recorder recorded in a window, and their columns."""
        return self.ring.signals(self.host, window.begin_us, window.end_us)

    @functools.cached_property
    def imported(self) -> frozenset[Need] | None:
        """What imported files contain at the event; None where the recorder ran, or nothing was imported."""
        recorded = self.recorded(self.window)
        files = self.events(self.whole, IMPORTED)
        if not files or recorded.keys() - {Need.CPU}:
            return None
        # A kernel log that ends before the event does not show that nothing happened.
        at_us = self.event.time_us
        logs = [file for file in files if file.fields.get("contains") == Need.EVENTS]
        contained = {
            Need.CPU: Need.CPU in recorded,
            Need.EVENTS: any(log.overlaps(at_us, at_us + 1) for log in logs),
            Need.PROFILES: self.has_profile(self.window),
        }
        return frozenset(need for need, is_there in contained.items() if is_there)

    def has_profile(self, window: Window) -> bool:
        return bool(self.profiles.touched((self.host,), window, *profiles.TABLES))

    def capacity(self, window: Window, chosen: Selection = Selection()) -> tuple[float, float]:
        """Return the samples that the chosen cores can have in a window; and its recorded seconds."""
        if not self.has_profile(window):
            return 0.0, 0.0
        coverage = self.profiles.coverage((self.host,), window, self._select(chosen))
        return coverage.capacity, coverage.recorded_seconds

    def top(self, window: Window, chosen: Selection = Selection(), *, limit: int = 20) -> tops.Top:
        """Return the processes that used most CPU."""
        chosen = self._select(chosen)
        return tops.top(self.profiles, window, chosen, hosts=(self.host,), limit=limit)

    def processes_of(self, actor: Actor, window: Window) -> tuple[processes.Process, ...]:
        """Return the processes of an actor that ran in a window, the busiest first; () where unknown."""
        return self.actors(window).get(actor, ())

    def actors(
        self, window: Window, chosen: Selection = Selection()
    ) -> Mapping[Actor, tuple[processes.Process, ...]]:
        """Return the processes of each actor that ran in a window, the busiest first."""
        key = (window, chosen)
        if key not in self._processes:
            self._processes[key] = processes.describe(
                self.profiles, (self.host,), window, self._select(chosen)
            )
        return self._processes[key]

    def spawns(self, window: Window, chosen: Selection = Selection()) -> processes.Spawns:
        """Return who started processes in a window, and how many each second."""
        return processes.count_spawns(self.profiles, self.host, window, self._select(chosen))

    def stacks(self, window: Window, *, by_second: bool = True) -> samples.WindowSamples:
        """Return the busy samples by process, core and second; cached, as several detectors ask."""
        key = (window, by_second)
        if key not in self._stacks:
            self._stacks[key] = samples.read_window(
                self.profiles, self.host, window, self._select(Selection()), by_second=by_second
            )
        return self._stacks[key]

    def flame(self, window: Window, chosen: Selection = Selection()) -> flames.FlameTree:
        return flames.flame(self.profiles, window, self._select(chosen), hosts=(self.host,))

    def diff(
        self, window: Window, baseline: Window, chosen: Selection = Selection()
    ) -> diffs.Difference:
        return diffs.diff(self.profiles, window, baseline, self._select(chosen), hosts=(self.host,))
