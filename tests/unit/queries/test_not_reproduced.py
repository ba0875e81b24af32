"""Did not reproduce: the largest rate that was missed, the counter-moves, and the next plan."""

from __future__ import annotations

import dataclasses
import math

import hypothesis
import hypothesis.strategies as st
import nightreports
import pytest

from overnight.investigations import plan_file
from overnight.model.investigation import Investigation
from overnight.model.plan import (
    ArmKind,
    ArmPlan,
    BudgetPlan,
    ExperimentPlan,
    HostsPlan,
    LoadPlan,
    Plan,
    WaitPlan,
)
from overnight.queries import not_reproduced

Move = not_reproduced.Move


def test_the_rule_of_three() -> None:
    assert not_reproduced.bound_missed(100.0) == pytest.approx(0.0299573)
    assert not_reproduced.bound_missed(0.0) is None
    rate = not_reproduced.bound_missed(250.0)
    assert rate is not None
    assert math.exp(-rate * 250.0) == pytest.approx(0.05)  # no event at that rate


@hypothesis.given(st.floats(1e-3, 1e6), st.floats(1.001, 100))
def test_more_exposure_never_misses_a_higher_rate(exposure: float, factor: float) -> None:
    less, more = (not_reproduced.bound_missed(e) for e in (exposure, exposure * factor))
    assert less is not None
    assert more is not None
    assert more < less


def test_a_quiet_night_on_one_machine() -> None:
    missed = not_reproduced.explain(nightreports.quiet(), {"hot": 2.0, "cold": 2.0})
    assert (missed.arm, missed.host_hours) == ("hot", 2.0)
    assert missed.hours_per_event == pytest.approx(2 / 2.9957, rel=1e-4)
    made = {move.move: move.made for move in missed.moves}
    assert made == {**dict.fromkeys(Move, False), Move.SAME_NEIGHBOURS: True}
    assert missed.next_plan.wait.seconds == 8 * 3600
    assert missed.next_plan.name == "driver-resets-2"
    assert missed.next_host_hours == 8.0


def test_nothing_observed_is_not_a_rate_of_zero() -> None:
    missed = not_reproduced.explain(dataclasses.replace(nightreports.quiet(), arms=()), {})
    assert (missed.missed_rate, missed.hours_per_event, missed.host_hours) == (None, None, 0.0)


def test_moves_are_judged_from_plan_and_run() -> None:
    plan = Plan(
        name="all",
        hosts=HostsPlan(provider="kubernetes", count=3, like="node-9"),
        arms=(ArmPlan(kind=ArmKind.HOT),),
        load=LoadPlan(kind="replay", profile="p.json", duty=0.9),
        wait=WaitPlan(seconds=8 * 3600),
    )
    doses = {f"n{n}": {"uptime_s": 8 * 86_400.0, "load": 0.9} for n in range(3)}
    arm = nightreports.make_arm(ArmKind.HOT, 0, 8, dict.fromkeys(doses, ()), doses)
    run = Investigation(id="i-000000000000", plan=plan, arms=(arm,))
    missed = not_reproduced.explain(run, {"hot": 24.0})
    assert all(move.made for move in missed.moves)
    assert missed.changes[0] == "wait 16 h instead of 8 h"
    short = dataclasses.replace(arm, ended_us=arm.began_us + 3_600_000_000, note="stopped by ci")
    moves = not_reproduced.explain(dataclasses.replace(run, arms=(short,)), {}).moves
    longer = next(move for move in moves if move.move is Move.LONGER)
    assert not longer.made
    assert "stopped by ci" in longer.why
    lax = dataclasses.replace(plan, hosts=dataclasses.replace(plan.hosts, require_equal=False))
    moves = not_reproduced.explain(dataclasses.replace(run, plan=lax), {}).moves
    assert not next(move for move in moves if move.move is Move.SAME_IMAGE).made


def plans() -> st.SearchStrategy[Plan]:
    """Return plans that a file may contain."""

    def build(
        local: bool, own: bool, hours: float, budget: float, count: int, price: float, money: float, allow: bool, duty: float | None
    ) -> Plan:  # fmt: skip
        kinds = (ArmKind.COLD, ArmKind.HOT)
        return Plan(
            name="p",
            hosts=HostsPlan(provider="local" if local else "kubernetes", count=1 if local else count),
            arms=tuple(ArmPlan(kind=kind, hosts=1 if own and not local else 0) for kind in kinds),
            load=None if duty is None else LoadPlan(duty=duty),
            wait=WaitPlan(seconds=hours * 3600),
            budget=BudgetPlan(hours=budget, price=price, money=money),
            experiment=ExperimentPlan(allow=("purge",) if allow else ()),
        )  # fmt: skip

    return st.builds(
        build, st.booleans(), st.booleans(), st.floats(0.1, 24), st.floats(1, 100), st.integers(1, 20),
        st.floats(0, 5), st.floats(0, 500), st.booleans(), st.none() | st.floats(0.1, 1),
    )  # fmt: skip


@hypothesis.given(plans(), st.sets(st.sampled_from(Move)))
def test_the_next_plan_can_be_carried_out_and_read_back(plan: Plan, moves: set[Move]) -> None:
    hypothesis.assume(not list(plan_file.find_problems(plan)))
    following, changes = not_reproduced.plan_next(plan, moves)
    assert not list(plan_file.find_problems(following))
    assert following.wait.seconds >= plan.wait.seconds
    assert following.hosts.count >= plan.hosts.count
    assert following.budget.hours <= not_reproduced.MAX_GROWTH * plan.budget.hours
    assert following.budget.money <= not_reproduced.MAX_GROWTH * plan.budget.money
    assert bool(changes) == (dataclasses.replace(following, name=plan.name) != plan)
    text = plan_file.dump(following, "\n".join(changes))
    read = plan_file.parse(text.encode())
    assert (read.name, read.hosts, len(read.arms)) == (following.name, following.hosts, len(following.arms))  # fmt: skip
    assert read.wait.seconds == pytest.approx(following.wait.seconds, rel=1e-3, abs=1)


def test_a_plan_that_may_not_cost_more_keeps_its_hosts() -> None:
    plan = Plan(
        name="p",
        hosts=HostsPlan(provider="kubernetes", count=2),
        arms=(ArmPlan(kind=ArmKind.HOT),),
        budget=BudgetPlan(hours=9, price=10.0, money=180.0),
    )
    following, changes = not_reproduced.plan_next(plan, {Move.MORE_HOSTS})
    assert (following.hosts.count, following.budget.hours) == (4, 17.0)
    assert following.budget.money == 680.0  # not more than four times 180
    dear = dataclasses.replace(
        plan, budget=dataclasses.replace(plan.budget, price=10.0, money=181.0)
    )
    assert "budget of 680 instead of 181" in not_reproduced.plan_next(dear, {Move.MORE_HOSTS})[1]
    large = dataclasses.replace(plan, hosts=dataclasses.replace(plan.hosts, count=1), budget=BudgetPlan(hours=9, price=10.0, money=90.0))  # fmt: skip
    following, changes = not_reproduced.plan_next(large, {Move.MORE_HOSTS})
    assert following.hosts.count == 1
    assert not any("hosts" in change for change in changes)
