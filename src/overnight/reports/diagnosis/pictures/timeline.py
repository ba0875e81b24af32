"""The cores around an event, second by second: a few cores large, all cores as a band."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

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
HATCH = """<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<path class="hatch" d="M0 0v6"/></pattern></defs>"""


@dataclasses.dataclass(frozen=True)
class _Time:
    begin: int
    end: int

    def x(self, us: float) -> float:
        inside = min(max(us, self.begin), self.end)
        return LEFT + (inside - self.begin) / (self.end - self.begin) * (WIDTH - LEFT - RIGHT)


def involved(shown: signals.Cores, wanted: Sequence[int]) -> tuple[int, ...]:
    """Return the wanted cores that were recorded, no more than there is room for."""
    return tuple(core for core in dict.fromkeys(wanted) if core in shown.cores)[:MAX_LARGE]


def draw_timeline(
    shown: signals.Cores, large: Sequence[int], incident: Window | None, marks: Sequence[Event]
) -> str:
    """Draw the cores. A second that was not recorded is hatched, never drawn as idle."""
    window = shown.coverage.window
    time = _Time(window.begin_us, window.end_us)
    # Percent by mode, interval and core; NaN if it is not known.
    rows = {mode: shown.values[mode].tolist() for mode in ("busy", "kernel")}
    seen = [event for event in marks if window.begin_us <= event.time_us < window.end_us]
    lanes = _place_labels(seen, time)
    used = 1 + max((lane for _, lane, _ in lanes), default=-1)
    top = 8 + LANE * (used + (1 if incident else 0))
    strips: list[str] = []
    y = top
    chosen = involved(shown, large)
    for core in chosen:
        which = [shown.cores.index(core)]
        strips += _draw_strip(f"core {core}", shown, rows, which, time, incident, y)
        y += STRIP + APART
    everyone = list(range(len(shown.cores)))
    strips += _draw_strip(f"mean of {len(everyone)}", shown, rows, everyone, time, incident, y)
    y += STRIP + APART + 8
    band, height = _draw_band(shown, rows["busy"], chosen, time, y)
    bottom = y + height
    parts = [
        HATCH,
        *strips,
        *band,
        *_draw_hatches(shown, time, top, bottom),
        *_draw_window(incident, time, top, bottom),
        *_draw_marks(lanes, time, top, bottom),
        *_draw_axis(time, bottom),
        *_draw_key(bottom + 44),
    ]
    desc = _describe(shown, rows, chosen, incident, seen)
    title = f"Each core, second by second, on {wording.clean(shown.host, 80)}"
    return pictures.frame("timeline", title, desc, (WIDTH, bottom + 56), parts)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.fmean(known) if known else math.nan


def _spans(shown: signals.Cores) -> list[tuple[int, int]]:
    return list(zip(shown.begin_us.tolist(), shown.end_us.tolist(), strict=True))


def _mean_in_window(
    shown: signals.Cores, values: list[list[float]], which: Sequence[int], incident: Window | None
) -> float:
    """Return the mean of these cores over the intervals whose middle is in the incident window."""
    if incident is None:
        return math.nan
    inside = [
        values[n][core]
        for n, (begin, end) in enumerate(_spans(shown))
        if incident.begin_us <= (begin + end) // 2 < incident.end_us
        for core in which
    ]
    return _mean(inside)


def _draw_strip(
    name: str,
    shown: signals.Cores,
    rows: dict[str, list[list[float]]],
    which: Sequence[int],
    time: _Time,
    incident: Window | None,
    y: int,
) -> Iterator[str]:
    right = WIDTH - RIGHT
    yield f'<rect class="back" x="{LEFT}" y="{y}" width="{right - LEFT}" height="{STRIP}"/>'
    for mode in ("busy", "kernel"):
        path = []
        for n, (begin, end) in enumerate(_spans(shown)):
            value = _mean([rows[mode][n][core] for core in which])
            if not math.isnan(value) and value > 0:
                high = min(100.0, value) / 100 * STRIP
                left, wide = time.x(begin), time.x(end) - time.x(begin)
                path.append(
                    f"M{left:.1f} {y + STRIP - high:.1f}h{max(0.5, wide - 0.6):.1f}v{high:.1f}h{-max(0.5, wide - 0.6):.1f}z"
                )
        yield f'<path class="{mode}" d="{"".join(path)}"/>'
    yield f'<path class="rule" d="M{LEFT} {y + STRIP / 2:g}H{right}M{LEFT} {y + STRIP}H{right}M{LEFT} {y}H{right}"/>'
    yield f'<text class="b e" x="{LEFT - 26}" y="{y + STRIP / 2 + 4:g}">{svg.safe(name)}</text>'
    for percent, down in ((0, STRIP), (100, 8)):
        yield f'<text class="t e" x="{LEFT - 3}" y="{y + down}">{percent}</text>'
    busy, kernel = (
        _mean_in_window(shown, rows[mode], which, incident) for mode in ("busy", "kernel")
    )
    if not math.isnan(busy):
        for n, line in enumerate(
            (f"{busy:.0f} % busy", f"{kernel:.0f} % in the kernel", "in the incident window")
        ):
            kind = "b" if n == 0 else "s"
            yield f'<text class="{kind}" x="{right + 8}" y="{y + 15 + 16 * n}">{line}</text>'


def _draw_band(
    shown: signals.Cores, busy: list[list[float]], large: Sequence[int], time: _Time, y: int
) -> tuple[list[str], int]:
    """Draw a row for each core, the thinner the more there are; a run of equal cells is one stroke."""
    count = max(1, len(shown.cores))
    row = 14 if count <= 8 else 8 if count <= 32 else 4 if count <= 96 else 3 if count <= 192 else 2
    height, right = row * count, WIDTH - RIGHT
    parts = [f'<rect class="back" x="{LEFT}" y="{y}" width="{right - LEFT}" height="{height}"/>']
    spans = _spans(shown)
    runs: list[list[str]] = [[] for _ in range(LEVELS + 1)]
    for number in range(len(shown.cores)):
        middle = y + (number + 0.5) * row
        start = 0
        levels = [_level(busy[n][number]) for n in range(len(spans))]
        for n in range(1, len(spans) + 1):
            if n < len(spans) and levels[n] == levels[start] and spans[n][0] == spans[n - 1][1]:
                continue
            if levels[start] > 0:
                left, wide = time.x(spans[start][0]), time.x(spans[n - 1][1])
                runs[levels[start]].append(f"M{left:.1f} {middle:g}H{wide:.1f}")
            start = n
    parts += [
        f'<path class="h{level}" stroke-width="{row}" d="{"".join(d)}"/>'
        for level, d in enumerate(runs)
        if d
    ]
    every = next((n for n in (1, 2, 4, 8, 16, 32, 64) if n * row >= 26), 128)
    free = 0.0  # where there is room for the next core's label
    for number, core in enumerate(shown.cores):
        middle = y + (number + 0.5) * row
        if core in large:
            parts.append(f'<path class="pin" d="M{LEFT - 8} {middle - 5:g}v10l7 -5z"/>')
            parts.append(f'<path class="pin" d="M{right + 8} {middle - 5:g}v10l-7 -5z"/>')
            if middle >= free:
                free = middle + 15
                parts.append(
                    f'<text class="b" x="{right + 12}" y="{middle + 4:g}">core {core}, {_format_saturated(shown, busy, number)}</text>'
                )
        elif number % every == 0:
            parts.append(f'<text class="t e" x="{LEFT - 12}" y="{middle + 4:g}">{core}</text>')
    parts.append(f'<text class="b e" x="{LEFT - 26}" y="{y - 6}">all cores</text>')
    return parts, height


def _format_saturated(shown: signals.Cores, busy: list[list[float]], number: int) -> str:
    """Return how long a core was saturated without a break."""
    best = run = 0
    for n, (begin, end) in enumerate(_spans(shown)):
        run = run + end - begin if busy[n][number] >= 95 else 0
        best = max(best, run)
    return f"saturated {best / 1e6:.3g} s" if best else "never saturated"


def _level(percent: float) -> int:
    return 0 if math.isnan(percent) else min(LEVELS, max(0, math.ceil(percent / 100 * LEVELS)))


def _draw_hatches(shown: signals.Cores, time: _Time, top: int, bottom: int) -> Iterator[str]:
    for begin, end, why in shown.coverage.missing:
        x = time.x(begin)
        yield (
            f'<rect class="missing" x="{x:.1f}" y="{top}" width="{max(1.0, time.x(end) - x):.1f}" height="{bottom - top}">'
            f"<title>not recorded: {svg.safe(wording.clean(why))}</title></rect>"
        )


def _draw_window(incident: Window | None, time: _Time, top: int, bottom: int) -> Iterator[str]:
    if incident is None:
        return
    left, right = time.x(incident.begin_us), time.x(incident.end_us)
    yield f'<path class="hot" d="M{left:.1f} {bottom}V{top - 12}H{right:.1f}V{bottom}"/>'
    # Beside its bracket: the marks of events are above it.
    at, side = (left - 6, "e") if left > LEFT + 110 else (right + 6, "")
    yield f'<text class="b {side}" x="{at:.1f}" y="{top - 7}">incident window, {incident.seconds:.3g} s</text>'


def _place_labels(
    marks: Sequence[Event], time: _Time
) -> list[tuple[Event, int, tuple[float, str]]]:
    """Place the labels: lane (-1: no room) and left end; the most severe choose first."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(LANES)]
    placed = []
    for event in sorted(marks, key=layout.most_severe_first):
        core = f" core {event.core}" if event.core >= 0 else ""
        label = f"{layout.symbol(event)} {wording.clock(event.time_us, '%H:%M:%S')} {svg.fit(wording.clean(event.kind, 60), 40)}{core}"
        wide = len(label) * BOLD
        left = min(time.x(event.time_us) - 5, WIDTH - 4 - wide)
        placed.append((event, layout.find_lane(taken, left, wide), (left, label)))
    return placed


