from __future__ import annotations

import dataclasses
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.agent import task_config
from overnight.investigations import decisions
from overnight.investigations.decisions import Stage
from overnight.model.event import Event
from overnight.model.investigation import (
    ArmRun,
    ArmState,
    ExperimentRun,
    HostTask,
    Investigation,
    Occurrence,
    Outcome,
    Phase,
)
from overnight.model.plan import (
    ArmKind,
    ArmPlan,
    BudgetPlan,
    ExperimentPlan,
    HostsPlan,
    InstrumentPlan,
    LoadPlan,
    Plan,
    RecordPlan,
    RehearsalPlan,
    WaitPlan,
)
from overnight.model.protocol import INTERRUPTED, TaskKind, TaskState
from overnight.model.reservation import MAX_SECONDS

S = 1_000_000
HOUR = 3600 * S
START = 1_800_000_000 * S
HOSTS = ("a", "b", "c")


def make(plan: Plan, **fields: object) -> Investigation:
    return Investigation(id="i-000000000000", plan=plan, made_us=START, **fields)  # type: ignore[arg-type]


arm_plans = st.builds(
    ArmPlan,
    kind=st.sampled_from(ArmKind),
    hosts=st.integers(0, 3),
    seconds=st.sampled_from([0.0, 60.0, 7200.0]),
)
arm_runs = st.builds(
    ArmRun,
    kind=st.sampled_from(ArmKind),
    hosts=st.just(HOSTS),
    state=st.sampled_from(ArmState),
    began_us=st.integers(START, START + HOUR),
)


@given(st.lists(arm_plans, min_size=1, max_size=4).map(tuple))
def test_every_host_of_an_own_arm_is_in_that_arm_alone(arms: tuple[ArmPlan, ...]) -> None:
    plan = Plan(name="x", arms=arms, hosts=HostsPlan(count=2))
    names = tuple(f"h{n}" for n in range(plan.host_count))
    runs = decisions.assign_hosts(plan, names)
    own = [run.hosts for arm, run in zip(arms, runs, strict=True) if arm.hosts]
    assert [len(hosts) for hosts in own] == [arm.hosts for arm in arms if arm.hosts]
    assert sum(own, ()) == names[: sum(arm.hosts for arm in arms)]
    assert {r.hosts for a, r in zip(arms, runs, strict=True) if not a.hosts} <= {names}


@given(st.lists(st.tuples(arm_plans, arm_runs), min_size=1, max_size=4))
def test_arms_that_share_hosts_never_run_together(pairs: list[tuple[ArmPlan, ArmRun]]) -> None:
    plan = Plan(name="x", arms=tuple(arm for arm, _ in pairs))
    now = make(plan, arms=tuple(run for _, run in pairs), phase=Phase.ARMS)
    chosen = decisions.choose_arms(now)
    assert (chosen == ()) == all(run.state is ArmState.ENDED for _, run in pairs)
    assert len(chosen) <= 1 or all(plan.arms[at].hosts for at in chosen)
    assert all(now.arms[at].state is not ArmState.ENDED for at in chosen)


@given(
    st.lists(st.tuples(arm_plans, arm_runs), min_size=1, max_size=4),
    st.floats(0.0, 20.0), st.floats(0.0, 10.0), st.floats(0.0, 100.0), st.integers(0, 30 * HOUR),
)  # fmt: skip
def test_nothing_goes_on_beyond_the_budget(
    pairs: list[tuple[ArmPlan, ArmRun]], hours: float, price: float, money: float, later: int
) -> None:
    budget = BudgetPlan(hours=hours, price=price, money=money)
    plan = Plan(name="x", arms=tuple(arm for arm, _ in pairs), budget=budget)
    now = make(plan, arms=tuple(run for _, run in pairs), phase=Phase.ARMS)
    at = START + later
    assert START <= decisions.close_us(now) <= decisions.end_us(now)
    left = decisions.left_seconds(now, at)
    assert 0 <= left <= max(0.0, (decisions.end_us(now) - at) / S)
    if decisions.why_end(now, at):
        assert left == 0
    assert all(order.max_seconds <= MAX_SECONDS for order in decisions.make_orders(now, at))
    assert decisions.pause_seconds(now, at) > 0


