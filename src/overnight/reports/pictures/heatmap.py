"""A heatmap as a static SVG without scripts, for light and dark.

Cells are strokes in a coordinate system of cells, one path per level: a run of equal cells takes a few
bytes, so that a night of 96 cores stays below two megabytes.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model import times
from overnight.reports import svg
from overnight.reports.pictures import colours, layout

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.queries import heatmap

MAX_WIDTH, MIN_WIDTH = 1400, 860  # px of the cells; of the picture
MAX_CELLS = 450_000  # about 4 MB where no two neighbours are equal
MIN_COLUMNS = 60
LANE, LANES = 15, 2
MONO = 6.7  # px a character, on the wide side
SATURATED, MAX_RUNS = 0.9, 300
BOX, MAX_BOXED = 11, 24  # px; runs
MAX_LISTED = 40
WHAT = {
    "busy": "busy (not idle)",
    "kernel": "in the kernel",
    "softirq": "in softirqs",
    "idle": "idle",
}
LEVELS = len(colours.HEAT[0])

_Run: TypeAlias = tuple[int, int, int]


def write_heatmap(
    result: heatmap.Heatmap,
    file: BinaryIO,
    *,
    title: str,
    marks: tuple[Event, ...] = (),
    filters: str = "",
) -> None:
    """Draw the picture. If it has fewer columns than the heatmap, a column shows its busiest step."""
    end_us = result.begin_us + len(result.values) * result.step_us
    inside = (mark for mark in marks if result.begin_us <= mark.time_us < end_us)
    seen = sorted(inside, key=layout.most_severe_first)
    rows = len(result.rows)
    label = min(24, max(map(len, result.rows), default=0))
    left = max(52, round(label * MONO) + 16)
    columns = min(MAX_WIDTH, max(MIN_COLUMNS, MAX_CELLS // max(1, rows)))
    if rows > MAX_CELLS // MIN_COLUMNS:
        raise errors.UsageError(
            f"too many rows for a picture: {rows:,}",
            why=f"a picture holds at most {MAX_CELLS // MIN_COLUMNS:,} rows",
            todo="choose hosts or cores: --host NAME, --core LIST",
        )
    each = max(1, -(-len(result.values) // columns))
    columns = -(-len(result.values) // each)
    # Few columns are drawn wide enough to fill the picture, not more.
    widest = max(24, (MIN_WIDTH - left - 24) // max(1, columns))
    cell = max(1, min(widest, 80, MAX_WIDTH // max(1, columns)))
    width = max(MIN_WIDTH, left + columns * cell + 24)
    head = _head_lines(result, filters, width)
    top = 30 + svg.LINE_HEIGHT * len(head) + 38 + (LANE * LANES + 4 if seen else 8)
    row = max(1, min(20, 700 // max(1, rows)))
    column_us = result.step_us * each
    plot = layout.Plot(left, top, columns, rows, cell, row, each, result.begin_us, column_us)
    full = result.full or float(result.values.max(initial=0)) or 1.0
    share = _peaks(result.values, each) / full
    runs = _saturated_runs(result, share)
    foot = _foot_lines(result, plot, seen, len(marks) - len(seen), width)
    if any(_is_boxed(run, runs, plot) for run in runs):
        foot.insert(1, f"boxed: a core {100 * SATURATED:.0f} % {WHAT[result.mode]} or more")
    height = plot.top + plot.height + 52 + svg.LINE_HEIGHT * len(foot)
    parts = itertools.chain(
        [svg.open_picture("Heatmap", title, head, _style(), (width, height))],
        _legend(result, plot, full, 30 + svg.LINE_HEIGHT * len(head)),
        [f'<rect class="m" x="{left}" y="{top}" width="{plot.width}" height="{plot.height}"/>'],
        _gaps(result, plot),
        _cells(share, plot),
        _axes(result, plot, width),
        _rows(result, share, plot),
        _draw_runs(result, runs, plot),
        _marks(seen, plot, width),
        svg.small_lines(foot, plot.top + plot.height + 52),
        ["</svg>"],
    )
    file.writelines(f"{part}\n".encode("utf-8", "replace") for part in parts)


def _peaks(values: npt.NDArray[np.int64], each: int) -> npt.NDArray[np.float64]:
    """Return the busiest step of each column: a mean would hide the one second that matters."""
    starts = np.arange(0, len(values), each)
    return np.maximum.reduceat(values, starts, axis=0).astype(np.float64)


def _style() -> str:
    return f"""text{{font:11.5px system-ui,"DejaVu Sans",sans-serif}}.h{{font:bold 15px system-ui,"DejaVu Sans",sans-serif}}
