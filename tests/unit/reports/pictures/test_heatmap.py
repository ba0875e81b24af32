"""Heatmaps as SVG: cells are in the right place and the file stays small."""

from __future__ import annotations

import io
import pathlib
import re
import xml.etree.ElementTree as ET

import captures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight import errors
from overnight.model.event import Event
from overnight.model.selection import Coverage, Window
from overnight.queries import heatmap
from overnight.reports.pictures import heatmap as picture

SVG = "{http://www.w3.org/2000/svg}"
BEGIN = 1_794_712_440_000_000  # 2026-11-15T03:14:00Z


def make_heatmap(values: np.ndarray, **more: object) -> heatmap.Heatmap:
    coverage = {
        "hosts": ("web-7",), "window": Window(BEGIN, BEGIN + 10**6), "recorded_seconds": 1.0,
        "core_seconds": 1.0, "capacity": 1.0, "samples": int(values.sum()), "idle": 0, "lost": 3,
        "segments": 1, "gaps": more.pop("gaps", ()), "notes": more.pop("notes", ()),
    }  # fmt: skip
    if "hosts" in more:
        coverage["hosts"] = more.pop("hosts")
    fields = {
        "kind": "core", "mode": "busy", "begin_us": BEGIN, "step_us": 1_000_000, "full": 100.0,
        "rows": tuple(str(i) for i in range(values.shape[1])),
    }  # fmt: skip
    recorded = np.ones(values.shape, bool)
    return heatmap.Heatmap(**{**fields, **more}, values=values, coverage=Coverage(**coverage), recorded=recorded)  # fmt: skip


def render(grid: heatmap.Heatmap, **more: object) -> bytes:
    file = io.BytesIO()
    picture.write_heatmap(grid, file, **{"title": "web-7", **more})
    return file.getvalue()


def parse_cells(root: ET.Element) -> dict[tuple[int, int], int]:
    """Return the level by (column, row), parsed independently of the writer."""
    levels = {}
    (group,) = [g for g in root.iter(SVG + "g") if g.get("class") == "k"]
    for path in group:
        level = int(path.attrib["class"][1:])
        x = y = 0
        for move, a, b, run in re.findall(r"([Mm])(\d+) (\d+)h(\d+)", path.attrib["d"]):
            x, y = (int(a), int(b)) if move == "M" else (x + int(a), y + int(b))
            for _ in range(int(run)):
                assert (x, y) not in levels
                levels[x, y] = level
                x += 1
    return levels


def list_texts(root: ET.Element) -> list[str]:
    return [str(text.text) for text in root.iter(SVG + "text")]


def list_tips(root: ET.Element) -> list[str]:
    return [str(title.text) for title in root.iter(SVG + "title")]


