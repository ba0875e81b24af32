from __future__ import annotations

import pytest

from overnight.model.flame import KERNEL, Folded, FoldedStack, Frame

MAIN, IDLE = Frame("main", "/a"), Frame("do_idle", "[kernel]", KERNEL)


def folded(event: str = "cpu-clock", frequency: int = 97) -> Folded:
    stacks = FoldedStack((MAIN, IDLE), 3), FoldedStack((MAIN,), 4)
    return Folded("t", "h", 1, 2, frequency, (), event, stacks)


def test_every_frame_stands_once_in_the_table() -> None:
    assert folded().table() == ((MAIN, IDLE), ((0, 1), (0,)))
    assert folded().total == 7


@pytest.mark.parametrize(
    ("event", "frequency", "each"),
    [
        ("cpu-clock", 100, 10_000_000),
        ("cycles:u", 1000, 1_000_000),
        ("cpu-clock", 0, 0),
        ("page-faults", 100, 0),
        ("", 100, 0),
    ],
)
def test_only_samples_of_a_clock_stand_for_time(event: str, frequency: int, each: int) -> None:
    assert folded(event, frequency).nanoseconds == each