.p{{stroke-width:2}}.c{{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:11px}}.e{{text-anchor:end}}.d{{text-anchor:middle}}
path{{fill:none}}.k{{stroke-width:1}}.r{{fill-opacity:0}}.x{{fill:none}}{colours.style("l", "stroke", colours.HEAT, 1)}"""


def _head_lines(result: heatmap.Heatmap, filters: str, width: int) -> list[str]:
    covered = result.coverage
    end = result.begin_us + len(result.values) * result.step_us
    facts = [
        ", ".join(covered.hosts),
        f"{times.format_instant(result.begin_us)} to {times.format_instant(end)}",
    ]
    if result.source == "stacks":
        facts += [f"{covered.samples:,} {result.mode} samples", f"{covered.lost:,} lost"]
    if filters:
        facts.append(f"only {filters}")
    return _wrapped(" \u00b7 ".join(facts), width)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(20, int((width - 24) / svg.SANS)))[:6]


def _foot_lines(
    result: heatmap.Heatmap, plot: layout.Plot, seen: list[Event], outside: int, width: int
) -> list[str]:
    step = times.format_duration(result.step_us / 1e6)
    busiest = f" and shows its busiest {step}, not a mean" if plot.each > 1 else ""
    lines = [f"each column is {times.format_duration(plot.column_us / 1e6)}{busiest}"]
    lines += [
        f"not recorded: {times.format_instant(begin)} to {times.format_instant(end)}: {why}"
        for begin, end, why in result.coverage.gaps[:MAX_LISTED]
    ]
    if len(result.coverage.gaps) > MAX_LISTED:
        lines.append(f"and {len(result.coverage.gaps) - MAX_LISTED} more gaps")
    lines += result.coverage.remarks()
    lines += [f"note: {note}" for note in result.coverage.notes]
    for mark in sorted(seen, key=lambda event: event.time_us)[:MAX_LISTED]:
        where = f" core {mark.core}" if mark.core >= 0 else ""
        text = f": {mark.text}" if mark.text else ""
        lines.append(
            f"{layout.symbol(mark)} {times.format_instant(mark.time_us)}{where} {mark.kind}{text}"
        )
    if len(seen) > MAX_LISTED:
        lines.append(f"and {len(seen) - MAX_LISTED} more events")
    if outside:
        lines.append(f"{outside} events are outside this window")
    return [part for line in lines for part in _wrapped(line, width)]


def _legend(result: heatmap.Heatmap, plot: layout.Plot, full: float, y: int) -> Iterator[str]:
    """Draw the scale, and what 100 % means."""
    what = WHAT[result.mode]
    length = times.format_duration(result.step_us / 1e6)
    if not result.full:
        text = f"samples per cell, 1 to {full:,.0f}: the sampling rate is unknown, so shares are unknown"
    elif result.source == "signals":
        text = f"of one core's time {what}, in {length}"
    elif result.kind == "core":
        text = f"of one core's time {what}; 100 % is {full:.3g} samples in {length}"
    else:
        part = times.format_duration(1 / max(1, plot.rows))
        text = f"of all cores' time {what}; 100 % is {full:.3g} samples in {part}"
    swatch, at = 9, y + 10
    yield f'<text class="s e" x="{plot.left - 6}" y="{at + 9}">0</text>'
    yield f'<rect class="m" x="{plot.left}" y="{at}" width="{swatch}" height="10"/>'
    for level in range(1, LEVELS + 1):
        x = plot.left + level * swatch
        yield f'<path class="l{level}" stroke-width="10" d="M{x} {at + 5}h{swatch}"/>'
    end = plot.left + (LEVELS + 1) * swatch
    yield f'<rect class="x" x="{plot.left - 0.5}" y="{at - 0.5}" width="{end - plot.left + 1}" height="11"/>'
    text = ("100 % " if result.full else "") + text
    yield f'<text x="{end + 7}" y="{at + 9}">{svg.safe(text)}</text>'
    if result.coverage.gaps and len(result.coverage.hosts) == 1:
        x = end + 22 + round(len(text) * svg.SANS)
        yield f'<rect class="n" x="{x}" y="{at}" width="{swatch}" height="10"/>'
        yield f'<text x="{x + swatch + 6}" y="{at + 9}">not recorded</text>'


def _gaps(result: heatmap.Heatmap, plot: layout.Plot) -> Iterator[str]:
    """Draw gaps behind the cells, but not with several hosts: a gap does not name its host."""
    if len(result.coverage.hosts) != 1:
        return
    right = plot.left + plot.width
    for begin, end, why in result.coverage.gaps:
        x = min(max(plot.x(begin), plot.left), right - 1)
        wide = max(1.0, min(plot.x(end), right) - x)
        yield (
            f'<rect class="n" x="{x:.1f}" y="{plot.top}" width="{wide:.1f}" height="{plot.height}">'
            f"<title>{svg.safe(f'not recorded: {why}')}</title></rect>"
        )


def _cells(share: npt.NDArray[np.float64], plot: layout.Plot) -> Iterator[str]:
    level = np.ceil(np.clip(share, 0, 1) * LEVELS).astype(np.int64)
    runs: list[list[str]] = [[] for _ in range(LEVELS + 1)]
    for row in range(plot.rows):
        column = level[:, row]
        starts = np.flatnonzero(np.diff(column, prepend=-1))
        ends = np.append(starts[1:], len(column))
        at: dict[int, int] = {}  # where this row's path of a level has come to
        for start, end, value in zip(
            starts.tolist(), ends.tolist(), column[starts].tolist(), strict=True
        ):
            if value:
                move = f"m{start - at[value]} 0" if value in at else f"M{start} {row}"
                runs[value].append(f"{move}h{end - start}")
                at[value] = end
    yield (
        f'<g class="k" shape-rendering="crispEdges" '
        f'transform="translate({plot.left} {plot.top + plot.row / 2:g}) scale({plot.cell} {plot.row})">'
    )
    for value in range(1, LEVELS + 1):
        if runs[value]:
            yield f'<path class="l{value}" d="{"".join(runs[value])}"/>'
    yield "</g>"


def _axes(result: heatmap.Heatmap, plot: layout.Plot, width: int) -> Iterator[str]:
    yield (
        f'<rect class="x" x="{plot.left - 0.5}" y="{plot.top - 0.5}" '
        f'width="{plot.width + 1}" height="{plot.height + 1}"/>'
    )
    every = next((n for n in (1, 2, 4, 5, 8, 10, 16, 32, 64, 128) if n * plot.row >= 13), 256)
    for number in range(0, plot.rows, every):
        name = _row_name(result.rows[number])
        y = plot.top + (number + 0.5) * plot.row + 4
        yield f'<text class="s c e" x="{plot.left - 6}" y="{y:g}">{svg.safe(name)}</text>'
    what = "core" if result.kind == "core" else "ms"
    yield f'<text class="s e" x="{plot.left - 6}" y="{plot.top - 5}">{what}</text>'
    yield from layout.time_axis(plot, width)


def _row_name(name: str) -> str:
    """Shorten the host's name, not the core."""
    host, space, core = name.removesuffix(" ms").rpartition(" ")
    return svg.fit(host, max(3, 23 - len(core))) + space + svg.fit(core, 23)


