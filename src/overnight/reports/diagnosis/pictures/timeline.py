"""The cores around an event, second by second: a few cores large, all cores as a band."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from overnight.model.instrument import format_us
from overnight.model.severity import Severity
from overnight.reports import svg
from overnight.reports.diagnosis import pictures, wording
from overnight.reports.pictures import colours, layout

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.selection import Window
    from overnight.queries import signals

WIDTH, LEFT, RIGHT = 1100, 120, 186
STRIP, APART = 56, 12
LANE, LANES = 16, 4
MAX_LARGE = 4
LEVELS = len(colours.HEAT[0])
SANS, BOLD = 6.7, 8.4  # px per character: our own words; the widest names
_Label: TypeAlias = "tuple[Event, int, tuple[float, str]]"  # lane; left end and text
HATCH = """<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<path class="hatch" d="M0 0v6"/></pattern></defs>"""


def involved(shown: signals.Cores, wanted: Sequence[int]) -> tuple[int, ...]:
    """Return the wanted cores that were recorded, no more than there is room for."""
    return tuple(core for core in dict.fromkeys(wanted) if core in shown.cores)[:MAX_LARGE]


class Timeline:
    """The picture; a second that was not recorded is hatched, never drawn as idle."""

    def __init__(
        self,
        shown: signals.Cores,
        large: Sequence[int],
        incident: Window | None,
        marks: Sequence[Event],
        waits: Mapping[int, Sequence[tuple[int, float]]] | None = None,
    ) -> None:
        self.shown, self.window, self.incident = shown, shown.coverage.window, incident
        self.large = involved(shown, large)
        self.everyone = range(len(shown.cores))
        # Percent by mode, interval and core; NaN if it is not known.
        self.rows = {mode: shown.values[mode].tolist() for mode in ("busy", "kernel")}
        self.spans = list(zip(shown.begin_us.tolist(), shown.end_us.tolist(), strict=True))
        begin, end = self.window.begin_us, self.window.end_us
        self.seen = [event for event in marks if begin <= event.time_us < end]
        # Longest waits for a core, from an instrument: core, then the end of a second and microseconds.
        self.waits = {
            core: [(us, wait) for us, wait in (waits or {}).get(core, ()) if begin <= us < end]
            for core in self.large
        }

    def x(self, us: float) -> float:
        begin, end = self.window.begin_us, self.window.end_us
        inside = min(max(us, begin), end)
        return LEFT + (inside - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)

    def draw(self) -> str:
        labels = self._place_labels()
        used = 1 + max((lane for _, lane, _ in labels), default=-1)
        top = y = 8 + LANE * (used + (1 if self.incident else 0))
        strips: list[str] = []
        for core in self.large:
            strips += self._draw_strip(f"core {core}", [self.shown.cores.index(core)], y)
            strips += self._draw_waits(self.waits[core], y)
            y += STRIP + APART
        strips += self._draw_strip(f"mean of {len(self.everyone)}", self.everyone, y)
        y += STRIP + APART + 8
        band, height = self._draw_band(y)
        bottom = y + height
        parts = [
            HATCH,
            *strips,
            *band,
            *self._draw_hatches(top, bottom),
            *self._draw_window(top, bottom),
            *self._draw_marks(labels, top, bottom),
            *self._draw_axis(bottom),
            *_draw_key(bottom + 44, with_waits=any(self.waits.values())),
        ]
        title = f"Each core, second by second, on {wording.clean(self.shown.host, 80)}"
        size = (WIDTH, bottom + (72 if any(self.waits.values()) else 56))
        return pictures.frame("timeline", title, self._describe(), size, parts)

    @functools.cached_property
    def _incident_intervals(self) -> list[int]:
        """The intervals whose middle is in the incident window."""
        if self.incident is None:
            return []
        begin, end = self.incident.begin_us, self.incident.end_us
        return [n for n, span in enumerate(self.spans) if begin <= sum(span) // 2 < end]

    def _mean_in_window(self, mode: str, which: Sequence[int]) -> float:
        values = self.rows[mode]
        return _mean([values[n][core] for n in self._incident_intervals for core in which])

    def _draw_strip(self, name: str, which: Sequence[int], y: int) -> Iterator[str]:
        right = WIDTH - RIGHT
        yield f'<rect class="back" x="{LEFT}" y="{y}" width="{right - LEFT}" height="{STRIP}"/>'
        for mode, values in self.rows.items():
            path = []
            for n, (begin, end) in enumerate(self.spans):
                value = _mean([values[n][core] for core in which])
                if value > 0:  # not NaN
                    high = min(100.0, value) / 100 * STRIP
                    left, wide = self.x(begin), max(0.5, self.x(end) - self.x(begin) - 0.6)
                    path.append(f"M{left:.1f} {y + STRIP - high:.1f}h{wide:.1f}v{high:.1f}h{-wide:.1f}z")  # fmt: skip
            yield f'<path class="{mode}" d="{"".join(path)}"/>'
        yield f'<path class="rule" d="M{LEFT} {y + STRIP / 2:g}H{right}M{LEFT} {y + STRIP}H{right}M{LEFT} {y}H{right}"/>'
        yield f'<text class="b e" x="{LEFT - 26}" y="{y + STRIP / 2 + 4:g}">{svg.safe(name)}</text>'
        for percent, down in ((0, STRIP), (100, 8)):
            yield f'<text class="t e" x="{LEFT - 3}" y="{y + down}">{percent}</text>'
        busy, kernel = (self._mean_in_window(mode, which) for mode in ("busy", "kernel"))
        if not math.isnan(busy):
            yield f'<text class="b" x="{right + 8}" y="{y + 15}">{busy:.0f} % busy</text>'
            yield f'<text class="s" x="{right + 8}" y="{y + 31}">{kernel:.0f} % in the kernel</text>'
            yield f'<text class="s" x="{right + 8}" y="{y + 47}">in the incident window</text>'

    def _draw_waits(self, waits: Sequence[tuple[int, float]], y: int) -> Iterator[str]:
        """Draw a line from 10 µs at the bottom to 10 s at the top of a strip, logarithmic."""
        if not waits:
            return
        points = []
        for us, wait in waits:
            share = (math.log10(max(wait, 10.0)) - 1) / 6
            points.append(f"{self.x(us):.1f} {y + STRIP * (1 - min(1.0, share)):.1f}")
        tip = f"longest waits for this core, up to {format_us(max(wait for _, wait in waits))}"
        yield f'<path class="halo" d="M{"L".join(points)}"/>'  # the bars may be as dark as the line
        yield f'<path class="wait" d="M{"L".join(points)}"><title>{svg.safe(tip)}</title></path>'

    def _draw_band(self, y: int) -> tuple[list[str], int]:
        """Draw a row for each core, the thinner the more there are; a run of equal cells is one stroke."""
        count = max(1, len(self.shown.cores))
        row = (
            14
            if count <= 8
            else 8
            if count <= 32
            else 4
            if count <= 96
            else 3
            if count <= 192
            else 2
        )
        height, right = row * count, WIDTH - RIGHT
        parts = [
            f'<rect class="back" x="{LEFT}" y="{y}" width="{right - LEFT}" height="{height}"/>'
        ]
        spans, busy = self.spans, self.rows["busy"]
        runs: list[list[str]] = [[] for _ in range(LEVELS + 1)]
        for number in self.everyone:
            middle = y + (number + 0.5) * row
            start = 0
            levels = [_level(busy[n][number]) for n in range(len(spans))]
            for n in range(1, len(spans) + 1):
                if n < len(spans) and levels[n] == levels[start] and spans[n][0] == spans[n - 1][1]:
                    continue
                if levels[start] > 0:
                    left, wide = self.x(spans[start][0]), self.x(spans[n - 1][1])
                    runs[levels[start]].append(f"M{left:.1f} {middle:g}H{wide:.1f}")
                start = n
        parts += [
            f'<path class="h{level}" stroke-width="{row}" d="{"".join(d)}"/>'
            for level, d in enumerate(runs)
            if d
        ]
        every = next((n for n in (1, 2, 4, 8, 16, 32, 64) if n * row >= 26), 128)
        free = 0.0  # where there is room for the next core's label
        for number, core in enumerate(self.shown.cores):
            middle = y + (number + 0.5) * row
            if core in self.large:
                parts.append(f'<path class="pin" d="M{LEFT - 8} {middle - 5:g}v10l7 -5z"/>')
                parts.append(f'<path class="pin" d="M{right + 8} {middle - 5:g}v10l-7 -5z"/>')
                if middle >= free:
                    free = middle + 15
                    parts.append(
                        f'<text class="b" x="{right + 12}" y="{middle + 4:g}">core {core}, {self._format_saturated(number)}</text>'
                    )
            elif number % every == 0:
                parts.append(f'<text class="t e" x="{LEFT - 12}" y="{middle + 4:g}">{core}</text>')
        parts.append(f'<text class="b e" x="{LEFT - 26}" y="{y - 6}">all cores</text>')
        return parts, height

    def _format_saturated(self, number: int) -> str:
        """Return how long a core was saturated without a break."""
        best = run = 0
        for (begin, end), busy in zip(self.spans, self.rows["busy"], strict=True):
            run = run + end - begin if busy[number] >= 95 else 0
            best = max(best, run)
        return f"saturated {best / 1e6:.3g} s" if best else "never saturated"

    def _draw_hatches(self, top: int, bottom: int) -> Iterator[str]:
        for begin, end, why in self.shown.coverage.missing:
            x = self.x(begin)
            wide = max(1.0, self.x(end) - x)
            yield (
                f'<rect class="missing" x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{bottom - top}">'
                f"<title>not recorded: {svg.safe(wording.clean(why))}</title></rect>"
            )

    def _draw_window(self, top: int, bottom: int) -> Iterator[str]:
        if self.incident is None:
            return
        left, right = self.x(self.incident.begin_us), self.x(self.incident.end_us)
        yield f'<path class="hot" d="M{left:.1f} {bottom}V{top - 12}H{right:.1f}V{bottom}"/>'
        # Beside its bracket: the marks of events are above it.
        at, side = (left - 6, "e") if left > LEFT + 110 else (right + 6, "")
        length = f"incident window, {self.incident.seconds:.3g} s"
        yield f'<text class="b {side}" x="{at:.1f}" y="{top - 7}">{length}</text>'

    def _place_labels(self) -> list[_Label]:
        """Place the labels: lane (-1: no room) and left end; the most severe choose first."""
        taken: list[list[tuple[float, float]]] = [[] for _ in range(LANES)]
        placed = []
        for event in sorted(self.seen, key=layout.most_severe_first):
            core = f" core {event.core}" if event.core >= 0 else ""
            label = f"{layout.symbol(event)} {wording.clock(event.time_us, '%H:%M:%S')} {svg.fit(wording.clean(event.kind, 60), 40)}{core}"
            wide = len(label) * BOLD
            left = min(self.x(event.time_us) - 5, WIDTH - 4 - wide)
            placed.append((event, layout.find_lane(taken, left, wide), (left, label)))
        return placed

    def _draw_marks(self, labels: list[_Label], top: int, bottom: int) -> Iterator[str]:
        texts = []
        for event, lane, (left, label) in labels:
            x = self.x(event.time_us)
            tip = svg.safe(f"{wording.clean(event.kind, 80)}: {wording.clean(event.text)}")
            severity = Severity.of(event.severity)
            y = LANE * (lane + 1) if lane >= 0 else top
            yield (
                f'<g class="mark {severity}"><title>{tip}</title>'
                f'<path d="M{x:.1f} {y + 3 if lane >= 0 else top - 6}V{bottom + 6}"/></g>'
            )
            if lane >= 0:
                text = f'<text x="{left:.1f}" y="{y}">{svg.safe(label)}</text>'
                texts.append(f'<g class="mark {severity}">{text}</g>')
        yield from texts  # on top of all lines, so that none crosses a name

    def _draw_axis(self, bottom: int) -> Iterator[str]:
        for us, _ in layout.ticks(self.window.begin_us, self.window.end_us, 11):
            x = self.x(us)
            yield f'<path class="rule" d="M{x:.1f} {bottom}v5"/>'
            yield f'<text class="t d" x="{x:.1f}" y="{bottom + 18}">{wording.clock(us, "%H:%M:%S")}</text>'
        yield f'<text class="t e" x="{LEFT - 26}" y="{bottom + 18}">UTC</text>'

    def _describe(self) -> str:
        sentences = []
        for core in self.large:
            which = [self.shown.cores.index(core)]
            busy, kernel = (self._mean_in_window(mode, which) for mode in ("busy", "kernel"))
            if self.waits[core]:
                longest = max(wait for _, wait in self.waits[core])
                sentences.append(f"Tasks waited up to {format_us(longest)} for core {core}.")
            if not math.isnan(busy):
                sentences.append(f"In the incident window core {core} was {busy:.0f} % busy, {kernel:.0f} % in the kernel.")  # fmt: skip
        mean = self._mean_in_window("busy", self.everyone)
        if not math.isnan(mean):
            sentences.append(f"The mean of all {len(self.everyone)} cores was {mean:.0f} %.")
        sentences += [
            f"{wording.clock(event.time_us, '%H:%M:%S')} {wording.clean(event.kind, 60)}."
            for event in self.seen
        ]
        return " ".join(sentences)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.fmean(known) if known else math.nan


def _level(percent: float) -> int:
    return 0 if math.isnan(percent) else min(LEVELS, max(0, math.ceil(percent / 100 * LEVELS)))


def _draw_key(y: int, *, with_waits: bool) -> Iterator[str]:
    x = float(LEFT)
    if with_waits:
        yield f'<path class="wait" d="M{x:.1f} {y + 12}h12"/>'
        yield f'<text class="s" x="{x + 17:.1f}" y="{y + 16}">longest wait for the core: 10 µs (bottom) to 10 s, logarithmic</text>'
    for kind, text in (("kernel", "in the kernel"), ("busy", "busy in user space"), ("missing", "not recorded")):  # fmt: skip
        yield f'<rect class="{kind} edge" x="{x:.1f}" y="{y - 9}" width="12" height="11"/>'
        yield f'<text class="s" x="{x + 17:.1f}" y="{y}">{text}</text>'
        x += 34 + SANS * len(text)
    yield f'<text class="s" x="{x:.1f}" y="{y}">all cores: 0</text>'
    x += 78
    for level in range(1, LEVELS + 1):
        yield f'<path class="h{level}" stroke-width="11" d="M{x + 8 * (level - 1):.1f} {y - 3.5}h8"/>'
    yield f'<text class="s" x="{x + 8 * LEVELS + 5:.1f}" y="{y}">100 % busy; 100 % is all ticks of a core</text>'