def test_why_it_ends() -> None:
    plan = Plan(name="x", hosts=HostsPlan(count=4), budget=BudgetPlan(hours=12, price=3, money=60))
    now = make(plan)
    assert decisions.end_us(now) == START + 5 * HOUR  # 4 hosts cost 12 an hour
    assert decisions.why_end(now, START) == ""
    assert decisions.why_end(now, START + 5 * HOUR) == "budget.money is used up"
    hours = make(dataclasses.replace(plan, budget=BudgetPlan(hours=1)))
    assert decisions.why_end(hours, START + 53 * 60 * S) == ""
    assert decisions.why_end(hours, START + 54 * 60 * S) == "budget.hours is used up"
    disk = make(dataclasses.replace(plan, budget=BudgetPlan(disk=100)))
    assert decisions.why_end(disk, START, 99) == ""
    assert decisions.why_end(disk, START, 100) == "budget.disk is used up"
    assert decisions.why_end(dataclasses.replace(now, stop=True), START) == "stopped on request"


def test_the_order_of_hosts_follows_the_plan() -> None:
    hosts = HostsPlan(
        provider="kubernetes", where="prod", labels={"type": "gpu"}, evict=True,
        like="gpu-7",
    )  # fmt: skip
    arms = (ArmPlan(kind=ArmKind.HOT, hosts=3), ArmPlan(kind=ArmKind.COLD, hosts=1))
    [order] = decisions.make_orders(
        make(Plan(name="x", hosts=hosts, arms=arms)), START, "https://c"
    )
    assert (order.count, order.labels, order.reference) == (4, {"type": "gpu"}, "gpu-7")
    assert (order.renew, order.seconds, order.max_seconds) == (True, 3600, 12 * 3600)
    assert (order.start_agent, order.agent_server) == (True, "https://c")
    [local] = decisions.make_orders(make(Plan(name="x", budget=BudgetPlan(hours=0.01))), START)
    assert (local.start_agent, local.seconds, local.max_seconds) == (False, 300, 300)


def test_an_order_has_each_choice_of_the_plan_and_ends_with_its_budget() -> None:
    hosts = HostsPlan(
        provider="ec2", where="group", region="eu-1", zone="eu-1a", instance_type="m7i",
        names=("a", "b"), evict=True,
    )  # fmt: skip
    made = make(Plan(name="x", hosts=hosts), owner="ops@desk")
    [order] = decisions.make_orders(made, START + 2 * HOUR)
    assert (order.provider, order.where, order.region) == ("ec2", "group", "eu-1")
    assert (order.zone, order.instance_type, order.hosts) == ("eu-1a", "m7i", ("a", "b"))
    assert (order.evict, order.owner, order.purpose) == (True, "ops@desk", made.id)
    assert order.max_seconds == 10 * 3600
    [plain] = decisions.make_orders(make(Plan(name="x")), START)
    assert plain.evict is False
    # No lease lasts longer, whatever the plan says.
    long = make(Plan(name="x", budget=BudgetPlan(hours=10_000.0)))
    assert decisions.end_us(long) == START + MAX_SECONDS * S


@pytest.mark.parametrize(
    ("arms", "groups"),
    [
        (
            (
                ArmPlan(kind=ArmKind.HOT, hosts=3, up_at_least=5.0),
                ArmPlan(kind=ArmKind.FIXED, hosts=2, up_at_least=5.0),
                ArmPlan(kind=ArmKind.COLD, hosts=1, up_at_most=2.0),
            ),
            [(5, 5.0, 0.0), (1, 0.0, 2.0)],
        ),
        ((ArmPlan(kind=ArmKind.COLD), ArmPlan(kind=ArmKind.HOT, up_at_least=5.0)), [(4, 5.0, 0.0)]),
        (
            (
                ArmPlan(kind=ArmKind.COLD, up_at_most=9.0),
                ArmPlan(kind=ArmKind.HOT, up_at_least=5.0, up_at_most=7.0),
            ),
            [(4, 5.0, 7.0)],
        ),
    ],
)
def test_bounds_of_uptime_belong_to_an_arm(
    arms: tuple[ArmPlan, ...], groups: list[tuple[int, float, float]]
) -> None:
    plan = Plan(name="x", hosts=HostsPlan(count=4), arms=arms)
    orders = decisions.make_orders(make(plan), START)
    ordered = [(o.count, o.min_uptime_seconds, o.max_uptime_seconds) for o in orders]
    assert ordered == groups


