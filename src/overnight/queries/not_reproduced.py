"""An event that did not come: what was tried, how rare it may be, and what to try next. Pure."""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.plan import ArmKind, LoadPlan, Plan
from overnight.model.text import percent, plural
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.investigation import ArmRun, Investigation

CONFIDENCE = 0.95
NIGHT_S = 8 * 3600.0
NEARLY = 0.99  # of a time: starting and stopping takes some
OLD_S = 7 * 86_400.0  # uptime from which a host counts as old
MANY_HOSTS = 3  # as many as are a fleet
HEAVY = 0.8  # share of the cores' time
PACED = ("cpu", "trials", "stress-ng")  # loads that take a share
MAX_GROWTH = 4  # times the budget's hours and money, from one plan to the next
SPARE_H = 1.0  # to prepare hosts, to report and to release
ZOMBIES = 20_000  # that an arm without `age` gets next
CGROUPS = "memory-cgroups"


class Move(enum.StrEnum):
    """What brings a rare event about, or shows that it is rarer. The values are in the document."""

    LONGER = "longer"
    OLDER_HOST = "older-host"
    HEAVIER_LOAD = "heavier-load"
    SAME_IMAGE = "same-image"
    SAME_NEIGHBOURS = "same-neighbours"
    MORE_HOSTS = "more-hosts"


@dataclasses.dataclass(frozen=True)
class CounterMove:
    move: Move
    made: bool
    why: str


@dataclasses.dataclass(frozen=True)
class NotReproduced:
    """`missed_rate`, per host-hour: an event that comes more often was seen with 95 % confidence; None: no exposure."""

    arm: str  # whose time counts: the one that should have the event
    host_hours: float
    missed_rate: float | None
    moves: tuple[CounterMove, ...]
    next_plan: Plan
    changes: tuple[str, ...]  # from the plan to the next
    next_host_hours: float

    @property
    def hours_per_event(self) -> float | None:
        """Return the mean time between events of that rate: one event in as many host-hours."""
        return 1 / self.missed_rate if self.missed_rate else None


def bound_missed(exposure: float) -> float | None:
    """Return the largest rate at which no event in that exposure is still likely: the rule of three.

    >>> round(bound_missed(100), 5), bound_missed(0)
    (0.02996, None)
    """
    return -math.log(1 - CONFIDENCE) / exposure if exposure > 0 else None


def explain(run: Investigation, host_hours: Mapping[str, float]) -> NotReproduced:
    """Judge an investigation without the event; `host_hours` were observed, by arm."""
    hot = [arm for arm in run.arms if arm.kind is ArmKind.HOT]
    kind = ArmKind.HOT if hot else run.arms[0].kind if run.arms else ArmKind.COLD
    arms = [arm for arm in run.arms if arm.kind is kind]
    exposure = host_hours.get(kind, 0.0)
    moves = tuple(_judge_moves(run.plan, arms))
    following, changes = plan_next(run.plan, {move.move for move in moves if not move.made})
    return NotReproduced(
        kind,
        exposure,
        bound_missed(exposure),
        moves,
        following,
        changes,
        _planned_hours(following, kind),
    )


