"""One event and everything recorded around it: what detectors look at.

A case is read from a data home or from an opened bundle, which is a data home, too. It only reads, and
keeps what was read: detectors ask for the same windows again and again.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.selection import Selection, Window
from overnight.model.times import SECOND_US
from overnight.queries import baselines, signals
from overnight.queries import reader as profiles
from overnight.store import loads, segments
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.load import Load
    from overnight.queries import consumers, diff, flame, samples, top

__all__ = ["Case"]

BEFORE_US = 30 * SECOND_US
AFTER_US = 10 * SECOND_US
BASELINE_US = 600 * SECOND_US
GUARD_US = (
    60 * SECOND_US
)  # between baseline and window: the trouble may have begun before the event
# A recording that began shortly before the event is divided: what is hot, a little between, and the rest
# to compare with.
SHORT_US = BEFORE_US + GUARD_US + 60 * SECOND_US
HOT_SHARE, GUARD_SHARE = 0.4, 0.1
STATE_US = 120 * SECOND_US  # nothing shorter is called a state, however short the recording
MOST_RECURRENCES = 50


class Case:
    """The evidence of one event on one host; `home` may hold other hosts, too."""

    def __init__(self, home: pathlib.Path, told: Event) -> None:
        self.home = home
        self.event = told
        self.host = told.host
        self.ring = rings.Reader(home)
        self.profiles = profiles.Reader(segments.Catalogue(home))
        self._cores: dict[Window, signals.Cores] = {}

    @property
    def window(self) -> Window:
        """The hot stretch: half a minute before the event to ten seconds after, as far as it is recorded."""
        end = max(self.event.time_us, min(self.event.until_us, self.event.time_us + 60 * SECOND_US))
        hot, _, _ = self._lengths(self.event)
        return Window(self.event.time_us - hot, self._until(end))

    @property
    def baseline(self) -> Window:
        """Ten minutes that end a minute before the hot stretch; less of both in a short recording, and
        others where an earlier event of this kind has its trouble in them.
        """
        return self.compared.window

    @functools.cached_property
    def compared(self) -> baselines.Baseline:
        """The baseline, and what is to be said of it."""
        _, guard, length = self._lengths(self.event)
        end = self.window.begin_us - guard
        wanted = Window(end - length, end)
        extent = self._extent
        sampled = self.has_profile(self.window)
        return baselines.choose(
            wanted,
            extent[0] if extent else wanted.begin_us,
            [self._troubles(guarded=True), self._troubles(guarded=False)],
            lambda one: self.has_profile(one) or not sampled,
        )

    def _troubles(self, *, guarded: bool) -> list[tuple[int, int]]:
        """What other events of this kind had around them, as their own cases see it.

        Only of this kind: a baseline without any full core, say, would make every full core a new one. And
        what lasts for as long as a baseline is no trouble but a state, such as a core that is polled on all
        night: that is what is usual.
        """
        _, _, length = self._lengths(self.event)
        found = []
        for one in self.ring.events(0, self.event.time_us, (self.host,), [self.event.kind]):
            if one.id == self.event.id or one.until_us - one.time_us >= max(length, STATE_US):
                continue
            hot, guard, _ = self._lengths(one)
            begin, end = one.time_us - hot, max(one.time_us, one.until_us) + AFTER_US
            found.append((begin - guard, end + guard // 3) if guarded else (begin, end))
        return found

    @property
    def usual(self) -> str:
        """The baseline in words, after "in the"."""
        than = " an earlier event" if self.compared.moved else ""
        return f"{times.format_duration(self.baseline.seconds)} before{than}"

    def _until(self, end: int) -> int:
        """Who asks some seconds after the event, or records no longer, has no ten seconds to look at."""
        extent = self._extent
        recorded = extent[1] + 1 if extent else end + AFTER_US
        return max(end, self.event.time_us + SECOND_US, min(end + AFTER_US, recorded))

    @functools.cached_property
    def _extent(self) -> tuple[int, int] | None:
        return self.ring.extent(self.host)

    def _lengths(self, told: Event) -> tuple[int, int, int]:
        """Of the hot stretch before an event, of the guard and of the baseline."""
        extent = self._extent
        known = told.time_us - extent[0] if extent else 0
        if known <= 0:
            return BEFORE_US, GUARD_US, BASELINE_US
        if known >= SHORT_US:  # what is before the recording is not missing from it
            return BEFORE_US, GUARD_US, min(BASELINE_US, known - BEFORE_US - GUARD_US)
        hot, guard = min(BEFORE_US, int(HOT_SHARE * known)), int(GUARD_SHARE * known)
        return hot, guard, max(known - hot - guard, 1)

    @functools.cached_property
    def recurrences(self) -> tuple[Event, ...]:
        """Other events of the same kind, on any host, this one left out; the latest first."""
        same = [
            one
            for one in self.ring.events(0, 1 << 62, kinds=[self.event.kind])
            if one.id != self.event.id
        ]
        return tuple(sorted(same, key=lambda one: -one.time_us)[:MOST_RECURRENCES])

    def loads(self) -> tuple[Load, ...]:
        """Loads that ran on this host at some time of the baseline or the hot stretch."""
        return loads.read_loads(self.home, self.host, self.baseline.begin_us, self.window.end_us)

    def events(self, window: Window, *kinds: str) -> tuple[Event, ...]:
        """Events of this host in a window; a kind that ends with a dot stands for all below it."""
        return self.ring.events(window.begin_us, window.end_us, (self.host,), kinds or None)

    def cores(self, window: Window) -> signals.Cores:
        """What each core did, second by second."""
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
        """Counters of a signal by the second."""
        return signals.counter_rate(
            self.ring, self.host, signal, window, keys=keys, columns=columns
        )

    def ran(
        self, windows: Sequence[Window], chosen: Selection | None = None
    ) -> tuple[tuple[consumers.Consumer, ...], int]:
        """Who ran in any of the windows, by unit and process, the most first; and the idle samples."""
        from overnight.queries import consumers

        return consumers.rank_processes(self.profiles, self.host, windows, chosen)

    def tally(self, windows: Sequence[Window], chosen: Selection | None = None) -> consumers.Tally:
        """Samples of every unit, process and function in each window."""
        from overnight.queries import consumers

        return consumers.count_functions(self.profiles, self.host, windows, chosen)

    def has_signals(self, window: Window) -> bool:
        """Whether the flight recorder kept anything of a window."""
        return bool(self.ring.signals(self.host, window.begin_us, window.end_us))

    def has_profile(self, window: Window) -> bool:
        """Whether stacks were sampled in a window."""
        return self.host in self.profiles.catalogue.hosts() and bool(
            self.profiles.touched((self.host,), window)
        )

    def capacity(self, window: Window, chosen: Selection | None = None) -> tuple[float, float]:
        """Samples that the chosen cores would have made in a window; and its recorded seconds."""
        if not self.has_profile(window):
            return 0.0, 0.0
        found = [
            (one, self.profiles.meta(one)) for one in self.profiles.touched((self.host,), window)
        ]
        told = profiles.covered(
            (self.host,), window, found, chosen or Selection(), samples=0, idle=0
        )
        return told.capacity, told.recorded_seconds

    def top(
        self,
        window: Window,
        chosen: Selection | None = None,
        kind: str = "processes",
        limit: int = 20,
    ) -> top.Top:
        """Who used the cores."""
        from overnight.queries import top as tops

        return tops.top(self.profiles, window, chosen, hosts=(self.host,), kind=kind, limit=limit)

    @functools.cached_property
    def _stacks(self) -> dict[tuple[Window, bool], samples.WindowSamples]:
        return {}

    def stacks(self, window: Window, *, by_second: bool = True) -> samples.WindowSamples:
        """Busy samples by who ran them, core and second; read once, as several detectors ask."""
        from overnight.queries import samples

        key = (window, by_second)
        if key not in self._stacks:
            self._stacks[key] = samples.read_window(
                self.profiles, self.host, window, by_second=by_second
            )
        return self._stacks[key]

    def flame(self, window: Window, chosen: Selection | None = None) -> flame.FlameTree:
        """The stacks of a window."""
        from overnight.queries import flame as flames

        return flames.flame(self.profiles, window, chosen, hosts=(self.host,))

    def diff(
        self,
        window: Window,
        baseline: Window,
        chosen: Selection | None = None,
    ) -> diff.Difference:
        """What changed against a baseline, function by function."""
        from overnight.queries import diff as diffs

        return diffs.diff(self.profiles, window, baseline, chosen, hosts=(self.host,))
