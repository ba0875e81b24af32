"""Kernel and user code have one colour each: in the terminal, in pictures, in reports, on the viewer page."""

from __future__ import annotations

import colorsys
import json
import pathlib

from overnight.app import live
from overnight.interfaces.cli import live_view
from overnight.model import colours, cpu
from overnight.model.flame import FrameKind
from overnight.reports.diagnosis import style

TABLE = (
    pathlib.Path(__file__).parents[3] / "web/tests/frame_colours.json"
)  # the viewer's tests read it, too
USER, KERNEL = FrameKind.USER, FrameKind.KERNEL


def hue(colour: str) -> float:
    return 360 * colorsys.rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))[0]


def test_frames_have_the_colours_of_the_viewer() -> None:
    rows = json.loads(TABLE.read_text())
    drawn = [colours.fill(FrameKind[row[0].upper()], row[1], row[2]) for row in rows]
    assert drawn == [row[3] for row in rows]


def test_kernel_is_blue_and_user_orange_everywhere() -> None:
    fills = {kind: [colours.fill(kind, f"/lib/{n}", f"f{n}") for n in range(50)] for kind in (USER, KERNEL)}  # fmt: skip
    fills[KERNEL] += style.INKS["kernel"]
    fills[USER] += style.INKS["user"]
    assert all(195 <= hue(colour) <= 240 for colour in fills[KERNEL])
    assert all(15 <= hue(colour) <= 60 for colour in fills[USER])
    assert (colours.TERMINAL[KERNEL], colours.TERMINAL[USER]) == ("bright_blue", "yellow")


def test_live_colours_a_core_by_what_it_runs() -> None:
    strip = live.CoreStrip(0, (cpu.Shares(0.6, 0.5, 0.0), cpu.Shares(0.6, 0.0, 0.0)))
    (line,) = live_view.cores(live.View("h", 0, 2, (strip,), (), (), (), {}), 80, 5)
    assert [str(span.style) for span in line.spans][1:3] == [colours.TERMINAL[KERNEL], colours.TERMINAL[USER]]  # fmt: skip