def _judge_moves(plan: Plan, arms: list[ArmRun]) -> Iterator[CounterMove]:
    seconds = max(((arm.ended_us - arm.began_us) / SECOND_US for arm in arms if arm.ended_us), default=0.0)  # fmt: skip
    kinds = {arm.kind for arm in arms}
    planned = max((each.seconds or plan.wait.seconds for each in plan.arms if each.kind in kinds), default=plan.wait.seconds)  # fmt: skip
    long, whole = (times.format_duration(max(0.0, each)) for each in (seconds, planned))
    early = "; ".join(arm.note for arm in arms if arm.note)
    yield CounterMove(
        Move.LONGER,
        seconds >= NEARLY * max(NIGHT_S, planned),
        f"observed for {long}, planned {whole}"
        + (f" ({early})" if early else "")
        + ("" if seconds >= NEARLY * NIGHT_S else "; a night is 8 h"),
    )
    uptimes = [doses["uptime_s"] for arm in arms for doses in arm.doses.values() if "uptime_s" in doses]  # fmt: skip
    oldest = max(uptimes, default=max((arm.up_at_least for arm in plan.arms), default=0.0))
    aged = {
        state: n for arm in plan.arms if arm.kind is ArmKind.HOT for state, n in arm.age.items()
    }
    states = ", ".join(f"{number:,} {state}" for state, number in aged.items())
    yield CounterMove(
        Move.OLDER_HOST,
        oldest >= OLD_S or bool(aged),
        (f"aged: {states}; " if aged else "not aged; ")
        + (
            f"the longest uptime is {times.format_duration(oldest)}"
            if oldest
            else "uptime not known"
        ),
    )
    yield _judge_load(plan.load, arms)
    like = plan.hosts.like
    yield CounterMove(
        Move.SAME_IMAGE,
        bool(like) and plan.hosts.require_equal,
        f"compared with {like}"
        + ("" if plan.hosts.require_equal else ", but differences were accepted")
        if like
        else "not compared with a host of production (hosts.like)",
    )
    replayed = plan.load is not None and plan.load.kind == "replay"
    yield CounterMove(
        Move.SAME_NEIGHBOURS,
        replayed or plan.is_local,
        "the CPU profile of production was replayed"
        if replayed
        else "the workloads of this machine kept running"
        if plan.is_local
        else "reserved hosts run no workloads of production; replay a recorded profile (load.kind: replay)",
    )
    hosts = len({host for arm in arms for host in arm.hosts})
    yield CounterMove(Move.MORE_HOSTS, hosts >= MANY_HOSTS, f"observed {plural(hosts, 'host')}")


def _judge_load(load: LoadPlan | None, arms: list[ArmRun]) -> CounterMove:
    if load is None:
        return CounterMove(Move.HEAVIER_LOAD, False, "no load")
    shares = [doses["load"] for arm in arms for doses in arm.doses.values() if "load" in doses]
    if shares:
        share, how = max(shares), f"the cores were {percent(max(shares))} busy"
    else:
        share = load.duty or 0.0
        how = f"planned {percent(load.duty)} of its cores" if load.duty else "its default share"
    return CounterMove(Move.HEAVIER_LOAD, share >= HEAVY, f"load {load.kind}: {how}")


def _planned_hours(plan: Plan, kind: ArmKind) -> float:
    """Return the host-hours that a plan observes in arms of a kind."""
    shared = len(plan.hosts.names) or plan.hosts.count
    arms = [arm for arm in plan.arms if arm.kind is kind]
    return sum((arm.hosts or shared) * plan.observed_seconds(arm) for arm in arms) / 3600


def plan_next(plan: Plan, open_moves: set[Move]) -> tuple[Plan, tuple[str, ...]]:
    """Return a plan that observes longer and makes the open moves, and the differences.

    Hours and money grow to at most `MAX_GROWTH` times the budget.
    """
    most = MAX_GROWTH * plan.budget.money
    following = _wait_longer(plan, NIGHT_S if Move.LONGER in open_moves else 0.0, most)
    if Move.OLDER_HOST in open_moves:
        following = _age(following)
    load = following.load or LoadPlan()
    if Move.HEAVIER_LOAD in open_moves and load.kind in PACED:
        duty = min(1.0, max(HEAVY, 2 * (load.duty or 0.0)))
        following = dataclasses.replace(following, load=dataclasses.replace(load, duty=duty))
    if Move.MORE_HOSTS in open_moves and not plan.is_local and not plan.hosts.names:
        following = _add_hosts(following, most)
    following = dataclasses.replace(following, name=_rename(plan.name))
    return following, tuple(_list_changes(plan, following))