def test_preparation_and_what_undoes_it() -> None:
    arm = ArmPlan(kind=ArmKind.PURGED, age={"dentries": 9}, changes=("mask x.service",))
    plan = Plan(name="x")
    steps = decisions.list_preparation(plan, arm)
    assert steps == [("age", "dentries 9"), ("age", "purge"), ("change", "mask x.service")]
    assert decisions.list_preparation(plan, ArmPlan(kind=ArmKind.COLD)) == [("age", "uptime")]
    rehearsed = Plan(name="x", rehearsal=RehearsalPlan(name="zombies"))
    assert decisions.list_preparation(rehearsed, arm) == steps[:2]
    tasks = tuple(
        HostTask("a", kind, f"t{n}", name, TaskState.DONE) for n, (kind, name) in enumerate(steps)
    )
    run = ArmRun(kind=ArmKind.PURGED, hosts=("a",), tasks=tasks)
    closing = [(TaskKind.UNDO, "t2"), (TaskKind.AGE, "undo")]
    assert decisions.list_closing(run, "a") == closing
    # A change that was never asked for is not undone.
    unmade = dataclasses.replace(
        run, tasks=(dataclasses.replace(tasks[2], state=TaskState.PENDING),)
    )
    assert decisions.list_closing(unmade, "a") == []
    assert decisions.list_closing(run, "b") == []
    # One that failed may have been made in part; what was only purged is as it was.
    failed = dataclasses.replace(
        run, tasks=(tasks[1], dataclasses.replace(tasks[2], state=TaskState.FAILED))
    )
    assert decisions.list_closing(failed, "a") == closing[:1]
    stages = [decisions.find_stage(HostTask("a", kind, "t", name)) for kind, name in closing]
    assert {*stages} == {Stage.CLOSE}
    assert decisions.find_stage(HostTask("a", TaskKind.AGE, "t", "measure")) is Stage.MEASURE
    assert {decisions.find_stage(task) for task in tasks} == {Stage.PREPARE}


def test_arguments_of_tasks() -> None:
    plan = Plan(
        name="x", load=LoadPlan(kind="trials", duty=0.6, cores="1-3", seed=4, orchestrator="ray"),
        record=RecordPlan(frequency=199, segment_seconds=15.0), budget=BudgetPlan(disk=10**9),
    )  # fmt: skip

    def of(kind: TaskKind, name: str = "") -> dict[str, object]:
        return decisions.make_arguments(HostTask("a", kind, "t", name), plan, ArmKind.HOT, 99.6)

    assert of(TaskKind.RECORD) == {"seconds": 100, "frequency": 199, "segment": 15, "budget": 10**9}
    load = {"workload": "trials", "seconds": 100, "cores": "1-3", "duty": 60, "seed": 4}
    assert of(TaskKind.LOAD, "trials") == {**load, "orchestrator": "ray"}
    assert of(TaskKind.AGE, "dentries 9") == {"state": "dentries", "number": 9, "arm": "hot"}
    assert of(TaskKind.AGE, "measure") == {"state": "uptime", "arm": "hot"}
    assert of(TaskKind.AGE, "undo") == {"state": "undo"}
    assert of(TaskKind.CHANGE, "mask x") == {"name": "mask", "target": "x"}
    assert of(TaskKind.INSTRUMENT, "softnet") == {"name": "softnet", "seconds": 100}
    assert of(TaskKind.UNDO, "t2") == {"task": "t2"}
    plain = decisions.make_arguments(
        HostTask("a", TaskKind.RECORD, "t"), Plan(name="x"), ArmKind.HOT, 0.1
    )
    assert plain == {"seconds": 1, "frequency": 97}  # what older agents take
    with pytest.raises(ValueError, match="snapshot"):
        of(TaskKind.SNAPSHOT)
    every = Plan(name="x", record=RecordPlan(every={"memory-cgroups": 2.0}))
    given = decisions.make_arguments(HostTask("a", TaskKind.RECORD, "t"), every, ArmKind.HOT, 9.0)
    assert given == {"seconds": 9, "frequency": 97, "every": {"memory-cgroups": 2.0}}
    replay = Plan(name="x", load=LoadPlan(kind="replay", profile="p.json", duty=0.001))
    task = HostTask("a", TaskKind.LOAD, "t", "replay")
    given = decisions.make_arguments(task, replay, ArmKind.HOT, 9.0, HOSTS)
    assert given == {"workload": "replay", "seconds": 9, "duty": 1, "profile": "p.json"}


