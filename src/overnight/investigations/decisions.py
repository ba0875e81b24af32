"""What an investigation does next: values and the clock in, instructions out."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from overnight.model.host_changes import Builtin
from overnight.model.investigation import ArmRun, ArmState, HostTask, Investigation, Outcome, Phase
from overnight.model.plan import ArmKind, ArmPlan, LoadPlan, Plan, RecordPlan
from overnight.model.protocol import INTERRUPTED, TaskKind, TaskState
from overnight.model.reservation import MAX_SECONDS, AgentTasks, Order
from overnight.model.severity import Severity
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.event import Event

# Of the reservation, renewed while somebody drives the investigation; the shortest that can be renewed.
LEASE_SECONDS, MIN_LEASE_SECONDS = 3600, 300
CLOSING_SECONDS, CLOSING_SHARE = 600.0, 0.1  # of the budget, kept for undo, report and release
STARTS = 5  # of a recorder, load or instrument in one arm
WORTHWHILE_SECONDS = 5.0  # shorter ones are not started again
STOP_SECONDS = 300.0  # until the tasks of an arm must have ended, and again until all is undone
# A host makes the bundle of an event two minutes after it, and uploads it.
VERDICT_SECONDS = 300.0
BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, MAX_ATTEMPTS = 5, 60, 6
MEASURE, UNDO, NOTE_ARM, PURGE = "measure", "undo", "uptime", "purge"  # names of tasks of kind age
POLL_SECONDS, IDLE_SECONDS = 1.0, 5.0
MEASURE_SECONDS = 60.0  # until a host must have been measured
DAY_SECONDS = 86_400  # of one task
OBSERVING = (TaskKind.RECORD, TaskKind.LOAD, TaskKind.INSTRUMENT)
# What every plan asks of hosts elsewhere.
EVERY_PLAN = (TaskKind.SNAPSHOT, TaskKind.UPLOAD_WINDOW, TaskKind.RECORD, TaskKind.AGE, TaskKind.STOP)  # fmt: skip


class Stage(enum.Enum):
    """Part of an arm in which a task runs. Those of PREPARE and CLOSE run one after the other on a host."""

    PREPARE = "prepare"
    OBSERVE = "observe"
    MEASURE = "measure"  # while everything still runs
    CLOSE = "close"


def find_stage(task: HostTask) -> Stage:
    if task.kind in OBSERVING:
        return Stage.OBSERVE
    if (task.kind, task.name) == (TaskKind.AGE, MEASURE):
        return Stage.MEASURE
    return Stage.CLOSE if task.kind is TaskKind.UNDO or task.name == UNDO else Stage.PREPARE


def list_stage(run: ArmRun, stage: Stage) -> list[HostTask]:
    return [task for task in run.tasks if find_stage(task) is stage]


def list_due(run: ArmRun, stage: Stage) -> list[HostTask]:
    """Return the open tasks of a stage; but for observation only the first one of each host."""
    due = [task for task in list_stage(run, stage) if not task.is_over]
    first: dict[str, HostTask] = {}
    for task in due:
        first.setdefault(task.host, task)
    return due if stage is Stage.OBSERVE else list(first.values())


def list_tries(run: ArmRun, of: HostTask) -> list[HostTask]:
    """Return the tasks of an arm that were to do the same, the last one last."""
    return [t for t in run.tasks if (t.host, t.kind, t.name) == (of.host, of.kind, of.name)]


def is_repeated(run: ArmRun, task: HostTask) -> bool:
    """Return whether a task that prepares or undoes something is asked for again: its agent was killed."""
    interrupted = task.state is TaskState.FAILED and task.detail == INTERRUPTED
    observes = find_stage(task) is Stage.OBSERVE
    return interrupted and not observes and len(list_tries(run, task)) < STARTS


def has_failed(run: ArmRun, task: HostTask) -> bool:
    """Return whether a task ended without success, and no later one does the same."""
    last = list_tries(run, task)[-1].id == task.id
    return task.is_over and task.state is not TaskState.DONE and last


# --- hosts and time


def make_orders(investigation: Investigation, now_us: int, server: str = "") -> tuple[Order, ...]:
    """Return the orders of all hosts: renewed while they are driven, and until the budget at most."""
    plan, hosts = investigation.plan, investigation.plan.hosts
    left = (end_us(investigation) - now_us) / SECOND_US
    longest = round(max(MIN_LEASE_SECONDS, min(MAX_SECONDS, left)))
    whole = Order(
        provider=hosts.provider, where=hosts.where, region=hosts.region, hosts=hosts.names,
        labels=hosts.labels, zone=hosts.zone, instance_type=hosts.instance_type,
        evict=hosts.evict, reference=hosts.like, seconds=min(LEASE_SECONDS, longest), renew=True, max_seconds=longest,
        start_agent=not plan.is_local, agent_server="" if plan.is_local else server,
        agent_tasks=None if plan.is_local else _list_tasks(plan),
        owner=investigation.owner, purpose=investigation.id,
    )  # fmt: skip
    return tuple(
        dataclasses.replace(
            whole,
            count=group.count,
            min_uptime_seconds=group.up_at_least,
            max_uptime_seconds=group.up_at_most,
        )
        for group in plan.groups
    )


def _list_tasks(plan: Plan) -> AgentTasks:
    """Return what the plan asks of its hosts, and nothing else."""
    changes = tuple(map(Builtin, plan.experiment.allow))
    kinds = [*EVERY_PLAN]
    kinds += [TaskKind.LOAD] if plan.load else []
    kinds += [TaskKind.INSTRUMENT] if plan.instruments else []
    kinds += [TaskKind.CHANGE, TaskKind.UNDO] if changes else []
    longest = max([plan.wait.seconds, plan.experiment.seconds, *(arm.seconds for arm in plan.arms)])
    return AgentTasks(
        kinds=tuple(map(str, kinds)),
        max_seconds=min(DAY_SECONDS, math.ceil(longest) + 60),
        instruments=tuple(each.name for each in plan.instruments),
        changes=changes,
    )


def end_us(investigation: Investigation) -> int:
    """Return when every host must be given back, by the hours and the money of the budget."""
    plan = investigation.plan
    hours = min(plan.budget.hours, _paid_hours(plan), MAX_SECONDS / 3600)
    return investigation.made_us + round(hours * 3600 * SECOND_US)


def _paid_hours(plan: Plan) -> float:
    """Return how long the money lasts."""
    an_hour = plan.budget.price * plan.host_count
    return plan.budget.money / an_hour if plan.budget.money and an_hour else math.inf


def close_us(investigation: Investigation) -> int:
    """Return when arms and experiments end at the latest."""
    end = end_us(investigation)
    share = CLOSING_SHARE * (end - investigation.made_us)
    return end - round(min(CLOSING_SECONDS * SECOND_US, share))


def why_end(investigation: Investigation, now_us: int, used_bytes: int = 0) -> str:
    """Return why no arm and no experiment goes on; '' if they do."""
    plan = investigation.plan
    if investigation.stop:
        return "stopped on request"
    if now_us >= close_us(investigation):
        return f"budget.{'money' if _paid_hours(plan) < plan.budget.hours else 'hours'} is used up"
    return "budget.disk is used up" if 0 < plan.budget.disk <= used_bytes else ""


def left_seconds(investigation: Investigation, now_us: int) -> float:
    """Return how long arms and the experiment take at most, from now; 0 once they have ended."""
    if investigation.phase in (Phase.REPORT, Phase.RELEASE, Phase.ENDED) or investigation.stop:
        return 0.0
    plan, runs = investigation.plan, investigation.arms
    left = [
        arm_left(investigation, at, now_us)
        if at < len(runs)
        else plan.observed_seconds(plan.arms[at])
        for at in range(len(plan.arms))
    ]
    total = max(left) if all(arm.hosts for arm in plan.arms) else sum(left)
    if investigation.experiment is not None:
        total += arm_left(investigation, None, now_us)
    return max(0.0, min(total, (close_us(investigation) - now_us) / SECOND_US))


# --- arms


def assign_hosts(plan: Plan, hosts: tuple[str, ...]) -> tuple[ArmRun, ...]:
    """Return the arms: some with hosts of their own, others with all of them."""
    runs, taken = [], 0
    for arm in plan.arms:
        own = hosts[taken : taken + arm.hosts] if arm.hosts else hosts
        taken += arm.hosts
        runs.append(ArmRun(kind=arm.kind, hosts=own))
    return tuple(runs)


def choose_arms(investigation: Investigation) -> tuple[int, ...]:
    """Return the arms whose turn it is: those with hosts of their own, then the others one by one."""
    plans = investigation.plan.arms
    open_arms = [at for at, arm in enumerate(investigation.arms) if arm.state is not ArmState.ENDED]
    own = tuple(at for at in open_arms if plans[at].hosts)
    return own or tuple(open_arms[:1])


def find_compared(investigation: Investigation, event: str) -> int:
    """Return the arm with which an experiment is compared: that of the event whose cause it tests."""
    arms = enumerate(investigation.arms)
    return next((at for at, arm in arms if any(seen.event == event for seen in arm.occurrences)), 0)


def find_arm(investigation: Investigation, at: int | None) -> tuple[ArmPlan, ArmRun]:
    """Return plan and state of an arm; None is that of the experiment."""
    plan = investigation.plan
    if at is not None:
        return plan.arms[at], investigation.arms[at]
    experiment = investigation.experiment
    assert experiment is not None
    before = plan.arms[find_compared(investigation, experiment.event)]
    seconds = plan.experiment.seconds or before.seconds
    return dataclasses.replace(before, seconds=seconds, changes=experiment.arm.changes), experiment.arm  # fmt: skip


def arm_left(investigation: Investigation, at: int | None, now_us: int) -> float:
    """Return for how long an arm is still observed, unless events end it."""
    plan, run = find_arm(investigation, at)
    whole = investigation.plan.observed_seconds(plan)
    if run.state in (ArmState.WAITING, ArmState.PREPARING):
        left = whole
    elif run.state is ArmState.RUNNING:
        left = whole - (now_us - run.began_us) / SECOND_US
    else:
        return 0.0
    return max(0.0, min(left, (close_us(investigation) - now_us) / SECOND_US))


def why_arm_ends(investigation: Investigation, at: int | None, now_us: int) -> str | None:
    """Return why the observation of an arm ends now, '' if it is complete; None if it goes on."""
    _, run = find_arm(investigation, at)
    wait = investigation.plan.wait
    if not run.hosts:
        return "no host of this arm can be observed"
    if wait.count and len(run.occurrences) >= wait.count:
        return ""
    return None if arm_left(investigation, at, now_us) > 0 else ""


def is_wanted(plan: Plan, event: Event) -> bool:
    """Return whether an event is one that the plan waits for."""
    if plan.wait.events:
        return any(map(event.is_of, plan.wait.events))
    return Severity.of(event.severity).rank > Severity.INFO.rank


# --- tasks


def list_preparation(plan: Plan, arm: ArmPlan) -> list[tuple[TaskKind, str]]:
    """Return kind and name of each task that makes the arm of a host, in order."""
    # The process of a rehearsal makes changes itself: what they change is in its machine.
    changes = () if plan.rehearsal else arm.changes
    aged = [(TaskKind.AGE, f"{state} {number}") for state, number in arm.age.items()]
    aged += [(TaskKind.AGE, PURGE)] if arm.kind is ArmKind.PURGED else []
    # Each task of kind age notes the arm in the data home of the host.
    return (aged or [(TaskKind.AGE, NOTE_ARM)]) + [(TaskKind.CHANGE, name) for name in changes]


def list_closing(run: ArmRun, host: str) -> list[tuple[TaskKind, str]]:
    """Return the tasks that undo what was done to a host, the last first."""
    done = [task for task in list_stage(run, Stage.PREPARE) if task.host == host]
    # A change that failed may have been made in part.
    changes = [t.id for t in done if t.kind is TaskKind.CHANGE and t.state is not TaskState.PENDING]
    aged = any(task.kind is TaskKind.AGE and task.name not in (NOTE_ARM, PURGE) for task in done)
    undo = [(TaskKind.UNDO, task_id) for task_id in reversed(changes)]
    return [*undo, *([(TaskKind.AGE, UNDO)] if aged else [])]


def awaits_verdicts(investigation: Investigation, run: ArmRun, now_us: int) -> bool:
    """Return whether hosts elsewhere are kept until they have uploaded the windows of the last events."""
    judged = all(seen.headline for seen in run.occurrences)
    if judged or investigation.plan.is_local or investigation.stop:
        return False
    half = (close_us(investigation) + end_us(investigation)) // 2
    return now_us < min(run.ended_us + round(VERDICT_SECONDS * SECOND_US), half)


def list_left(run: ArmRun) -> list[HostTask]:
    """Return the tasks of an ended arm that should have undone something, and did not."""
    closing = list_stage(run, Stage.CLOSE)
    return [task for task in closing if not task.is_over or has_failed(run, task)]


def list_observation(plan: Plan, kind: ArmKind) -> list[tuple[TaskKind, str]]:
    """Return what runs on each host while an arm is observed."""
    load = [(TaskKind.LOAD, plan.load.kind)] if plan.load else []
    instruments = [
        (TaskKind.INSTRUMENT, f"{each.name} {each.target}".rstrip())
        for each in plan.instruments
        if not each.arms or kind in each.arms
    ]
    return [(TaskKind.RECORD, ""), *load, *instruments]


def is_shared(plan: Plan) -> bool:
    """Return whether one task, of the first host, is the load of all hosts of an arm: a cluster of Ray has them."""
    return plan.load is not None and bool(plan.load.address) and not plan.is_local


def find_missing(plan: Plan, run: ArmRun, host: str, left: float) -> Iterable[tuple[TaskKind, str]]:
    """Yield what should run on a host and does not; what was refused, or failed too often, is left out."""
    for kind, name in list_observation(plan, run.kind):
        if kind is TaskKind.LOAD and is_shared(plan) and host != run.hosts[0]:
            continue
        tries = list_tries(run, HostTask(host, kind, "", name))
        again = len(tries) < STARTS and left > WORTHWHILE_SECONDS
        if not tries or (again and tries[-1].is_over and tries[-1].state is not TaskState.REFUSED):
            yield kind, name


def can_observe(plan: Plan, run: ArmRun, host: str, left: float) -> bool:
    """Return whether a recorder runs on a host, or will."""
    records = [t for t in run.tasks if t.host == host and t.kind == TaskKind.RECORD]
    missing = any(kind is TaskKind.RECORD for kind, _ in find_missing(plan, run, host, left))
    # One that ended a little early has observed the arm.
    return missing or left <= WORTHWHILE_SECONDS or not all(task.is_over for task in records)


def make_arguments(
    task: HostTask, plan: Plan, arm: ArmKind, seconds: float, hosts: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the arguments of a task; only those that differ from the host's default, for older agents."""
    name, _, rest = task.name.partition(" ")
    lasting = max(1, round(seconds))
    match task.kind:
        case TaskKind.AGE if name == UNDO:
            return {"state": UNDO}
        case TaskKind.AGE:
            state = NOTE_ARM if name == MEASURE else name
            return {"state": state, "arm": str(arm), **({"number": int(rest)} if rest else {})}
        case TaskKind.CHANGE | TaskKind.INSTRUMENT as kind:
            timed = {"seconds": lasting} if kind is TaskKind.INSTRUMENT else {}
            return {"name": name, **timed, **({"target": rest} if rest else {})}
        case TaskKind.UNDO:
            return {"task": task.name}
        case TaskKind.RECORD:
            record, segment = plan.record, round(plan.record.segment_seconds)
            return {
                "seconds": lasting,
                "frequency": record.frequency,
                **({"segment": segment} if segment != RecordPlan().segment_seconds else {}),
                **({"every": dict(record.every)} if record.every else {}),
                **({"budget": plan.budget.disk} if plan.budget.disk else {}),
            }
        case TaskKind.LOAD:
            return {"workload": task.name, "seconds": lasting, **_load(plan, hosts)}
    raise ValueError(f"an arm has no tasks of kind {task.kind}")


