"""What an investigation needs of parts that this package does not know: hosts, verdicts, reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from overnight.model import times

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.model.event import Event
    from overnight.model.investigation import Answer, ArmRun, Investigation, Note, Occurrence
    from overnight.model.plan import ArmPlan
    from overnight.model.protocol import TaskKind, TaskState
    from overnight.model.reservation import Order, Reservation
    from overnight.reservations import control

DRIVER_SECONDS = 300  # lease of a driver, longer than a first verdict takes


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


@dataclasses.dataclass(frozen=True)
class Proposal:
    """An experiment: the changes in words, the claim that they test, and the steps as in a plan: `name` or `name target`.

    Without steps `why` is the reason for that.
    """

    why: str
    change: str = ""
    steps: tuple[str, ...] = ()
    event: str = ""  # whose cause they test


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What an experiment showed; `needs_hours`: host-hours without an event that would confirm the cause."""

    answer: Answer
    says: str
    needs_hours: float | None = None


class Hooks(Protocol):
    """What `app` does for an investigation: it joins the parts that act on hosts with those that read evidence."""

    def reserve(self, order: Order) -> Reservation:
        """Write the record of a reservation; whoever started the investigation has agreed to what it disturbs."""

    def compare(self, reservation: Reservation) -> Mapping[str, Sequence[str]]:
        """Return what differs on each host from the one that the order refers to."""

    def begin_incident(self, investigation: Investigation, arm: ArmPlan, run: ArmRun) -> bool:
        """Cause the incident of a rehearsal; called until it returns True, then at each step of the arm."""

    def end_incident(self) -> None:
        """End the incident; called at each step once the observation has ended."""

    def diagnose(self, investigation: Investigation, seen: Occurrence) -> Occurrence | None:
        """Return an event with its first verdict; None while the window is not there yet."""

    def choose_experiment(self, investigation: Investigation) -> Proposal:
        """Return what tests the cause, of what the plan allows."""

    def judge(self, investigation: Investigation, before: ArmRun, after: ArmRun) -> Judgement:
        """Compare an arm with its repetition after the change."""

    def write_report(self, investigation: Investigation, notes: Sequence[Note]) -> tuple[str, str]:
        """Return where the report is, and the next plan if the event did not reproduce, else ''."""


@dataclasses.dataclass(frozen=True)
class Context:
    database: engine.Database
    reservations: control.ControlPlane
    hosts: Callable[[Investigation], HostControl]  # the same for the same investigation
    hooks: Hooks
    clock: Callable[[], int] = times.now_us
    endpoint: Callable[[], str] = lambda: ""  # URL that agents of reserved hosts report to
