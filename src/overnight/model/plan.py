"""The plan of an investigation, as frozen values.

Each field is a key of a plan file, with its unit and its description; `investigations.plan_file` reads files, and
makes docs/schemas/plan-1.json and the table in docs/investigations.md from them. Times are seconds.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Mapping
from typing import Any

SCHEMA = "overnight.plan/1"
LOCAL = "local"  # the provider whose hosts need no server


class Unit(enum.StrEnum):
    """How a number is written in a file."""

    DURATION = "duration"
    SIZE = "size"
    SHARE = "share"


class ArmKind(enum.StrEnum):
    """Hosts that differ in one thing. The values are stored."""

    COLD = "cold"  # just booted, or as found
    HOT = "hot"  # aged, naturally or by `age`
    PURGED = "purged"  # aged, then purged
    FIXED = "fixed"  # as hot, with only the fix applied


def key(default: Any, about: str, *, name: str = "", unit: Unit | None = None, least: float | None = None) -> Any:  # fmt: skip
    """Describe a key of a plan file; `name` is what the file calls it, `least` its smallest value."""
    metadata = {"about": about, "name": name, "unit": unit, "least": least}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostsPlan:
    """Which hosts to reserve; the same choices as `overnight reserve` has."""

    provider: str = key(
        LOCAL, "provider of the reservation: local, nspawn, pool, kubernetes, ec2 or ecs"
    )
    where: str = key("", "kubeconfig context, Auto Scaling group, ECS cluster, pool or image")
    region: str = key("", "AWS region")
    names: tuple[str, ...] = key((), "names of the hosts, instead of `count`")
    count: int = key(1, "number of hosts, unless arms set `hosts`", least=1)
    labels: Mapping[str, str] = key({}, "required labels")
    zone: str = key("", "availability zone")
    instance_type: str = key("", "instance type")
    evict: bool = key(False, "move other workloads away; asks first")
    like: str = key("", "production host; all hosts must have its image, kernel and packages")
    require_equal: bool = key(True, "stop if a host differs from `like`; false: only report it")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmPlan:
    """One arm: hosts that differ from the others in one thing."""

    kind: ArmKind = key(dataclasses.MISSING, "cold, hot, purged or fixed")
    hosts: int = key(0, "number of hosts of this arm alone, and all arms run at the same time; 0: arms take turns", least=0)  # fmt: skip
    up_at_least: float = key(0.0, "minimum uptime of its hosts: `5d`", unit=Unit.DURATION, least=0)
    up_at_most: float = key(0.0, "maximum uptime of its hosts: `12h`; 0: no limit", unit=Unit.DURATION, least=0)  # fmt: skip
    age: Mapping[str, int] = key({}, "state to create on the hosts first: `memory-cgroups: 15000`")
    changes: tuple[str, ...] = key(
        (), "changes to make first, by their names in agent.toml: `mask-scout`"
    )
    seconds: float = key(0.0, "duration; default `wait.for`", name="for", unit=Unit.DURATION, least=0)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """A load of constant footprint, or the replay of a recorded profile."""

    kind: str = key("cpu", "a workload of `overnight load --list`; `replay` follows a profile")
    duty: float | None = key(None, "share of each core: `60%`", unit=Unit.SHARE, least=0)
    cores: str = key("", "cores: `1-3,5`; default: all but the first")
    orchestrator: str = key("", "`ray` runs identical trials over all hosts")
    address: str = key("", "address of an existing Ray cluster")
    profile: str = key("", "file of `overnight cpu -O json` that `replay` follows")
    seed: int = key(1, "seed of the trials")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordPlan:
    """How stacks are recorded."""

    frequency: int = key(97, "samples per second and core", least=1)
    segment_seconds: float = key(120.0, "length of a segment", name="segment", unit=Unit.DURATION, least=5)  # fmt: skip
    every: Mapping[str, float] = key({}, "seconds between two readings of a signal: `memory-cgroups: 2`")  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstrumentPlan:
    """An instrument of `overnight instrument list`, on hosts where its cost does not matter."""

    name: str = key(dataclasses.MISSING, "name")
    target: str = key("", "process, function or command, if it takes one")
    arms: tuple[ArmKind, ...] = key((), "arms in which it runs; default: all")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WaitPlan:
    """When an arm ends."""

    seconds: float = key(
        8 * 3600.0, "maximum duration of an arm", name="for", unit=Unit.DURATION, least=1
    )
    events: tuple[str, ...] = key(
        (), "event kinds that count, or prefixes such as `net.`; default: severity warning or above"
    )
    count: int = key(0, "number of events that ends an arm; 0: only the time does", least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetPlan:
    """Limits of the whole investigation."""

    hours: float = key(12.0, "time until every host is given back", least=0)
    disk: int = key(0, "disk space on each host: `40GB`; 0: no limit", unit=Unit.SIZE, least=0)
    money: float = key(0.0, "maximum cost of all hosts; 0: no limit", least=0)
    price: float = key(0.0, "price of one host per hour, in the same currency", least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentPlan:
    """What may be changed on hosts to confirm or refute a cause; it is undone afterwards."""

    allow: tuple[str, ...] = key((), "allowed changes: purge, mask-unit, reboot, move-irq, cap-cpu; none: no experiment")  # fmt: skip
    seconds: float = key(0.0, "duration; default: that of the arm it repeats", name="for", unit=Unit.DURATION, least=0)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class RehearsalPlan:
    """The incident is caused on purpose, on this machine only: to practise."""

    name: str = key(dataclasses.MISSING, "rehearsal of `overnight rehearse --list`")
    seed: int = key(1, "seed of names, rates and timing")


@dataclasses.dataclass(frozen=True)
class HostGroup:
    """Hosts with the same bounds of uptime, in seconds."""

    count: int
    up_at_least: float
    up_at_most: float  # 0: no limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A whole investigation."""

    name: str = key(dataclasses.MISSING, "name of the investigation")
    hosts: HostsPlan = key(HostsPlan(), "hosts")
    arms: tuple[ArmPlan, ...] = key((ArmPlan(kind=ArmKind.HOT),), "arms, in order")
    load: LoadPlan | None = key(None, "load; default: none")
    record: RecordPlan = key(RecordPlan(), "recording")
    instruments: tuple[InstrumentPlan, ...] = key((), "further instruments")
    wait: WaitPlan = key(WaitPlan(), "end of an arm")
    budget: BudgetPlan = key(BudgetPlan(), "limits")
    experiment: ExperimentPlan = key(ExperimentPlan(), "test of the cause")
    report: str = key("", "file of the report, as night.html; default: in the data home")
    rehearsal: RehearsalPlan | None = key(None, "cause the incident on purpose")

    @property
    def is_local(self) -> bool:
        return self.hosts.provider == LOCAL

    @property
    def host_count(self) -> int:
        return sum(arm.hosts for arm in self.arms) or len(self.hosts.names) or self.hosts.count

    def observed_seconds(self, arm: ArmPlan) -> float:
        return arm.seconds or self.wait.seconds

    @property
    def groups(self) -> tuple[HostGroup, ...]:
        """Hosts that are reserved together, in the order of the arms. Arms that take turns have the same hosts."""
        if not all(arm.hosts for arm in self.arms):
            limits = [arm.up_at_most for arm in self.arms if arm.up_at_most]
            least = max((arm.up_at_least for arm in self.arms), default=0.0)
            return (HostGroup(self.host_count, least, min(limits, default=0.0)),)
        by_uptime = itertools.groupby(self.arms, lambda arm: (arm.up_at_least, arm.up_at_most))
        return tuple(HostGroup(sum(arm.hosts for arm in arms), *up) for up, arms in by_uptime)

    @property
    def busy_hours(self) -> float:
        """How long the arms and the experiment take at most; arms without hosts of their own take turns."""
        each = [self.observed_seconds(arm) for arm in self.arms]
        longest = max(each, default=0.0)
        arms = longest if all(arm.hosts for arm in self.arms) else sum(each)
        experiment = (self.experiment.seconds or longest) if self.experiment.allow else 0.0
        return (arms + experiment) / 3600

    @property
    def cost(self) -> float:
        """The price of all hosts for the hours of the budget."""
        return self.host_count * self.budget.hours * self.budget.price
