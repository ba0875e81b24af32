"""The live board, which replaces the ring."""

from __future__ import annotations

from overnight.app import live
from overnight.model import clock
from overnight.model.cpu import Shares
from overnight.model.event import Event

SECOND = 1_000_000_000


def at(second: int) -> clock.Clock:
    return clock.Clock(1_700_000_000 * SECOND + second * SECOND, second * SECOND)


def test_shares_are_computed_from_two_samples():
    board = live.Board("h")
    board.numbers("cpu", (), at(0), {"0": (0,) * 10, "1": (0,) * 10})
    board.numbers(
        "cpu",
        (),
        at(1),
        {"0": (50, 0, 50, 0, 0, 0, 0, 0, 0, 0), "1": (0, 0, 0, 100, 0, 0, 0, 0, 0, 0)},
    )
    first, second = board.view().cores
    assert first.shares == (Shares(busy=1.0, kernel=0.5, steal=0.0),)
    assert second.shares == (Shares(busy=0.0, kernel=0.0, steal=0.0),)
    board.numbers("cpu", (), at(2), {"0": (60, 0, 60, 80, 0, 0, 0, 0, 0, 0)})
    assert [strip.core for strip in board.view().cores] == [0]


def test_steal_is_not_busy_and_is_shown_separately():
    board = live.Board("h")
    board.numbers("cpu", (), at(0), {"0": (0,) * 10})
    board.numbers("cpu", (), at(1), {"0": (20, 0, 20, 0, 0, 0, 0, 60, 0, 0)})
    (core,) = board.view().cores
    assert core.shares == (Shares(busy=0.4, kernel=0.2, steal=0.6),)
    assert board.view().as_json()["cores"] == [
        {"core": 0, "busy": 0.4, "kernel": 0.2, "steal": 0.6}
    ]


def test_the_busiest_process_comes_first():
    board = live.Board("h")
    board.numbers("processes", (), at(0), {"7 a b": (0, 0, 1, 1, 0), "8 c": (0, 0, 1, 0, 0)})
    board.numbers(
        "processes",
        (),
        at(2),
        {"7 a b": (100, 20, 1, 1, 0), "8 c": (50, 0, 1, 0, 0), "9 new": (99, 0, 1, 0, 0)},
    )
    first, second = board.view().processes
    assert first == live.ProcessLoad(7, "a b", 0.6, 1)
    assert second.cores == 0.25


def test_events_are_kept_once_and_newest_first():
    board = live.Board("h")
    for number in range(300):
        board.event(Event(number, "k", id=str(number)))
    board.event(Event(299, "k", "grown", id="299"))
    events = board.view().events
    assert len(events) == live.KEPT_EVENTS
    assert (events[0].id, events[0].text) == ("299", "grown")


def test_the_view_as_json_has_the_last_second():
    board = live.Board("h")
    board.numbers("memory-cgroups", (), at(0), {"": (9, 5, 4, 0)})
    board.numbers("cpu", (), at(0), {"0": (0,) * 10})
    board.numbers("cpu", (), at(1), {"0": (25, 0, 0, 75, 0, 0, 0, 0, 0, 0)})
    document = board.view().as_json()
    assert document["cores"] == [{"core": 0, "busy": 0.25, "kernel": 0.0, "steal": 0.0}]
    assert document["memory_cgroups"] == {"tracked": 9, "in_use": 5, "dying": 4}
