"""The live view on terminals of every size."""

from __future__ import annotations

import random

import pytest
import rich.console

from overnight.app import live
from overnight.interfaces.cli import live_view
from overnight.model.cpu import Shares
from overnight.model.event import Event

WALL_US = 1_794_712_447_000_000


def make_view(count: int, pinned: int = -1, **changes) -> live.View:
    rng = random.Random(7)
    strips = []
    for core in range(count):
        busy = [rng.uniform(0.05, 0.35) for _ in range(60)]
        kernel = [share / 4 for share in busy]
        if core == pinned:
            busy[-6:], kernel[-6:] = [1.0] * 6, [0.99] * 6
        strips.append(live.CoreStrip(core, tuple(map(Shares, busy, kernel, [0.0] * 60))))
    values = {
        "host": "gpu-17",
        "time_us": WALL_US,
        "seconds": 60,
        "cores": tuple(strips),
        "processes": tuple(live.ProcessLoad(100 + n, f"trainer-{n}", 3.0 / (n + 1), n) for n in range(9)),
        "events": tuple(
            Event(
                WALL_US - n * 1_000_000, "cpu.core_pinned", "core 39 was 100 % busy for 6 s",
                core=39, severity="critical", id=str(n),
            )
            for n in range(20)
        ),
        "census": (68_680, 240, 68_440),
        "problems": {"pressure": "NoDataError: PSI is disabled"},
    }  # fmt: skip
    return live.View(**{**values, **changes})


def draw_screen(shown: live.View, width: int, height: int) -> list[str]:
    console = rich.console.Console(width=width, height=height, color_system=None)
    with console.capture() as caught:
        console.print(live_view.draw(shown, width, height))
    return caught.get().splitlines()


@pytest.mark.parametrize("cores", [1, 2, 16, 96, 192, 448])
@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 40), (200, 60), (300, 100)])
def test_every_screen_fits_and_shows_the_essentials(cores, size):
    width, height = size
    lines = draw_screen(make_view(cores), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "gpu-17" in text
    assert "68680 tracked" in text
    assert "cpu.core_pinned" in text


def test_every_core_has_a_strip_on_a_large_screen():
    text = "\n".join(draw_screen(make_view(96, pinned=39), 200, 60))
    assert all(f"{core} " in text for core in range(96))
    assert "100%" in text


def test_a_pinned_core_is_a_full_column_on_a_small_screen():
    lines = draw_screen(make_view(96, pinned=39), 100, 24)
    rows = [line for line in lines if line[:3].strip().lstrip("-").isdigit() and line[3:4] == " "]
    assert len(rows) >= 3
    assert all(row[4 + 39] == "█" for row in rows[:3])


def test_it_waits_for_the_first_second():
    empty = make_view(0, processes=(), events=(), census=None, time_us=0, problems={})
    text = "\n".join(draw_screen(empty, 80, 24))
    assert "first second" in text
    assert "no events yet" in text


def test_hostile_names_do_not_reach_the_terminal():
    event = Event(WALL_US, "k", "evil \x1b[2J\ntext", id="1")
    shown = make_view(
        2, processes=(live.ProcessLoad(1, "\x1b]0;owned\x07", 1.0, 0),), events=(event,)
    )
    text = "\n".join(draw_screen(shown, 120, 40))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_steal_is_shown_when_there_is_some() -> None:
    strip = live.CoreStrip(3, (Shares(0.4, 0.1, 0.3),))
    assert "core 3 steal 30 %" in draw_screen(make_view(1, cores=(strip,)), 120, 20)[0]
    assert "steal" not in draw_screen(make_view(2), 120, 20)[0]