def test_what_runs_while_an_arm_is_observed() -> None:
    instruments = (
        InstrumentPlan(name="softirq"),
        InstrumentPlan(name="slow-calls", target="trainer", arms=(ArmKind.COLD,)),
    )
    plan = Plan(name="x", load=LoadPlan(), instruments=instruments)
    hot = [("record", ""), ("load", "cpu"), ("instrument", "softirq")]
    assert decisions.list_observation(plan, ArmKind.HOT) == hot
    cold = decisions.list_observation(plan, ArmKind.COLD)
    assert cold == [*hot, ("instrument", "slow-calls trainer")]


@pytest.mark.parametrize(
    ("states", "left", "again"),
    [
        ((), 60.0, True),
        (("running",), 60.0, False),
        (("failed",), 60.0, True),
        (("done",), 60.0, True),  # the agent has a shorter limit
        (("done",), 3.0, False),
        (("refused",), 60.0, False),
        (("failed",) * decisions.STARTS, 60.0, False),
        (("failed",) * (decisions.STARTS - 1), 60.0, True),
        (("failed", "running"), 60.0, False),
        (("failed", "refused"), 60.0, False),
        (("refused", "failed"), 60.0, True),
        (("done",), decisions.WORTHWHILE_SECONDS, False),
    ],
)
def test_a_recorder_that_ended_is_started_again(
    states: tuple[str, ...], left: float, again: bool
) -> None:
    tasks = tuple(
        HostTask("a", TaskKind.RECORD, f"t{n}", "", TaskState(state))
        for n, state in enumerate(states)
    )
    run = ArmRun(kind=ArmKind.HOT, hosts=("a",), tasks=tasks)
    missing = [*decisions.find_missing(Plan(name="x"), run, "a", left)]
    assert missing == ([("record", "")] if again else [])
    observed = decisions.can_observe(Plan(name="x"), run, "a", left)
    assert observed is (again or left <= 5 or states[-1:] == ("running",))
    # What runs on another host does not observe this one.
    elsewhere = HostTask("b", TaskKind.RECORD, "t-b", "", TaskState.RUNNING)
    both = dataclasses.replace(run, tasks=(elsewhere, *tasks))
    assert [*decisions.find_missing(Plan(name="x"), both, "a", left)] == missing
    assert decisions.can_observe(Plan(name="x"), both, "a", left) is observed


def test_only_what_an_agent_left_is_repeated() -> None:
    killed = HostTask("a", TaskKind.AGE, "t1", "dentries 9", TaskState.FAILED, INTERRUPTED)
    run = ArmRun(kind=ArmKind.HOT, tasks=(killed,))
    assert decisions.is_repeated(run, killed)
    assert not decisions.is_repeated(run, dataclasses.replace(killed, detail="exit code 1"))
    later = dataclasses.replace(killed, id="t2", state=TaskState.DONE)
    assert not decisions.has_failed(dataclasses.replace(run, tasks=(killed, later)), killed)
    assert decisions.has_failed(run, killed)
    other = dataclasses.replace(later, name="dentries 8")
    elsewhere = dataclasses.replace(later, host="b")
    assert decisions.has_failed(dataclasses.replace(run, tasks=(killed, other, elsewhere)), killed)
    tries = [(killed,) * n for n in (decisions.STARTS - 1, decisions.STARTS)]
    again = [decisions.is_repeated(dataclasses.replace(run, tasks=each), killed) for each in tries]
    assert again == [True, False]
    recorder = dataclasses.replace(killed, kind=TaskKind.RECORD)  # another one is started anyway
    assert not decisions.is_repeated(dataclasses.replace(run, tasks=(recorder,)), recorder)


