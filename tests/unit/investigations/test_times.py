"""When an investigation looks again, and how long its arms still take."""

from __future__ import annotations

import dataclasses

import pytest

from overnight.investigations import decisions
from overnight.model.investigation import (
    ArmRun,
    ArmState,
    ExperimentRun,
    Investigation,
    Occurrence,
    Phase,
)
from overnight.model.plan import ArmKind, ArmPlan, BudgetPlan, ExperimentPlan, Plan, WaitPlan

S = 1_000_000
START = 1_800_000_000 * S
TURNS = (ArmPlan(kind=ArmKind.COLD, seconds=100.0), ArmPlan(kind=ArmKind.HOT, seconds=200.0))
OWN = tuple(dataclasses.replace(arm, hosts=1) for arm in TURNS)
WAITING, PREPARING, RUNNING, ENDING, ENDED = ArmState


def make(
    states: tuple[ArmState, ...] = (),
    arms: tuple[ArmPlan, ...] = TURNS,
    experiment: ArmState | None = None,
    began: int = 60,
    **fields: object,
) -> Investigation:
    """Return an investigation whose running arms began `began` seconds ago."""

    def run(state: ArmState) -> ArmRun:
        began_us = 0 if state in (WAITING, PREPARING) else START - began * S
        return ArmRun(kind=ArmKind.HOT, hosts=("a",), state=state, began_us=began_us)

    tested = None if experiment is None else ExperimentRun(change="x", why="", arm=run(experiment))
    given = {"phase": Phase.ARMS, "arms": tuple(map(run, states)), "experiment": tested, **fields}
    plan = given.pop("plan", None) or Plan(
        name="x", arms=arms, experiment=ExperimentPlan(allow=("purge",), seconds=80.0)
    )
    return Investigation(id="i-000000000000", plan=plan, made_us=START, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (make(), 300.0),
        (make(arms=OWN), 200.0),
        (make((PREPARING, WAITING)), 300.0),
        (make((RUNNING, WAITING)), 240.0),
        (make((ENDING, WAITING)), 200.0),
        (make((RUNNING, RUNNING), OWN), 140.0),
        (make((RUNNING, RUNNING), OWN, began=150), 50.0),
        (make((ENDED, ENDED)), 0.0),
        (make((ENDED, ENDED), experiment=PREPARING, phase=Phase.EXPERIMENT), 80.0),
        (make((ENDED, ENDED), experiment=RUNNING, phase=Phase.EXPERIMENT), 20.0),
        (make((RUNNING, WAITING), stop=True), 0.0),
        (make((RUNNING, WAITING), phase=Phase.RELEASE), 0.0),
        (make((RUNNING, WAITING), phase=Phase.REPORT), 0.0),
        (make(plan=Plan(name="x", arms=TURNS, budget=BudgetPlan(hours=0.05))), 162.0),
    ],
)
def test_how_long_it_still_takes(now: Investigation, left: float) -> None:
    assert decisions.left_seconds(now, START) == left


@pytest.mark.parametrize(
    ("now", "at", "left"),
    [
        (make((WAITING, WAITING)), 0, 100.0),
        (make((WAITING, PREPARING)), 1, 200.0),
        (make((WAITING, RUNNING)), 1, 140.0),
        (make((WAITING, RUNNING), began=201), 1, 0.0),
        (make((WAITING, ENDING)), 1, 0.0),
        (make((RUNNING,), plan=Plan(name="x", budget=BudgetPlan(hours=0.05))), 0, 162.0),
    ],
)
def test_an_arm_is_observed_for_the_rest_of_its_time(now: Investigation, at: int, left: float) -> None:  # fmt: skip
    assert decisions.arm_left(now, at, START) == left


@pytest.mark.parametrize(
    ("now", "pause"),
    [
        (make(phase=Phase.CHECK), 1.0),
        (make((WAITING, WAITING)), 1.0),
        (make((RUNNING, WAITING)), 5.0),
        (make((RUNNING, WAITING), began=97), 5.0),
        (make((ENDED, RUNNING), began=197), 3.0),
        (make((ENDED, RUNNING), began=200), 1.0),
        (make((RUNNING, PREPARING), OWN), 1.0),
        (make((RUNNING, RUNNING), OWN), 5.0),
        (make((ENDED, ENDED), experiment=RUNNING, phase=Phase.EXPERIMENT), 5.0),
        (make((ENDED, ENDED), experiment=PREPARING, phase=Phase.EXPERIMENT), 1.0),
        (make((ENDED, ENDED), phase=Phase.EXPERIMENT), 1.0),
        (make((RUNNING, WAITING), phase=Phase.RELEASE), 1.0),
        (make((RUNNING, WAITING), next_us=START + 7 * S), 7.0),
        (make((RUNNING, WAITING), next_us=START - 7 * S), 5.0),
    ],
)
def test_it_looks_more_often_while_something_is_about_to_change(now: Investigation, pause: float) -> None:  # fmt: skip
    assert decisions.pause_seconds(now, START) == pause


@pytest.mark.parametrize(
    ("events", "began", "hosts", "why"),
    [
        (0, 60, ("a",), None),
        (1, 60, ("a",), None),
        (2, 60, ("a",), ""),
        (3, 60, ("a",), ""),
        (0, 100, ("a",), ""),
        (0, 60, (), "no host of this arm can be observed"),
    ],
)
def test_an_arm_ends_with_its_time_its_events_or_its_hosts(
    events: int, began: int, hosts: tuple[str, ...], why: str | None
) -> None:
    seen = tuple(Occurrence("a", f"e{n}", "x", START) for n in range(events))
    now = make((RUNNING,), plan=Plan(name="x", wait=WaitPlan(seconds=100.0, count=2)), began=began)
    [run] = now.arms
    now = dataclasses.replace(now, arms=(dataclasses.replace(run, hosts=hosts, occurrences=seen),))
    assert decisions.why_arm_ends(now, 0, START) == why
