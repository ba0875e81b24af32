"""Pictures of an investigation: rates of arms, arms over time, dose and response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from overnight.model.text import plural, rounded
from overnight.reports import svg
from overnight.reports.diagnosis import pictures
from overnight.reports.diagnosis import wording as texts
from overnight.reports.investigation import wording
from overnight.reports.pictures import layout

if TYPE_CHECKING:
    from overnight.queries import contrast, rates
    from overnight.reports import investigation as package

WIDTH, LEFT, RIGHT = 1100, 190, 210
ROW, HEAD, FOOT = 34, 30, 34
MAX_KINDS, MAX_LANES, MAX_MARKS = 4, 24, 200
DOSE_HEIGHT, DOSE_LEFT = 260, 90
STYLE = """
.pics text{font:13px system-ui,"DejaVu Sans",sans-serif;fill:var(--ink)}
.pics .b{font-weight:650}.pics .s,.pics .t{fill:var(--soft)}.pics .t{font-size:11.5px}
.pics .e{text-anchor:end}.pics .d{text-anchor:middle}
.pics .rule{stroke:var(--line);stroke-width:.8;fill:none}
.pics .span{stroke:var(--link);stroke-width:3;fill:none}.pics .dot{fill:var(--ink)}
.pics .lane{fill:var(--card);stroke:var(--line)}
.pics .event{fill:var(--bad)}
td.w{min-width:26ch}
@media print{td.w{min-width:0}td.k,td.n{white-space:normal}}
"""


def draw_rates(report: package.Report) -> str:
    """Draw the rate of each arm as a dot with its interval; the axis begins at zero."""
    shown = report.contrast
    right = WIDTH - RIGHT
    drawn: list[str] = []
    spoken, y = [], 8
    for kind in shown.kinds[:MAX_KINDS]:
        rows = [row for row in shown.arms if row.kind == kind and row.rate]
        most = _choose_most([row.rate for row in rows if row.rate])
        head = f"{_safe(kind, 70)} per {shown.unit.removesuffix('s')}"
        drawn.append(f'<text class="b" x="4" y="{y + 14}">{head}</text>')
        y += HEAD
        for row in rows:
            assert row.rate is not None
            x, low, high = (_scale(value, most, LEFT, right) for value in (row.rate.rate, row.rate.low, row.rate.high))  # fmt: skip
            middle = y + ROW / 2
            end = "m0 -6v12" if row.rate.high <= most else "l-7 -5m7 5l-7 5"  # an arrow: it goes on
            about = f"{plural(row.hosts, 'host')}, {rounded(row.rate.exposure)} {shown.unit}"
            drawn += [
                f'<path class="rule" d="M{LEFT} {middle:g}H{right}"/>',
                f'<text class="b e" x="{LEFT - 12}" y="{middle - 2:g}">{_safe(row.arm, 20)}</text>',
                f'<text class="t e" x="{LEFT - 12}" y="{middle + 12:g}">{_safe(about, 28)}</text>',
                f'<path class="span" d="M{low:.1f} {middle - 6:g}v12m0 -6H{high:.1f}{end}"/>',
                f'<circle class="dot" cx="{x:.1f}" cy="{middle:g}" r="4.5"/>',
                f'<text x="{right + 10}" y="{middle - 2:g}">{plural(row.rate.events, "event")}</text>',
                f'<text class="t" x="{right + 10}" y="{middle + 12:g}">{_safe(wording.format_rate(row), 34)}</text>',
            ]
            spoken.append(f"{row.arm}: {row.rate.events} {kind}, {wording.format_rate(row)}.")
            y += ROW
        for value in (0.0, most / 2, most):
            at = _scale(value, most, LEFT, right)
            drawn.append(f'<path class="rule" d="M{at:.1f} {y}v5"/>')
            drawn.append(f'<text class="t d" x="{at:.1f}" y="{y + 18}">{rounded(value)}</text>')
        y += FOOT
    title = f"Rate of events per {shown.unit.removesuffix('s')}, with 95 % intervals"
    return pictures.frame("rates", title, texts.clean(" ".join(spoken), 2000), (WIDTH, y), drawn)


def _choose_most(shown: Sequence[rates.Rate]) -> float:
    """Return the end of the axis: the bound of an arm that was hardly observed would flatten all others."""
    with_events = [rate.high for rate in shown if rate.events]
    return (1.25 * max(with_events) if with_events else max((r.high for r in shown), default=0.0)) or 1.0  # fmt: skip


def draw_arms(report: package.Report) -> str:
    """Draw the time of each arm, a lane for each host, with its events."""
    arms = [(name, arm) for name, arm in wording.all_arms(report.investigation) if arm.began_us]
    if not arms:
        return ""
    now = max(report.written_us, *(arm.began_us + 1 for _, arm in arms))
    begin = min(arm.began_us for _, arm in arms)
    end = max(begin + 1, *((arm.ended_us or now) for _, arm in arms))
    right = WIDTH - 24
    lanes = [(name, arm, host) for name, arm in arms for host in arm.hosts or ("",)]
    drawn, spoken, y, last = [], [], 6, ""
    for name, arm, host in lanes[:MAX_LANES]:
        x, until = (_scale(us - begin, end - begin, LEFT, right) for us in (arm.began_us, arm.ended_us or now))  # fmt: skip
        label = f"{name} arm" if name != last else ""
        last = name
        seen = [each for each in arm.occurrences if each.host == host]
        drawn += [
            f'<text class="b" x="4" y="{y + 17}">{_safe(label, 18)}</text>',
            f'<text class="t e" x="{LEFT - 10}" y="{y + 17}">{_safe(host, 15)}</text>',
            f'<rect class="lane" x="{x:.1f}" y="{y + 3}" width="{max(2.0, until - x):.1f}" height="18" rx="3"/>',
        ]
        for each in seen[:MAX_MARKS]:
            at = _scale(min(max(each.time_us, begin), end) - begin, end - begin, LEFT, right)
            tip = _safe(f"{layout.clock(each.time_us)} {each.kind}", 120)
            drawn.append(f'<path class="event" d="M{at:.1f} {y + 5}l5 14h-10z"><title>{tip}</title></path>')  # fmt: skip
        spoken.append(f"{name} arm on {host}: {plural(len(seen), 'event')}.")
        y += 28
    if len(lanes) > MAX_LANES:
        drawn.append(f'<text class="s" x="4" y="{y + 14}">{len(lanes) - MAX_LANES} more hosts</text>')  # fmt: skip
        y += 22
    drawn += _draw_time(begin, end, right, y)
    description = texts.clean(" ".join(spoken), 2000)
    return pictures.frame("arms", "Arms over time, with their events", description, (WIDTH, y + 24), drawn)  # fmt: skip


def _draw_time(begin: int, end: int, right: int, y: int) -> Iterator[str]:
    taken = float(LEFT)
    yield f'<text class="t" x="4" y="{y + 18}">UTC</text>'
    for us, form in layout.ticks(begin, end, 10):
        at = _scale(us - begin, end - begin, LEFT, right)
        yield f'<path class="rule" d="M{at:.1f} {y}v5"/>'
        if taken <= at <= WIDTH - 30:
            yield f'<text class="t d" x="{at:.1f}" y="{y + 18}">{layout.clock(us, form)}</text>'
            taken = at + 66


def draw_trend(trend: contrast.Trend, number: int) -> str:
    """Draw the rate of each host over its dose, with its interval."""
    points, right = trend.points, WIDTH - 40
    doses = [point.dose for point in points]
    least, span = min(doses), (max(doses) - min(doses)) or 1.0
    # The upper bound of a host that was hardly observed would flatten all others.
    most = max(3 * max(point.rate for point in points), min(point.high for point in points)) or 1.0
    bottom = DOSE_HEIGHT - 44
    name = wording.name_dose(trend.dose)

    def y(rate: float) -> float:
        return bottom - min(rate, most) / most * (bottom - 14)

    drawn = [f'<path class="rule" d="M{DOSE_LEFT} 14V{bottom}H{right}"/>']
    drawn += [
        f'<text class="t e" x="{DOSE_LEFT - 8}" y="{y(value) + 4:.1f}">{rounded(value)}</text>'
        for value in (0.0, most)
    ]
    for share, place in ((0.0, ""), (0.5, " d"), (1.0, " e")):
        dose = _safe(wording.format_dose(trend.dose, least + share * span), 30)
        drawn.append(f'<text class="t{place}" x="{DOSE_LEFT + share * (right - DOSE_LEFT):.1f}" y="{bottom + 18}">{dose}</text>')  # fmt: skip
    drawn.append(f'<text class="s d" x="{(DOSE_LEFT + right) / 2:g}" y="{bottom + 36}">{_safe(name, 60)}</text>')  # fmt: skip
    for point in points:
        x = _scale(point.dose - least, span, DOSE_LEFT + 12, right - 12)
        tip = _safe(f"{point.host}, {point.arm} arm: {plural(point.events, 'event')} in {rounded(point.host_hours)} host-hours", 160)  # fmt: skip
        cap = "m-5 0h10" if point.high <= most else ""
        drawn.append(f'<path class="span" d="M{x - 5:.1f} {y(point.low):.1f}h10m-5 0V{y(point.high):.1f}{cap}"/>')  # fmt: skip
        drawn.append(f'<circle class="dot" cx="{x:.1f}" cy="{y(point.rate):.1f}" r="4.5"><title>{tip}</title></circle>')  # fmt: skip
    title = f"{trend.kind} per host-hour by {name}"
    spoken = texts.clean(f"{wording.TRENDS[trend.outcome]}. {wording.format_trend(trend)}", 600)
    return pictures.frame(f"dose{number}", texts.clean(title, 200), spoken, (WIDTH, DOSE_HEIGHT), drawn)  # fmt: skip


def _scale(value: float, most: float, left: float, right: float) -> float:
    return left + min(max(value / most, 0.0), 1.0) * (right - left)


def _safe(text: str, room: int) -> str:
    return svg.safe(svg.fit(texts.clean(text, 4 * room), room))
