"""The pictures of a report: the one full core is seen, what was not recorded is not drawn as idle."""

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


def drawn(shown: signals.Cores, *cores: int) -> ET.Element:
    return ET.fromstring(
        timeline.draw_timeline(shown, cores, verdicts.HOT, verdicts.material().events)
    )


def texts(root: ET.Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter("text")]


@pytest.mark.parametrize(("count", "tallest"), [(2, 400), (96, 720), (192, 920), (1024, 2600)])
def test_every_core_has_its_row_and_the_picture_stays_on_a_page(count: int, tallest: int) -> None:
    shown = verdicts.cores(count)
    core = 39 % count
    root = drawn(shown, core)
    assert float(root.attrib["height"]) < tallest
    said = texts(root)
    assert f"core {core}, saturated 7 s" in said
    assert f"mean of {count}" in said
    assert "100 % busy" in said
    full = next(one for one in root.iter("path") if one.get("class") == "h16")
    assert full.attrib["d"].count("M") == 2  # seven seconds in one stroke, and one second elsewhere
    assert len(ET.tostring(root)) < 3_000_000


def test_the_mean_hides_what_the_core_shows() -> None:
    said = texts(drawn(verdicts.cores(96), 39))
    at = said.index("100 % busy")
    assert said[at + 1] == "100 % in the kernel"
    assert said[said.index("mean of 96") + 3] == "20 % busy"


def test_a_bar_is_as_high_as_its_share() -> None:
    shown = verdicts.cores(2)
    shown.values["busy"][:] = 0
    shown.values["busy"][:3, 0] = 50, 100, 25
    root = drawn(shown, 0)
    strip = next(one for one in root.iter("path") if one.get("class") == "busy")
    heights = [float(one) for one in re.findall(r"v([\d.]+)h", strip.attrib["d"])]
    assert heights == [timeline.STRIP / 2, timeline.STRIP, timeline.STRIP / 4]


def test_what_was_not_recorded_is_hatched() -> None:
    root = drawn(verdicts.cores(96, missing=True), 39)
    (hatched,) = [
        one for one in root.iter("rect") if one.get("class") == "missing" and list(one)
    ]  # the key has one, too, without a tip
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
    assert "mean of 0" in texts(drawn(nothing, 1))


def test_a_window_of_hours_is_still_a_picture() -> None:
    shown = verdicts.cores(4)
    window = Window(0, 40 * 3600 * verdicts.SECOND)
    far = dataclasses.replace(shown, coverage=dataclasses.replace(shown.coverage, window=window))
    assert drawn(far, 1).tag == "svg"


def test_the_census_begins_at_nought_and_says_both_ends() -> None:
    looks = verdicts.material().census
    root = ET.fromstring(census.draw_census(looks, verdicts.EVENT_US))
    assert {"0", "68,440", "dying"} <= set(texts(root))
    told = next(one for one in root.iter("desc")).text or ""
    assert "65,404" in told
    flat = [dataclasses.replace(one, time_us=5, dying=0, in_use=0) for one in looks[:2]]
    assert ET.fromstring(census.draw_census(flat, None)).tag == "svg"


def test_an_embedded_picture_keeps_its_style_to_itself() -> None:
    hot, _ = verdicts.stacks()
    page = embedded.draw_flame(hot)
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert len(style) == 1
    for selector in re.findall(r"([^{}]+)\{", style[0]):
        assert selector.strip().startswith(("#flame ", "@media screen and (prefers"))
    change = verdicts.material().compared
    assert change
    drawn = embedded.draw_difference(change)
    assert "@media screen and (prefers-color-scheme:dark){#change .g{" in drawn
    assert "#change text.critical{" in drawn


def test_only_the_picture_s_own_style_is_touched() -> None:
    frame = Frame("<style>a{}</style>")
    folded = folding.fold([((frame,), 9)])
    file = io.BytesIO()
    svg.write(folded, file)
    assert "&lt;style&gt;a{}&lt;/style&gt;" in embedded.draw_flame(folded)