def test_an_experiment_repeats_the_arm_of_the_event_whose_cause_it_tests() -> None:
    arms = (
        ArmPlan(kind=ArmKind.COLD),
        ArmPlan(kind=ArmKind.HOT, seconds=50.0, age={"dentries": 9}),
    )
    plan = Plan(name="x", arms=arms, experiment=ExperimentPlan(allow=("purge",)))
    seen = Occurrence("a", "e1", "net.driver_reset", START)
    more = tuple(dataclasses.replace(seen, event=f"o{n}") for n in range(3))
    runs = (ArmRun(kind=ArmKind.COLD, occurrences=more), ArmRun(kind=ArmKind.HOT, occurrences=(seen,)))  # fmt: skip
    assert [decisions.find_compared(make(plan, arms=runs), name) for name in ("o2", "e1")] == [0, 1]
    arm = ArmRun(kind=ArmKind.FIXED, hosts=("a",), changes=("purge",))
    experiment = ExperimentRun(change="purge", why="", arm=arm, event="e1")
    now = make(plan, arms=runs, experiment=experiment)
    found, run = decisions.find_arm(now, None)
    assert (found.seconds, found.age, found.changes) == (50.0, {"dentries": 9}, ("purge",))
    assert run is arm
    shorter = dataclasses.replace(plan, experiment=ExperimentPlan(seconds=5.0))
    assert decisions.find_arm(dataclasses.replace(now, plan=shorter), None)[0].seconds == 5.0


def test_events_that_count() -> None:
    plan = Plan(name="x", wait=WaitPlan(events=("net.", "cpu.core_pinned")))
    kinds = ("net.driver_reset", "cpu.core_pinned", "cpu.other")
    wanted = [decisions.is_wanted(plan, Event(1, kind, severity="info")) for kind in kinds]
    assert wanted == [True, True, False]
    every = Plan(name="x")
    assert decisions.is_wanted(every, Event(1, "a.b", severity="warning"))
    assert not decisions.is_wanted(every, Event(1, "a.b", severity="info"))


def test_what_came_out() -> None:
    plan = Plan(name="x")
    observed = ArmRun(kind=ArmKind.HOT, began_us=START, doses={"a": {"load": 0.4}})
    assert decisions.find_outcome(make(plan)) is Outcome.FAILED
    unseen = dataclasses.replace(observed, doses={"a": {"zombies": 4.0}})
    assert decisions.find_outcome(make(plan, arms=(unseen,))) is Outcome.FAILED
    assert decisions.find_outcome(make(plan, arms=(observed,))) is Outcome.NOT_REPRODUCED
    seen = (Occurrence("a", "e1", "net.driver_reset", START),)
    found = dataclasses.replace(observed, occurrences=seen)
    assert decisions.find_outcome(make(plan, arms=(found,))) is Outcome.REPRODUCED


def test_waits_after_failures_double_up_to_a_minute() -> None:
    waits = [(decisions.retry_at(n, START) - START) / S for n in (1, 2, 3, 4, 5, 60)]
    assert waits == [5, 10, 20, 40, 60, 60]
    retried = make(Plan(name="x"), next_us=START + 7 * S)
    assert decisions.pause_seconds(retried, START) == 7


