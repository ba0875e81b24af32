"""An investigation: a plan carried out. Frozen values; times are µs since 1970."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any

from overnight.model.plan import ArmKind, Plan  # noqa: TC001 - decoding reads the hints
from overnight.model.protocol import TaskKind, TaskState

SCHEMA = "overnight.investigation/1"
INVESTIGATION_ID = re.compile(r"i-[0-9a-f]{12}")


class Phase(enum.StrEnum):
    """What an investigation does now, in this order. The values are stored."""

    RESERVE = "reserve"
    CHECK = "check"  # image, clock, agent
    ARMS = "arms"
    EXPERIMENT = "experiment"
    RELEASE = "release"
    REPORT = "report"
    ENDED = "ended"


class ArmState(enum.StrEnum):
    WAITING = "waiting"
    PREPARING = "preparing"  # age, purge, changes
    RUNNING = "running"  # load, recorder and instruments run
    ENDING = "ending"
    ENDED = "ended"


class Outcome(enum.StrEnum):
    """What came out. The values are stored."""

    OPEN = "open"
    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not-reproduced"
    FAILED = "failed"  # no arm could be observed


class Answer(enum.StrEnum):
    """The result of an experiment."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclasses.dataclass(frozen=True)
class Occurrence:
    """An event of an arm, its first verdict, and the window pinned for it."""

    host: str
    event: str  # its id
    kind: str
    time_us: int
    headline: str = ""  # of the verdict, once there is one
    report: str = ""  # path or URL


@dataclasses.dataclass(frozen=True)
class HostTask:
    """A task of a host: what was asked, its id there, and how it ended."""

    host: str
    kind: TaskKind
    id: str
    name: str = ""  # of an instrument, a change, a state
    state: TaskState = TaskState.PENDING
    detail: str = ""

    @property
    def is_over(self) -> bool:
        return self.state.is_final


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmRun:
    """One arm as it runs. `doses` are what may make the event more frequent, of each host at the arm's end."""

    kind: ArmKind
    hosts: tuple[str, ...] = ()
    state: ArmState = ArmState.WAITING
    began_us: int = 0  # of the observation
    ended_us: int = 0
    tasks: tuple[HostTask, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    # By host: zombies, uptime_s and load, and what the constancy gate said.
    doses: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    constancy: Mapping[str, str] = dataclasses.field(default_factory=dict)
    changes: tuple[str, ...] = ()  # made in this arm, and to be undone
    note: str = ""  # why it ended early, or what was not possible


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentRun:
    """The cause's own test, carried out: one change on the hosts of an arm, then the same observation again."""

    change: str  # such as `mask-unit ember-scout.service`
    why: str  # the claim that it tests
    arm: ArmRun
    answer: Answer = Answer.UNDECIDED
    says: str = ""
    needs_hours: float | None = None  # of observation that would decide it
    undone: bool = False
    event: str = ""  # whose cause it tests


@dataclasses.dataclass(frozen=True)
class Note:
    """A line of the log of an investigation."""

    at_us: int
    text: str
    host: str = ""

    def __str__(self) -> str:
        return f"{self.host}: {self.text}" if self.host else self.text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Investigation:
    id: str  # i- and 12 hexadecimal digits
    plan: Plan
    owner: str = ""
    phase: Phase = Phase.RESERVE
    outcome: Outcome = Outcome.OPEN
    made_us: int = 0
    phase_us: int = 0  # when the phase began
    reservations: tuple[str, ...] = ()
    arms: tuple[ArmRun, ...] = ()
    experiment: ExperimentRun | None = None
    report: str = ""  # path or URL, once it is written
    next_plan: str = ""  # file with the next plan, if the event did not reproduce
    reason: str = ""  # why it stopped or failed
    stop: bool = False  # end cleanly with what was learnt
    fence: int = 0
    driver_until_us: int = 0
    attempts: int = 0
    next_us: int = 0

    @property
    def is_ended(self) -> bool:
        return self.phase is Phase.ENDED

    def list_arms(self) -> Iterator[tuple[str, ArmRun]]:
        """Yield the arms with their names, the experiment's last."""
        yield from ((f"arm {arm.kind}", arm) for arm in self.arms)
        if self.experiment is not None:
            yield f"experiment {self.experiment.change}", self.experiment.arm

    def as_json(self) -> dict[str, Any]:
        """Return the document; docs/schemas/investigation-1.json describes it."""
        return {"schema": SCHEMA, **dataclasses.asdict(self)}