def _draw_marks(
    lanes: list[tuple[Event, int, tuple[float, str]]], time: _Time, top: int, bottom: int
) -> Iterator[str]:
    texts = []
    for event, lane, (left, label) in lanes:
        x = time.x(event.time_us)
        tip = svg.safe(f"{wording.clean(event.kind, 80)}: {wording.clean(event.text)}")
        severity = Severity.of(event.severity)
        y = LANE * (lane + 1) if lane >= 0 else top
        yield (
            f'<g class="mark {severity}"><title>{tip}</title>'
            f'<path d="M{x:.1f} {y + 3 if lane >= 0 else top - 6}V{bottom + 6}"/></g>'
        )
        if lane >= 0:
            texts.append(
                f'<g class="mark {severity}"><text x="{left:.1f}" y="{y}">{svg.safe(label)}</text></g>'
            )
    yield from texts  # on top of all lines, so that none crosses a name


def _draw_axis(time: _Time, bottom: int) -> Iterator[str]:
    span = (time.end - time.begin) / 1e6
    step = next((s for s in layout.STEPS if span / s <= 11), 86400)
    at = -(-time.begin // (step * 1_000_000)) * step
    while at * 1_000_000 <= time.end:
        x = time.x(at * 1_000_000)
        yield f'<path class="rule" d="M{x:.1f} {bottom}v5"/>'
        yield f'<text class="t d" x="{x:.1f}" y="{bottom + 18}">{wording.clock(at * 1_000_000, "%H:%M:%S")}</text>'
        at += step
    yield f'<text class="t e" x="{LEFT - 26}" y="{bottom + 18}">UTC</text>'


def _draw_key(y: int) -> Iterator[str]:
    x = float(LEFT)
    for kind, text in (("kernel", "in the kernel"), ("busy", "busy in user space"), ("missing", "not recorded")):  # fmt: skip
        yield f'<rect class="{kind} edge" x="{x:.1f}" y="{y - 9}" width="12" height="11"/>'
        yield f'<text class="s" x="{x + 17:.1f}" y="{y}">{text}</text>'
        x += 34 + SANS * len(text)
    yield f'<text class="s" x="{x:.1f}" y="{y}">all cores: 0</text>'
    x += 78
    for level in range(1, LEVELS + 1):
        yield f'<path class="h{level}" stroke-width="11" d="M{x + 8 * (level - 1):.1f} {y - 3.5}h8"/>'
    yield f'<text class="s" x="{x + 8 * LEVELS + 5:.1f}" y="{y}">100 % busy; 100 % is all ticks of a core</text>'


def _describe(
    shown: signals.Cores,
    rows: dict[str, list[list[float]]],
    large: Sequence[int],
    incident: Window | None,
    seen: Sequence[Event],
) -> str:
    sentences = []
    for core in large:
        which = shown.cores.index(core)
        busy = _mean_in_window(shown, rows["busy"], [which], incident)
        kernel = _mean_in_window(shown, rows["kernel"], [which], incident)
        if not math.isnan(busy):
            sentences.append(f"In the incident window core {core} was {busy:.0f} % busy, {kernel:.0f} % in the kernel.")  # fmt: skip
    mean = _mean_in_window(shown, rows["busy"], range(len(shown.cores)), incident)
    if not math.isnan(mean):
        sentences.append(f"The mean of all {len(shown.cores)} cores was {mean:.0f} %.")
    sentences += [
        f"{wording.clock(event.time_us, '%H:%M:%S')} {wording.clean(event.kind, 60)}."
        for event in seen
    ]
    return " ".join(sentences)
