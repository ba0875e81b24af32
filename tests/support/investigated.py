"""An investigation without hosts: tasks, events and reservations are values, and a clock that only tests move."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pooldatabases
import poolworld

from overnight import errors
from overnight.investigations import context, control, driver
from overnight.model.event import Event
from overnight.model.investigation import Answer, ArmRun, Investigation, Occurrence, Phase
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
from overnight.model.protocol import INTERRUPTED, TaskKind, TaskState
from overnight.model.reservation import (
    Check,
    CheckState,
    HostState,
    Order,
    Reservation,
    ReservationState,
    ReservedHost,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from overnight.database import engine

S = poolworld.S
AGENT = Check("agent", CheckState.PASSED)
KIND = "net.driver_reset"
PLAN = Plan(
    name="night",
    hosts=HostsPlan(provider="played", count=2),
    arms=(
        ArmPlan(kind=ArmKind.COLD),
        ArmPlan(kind=ArmKind.HOT, age={"memory-cgroups": 500}, changes=("slow-disk",)),
    ),
    load=LoadPlan(),
    wait=WaitPlan(seconds=20.0, events=(KIND,)),
    budget=BudgetPlan(hours=1.0),
    experiment=ExperimentPlan(allow=("mask-unit",), seconds=10.0),
)


@dataclasses.dataclass
class Task:
    host: str
    kind: TaskKind
    arguments: Mapping[str, Any]
    began_us: int
    state: TaskState = TaskState.RUNNING
    detail: str = ""
    asked: int = 1


class Hosts(context.HostControl):
    """Hosts that outlive the drivers, as real ones do. Preparation is done at once; observation takes its time."""

    def __init__(self, clock: poolworld.Clock) -> None:
        self.clock = clock
        self.tasks: dict[str, Task] = {}
        self.events: list[Event] = []
        self.pins: set[tuple[str, str]] = set()
        self.changed: dict[tuple[str, str], str] = {}  # what is not undone: host and task
        self.gone: set[str] = set()
        self.refuses: set[tuple[str, TaskKind]] = set()
        self.interrupts: set[str] = set()  # kinds of tasks whose agent is killed, once each
        self.used = 0
        self.results: dict[TaskKind, dict[str, Any]] = {
            TaskKind.AGE: {"counts": {"dying": 7}, "uptime_s": 60.0},
            TaskKind.LOAD: {"status": "constant", "says": "even"},
            TaskKind.RECORD: {"busy": 0.5, "seconds": 9.0, "cores": 4},
        }
        # An event of an arm of this kind, and its seconds after the load began.
        self.fault: tuple[ArmKind, float] | None = (ArmKind.HOT, 5.0)

    def start(self, host: str, task_id: str, kind: TaskKind, arguments: Mapping[str, Any]) -> None:
        if task_id in self.tasks:
            self.tasks[task_id].asked += 1
            return
        if host in self.gone:
            raise errors.NotFoundError(f"no agent reports from {host}", why="it is gone", todo="")
        task = self.tasks[task_id] = Task(host, kind, dict(arguments), self.clock())
        if (host, kind) in self.refuses:
            task.state, task.detail = TaskState.REFUSED, "not allowed"
        elif kind is TaskKind.CHANGE or (kind is TaskKind.AGE and "number" in arguments):
            self.changed[host, task_id] = kind
        elif kind is TaskKind.UNDO:
            self.changed.pop((host, arguments["task"]), None)
        elif kind is TaskKind.AGE and arguments["state"] == "undo":
            for key in [k for k, v in self.changed.items() if k[0] == host and v == kind]:
                del self.changed[key]
        if kind in (TaskKind.AGE, TaskKind.CHANGE, TaskKind.UNDO):
            task.state = task.state if task.state is TaskState.REFUSED else TaskState.DONE
        if kind in self.interrupts:
            self.interrupts.discard(kind)
            task.state, task.detail = TaskState.FAILED, INTERRUPTED

    def look(self, task_ids: Sequence[str]) -> Mapping[str, context.TaskStatus]:
        for task in self.tasks.values():
            lasting = task.arguments.get("seconds", 0) * S
            if task.state is TaskState.RUNNING and self.clock() >= task.began_us + lasting:
                task.state = TaskState.DONE
            if task.state is TaskState.RUNNING and task.host in self.gone:
                task.state, task.detail = TaskState.EXPIRED, "no news"
        found = {name: self.tasks[name] for name in task_ids if name in self.tasks}
        return {
            name: context.TaskStatus(task.state, task.detail, self.results.get(task.kind, {}))
            for name, task in found.items()
        }

    def stop(self, host: str, task_id: str) -> None:
        task = self.tasks.get(task_id)
        if task and task.state is TaskState.RUNNING:
            task.state, task.detail = TaskState.FAILED, "stopped"

    def list_events(self, hosts: Sequence[str], begin_us: int, end_us: int) -> Sequence[Event]:
        self._strike()
        return [e for e in self.events if e.host in hosts and begin_us <= e.time_us < end_us]

    def _strike(self) -> None:
        """Cause the event, as often as the load of the arm runs, while nothing masks the fault."""
        if self.fault is None:
            return
        _, after = self.fault
        for name, task in list(self.tasks.items()):
            at = task.began_us + int(after * S)
            aged = any(k[0] == task.host and v == TaskKind.AGE for k, v in self.changed.items())
            masked = any(
                k[0] == task.host and self.tasks[k[1]].arguments.get("name") == "mask-unit"
                for k in self.changed
            )
            lasted = self.clock() if task.state is TaskState.RUNNING else 0
            if task.kind is TaskKind.LOAD and aged and not masked and at <= lasted:
                event = Event(at, KIND, host=task.host, id=f"{KIND}-{name}", text="reset")
                if event.id not in {known.id for known in self.events}:
                    self.events.append(event)

    def pin(self, host: str, event: Event) -> None:
        self.pins.add((host, event.id))

    def used_bytes(self) -> int:
        return self.used


class Reserved:
    """The reservations of `overnight.reservations`; a server drives them, so each is active once it was looked at."""

    def __init__(self, clock: poolworld.Clock) -> None:
        self.clock = clock
        self.all: dict[str, Reservation] = {}
        self.steps: Callable[[str], None] = lambda _: None
        self.error: errors.OvernightError | None = None
        self.stuck = False  # a release that the platform refuses
        self.releases = 0
        self.differences: dict[str, tuple[str, ...]] = {}

    def list(self) -> tuple[Reservation, ...]:
        open_ = (r for r in self.all.values() if r.state is not ReservationState.RELEASED)
        return tuple(open_)

    def create(self, order: Order) -> Reservation:
        if self.error is not None:
            raise self.error
        used = sum(len(each.hosts) for each in self.all.values())
        names = [f"host-{n}" for n in range(used, used + order.count)]
        made = Reservation(
            id=f"r-{len(self.all):012x}", order=order, state=ReservationState.PREPARING,
            made_us=self.clock(), until_us=self.clock() + 600 * S, cap_us=self.clock() + 3600 * S,
            hosts=tuple(
                ReservedHost(name=name, state=HostState.HELD, checks=(AGENT,)) for name in names
            ),
        )  # fmt: skip
        self.steps("create reservation: before")
        self.all[made.id] = made
        self.steps("create reservation: after")
        return made

    def show(self, reservation_id: str) -> Reservation:
        found = self.all[reservation_id]
        if found.state is ReservationState.PREPARING:
            self.change(reservation_id, state=ReservationState.ACTIVE)
        return found

    def drive(self, reservation: Reservation) -> Reservation:
        return self.show(reservation.id)

    def change(self, reservation_id: str, **changes: Any) -> Reservation:
        changed = dataclasses.replace(self.all[reservation_id], **changes)
        self.all[reservation_id] = changed
        return changed

    def release(self, reservation_id: str, reason: str) -> Reservation:
        self.releases += 1
        self.steps("release: before")
        state = ReservationState.RELEASING if self.stuck else ReservationState.RELEASED
        released = self.change(reservation_id, state=state, reason=reason)
        self.steps("release: after")
        return released


class Hooks(context.Hooks):
    """Diagnoses everything at once, and proposes an experiment that confirms the cause."""

    def __init__(self, reserved: Reserved) -> None:
        self.reserve = reserved.create
        self.compare = lambda _: reserved.differences

    def begin_incident(self, *_: object) -> bool:
        return True

    def end_incident(self) -> None:
        pass

    def diagnose(self, _: Investigation, seen: Occurrence) -> Occurrence | None:
        return dataclasses.replace(seen, headline=f"cause of {seen.kind}")

    def choose_experiment(self, run: Investigation) -> context.Proposal:
        [*_, last] = [seen.event for arm in run.arms for seen in arm.occurrences]
        return context.Proposal("x is the cause", "mask-unit x", ("mask-unit x",), last)

    def judge(self, _: Investigation, before: ArmRun, after: ArmRun) -> context.Judgement:
        return context.Judgement(Answer.CONFIRMED, f"no event of {before.kind} in {after.kind}")

    def write_report(self, *_: object) -> tuple[str, str]:
        return "report.html", ""


class World:
    """One database, hosts and reservations; `another` adds control planes."""

    def __init__(self, url: str, plan: Plan = PLAN) -> None:
        pooldatabases.prepare(url)
        self.url, self.plan = url, plan
        self.clock = poolworld.Clock()
        self.hosts, self.reserved = Hosts(self.clock), Reserved(self.clock)
        self.hooks = Hooks(self.reserved)
        self._open: list[engine.Database] = []
        self.plane = self.another()

    def another(self, steps: Callable[[str], None] = lambda _: None) -> control.ControlPlane:
        db = pooldatabases.opened(self.url, steps=steps)
        self._open.append(db)
        return control.ControlPlane(
            context.Context(db, self.reserved, lambda _: self.hosts, self.hooks, clock=self.clock)
        )

    def create(self, **changes: Any) -> Investigation:
        return self.plane.create(dataclasses.replace(self.plan, **changes), "ops@desk")

    def run(self, made: Investigation, plane: control.ControlPlane | None = None) -> Investigation:
        plane = plane or self.plane
        with plane.drive(plane.show(made.id)) as step:
            while not plane.show(made.id).is_ended:
                self.clock.forward(step())
        return plane.show(made.id)

    def step_until(self, made: Investigation, phase: Phase, limit: int = 200) -> driver.Driver:
        """Drive until a phase has begun, and keep the driver."""
        driven = driver.take(self.plane.context, self.plane.show(made.id), lambda _: None)
        for _ in range(limit):
            if driven.investigation.phase is phase:
                return driven
            driven.step()
            self.clock.forward(1)
        raise AssertionError(f"{phase} was not reached")

    def texts(self, made: Investigation) -> list[str]:
        return [note.text for note in self.plane.notes(made.id, 1000)]

    def lines(self, made: Investigation) -> list[str]:
        """Return the log with the names of hosts."""
        return list(map(str, self.plane.notes(made.id, 1000)))

    def check_clean(self) -> None:
        """Every change is undone, and every host is given back."""
        assert self.hosts.changed == {}
        assert {r.state for r in self.reserved.all.values()} <= {ReservationState.RELEASED}
        assert not [t for t in self.hosts.tasks.values() if not t.state.is_final]

    def close(self) -> None:
        for db in self._open:
            db.close()
