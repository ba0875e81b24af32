"""Which time an event is compared with: near it, and without the trouble of other events of its kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from overnight.model.selection import Window
from overnight.model.times import SECOND_US

__all__ = ["Baseline", "choose"]

ENOUGH_US = 60 * SECOND_US  # of a quiet stretch: what is usual can be seen in it
LEAST_US = 5 * SECOND_US  # less is no baseline

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Baseline:
    """`cut`: earlier events are why it is not the one that was wanted; `moved`: it ends before one of them;
    `disturbed`: nothing without such events is recorded.
    """

    window: Window
    cut: bool = False
    moved: bool = False
    disturbed: bool = False


def choose(
    wanted: Window,
    first_us: int,
    troubles: Sequence[Iterable[Span]],
    usable: Callable[[Window], bool] = lambda _: True,
) -> Baseline:
    """The wanted window, or the latest quiet stretch since `first_us` that is long enough, or the longest.

    `troubles` are what is no baseline, told several ways, the most careful first: the next is taken where
    one leaves nothing. What is not `usable` is taken only where nothing else is quiet.

    >>> choose(selection.Window(100, 200), 0, [[(250, 300)]]).window
    Window(begin_us=100, end_us=200)
    >>> choose(selection.Window(100, 200), 0, [[(0, 300)]]).disturbed
    True
    """
    for trouble in troubles:
        shut = sorted(trouble, key=lambda span: -span[1])
        if not any(begin < wanted.end_us and wanted.begin_us < end for begin, end in shut):
            return Baseline(wanted)
        length = wanted.end_us - wanted.begin_us
        quiet = list(_quiet(first_us, wanted.end_us, shut, length))
        if quiet:
            found = _best([one for one in quiet if usable(one)] or quiet, min(ENOUGH_US, length))
            return Baseline(found, cut=True, moved=found.end_us < wanted.end_us)
    return Baseline(wanted, disturbed=True)


def _best(quiet: Sequence[Window], enough_us: int) -> Window:
    long = (one for one in quiet if one.end_us - one.begin_us >= enough_us)
    return next(long, None) or max(quiet, key=lambda one: one.seconds)


def _quiet(first_us: int, end_us: int, shut: Sequence[Span], most_us: int) -> Iterator[Window]:
    """What lies between the troubles, the latest first, of each the last part."""
    for begin, end in (*shut, (first_us - 1, first_us)):
        if end_us - max(end, first_us) >= LEAST_US:
            yield Window(max(end, first_us, end_us - most_us), end_us)
        end_us = min(end_us, begin)
