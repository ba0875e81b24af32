"""The controller holds a share of a core whatever sleeps, overheads and stalls do to it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.load import controller


class Machine:
    """A clock, a CPU clock and a core that others take a part of."""

    def __init__(self, piece: float = 0.001, late: float = 0.0, taken: float = 0.0) -> None:
        self.now = self.cpu = 0.0
        self.piece, self.late, self.taken = piece, late, taken
        self.chance = random.Random(1)

    def work(self) -> None:
        self.cpu += self.piece
        self.now += self.piece / (1 - self.taken)

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.chance.random() * self.late
        self.cpu += 0.00005  # waking up is no gift

    def pacer(self, duty: float, phase: float = 0.0) -> controller.Pacer:
        return controller.Pacer(
            duty, phase=phase, wall=lambda: self.now, used=lambda: self.cpu, sleep=self.sleep
        )


def shares(machine: Machine, duty: float, seconds: int = 20) -> list[float]:
    """CPU of each second."""
    pacer, found = machine.pacer(duty), []
    before, used = machine.now, machine.cpu
    while len(found) < seconds:
        machine.work()
        pacer.rest()
        if machine.now - before >= 1:
            found.append((machine.cpu - used) / (machine.now - before))
            before, used = machine.now, machine.cpu
    return found


@given(
    duty=st.floats(0.05, 0.9),
    piece=st.floats(0.00005, 0.004),
    late=st.floats(0, 0.01),
    taken=st.floats(0, 0.05),
)
def test_what_is_asked_for_is_held(duty: float, piece: float, late: float, taken: float) -> None:
    found = shares(Machine(piece, late, taken), duty, 10)[2:]
    mean = sum(found) / len(found)
    assert mean == pytest.approx(duty, rel=0.02, abs=piece / 0.1 / 4)


def test_a_core_that_is_shared_gives_what_it_can() -> None:
    found = shares(Machine(taken=0.5), 0.8)
    assert 0.45 < sum(found) / len(found) <= 0.5


def test_after_a_stall_nobody_gets_a_second_of_full_load() -> None:
    machine = Machine()
    pacer = machine.pacer(0.5)
    for _ in range(100):
        machine.work()
        pacer.rest()
    machine.now += 30  # suspended
    begin, used = machine.now, machine.cpu
    while machine.now < begin + 1:
        machine.work()
        pacer.rest()
    assert machine.cpu - used < 0.7


def test_a_full_core_never_rests() -> None:
    machine = Machine()
    pacer = machine.pacer(1.0)
    before = machine.now
    for _ in range(1000):
        machine.work()
        pacer.rest()
    assert machine.now - before == pytest.approx(1.0)


def test_periods_begin_where_the_phase_says() -> None:
    machine = Machine()
    machine.now = 7.031
    machine.pacer(0.5, phase=0.25)
    assert machine.now % controller.PERIOD == pytest.approx(0.025, abs=1e-6)


@pytest.mark.parametrize("duty", [0.0, -0.1, 1.01, float("nan")])
def test_a_share_that_is_none_is_refused(duty: float) -> None:
    with pytest.raises(errors.UsageError, match="duty must be above 0"):
        controller.Controller(duty)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=50), st.floats(0.01, 1))
def test_a_budget_is_never_more_than_a_period(
    periods: list[tuple[float, float]], duty: float
) -> None:
    one = controller.Controller(duty)
    assert all(0 <= one.next(used, lasted) <= one.period for used, lasted in periods)