def _load(plan: Plan, hosts: Sequence[str]) -> dict[str, Any]:
    load = plan.load or LoadPlan()
    given: dict[str, Any] = {
        "cores": load.cores,
        "duty": None if load.duty is None else max(1, round(100 * load.duty)),
        "seed": None if load.seed == LoadPlan().seed else load.seed,
        "orchestrator": load.orchestrator,
        "address": load.address,
        "profile": load.profile,
        "hosts": list(hosts) if is_shared(plan) else None,
    }
    return {name: value for name, value in given.items() if value not in (None, "")}


# --- the end


def find_outcome(investigation: Investigation) -> Outcome:
    if any(arm.occurrences for arm in investigation.arms):
        return Outcome.REPRODUCED
    # A host has a load where a recorder ran.
    observed = any("load" in dose for arm in investigation.arms for dose in arm.doses.values())
    return Outcome.NOT_REPRODUCED if observed else Outcome.FAILED


def retry_at(attempts: int, now_us: int) -> int:
    """Return when to try again after failed steps in a row."""
    doubled = BACKOFF_SECONDS << min(max(0, attempts - 1), 10)
    return now_us + min(MAX_BACKOFF_SECONDS, doubled) * SECOND_US


def pause_seconds(investigation: Investigation, now_us: int) -> float:
    """Return how long the driver waits before its next step."""
    if investigation.next_us > now_us:
        return (investigation.next_us - now_us) / SECOND_US
    arms = [investigation.arms[at] for at in choose_arms(investigation)]
    arms = [investigation.experiment.arm] if investigation.experiment else arms
    if not arms or any(arm.state is not ArmState.RUNNING for arm in arms):
        return POLL_SECONDS
    return max(POLL_SECONDS, min(IDLE_SECONDS, left_seconds(investigation, now_us)))
