"""Comparisons as SVG: new frames, vanished frames and their widths."""

from __future__ import annotations

import io
import itertools
import re
import xml.etree.ElementTree as ET

import folding
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.model.flame import Folded, Frame
from overnight.reports.pictures import difference

SVG = "{http://www.w3.org/2000/svg}"
MAIN, OLD, NEW = Frame("main", "/opt/app"), Frame("old"), Frame("new", "", 1)


def make_folded(*stacks: tuple[tuple[Frame, ...], int], **more: object) -> Folded:
    fields = {
        "title": "A night", "host": "web-7", "begin_ns": 1_794_712_440_000_000_000,
        "end_ns": 1_794_712_445_000_000_000, "frequency": 97, "cores": (), "event": "cpu-clock",
    }  # fmt: skip
    return folding.fold(stacks, **{**fields, **more})


def render(now: Folded, before: Folded, *capacity: float, about: str = "") -> bytes:
    file = io.BytesIO()
    compared = difference.Compared(now, before, *(capacity or (1000, 1000)), about)
    difference.write_difference(compared, file)
    return file.getvalue()


def parse_boxes(data: bytes) -> dict[str, tuple[float, float, int, bool, str]]:
    """Return left, width, level, whether it is outlined, and tip, by name."""
    frames = {}
    for group in ET.fromstring(data).iter(SVG + "g"):
        title, rect = group.find(SVG + "title"), group.find(SVG + "rect")
        assert title is not None
        assert rect is not None
        *edge, level = rect.attrib["class"].split()
        place = float(rect.attrib["x"]), float(rect.attrib["width"])
        tip = str(title.text)
        frames[tip.partition(": ")[0]] = (*place, int(level[1:]), "o" in edge, tip)
    return frames


def test_a_frame_is_as_wide_as_its_larger_rate_and_coloured_by_the_change() -> None:
    now = make_folded(((MAIN,), 500), ((MAIN, NEW), 200))
    before = make_folded(((MAIN,), 1000), ((MAIN, OLD), 400))
    frames = parse_boxes(render(now, before, 1000, 2000))
    assert frames["main (/opt/app)"][2] == 8  # 70 % of the cores' time now as before
    assert frames["new"][2:4] == (16, False)
    assert frames["old"][2:4] == (0, True)
    assert frames["new"][1] == pytest.approx(frames["old"][1], abs=0.02)  # 20 % each
    assert frames["new"][1] / frames["main (/opt/app)"][1] == pytest.approx(2 / 9, abs=0.001)
    assert "20 % of the cores' time (200 samples), before 0 % (0), +20" in frames["new"][4]


def test_insignificant_changes_are_grey() -> None:
    assert parse_boxes(render(make_folded(((OLD,), 103)), make_folded(((OLD,), 95))))["old"][2] == 8
    assert parse_boxes(render(make_folded(((OLD,), 2)), make_folded()))["old"][2] == 8
    more = parse_boxes(render(make_folded(((OLD,), 200)), make_folded(((OLD,), 100))))
    assert more["old"][2] == 12
    assert (
        parse_boxes(render(make_folded(((OLD,), 100)), make_folded(((OLD,), 200))))["old"][2] == 4
    )


def test_without_a_known_rate_shares_are_of_the_samples() -> None:
    frames = parse_boxes(render(make_folded(((OLD,), 10)), make_folded(((NEW,), 1000)), 0, 0))
    assert "100 % of the samples (10 samples)" in frames["old"][4]
    assert frames["old"][1] == pytest.approx(frames["new"][1], abs=0.02)


def test_both_windows_and_the_filters_are_shown() -> None:
    now = make_folded(((MAIN,), 5), lost=2, notes=("one",))
    before = make_folded(((MAIN,), 5), lost=1, notes=("one", "two"), host="web-8")
    root = ET.fromstring(render(now, before, about="only --core 3"))
    texts = [str(text.text) for text in root.iter(SVG + "text")]
    assert any(text.startswith("A  web-7, 2026-11-15T03:14:00.000Z for 5 s: 5") for text in texts)
    assert any(text.startswith("B  web-8") for text in texts)
    assert {"only --core 3", "one", "B: two", "3 samples lost", "vanished"} <= set(texts)
    assert texts.count("one") == 1


def test_siblings_are_drawn_side_by_side() -> None:
    frames = [Frame(f"f{n}") for n in range(9)]
    now = make_folded(*(((MAIN, frame), 10 * n) for n, frame in enumerate(frames)))
    before = make_folded(*(((MAIN, frame), 90 - 10 * n) for n, frame in enumerate(frames)))
    drawn = parse_boxes(render(now, before))
    order = [drawn[frame.name] for frame in frames]
    for left, right in itertools.pairwise(order):
        assert left[0] + left[1] == pytest.approx(right[0], abs=0.02)
    parent = drawn["main (/opt/app)"]
    assert order[-1][0] + order[-1][1] <= parent[0] + parent[1] + 0.02


hostile = st.text() | st.sampled_from(
    ["</title><script>alert(1)</script>", "]]>", "&#0;", "\ud800", "\0", "\"'", "\u202egnp", ""]
)
FRAMES = st.builds(Frame, hostile, hostile, st.sampled_from([0, 1]))
STACKS = st.lists(st.tuples(st.lists(FRAMES, max_size=4).map(tuple), st.integers(0, 2**40)))


@given(STACKS, STACKS, hostile)
@settings(max_examples=60, deadline=None)
def test_hostile_names_break_nothing(now: list, before: list, name: str) -> None:
    data = render(
        make_folded(*now, title=name, host=name), make_folded(*before, notes=(name,)), about=name
    )
    tags = {SVG + tag for tag in ("svg", "title", "desc", "style", "rect", "text", "g")}
    assert {element.tag for element in ET.fromstring(data).iter()} <= tags


def test_deep_narrow_and_empty_stacks_can_be_drawn() -> None:
    deep = tuple(Frame(f"f{n}") for n in range(3000))
    root = ET.fromstring(render(make_folded((deep, 7)), make_folded()))
    assert float(root.attrib["height"]) < 8000
    thin = [((MAIN, Frame(f"t{n}")), 1) for n in range(50)]
    texts = [
        str(text.text)
        for text in ET.fromstring(
            render(make_folded(((MAIN,), 100_000), *thin), make_folded())
        ).iter(SVG + "text")
    ]
    assert "50 frames are narrower than 0.3 px: neighbours share a box" in texts
    empty = ET.fromstring(render(make_folded(), make_folded()))
    assert "no samples" in [text.text for text in empty.iter(SVG + "text")]


def test_it_has_no_script_loads_nothing_and_supports_dark_mode() -> None:
    data = render(make_folded(((MAIN,), 1)), make_folded()).decode()
    assert not re.search(r"<script|href|url\(|<image|@import", data)
    assert data.count("http") == 1  # the name space
    assert "@media (prefers-color-scheme:dark)" in data
