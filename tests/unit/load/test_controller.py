"""The controller holds its share of a core despite late sleeps, overhead and stalls."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.load import controller


class Machine:
    """A clock, a CPU clock and a core that others take a part of."""

    def __init__(self, piece: float = 0.001, late: float = 0.0, stolen: float = 0.0) -> None:
        self.now = self.cpu = 0.0
        self.piece, self.late, self.stolen = piece, late, stolen
        self.chance = random.Random(1)

    def work(self) -> None:
        self.cpu += self.piece
        self.now += self.piece / (1 - self.stolen)

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.chance.random() * self.late
        self.cpu += 0.00005  # waking up costs CPU time

    def pacer(self, duty: float, phase: float = 0.0) -> controller.Pacer:
        return controller.Pacer(
            duty, phase=phase, wall=lambda: self.now, used=lambda: self.cpu, sleep=self.sleep
        )


def shares(machine: Machine, duty: float, seconds: int = 20) -> list[float]:
    """CPU of each second."""
    pacer, measured = machine.pacer(duty), []
    before, used = machine.now, machine.cpu
    while len(measured) < seconds:
        machine.work()
        pacer.rest()
        if machine.now - before >= 1:
            measured.append((machine.cpu - used) / (machine.now - before))
            before, used = machine.now, machine.cpu
    return measured


@given(
    duty=st.floats(0.05, 0.9),
    piece=st.floats(0.00005, 0.004),
    late=st.floats(0, 0.01),
    stolen=st.floats(0, 0.05),
)
def test_the_requested_share_is_held(duty: float, piece: float, late: float, stolen: float) -> None:
    measured = shares(Machine(piece, late, stolen), duty, 10)[2:]
    mean = sum(measured) / len(measured)
    assert mean == pytest.approx(duty, rel=0.02, abs=piece / 0.1 / 4)


def test_a_shared_core_gives_what_is_left() -> None:
    measured = shares(Machine(stolen=0.5), 0.8)
    assert 0.45 < sum(measured) / len(measured) <= 0.5


def test_a_stall_is_not_followed_by_a_second_of_full_load() -> None:
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


def test_periods_begin_at_the_phase() -> None:
    machine = Machine()
    machine.now = 7.031
    machine.pacer(0.5, phase=0.25)
    assert machine.now % controller.PERIOD == pytest.approx(0.025, abs=1e-6)


@pytest.mark.parametrize("duty", [0.0, -0.1, 1.01, float("nan")])
def test_an_invalid_share_is_refused(duty: float) -> None:
    with pytest.raises(errors.UsageError, match="duty must be above 0"):
        controller.Controller(duty)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=50), st.floats(0.01, 1))
def test_a_budget_is_never_more_than_a_period(
    periods: list[tuple[float, float]], duty: float
) -> None:
    control = controller.Controller(duty)
    assert all(0 <= control.next(used, lasted) <= control.period for used, lasted in periods)


def test_a_changing_share_is_followed_from_its_first_period() -> None:
    machine = Machine(piece=0.0001)
    wanted = [0.2, 1.0, 0.0, 0.0, 0.7, 0.95, 0.1, 0.5]

    def share(now: float) -> float:
        return wanted[int(now) % len(wanted)]

    pacer = controller.Pacer(
        wanted[0], follow=share, wall=lambda: machine.now, used=lambda: machine.cpu, sleep=machine.sleep
    )  # fmt: skip
    measured, used = [], 0.0
    while len(measured) < len(wanted):
        machine.work()
        pacer.rest()
        if machine.now >= len(measured) + 1:
            measured.append(machine.cpu - used)
            used = machine.cpu
    assert measured == pytest.approx(wanted, abs=0.02)


def test_a_constant_share_is_never_zero() -> None:
    with pytest.raises(errors.UsageError):
        controller.Controller(0.0)
    assert controller.Controller(0.0, may_rest=True).next(0.0, 0.1) == 0