def test_agents_of_a_plan_take_what_it_asks_for_and_nothing_else() -> None:
    elsewhere = HostsPlan(provider="kubernetes")
    [order] = decisions.make_orders(make(Plan(name="x", hosts=elsewhere)), START, "http://s")
    assert order.agent_tasks is not None
    config = task_config.parse(tomllib.loads(order.agent_tasks.format()))
    assert config.allow == {"snapshot", "upload-window", "record", "age", "stop"}
    assert (config.builtin, config.changes) == (frozenset(), {})
    assert config.max_seconds == 8 * 3600 + 60
    plan = Plan(
        name="x",
        hosts=elsewhere,
        load=LoadPlan(),
        instruments=(InstrumentPlan(name="offcpu"),),
        experiment=ExperimentPlan(allow=("purge", "mask-unit"), seconds=90_000.0),
    )
    [order] = decisions.make_orders(make(plan), START, "http://s")
    assert order.agent_tasks is not None
    config = task_config.parse(tomllib.loads(order.agent_tasks.format()))
    assert config.allow >= {"load", "instrument", "change", "undo"}
    assert (config.builtin, config.max_seconds) == (frozenset({"offcpu"}), 86_400)
    arms = (ArmPlan(kind=ArmKind.HOT, seconds=36_000.5), ArmPlan(kind=ArmKind.COLD, seconds=9.0))
    [order] = decisions.make_orders(make(Plan(name="x", hosts=elsewhere, arms=arms)), START)
    assert order.agent_tasks is not None
    assert order.agent_tasks.max_seconds == 36_001 + 60
    change = config.changes["mask-unit"]
    assert isinstance(change, task_config.BuiltinChange)
    assert change.check("ember.service").target == "ember.service"
    assert "purge" in config.changes
    assert decisions.make_orders(make(Plan(name="x")), START)[0].agent_tasks is None


def test_hosts_elsewhere_are_kept_until_the_last_windows_are_there() -> None:
    plan = Plan(name="x", hosts=HostsPlan(provider="pool"), budget=BudgetPlan(hours=12.0))
    seen = Occurrence("a", "e-1", "net.driver_reset", START)
    run = ArmRun(kind=ArmKind.HOT, hosts=("a",), ended_us=START, occurrences=(seen,))
    assert decisions.awaits_verdicts(make(plan), run, START + 299 * S)
    assert not decisions.awaits_verdicts(make(plan), run, START + 300 * S)
    assert not decisions.awaits_verdicts(make(plan, stop=True), run, START)
    assert not decisions.awaits_verdicts(make(Plan(name="x")), run, START)
    late = dataclasses.replace(run, ended_us=START + 12 * HOUR - 400 * S)
    assert not decisions.awaits_verdicts(make(plan), late, START + 12 * HOUR - 299 * S)
    judged = dataclasses.replace(run, occurrences=(dataclasses.replace(seen, headline="Cause"),))
    assert not decisions.awaits_verdicts(make(plan), judged, START)
    one_left = dataclasses.replace(run, occurrences=(*judged.occurrences, seen))
    assert decisions.awaits_verdicts(make(plan), one_left, START)


def test_a_ray_cluster_has_one_load_for_all_hosts_of_an_arm() -> None:
    load = LoadPlan(kind="trials", orchestrator="ray", address="ray:6379")
    plan = Plan(name="x", hosts=HostsPlan(provider="pool"), load=load)
    run = ArmRun(kind=ArmKind.HOT, hosts=HOSTS)
    missing = {host: [kind for kind, _ in decisions.find_missing(plan, run, host, 60)] for host in HOSTS}  # fmt: skip
    assert missing == {"a": ["record", "load"], "b": ["record"], "c": ["record"]}
    task = HostTask("a", TaskKind.LOAD, "t-1", "trials")
    given = decisions.make_arguments(task, plan, ArmKind.HOT, 60, HOSTS)
    assert given["hosts"] == list(HOSTS)
    assert given["address"] == "ray:6379"
    # This machine is the only host, whatever cluster it starts its trials in.
    here = dataclasses.replace(plan, hosts=HostsPlan())
    assert "hosts" not in decisions.make_arguments(task, here, ArmKind.HOT, 60, HOSTS)
    assert TaskKind.LOAD in [kind for kind, _ in decisions.find_missing(here, run, "b", 60)]
    alone = dataclasses.replace(plan, load=dataclasses.replace(load, address=""))
    assert "hosts" not in decisions.make_arguments(task, alone, ArmKind.HOT, 60, HOSTS)
    assert TaskKind.LOAD in [kind for kind, _ in decisions.find_missing(alone, run, "b", 60)]
