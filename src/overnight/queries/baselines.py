"""The choice of a baseline: near the event, and undisturbed by other events of its kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

from overnight.model.selection import Window
from overnight.model.times import SECOND_US

ENOUGH_US = 60 * SECOND_US  # of an undisturbed window: long enough for a baseline
MIN_US = 5 * SECOND_US  # a shorter window is not a baseline

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Baseline:
    window: Window
    cut: bool = False  # earlier events shortened or moved it
    moved: bool = False  # it ends before one of them
    disturbed: bool = False  # all recorded time has such events in it


def choose(
    wanted: Window,
    first_us: int,
    incidents: Sequence[Iterable[Span]],
    usable: Callable[[Window], bool] = lambda _: True,
) -> Baseline:
    """Return the wanted window, else the latest undisturbed one since `first_us` that is long enough.

    If none is long enough, the longest is taken. `incidents` holds the windows to avoid in several
    versions, the most careful first: the next is tried where one leaves nothing. A window that is not
    `usable` is taken only if no other is undisturbed.

    >>> choose(Window(100, 200), 0, [[(250, 300)]]).window
    Window(begin_us=100, end_us=200)
    >>> choose(Window(100, 200), 0, [[(0, 300)]]).disturbed
    True
    """
    for spans in incidents:
        avoid = sorted(spans, key=lambda span: -span[1])
        if not any(begin < wanted.end_us and wanted.begin_us < end for begin, end in avoid):
            return Baseline(wanted)
        length = wanted.end_us - wanted.begin_us
        quiet = list(_quiet(first_us, wanted.end_us, avoid, length))
        if quiet:
            best = _best([w for w in quiet if usable(w)] or quiet, min(ENOUGH_US, length))
            return Baseline(best, cut=True, moved=best.end_us < wanted.end_us)
    return Baseline(wanted, disturbed=True)


def _best(quiet: Sequence[Window], enough_us: int) -> Window:
    long = (window for window in quiet if window.end_us - window.begin_us >= enough_us)
    return next(long, None) or max(quiet, key=lambda window: window.seconds)


def _quiet(first_us: int, end_us: int, avoid: Sequence[Span], max_us: int) -> Iterator[Window]:
    """Yield the last part of each window between the incidents, the latest first."""
    for begin, end in (*avoid, (first_us - 1, first_us)):
        if end_us - max(end, first_us) >= MIN_US:
            yield Window(max(end, first_us, end_us - max_us), end_us)
        end_us = min(end_us, begin)