def _wait_longer(plan: Plan, least: float, most: float) -> Plan:
    """Double the time of every arm, as far as the hours allow."""
    factor, hours = max(2.0, least / plan.wait.seconds if plan.wait.seconds else 2.0), plan.budget.hours  # fmt: skip
    busy, budget = plan.busy_hours, plan.budget
    if hours and busy:
        factor = max(1.0, min(factor, (MAX_GROWTH * hours - SPARE_H) / busy))
        needed = math.ceil(factor * busy + SPARE_H)
        budget = dataclasses.replace(
            budget, hours=float(max(hours, min(MAX_GROWTH * hours, needed)))
        )
    arms = tuple(dataclasses.replace(arm, seconds=factor * arm.seconds) for arm in plan.arms)
    wait = dataclasses.replace(plan.wait, seconds=factor * plan.wait.seconds)
    following = dataclasses.replace(plan, arms=arms, wait=wait, budget=budget)
    return _pay(following, plan, most)


def _age(plan: Plan) -> Plan:
    if not plan.is_local:
        older = (
            arm
            if arm.kind is ArmKind.COLD
            else dataclasses.replace(arm, up_at_least=max(OLD_S, 2 * arm.up_at_least), up_at_most=0.0)
            for arm in plan.arms
        )  # fmt: skip
        return dataclasses.replace(plan, arms=tuple(older))
    number = {arm.kind: max(ZOMBIES, 2 * arm.age.get(CGROUPS, 0)) for arm in plan.arms}
    arms = (
        arm
        if arm.kind is ArmKind.COLD
        else dataclasses.replace(arm, age={**arm.age, CGROUPS: number[arm.kind]})
        for arm in plan.arms
    )
    return dataclasses.replace(plan, arms=tuple(arms))


def _add_hosts(plan: Plan, most: float) -> Plan:
    """Double the hosts, unless that costs more than the budget may grow."""
    hosts = dataclasses.replace(plan.hosts, count=max(MANY_HOSTS, 2 * plan.hosts.count))
    arms = tuple(dataclasses.replace(arm, hosts=2 * arm.hosts) for arm in plan.arms)
    more = dataclasses.replace(plan, hosts=hosts, arms=arms)
    return _pay(more, plan, most)


def _pay(following: Plan, plan: Plan, most: float) -> Plan:
    """Return the following plan with the money that it needs, or the plan before where that is too much."""
    budget = following.budget
    if not (budget.money and budget.price):
        return following
    if following.cost > most:
        return plan
    money = max(budget.money, following.cost)
    return dataclasses.replace(following, budget=dataclasses.replace(budget, money=money))


def _list_changes(plan: Plan, following: Plan) -> Iterator[str]:
    seconds = [times.format_duration(each.wait.seconds) for each in (following, plan)]
    if seconds[0] != seconds[1]:
        yield f"wait {seconds[0]} instead of {seconds[1]}"
    for arm, before in zip(following.arms, plan.arms, strict=True):
        if arm.age != before.age:
            yield f"{arm.kind} arm: {arm.age[CGROUPS]:,} dying memory cgroups"
        if arm.up_at_least != before.up_at_least:
            yield f"{arm.kind} arm: hosts that have been up for at least {times.format_duration(arm.up_at_least)}"
        if arm.hosts != before.hosts:
            yield f"{arm.kind} arm: {arm.hosts} hosts instead of {before.hosts}"
    if following.hosts.count != plan.hosts.count:
        yield f"{following.hosts.count} hosts instead of {plan.hosts.count}"
    if following.load and following.load != plan.load:
        yield f"load of {percent(following.load.duty)} of its cores"
    for name, unit in (("hours", " h"), ("money", "")):
        now, before_ = (getattr(each.budget, name) for each in (following, plan))
        if now != before_:
            yield f"budget of {now:,.6g}{unit} instead of {before_:,.6g}{unit}"


def _rename(name: str) -> str:
    """Return the name of the next plan.

    >>> _rename("resets"), _rename("resets-2")
    ('resets-2', 'resets-3')
    """
    stem, number = re.fullmatch(r"(.*?)(?:-(\d{1,6}))?", name, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{stem}-{int(number or 1) + 1}"