def test_every_cell_has_the_level_of_its_share() -> None:
    values = np.array([[0, 1], [50, 100], [50, 130], [7, 0]], np.int64)
    levels = parse_cells(ET.fromstring(render(make_heatmap(values))))
    assert levels == {(0, 1): 1, (1, 0): 8, (1, 1): 16, (2, 0): 8, (2, 1): 16, (3, 0): 2}


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_no_cell_is_lost_or_moved(seed: int, columns: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([0, 0, 3, 50, 99], (columns, rows))
    levels = parse_cells(ET.fromstring(render(make_heatmap(values))))
    expected = {(x, y): -(-int(v) * 16 // 100) for (x, y), v in np.ndenumerate(values) if v}
    assert levels == expected


def test_a_night_of_96_cores_stays_small_and_explains_its_columns() -> None:
    values = np.random.default_rng(3).integers(0, 98, (43_200, 96))  # no two neighbours alike
    values[:] = np.minimum(values, 40)
    values[20_850:20_856, 61] = 97
    data = render(make_heatmap(values, full=97.0))
    assert len(data) < 5_000_000
    root = ET.fromstring(data)
    assert "each column is 31 s and shows its busiest 1 s, not a mean" in list_texts(root)
    levels = parse_cells(root)
    assert levels[20_850 // 31, 61] == 16
    assert [cell for cell, level in levels.items() if level == 16] == [(20_850 // 31, 61)]


@pytest.mark.parametrize("rows", [1, 97, 700])
def test_the_picture_size_is_limited_for_any_number_of_rows(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "MAX_CELLS", 45_000)  # a tenth: this is about the proportion
    values = np.random.default_rng(1).integers(0, 101, (2000, rows))
    data = render(make_heatmap(values))
    assert len(data) < 500_000
    root = ET.fromstring(data)
    assert float(root.attrib["width"]) < 1600
    columns = 1 + max(x for x, _ in parse_cells(root))
    assert columns * rows <= 45_000
    assert columns > 60 or rows > 600


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(errors.UsageError, match="too many rows for a picture: 9,000"):
        render(make_heatmap(np.ones((1, 9000), np.int64)))


def test_the_legend_explains_100_percent() -> None:
    values = np.ones((3, 2), np.int64)
    core = list_texts(ET.fromstring(render(make_heatmap(values))))
    assert "100 % of one core's time busy (not idle); 100 % is 100 samples in 1 s" in core
    offset = make_heatmap(values, kind="offset", mode="kernel", rows=("0 ms", "500 ms"), full=3.88)
    shown = list_texts(ET.fromstring(render(offset)))
    assert "100 % of all cores' time in the kernel; 100 % is 3.88 samples in 500 ms" in shown
    assert {"0", "500", "ms"} <= set(shown)
    unknown = list_texts(ET.fromstring(render(make_heatmap(values, full=0.0))))
    assert any("shares are unknown" in text for text in unknown)
    assert not any("100 %" in text for text in unknown)


def test_time_cores_gaps_losses_and_filters_are_shown() -> None:
    values = np.full((90, 3), 20, np.int64)
    values[30:36, 2] = 100
    gap = (BEGIN + 10**7, BEGIN + 2 * 10**7, "perf <died>")
    root = ET.fromstring(
        render(make_heatmap(values, gaps=(gap,), notes=("a note",)), filters="--core 0-2")
    )
    shown = list_texts(root)
    assert {"03:14:00", "03:15:00", "2026-11-15", "core", "0", "1", "2", "UTC"} <= set(shown)
    assert any("3 lost" in text and "only --core 0-2" in text for text in shown)
    assert "note: a note" in shown
    assert "not recorded" in shown
    assert "not recorded: perf <died>" in list_tips(root)
    assert "core 2: 03:14:30 to 03:14:36, 90 % busy (not idle) or more in each column" in list_tips(
        root
    )
    assert "core 0: 1,800 samples, busiest at 03:14:00: 20 %" in list_tips(root)


def test_a_gap_is_not_attributed_to_one_of_several_hosts() -> None:
    gap = (BEGIN, BEGIN + 10**6, "off")
    grid = make_heatmap(np.ones((9, 1), np.int64), gaps=(gap,), hosts=("a", "b"))
    root = ET.fromstring(render(grid))
    assert not [rect for rect in root.iter(SVG + "rect") if rect.get("class") == "n"]
    assert any(text.startswith("not recorded: 2026") for text in list_texts(root))


def test_labels_of_the_axis_do_not_overlap() -> None:
    for columns in (3, 20, 61, 240, 1399, 5000, 43_200, 200_000):
        root = ET.fromstring(render(make_heatmap(np.ones((columns, 1), np.int64))))
        places = [float(t.attrib["x"]) for t in root.iter(SVG + "text") if t.get("class") == "d"]
        assert places, columns
        assert min(np.diff(places), default=99) >= 58, columns


def test_events_are_drawn_at_their_time_and_listed() -> None:
    marks = (
        Event(BEGIN + 5 * 10**6, "net.driver_reset", "ena 0000", severity="critical", core=1),
        Event(BEGIN + 5_200_000, "mark", "mine"),
        Event(BEGIN + 5_300_000, "kernel.oom"),
        Event(BEGIN - 1, "mark", "too early"),
    )
    root = ET.fromstring(render(make_heatmap(np.ones((10, 1), np.int64)), marks=marks))
    shown = list_texts(root)
    assert "▲ net.driver_reset 03:14:05" in shown
    assert "◆ mine 03:14:05" in shown
    assert (
        len([text for text in shown if "03:14:05" in text and "kernel.oom" in text]) == 1
    )  # listed; there is no space for a third label
    assert "▲ 2026-11-15T03:14:05.000Z core 1 net.driver_reset: ena 0000" in shown
    assert "1 events are outside this window" in shown
    (group,) = [g for g in root.iter(SVG + "g") if g.get("class") == "v critical"]
    (plot,) = [
        r
        for r in root.iter(SVG + "rect")
        if r.get("class") == "m" and float(r.attrib["width"]) > 100
    ]
    middle = float(plot.attrib["x"]) + float(plot.attrib["width"]) / 2
    assert [float(path.attrib["d"][1:].split()[0]) for path in group.iter(SVG + "path")] == [
        pytest.approx(middle)
    ] * 2


def find_boxes(root: ET.Element) -> list[ET.Element]:
    return [rect for rect in root.iter(SVG + "rect") if rect.get("class") == "r p"]


def test_a_saturated_core_that_is_only_a_pixel_is_boxed() -> None:
    values = np.full((43_200, 96), 20, np.int64)
    values[20_850:20_856, 61] = 100
    root = ET.fromstring(render(make_heatmap(values)))
    (box,) = find_boxes(root)
    assert float(box.attrib["width"]) >= 11
    assert "boxed: a core 90 % busy (not idle) or more" in list_texts(root)
    values[:, ::3] = 100  # many saturated cores are not boxed
    values[::2] = 20
    root = ET.fromstring(render(make_heatmap(values[:600])))
    assert find_boxes(root) == []
    assert not any(text.startswith("boxed") for text in list_texts(root))


def test_a_long_host_name_is_shortened_before_the_core_number() -> None:
    root = ET.fromstring(
        render(
            make_heatmap(np.ones((3, 1), np.int64), rows=("ip-10-0-3-18.eu.internal.example 95",))
        )
    )
    assert "ip-10-0-3-18.eu.inte… 95" in list_texts(root)


hostile = st.text() | st.sampled_from(
    ["</title><script>alert(1)</script>", "]]>", "&#0;", "\ud800", "\0", "\"'", "\u202egnp", ""]
)


@given(name=hostile, mode=st.sampled_from(["busy", "kernel", "softirq", "idle"]))
@settings(max_examples=60, deadline=None)
def test_hostile_names_break_nothing(name: str, mode: str) -> None:
    marks = (Event(BEGIN, name, name), Event(BEGIN + 10**6, "mark", name))
    gap = (BEGIN, BEGIN + 1, name)
    grid = make_heatmap(
        np.ones((3, 1), np.int64),
        rows=(name,),
        gaps=(gap,),
        notes=(name,),
        hosts=(name,),
        mode=mode,
    )
    root = ET.fromstring(render(grid, title=name, marks=marks, filters=name))
    tags = {SVG + tag for tag in ("svg", "title", "desc", "style", "rect", "text", "g", "path")}
    assert {element.tag for element in root.iter()} <= tags


def test_it_has_no_script_loads_nothing_and_supports_dark_mode() -> None:
    data = render(make_heatmap(np.ones((3, 1), np.int64))).decode()
    assert not re.search(r"<script|href|url\(|<image|@import", data)
    assert data.count("http") == 1  # the name space
    assert "@media (prefers-color-scheme:dark)" in data


@pytest.mark.parametrize("by", ["core", "offset"])
def test_both_views_draw_every_cell_of_a_stored_night(tmp_path: pathlib.Path, by: str) -> None:
    samples = captures.random_samples(
        7, 900, begin=captures.NIGHT, end=captures.NIGHT + 30 * captures.SECOND
    )
    source = captures.store(tmp_path, captures.build(samples))
    query = heatmap.by_core if by == "core" else heatmap.by_offset
    grid = query(source, source.extent())
    levels = parse_cells(ET.fromstring(render(grid)))
    assert len(levels) == int((grid.values > 0).sum())


def test_a_window_without_samples_can_be_drawn() -> None:
    root = ET.fromstring(render(make_heatmap(np.zeros((5, 0), np.int64))))
    assert parse_cells(root) == {}