def _rows(
    result: heatmap.Heatmap, share: npt.NDArray[np.float64], plot: layout.Plot
) -> Iterator[str]:
    """Draw a tooltip per row: its busiest time."""
    if not plot.columns:
        return
    total = result.values.sum(axis=0)
    fullest = share.argmax(axis=0)
    for number, name in enumerate(result.rows):
        when = layout.clock(plot.begin_us + int(fullest[number]) * plot.column_us, "%H:%M:%S")
        most = 100 * share[fullest[number], number]
        row = f"core {name}" if result.kind == "core" else name
        tip = f"{row}: {total[number]:,} samples" if result.source == "stacks" else row
        if total[number] and result.full:
            tip += f", busiest at {when}: {min(100, most):.0f} %"
        yield (
            f'<rect class="r" x="{plot.left}" y="{plot.top + number * plot.row}" '
            f'width="{plot.width}" height="{plot.row}"><title>{svg.safe(tip)}</title></rect>'
        )


def _saturated_runs(result: heatmap.Heatmap, share: npt.NDArray[np.float64]) -> list[_Run]:
    """Return runs in which a core was saturated: columns, first column, row; the longest first."""
    if result.kind != "core" or not result.full:
        return []
    runs = []
    for number in range(len(result.rows)):
        full = np.concatenate([[0], share[:, number] >= SATURATED, [0]])
        edge = np.diff(full.astype(np.int8))
        begins, ends = np.flatnonzero(edge > 0).tolist(), np.flatnonzero(edge < 0).tolist()
        runs += [(end - begin, begin, number) for begin, end in zip(begins, ends, strict=True)]
    return sorted(runs, key=lambda run: (-run[0], *run[1:]))


