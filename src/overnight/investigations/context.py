"""What an investigation needs of parts that this package does not know: hosts, reservations, verdicts, reports."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from overnight.model.investigation import Answer

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.model.event import Event
    from overnight.model.investigation import ArmRun, Investigation, Note, Occurrence
    from overnight.model.plan import ArmPlan
    from overnight.model.protocol import TaskKind, TaskState
    from overnight.model.reservation import Order, Reservation

DRIVER_SECONDS = 300  # lease of a driver, longer than a first verdict takes


def now_us() -> int:
    """Return µs since 1970: rows are shared between machines, so this is the wall clock."""
    return time.time_ns() // 1000


@dataclasses.dataclass(frozen=True)
class TaskStatus:
    state: TaskState
    detail: str = ""
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class HostControl(Protocol):
    """Asks hosts for tasks. Every method may be repeated."""

    def start(self, host: str, task_id: str, kind: TaskKind, arguments: Mapping[str, Any]) -> None:
        """Ask a host for a task, once for each id; raise NotFoundError for a host that has no agent."""

    def look(self, task_ids: Sequence[str]) -> Mapping[str, TaskStatus]:
        """Return how tasks go; those that were never started are left out."""

    def stop(self, host: str, task_id: str) -> None:
        """Ask for the end of a task; it is reported as failed."""

    def list_events(self, hosts: Sequence[str], begin_us: int, end_us: int) -> Sequence[Event]:
        """Return the events of these hosts that began in [begin, end)."""

    def pin(self, host: str, event: Event) -> None:
        """Keep what a host recorded around an event, which may be another host's."""

    def used_bytes(self) -> int:
        """Return the disk space of the host with most; 0 if it is not known."""


class HostReservations(Protocol):
    """The use cases of reservations, for one investigation at a time."""

    def find(self, purpose: str) -> Sequence[Reservation]:
        """Return the open reservations of an investigation."""

    def create(self, order: Order) -> Reservation:
        """Write the record of a reservation; `drive` then takes the hosts."""

    def show(self, reservation_id: str) -> Reservation: ...

    def drive(self, reservation_id: str) -> None:
        """Prepare, renew and check what is due, unless a server does."""

    def compare(self, reservation: Reservation) -> Mapping[str, Sequence[str]]:
        """Return what differs on each host from the one that the order refers to."""

    def release(self, reservation_id: str, reason: str) -> Reservation: ...


@dataclasses.dataclass(frozen=True)
class FirstVerdict:
    headline: str
    report: str = ""  # path or URL


@dataclasses.dataclass(frozen=True)
class Proposal:
    """An experiment: what is changed, in words, the claim that it tests, and the changes of each host."""

    change: str
    why: str
    steps: tuple[str, ...]  # as in a plan: `name` or `name target`


@dataclasses.dataclass(frozen=True)
class Judgement:
    answer: Answer
    says: str
    needs_hours: float | None = None


@dataclasses.dataclass(frozen=True)
class Written:
    """Where the final report is, and the next plan if the event did not reproduce."""

    report: str
    next_plan: str = ""


def _not_ready(_investigation: Investigation, _occurrence: Occurrence) -> FirstVerdict | None:
    return None


@dataclasses.dataclass(frozen=True)
class Hooks:
    """What reads evidence: `app` joins it with what acts on hosts."""

    # Of a rehearsal: called until it returns True before an arm is observed, and at each step while it is.
    begin_incident: Callable[[Investigation, ArmPlan, ArmRun], bool] = lambda *_: True
    # Called at each step once the observation has ended.
    end_incident: Callable[[Investigation], None] = lambda _: None
    # None while the window is not there yet.
    diagnose: Callable[[Investigation, Occurrence], FirstVerdict | None] = _not_ready
    # Without steps: nothing that the plan allows tests the cause.
    choose_experiment: Callable[[Investigation], Proposal] = lambda _: Proposal("", "", ())
    judge: Callable[[Investigation, ArmRun, ArmRun], Judgement] = lambda *_: Judgement(
        Answer.UNDECIDED, "nothing compares the arms"
    )
    write_report: Callable[[Investigation, Sequence[Note]], Written] = lambda *_: Written("")


@dataclasses.dataclass(frozen=True)
class Context:
    database: engine.Database
    reservations: HostReservations
    # Opened when the investigation needs it; the same for the same investigation.
    hosts: Callable[[Investigation], HostControl]
    hooks: Hooks = dataclasses.field(default_factory=Hooks)
    clock: Callable[[], int] = now_us
    endpoint: Callable[[], str] = lambda: ""  # URL that agents of reserved hosts report to
