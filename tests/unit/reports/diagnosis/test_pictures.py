"""Pictures of a report: one saturated core is visible, missing seconds are not drawn as idle."""

from __future__ import annotations

import dataclasses
import io
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import folding
import pytest
import verdicts

from overnight.model.flame import Frame
from overnight.model.selection import Window
from overnight.reports import svg
from overnight.reports.diagnosis.pictures import census, embedded, timeline

if TYPE_CHECKING:
    from overnight.queries import signals


def draw(shown: signals.Cores, *cores: int) -> ET.Element:
    return ET.fromstring(
        timeline.Timeline(shown, cores, verdicts.HOT, verdicts.material().events).draw()
    )


def list_texts(root: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter("text")]


@pytest.mark.parametrize(("count", "tallest"), [(2, 400), (96, 720), (192, 920), (1024, 2600)])
def test_every_core_has_its_row_and_the_picture_stays_on_a_page(count: int, tallest: int) -> None:
    shown = verdicts.cores(count)
    core = 39 % count
    root = draw(shown, core)
    assert float(root.attrib["height"]) < tallest
    labels = list_texts(root)
    assert f"core {core}, saturated 7 s" in labels
    assert f"mean of {count}" in labels
    assert "100 % busy" in labels
    full = next(path for path in root.iter("path") if path.get("class") == "h16")
    assert full.attrib["d"].count("M") == 2  # seven seconds in one stroke, and one second elsewhere
    assert len(ET.tostring(root)) < 3_000_000


def test_the_saturated_core_is_visible_beside_the_mean() -> None:
    labels = list_texts(draw(verdicts.cores(96), 39))
    at = labels.index("100 % busy")
    assert labels[at + 1] == "100 % in the kernel"
    assert labels[labels.index("mean of 96") + 3] == "20 % busy"


def test_a_bar_is_as_high_as_its_share() -> None:
    shown = verdicts.cores(2)
    shown.values["busy"][:] = 0
    shown.values["busy"][:3, 0] = 50, 100, 25
    root = draw(shown, 0)
    strip = next(path for path in root.iter("path") if path.get("class") == "busy")
    heights = [float(height) for height in re.findall(r"v([\d.]+)h", strip.attrib["d"])]
    assert heights == [timeline.STRIP / 2, timeline.STRIP, timeline.STRIP / 4]


def test_missing_seconds_are_hatched() -> None:
    root = draw(verdicts.cores(96, missing=True), 39)
    (hatched,) = [
        rect for rect in root.iter("rect") if rect.get("class") == "missing" and list(rect)
    ]  # the legend has one, too, without a tip
    assert hatched[0].text == "not recorded: the agent was not running"
    scale = (timeline.WIDTH - timeline.LEFT - timeline.RIGHT) / 70
    assert float(hatched.attrib["width"]) == pytest.approx(11 * scale, abs=0.1)


def test_cores_that_were_not_recorded_are_not_drawn() -> None:
    shown = verdicts.cores(2)
    assert timeline.involved(shown, (-1, 1, 1, 7, 0)) == (1, 0)
    assert len(timeline.involved(verdicts.cores(96), range(50))) == timeline.MAX_LARGE
    nothing = dataclasses.replace(
        shown,
        cores=(),
        begin_us=shown.begin_us[:0],
        end_us=shown.end_us[:0],
        values={mode: array[:0, :0] for mode, array in shown.values.items()},
    )
    assert "mean of 0" in list_texts(draw(nothing, 1))


def test_a_window_of_hours_can_be_drawn() -> None:
    shown = verdicts.cores(4)
    window = Window(0, 40 * 3600 * verdicts.SECOND)
    far = dataclasses.replace(shown, coverage=dataclasses.replace(shown.coverage, window=window))
    assert draw(far, 1).tag == "svg"


def test_the_census_starts_at_zero_and_labels_both_ends() -> None:
    samples = verdicts.material().census
    root = ET.fromstring(census.draw_census(samples, verdicts.EVENT_US))
    assert {"0", "68,440", "dying"} <= set(list_texts(root))
    description = next(element for element in root.iter("desc")).text or ""
    assert "65,404" in description
    flat = [dataclasses.replace(sample, time_us=5, dying=0, in_use=0) for sample in samples[:2]]
    assert ET.fromstring(census.draw_census(flat, None)).tag == "svg"


def test_the_style_of_an_embedded_picture_is_scoped() -> None:
    folded, _ = verdicts.stacks()
    page = embedded.draw_flame(folded)
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert len(style) == 1
    for selector in re.findall(r"([^{}]+)\{", style[0]):
        assert selector.strip().startswith(("#flame ", "@media screen and (prefers"))
    change = verdicts.material().compared
    assert change
    picture = embedded.draw_difference(change)
    assert "@media screen and (prefers-color-scheme:dark){#change .g{" in picture
    assert "#change text.critical{" in picture


def test_a_style_tag_in_a_name_is_not_changed() -> None:
    frame = Frame("<style>a{}</style>")
    folded = folding.fold([((frame,), 9)])
    file = io.BytesIO()
    svg.write(folded, file)
    assert "&lt;style&gt;a{}&lt;/style&gt;" in embedded.draw_flame(folded)


def test_waits_for_a_core_are_a_line_on_its_strip() -> None:
    shown = verdicts.cores(96)
    begin = shown.coverage.window.begin_us
    waits = {39: tuple((begin + n * 1_000_000, 10.0 ** (n % 8)) for n in range(1, 60)), 5: ((begin + 1, 9.0),)}  # fmt: skip
    picture = timeline.Timeline(shown, (39,), verdicts.HOT, (), waits).draw()
    (line, _key) = re.findall(r'<path class="wait" d="M([^"]+)"', picture)
    points = [tuple(map(float, point.split())) for point in line.split("L")]
    assert len(points) == 59
    top, bottom = min(y for _, y in points), max(y for _, y in points)
    assert bottom - top == pytest.approx(timeline.STRIP)
    assert "Tasks waited up to 10 s for core 39." in picture
    assert "longest wait for the core" in picture
    assert "wait" not in timeline.Timeline(shown, (39,), verdicts.HOT, ()).draw()
