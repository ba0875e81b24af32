"""How old a reading may be at an event."""

from __future__ import annotations

import pathlib

import casebook
import pytest
import rings

from overnight.agent import own_processes
from overnight.model.finding import Need
from overnight.queries import freshness

AT = casebook.EVENT_SECOND


@pytest.mark.parametrize(
    ("signal", "seconds"),
    [("cpu", 3), ("affinity", 7.5), ("disks", 15), ("units", 45), ("memory-cgroups", 90), ("host", 900), ("recorder", 7.5)],
)  # fmt: skip
def test_the_limit_is_one_and_a_half_intervals(signal: str, seconds: float) -> None:
    assert freshness.max_age_us(signal) == seconds * 10**6


def test_every_input_of_a_detector_has_a_limit() -> None:
    assert freshness.OTHERS[Need.RECORDER] == own_processes.EVERY_SECONDS
    for need in set(Need) - {Need.SNAPSHOTS}:
        assert freshness.max_age_us(need) >= 3 * 10**6


@pytest.mark.parametrize(
    ("seconds", "silence"),
    [
        pytest.param([AT - 60], 13, id="too long ago to be looked at"),
        pytest.param([AT - 12, AT - 4], 8, id="a hole"),
        pytest.param([AT - 13, AT - 8, AT - 4, AT + 3], 5, id="a reading after the event does not count"),
        pytest.param([AT - 13, AT - 10, AT - 7, AT - 5, AT - 3], 3, id="at the limit"),
        pytest.param([AT - 7, AT - 4, AT - 2], 3, id="the recording began seven seconds before"),
        pytest.param([AT - 6, AT - 4, AT - 2], 4, id="the recording began six seconds before"),
        pytest.param([AT], 10, id="only at the event"),
    ],
)  # fmt: skip
def test_silence_is_the_longest_time_without_a_reading(
    tmp_path: pathlib.Path, seconds: list[int], silence: float | None
) -> None:
    home = casebook.Home(tmp_path)
    for second in seconds:
        home.writer.numbers("cpu", casebook.CPU, rings.at(second), {"0": (0,) * 8})
    home.event()
    case = home.case()
    assert freshness.silence_us(case, "cpu") == silence * 10**6
    why = freshness.explain_silence(case, "cpu")
    assert why == (
        f"cpu was not recorded for {silence} s before the event (limit 3 s)" if silence > 3 else ""
    )
    assert "(limit 7.5 s)" in freshness.explain_silence(case, "affinity") or silence < 7.5
    # Facts and events are stored as they change: any reading shows that the recorder ran.
    assert freshness.silence_us(case, "events") == silence * 10**6
    assert bool(freshness.explain_silence(case, "units")) == (silence > 45 or seconds == [AT - 60])


@pytest.mark.parametrize(
    ("second", "moved", "is_doubted"),
    [
        pytest.param(AT - 3, -8.0, True, id="set back before the event"),
        pytest.param(AT - 3, 8.0, True, id="set forward before the event"),
        pytest.param(AT - 3, 0.9, False, id="by less than a second"),
        pytest.param(AT - 25, 40.0, False, id="set forward long before"),
        pytest.param(AT - 25, -5.0, False, id="set back long before"),
        pytest.param(AT - 15, -8.0, True, id="the time from then on overlaps"),
        pytest.param(AT + 3, -8.0, True, id="set back after the event"),
        pytest.param(AT + 3, 8.0, False, id="set forward after the event"),
    ],
)
def test_where_the_clock_was_set_nothing_is_ruled_out(
    tmp_path: pathlib.Path, second: int, moved: float, is_doubted: bool
) -> None:
    """Readings of two times are told apart by the wall clock alone."""
    home = casebook.Home(tmp_path)
    for at in range(AT - 200, AT + 20):
        now = rings.at(at, step=moved if at >= second else 0.0)
        home.writer.numbers("vmstat", ("oom_kill",), now, {"": (0,)})
    home.event(second=AT + (moved if second <= AT else 0.0))
    why = freshness.explain_doubt(home.case(), "vmstat")
    assert ("the wall clock was set by" in why) is is_doubted


@pytest.mark.parametrize(("end", "is_fresh"), [(AT - 3, True), (AT - 4, False), (AT + 5, True)])
def test_stacks_may_miss_three_of_the_ten_seconds_before_the_event(
    tmp_path: pathlib.Path, end: int, is_fresh: bool
) -> None:
    home = casebook.Home(tmp_path).cpu(first=AT - 40)
    home.stacks(casebook.busy(AT - 40, end, 0, "app", ()), begin=AT - 40, end=end)
    home.event()
    case = home.case()
    assert bool(freshness.explain_silence(case, Need.PROFILES)) != is_fresh
    assert freshness.explain_silence(case, Need.PROFILES, Need.CPU) == ""


@pytest.mark.parametrize(
    ("last", "problem", "core"),
    [(AT - 2, False, 3), (AT - 15, False, 3), (AT - 16, False, None), (AT - 2, True, None)],
)
def test_facts_count_while_the_recorder_runs(
    tmp_path: pathlib.Path, last: int, problem: bool, core: int | None
) -> None:
    home = casebook.Home(tmp_path).queues({5: 3}, second=AT - 800)
    for second in (last - 10, last):
        home.writer.numbers("load", ("load1",), rings.at(second), {"": (1,)})
    if problem:
        rows = {"nic-queues": {"problem": "permission denied"}}
        home.writer.facts("agent-problems", rings.at(last), rows)
    home.event()
    facts = home.case().facts("nic-queues")
    assert (facts or {}).get("eth0 q5", {}).get("core") == core