def _is_boxed(run: _Run, runs: list[_Run], plot: layout.Plot) -> bool:
    """Return whether a run is too small to see: one second of one core in a night is a pixel."""
    return len(runs) <= MAX_BOXED and min(run[0] * plot.cell, plot.row) < BOX


def _draw_runs(result: heatmap.Heatmap, runs: list[_Run], plot: layout.Plot) -> Iterator[str]:
    """Draw a tooltip for the longest saturated runs; box them if they are few and small."""
    for length, begin, number in runs[:MAX_RUNS]:
        first = plot.begin_us + begin * plot.column_us
        last = first + length * plot.column_us
        tip = (
            f"core {result.rows[number]}: {layout.clock(first, '%H:%M:%S')} to {layout.clock(last, '%H:%M:%S')}, "
            f"{100 * SATURATED:.0f} % {WHAT[result.mode]} or more in each column"
        )
        x, y = plot.left + begin * plot.cell, plot.top + number * plot.row
        wide, high, kind = length * plot.cell, plot.row, "r"
        if _is_boxed((length, begin, number), runs, plot):
            across, down = max(BOX, wide + 5), max(BOX, high + 5)
            x, y = x - (across - wide) // 2, y - (down - high) // 2
            wide, high, kind = across, down, "r p"
        yield (
            f'<rect class="{kind}" x="{x}" y="{y}" width="{wide}" height="{high}">'
            f"<title>{svg.safe(tip)}</title></rect>"
        )


def _marks(seen: list[Event], plot: layout.Plot, width: int) -> Iterator[str]:
    """Draw a line per event; labels in two lanes, the most severe first, as far as there is room."""
    lanes: list[list[tuple[float, float]]] = [[] for _ in range(LANES)]
    bottom = plot.top + plot.height
    for mark in seen:
        x = plot.x(mark.time_us)
        name = mark.text or mark.kind if mark.kind == "mark" else mark.kind
        label = (
            f"{layout.symbol(mark)} {svg.fit(name, 40)} {layout.clock(mark.time_us, '%H:%M:%S')}"
        )
        long = len(label) * svg.SANS
        left = max(plot.left + 2, min(x - 5, width - 8 - long))  # right of the name of the axis
        lane = layout.find_lane(lanes, left, long)
        y = plot.top - 6 - LANE * max(0, lane)
        text = ""
        if lane >= 0:
            text = f'<text class="{mark.severity}" x="{left:.1f}" y="{y}">{svg.safe(label)}</text>'
        tip = f"{mark.kind} {times.format_instant(mark.time_us)} {mark.text}".strip()
        # Dashed over the cells: the cell below may be the one that matters.
        yield (
            f'<g class="v {mark.severity}"><title>{svg.safe(tip)}</title>'
            f'<path d="M{x:.1f} {y + 3}V{plot.top}M{x:.1f} {bottom}v7"/>'
            f'<path stroke-dasharray="2 5" d="M{x:.1f} {plot.top}V{bottom}"/>{text}</g>'
        )
