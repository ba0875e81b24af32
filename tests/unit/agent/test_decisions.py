"""Decisions of the loop, without a clock or a disk."""

from __future__ import annotations

import dataclasses

import pytest

from overnight.agent import decisions
from overnight.sources import perf

SECOND = 1_000_000_000
WALL = 1_700_000_000 * SECOND
POLICY = decisions.Policy(segment_seconds=120, floor_bytes=1000)
SPACE, NO_SPACE = 10_000, 999


def clock(now: float, step: float = 0.0) -> perf.Clock:
    return perf.Clock(WALL + round((now + step) * SECOND), round(now * SECOND))


def recording(now: float = 0.0, **changes: object) -> decisions.State:
    state = decisions.State(decisions.Mode.RECORDING, clock(now), now, now)
    return dataclasses.replace(state, **changes)


def poll(
    now: float, free: int = SPACE, failed: str = "", step: float = 0.0
) -> decisions.Observation:
    return decisions.Observation(now, clock(now, step), free, failed)


def kinds(actions) -> list[str]:
    return ["gap" if isinstance(action, perf.Gap) else action.name for action in actions]


def test_a_quiet_second_needs_no_action():
    assert decisions.decide(recording(), poll(1), POLICY)[1] == ()


def test_a_segment_ends_when_it_is_due_and_only_once():
    state, actions = decisions.decide(recording(), poll(120), POLICY)
    assert kinds(actions) == ["SWITCH"]
    assert decisions.decide(state, poll(121), POLICY)[1] == ()
    assert kinds(decisions.decide(state, poll(240), POLICY)[1]) == ["SWITCH"]


@pytest.mark.parametrize(("age", "switches"), [(4.9, False), (5.0, True)])
def test_a_segment_that_somebody_waits_for_ends_early(age, switches):
    seen = dataclasses.replace(poll(age), is_wanted=True)
    assert kinds(decisions.decide(recording(), seen, POLICY)[1]) == ["SWITCH"] * switches
    short = decisions.Policy(segment_seconds=2, floor_bytes=1000)
    assert kinds(decisions.decide(recording(), seen, short)[1]) == ["SWITCH"]


@pytest.mark.parametrize("step", [3600.0, -3600.0, 0.051, -0.051])
def test_a_clock_step_is_noted_and_begins_a_segment(step):
    state, actions = decisions.decide(recording(), poll(5, step=step), POLICY)
    assert kinds(actions) == ["gap", "SWITCH"]
    gap = actions[0]
    assert gap.end_ns - gap.begin_ns == round(step * SECOND)
    assert f"{step:+.3f} s" in gap.why
    assert decisions.decide(state, poll(6, step=step), POLICY)[1] == ()


def test_noise_between_two_clocks_is_not_a_step():
    assert decisions.decide(recording(), poll(5, step=0.049), POLICY)[1] == ()


def test_a_full_disk_pauses_and_the_open_gap_is_on_disk_at_once():
    state, actions = decisions.decide(recording(), poll(5, free=NO_SPACE), POLICY)
    assert kinds(actions) == ["STOP", "gap"]
    assert actions[1].begin_ns == actions[1].end_ns == clock(5).wall_ns
    assert state.mode is decisions.Mode.PAUSED
    assert decisions.decide(state, poll(6, free=NO_SPACE), POLICY)[1] == ()


def test_a_little_free_space_is_not_enough_to_resume():
    paused, _ = decisions.decide(recording(), poll(5, free=NO_SPACE), POLICY)
    assert decisions.decide(paused, poll(6, free=1249), POLICY)[1] == ()
    state, actions = decisions.decide(paused, poll(7, free=1250), POLICY)
    assert kinds(actions) == ["START"]
    state, note = decisions.started(state, 7.5, clock(7.5))
    assert state.mode is decisions.Mode.RECORDING
    why = f"the disk is nearly full: {NO_SPACE} B of the 1 kB that must stay free"
    assert note == perf.Gap(clock(5).wall_ns, clock(7.5).wall_ns, why)


def test_a_dead_recorder_is_retried_with_growing_delays():
    state = recording()
    state, actions = decisions.decide(state, poll(1, failed="perf ended (SIGKILL)"), POLICY)
    # It last worked at second 0: the gap begins there.
    assert actions == (perf.Gap(WALL, WALL, "perf ended (SIGKILL)"),)
    assert decisions.decide(state, poll(1.4), POLICY)[1] == ()
    now, delays = 1.5, []
    for _ in range(10):
        state, actions = decisions.decide(state, poll(now), POLICY)
        assert kinds(actions) == ["START"]
        state, note = decisions.started(state, now, clock(now), "still no perf")
        assert note.begin_ns == WALL
        delays.append(state.retry_at - now)
        now = state.retry_at
    assert delays[:4] == [1.0, 2.0, 4.0, 8.0]
    assert delays[-1] == 30.0
    state, note = decisions.started(state, now, clock(now))
    assert note == perf.Gap(WALL, clock(now).wall_ns, "perf ended (SIGKILL)")


def test_a_minute_of_health_forgets_old_failures():
    failing = recording(0.0, failures=6)
    assert decisions.decide(failing, poll(59, failed="x"), POLICY)[0].retry_at == 59 + 30
    assert decisions.decide(failing, poll(61, failed="x"), POLICY)[0].retry_at == 61.5


def test_a_recorder_that_died_of_a_full_disk_waits_for_free_space():
    state, _ = decisions.decide(recording(), poll(1, free=0, failed="No space left"), POLICY)
    state, actions = decisions.decide(state, poll(2, free=0), POLICY)
    assert state.mode is decisions.Mode.PAUSED
    assert actions == ()
    state, actions = decisions.decide(state, poll(3), POLICY)
    assert kinds(actions) == ["START"]
    _, note = decisions.started(state, 3, clock(3))
    assert note.why == "No space left"


def test_the_delay_stays_bounded_after_a_night_of_failures():
    assert decisions.retry_delay(10_000) == 30.0
