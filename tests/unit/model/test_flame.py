from __future__ import annotations

import folding
import pytest

from overnight.model.flame import Folded, Frame, FrameKind

MAIN, IDLE = Frame("main", "/a"), Frame("do_idle", "[kernel]", FrameKind.KERNEL)


def folded(event: str = "cpu-clock", frequency: int = 97) -> Folded:
    stacks = [((MAIN, IDLE), 3), ((MAIN,), 4)]
    return folding.fold(stacks, frequency=frequency, event=event)


def test_every_stack_with_samples_is_listed() -> None:
    assert folded().frames == (MAIN, IDLE)
    assert list(folded().stacks()) == [((0,), 4), ((0, 1), 3)]
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
def test_only_samples_of_a_clock_have_a_duration(event: str, frequency: int, each: int) -> None:
    assert folded(event, frequency).nanoseconds == each
