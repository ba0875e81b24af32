"""The diagnosis of one event: causal chain, confidence, missing evidence, fix and experiment."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.finding import Answer, Finding
    from overnight.model.suspect import Suspect


SCHEMA = "overnight.diagnosis/1"


class VerdictStatus(enum.StrEnum):
    CAUSE_FOUND = "cause-found"
    INCONCLUSIVE = "inconclusive"
    NO_CAUSE = "no-cause"


class ArgumentOutcome(enum.StrEnum):
    AGREES = "agrees"
    AGAINST = "against"
    NOT_CHECKED = "not-checked"  # a number or a name that the condition needs is not known


@dataclasses.dataclass(frozen=True)
class Argument:
    """One condition of a link and how it came out."""

    condition: str  # of the knowledge (`same_core`), `rule` for the rule's own reason, or `fleet`
    outcome: ArgumentOutcome
    text: str


@dataclasses.dataclass(frozen=True)
class Link:
    """Why one finding is held to cause the next; `strength`, 0 to 1, follows from the arguments."""

    cause: str  # finding ids
    effect: str
    strength: float
    arguments: tuple[Argument, ...]

    def texts(self, outcome: ArgumentOutcome) -> tuple[str, ...]:
        return tuple(each.text for each in self.arguments if each.outcome is outcome)

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.texts(ArgumentOutcome.AGREES)

    @property
    def against(self) -> tuple[str, ...]:
        """Contradicting arguments, and those that could not be checked."""
        open_ = (f"not checked: {text}" for text in self.texts(ArgumentOutcome.NOT_CHECKED))
        return (*self.texts(ArgumentOutcome.AGAINST), *open_)

    def as_json(self) -> dict[str, object]:
        return {
            **dataclasses.asdict(self),
            "reasons": list(self.reasons),
            "against": list(self.against),
        }


@dataclasses.dataclass(frozen=True)
class Chain:
    """Findings in causal order, the root first, the event last; `score` ranks chains."""

    steps: tuple[Finding, ...]
    links: tuple[Link, ...]
    score: float
    why_not: str = ""  # for a runner-up: why it lost

    @property
    def root(self) -> Finding:
        return self.steps[0]

    def as_json(self) -> dict[str, object]:
        return {
            "score": round(self.score, 3),
            "why_not": self.why_not,
            "chain": [step.as_json() for step in self.steps],
            "links": [link.as_json() for link in self.links],
        }


class GapKind(enum.StrEnum):
    STACKS = "stacks"
    LOST_SAMPLES = "lost-samples"
    SIGNALS = "signals"
    SHORT_BASELINE = "short-baseline"
    DISTURBED_BASELINE = "disturbed-baseline"
    LATE_START = "late-start"  # the recording began just before the event
    KERNEL_LOG = "kernel-log"
    NOT_IMPORTED = "not-imported"
    PERMISSION = "permission"
    RECORDER = "recorder"  # the recorder lacked files, memory or disk
    CLOCK = "clock"
    LOAD = "load"
    DETECTOR_NO_DATA = "detector-no-data"
    DETECTOR_FAILED = "detector-failed"
    RIVAL = "rival-explanation"


class GapWindow(enum.StrEnum):
    """Which window the missing stacks or samples belong to."""

    INCIDENT = "incident"
    BASELINE = "baseline"
    RECORDING = "recording"


@dataclasses.dataclass(frozen=True)
class Gap:
    """Missing evidence; the score is multiplied by `factor`, above 0 and below 1."""

    kind: GapKind
    what: str
    why: str
    factor: float
    window: GapWindow | None = None
    detector: str = ""


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of an experiment or a fix: what to do, the command, and the expected result."""

    what: str
    command: str = ""
    expect: str = ""


class RuledOutReason(enum.StrEnum):
    """Why a finding is in no chain."""

    AFTER_EVENT = "after-event"
    LOW_CONFIDENCE = "low-confidence"
    CONTRADICTED = "contradicted"  # a condition of the link fails
    NOT_KNOWN = "not-known"  # a condition that must hold could not be checked
    NOT_TIED = "not-tied"  # none of the conditions that would tie them together holds
    WEAK = "weak"
    NO_EFFECT_FOUND = "no-effect-found"
    NO_EFFECT_KNOWN = "no-effect-known"


@dataclasses.dataclass(frozen=True)
class RuledOut:
    """A finding that is in no chain; `effect` is the kind that it was not linked to, '' if there is none."""

    finding: str  # its id
    kind: str
    why: str
    reason: RuledOutReason
    effect: str = ""


@dataclasses.dataclass(frozen=True)
class Part:
    """A labelled part of a verdict: sentences, and a command that can be copied."""

    label: str
    text: str
    command: str = ""


@dataclasses.dataclass(frozen=True)
class Narrative:
    """A verdict as people read it; a part that is '' does not apply."""

    headline: str = ""
    event: str = ""
    root_cause: str = ""
    mechanism: str = ""
    effect: str = ""
    link: str = ""  # between an application's event and the incident
    fix: str = ""
    fix_command: str = ""
    proof: str = ""
    todo: str = ""  # where there is no fix
    todo_command: str = ""
    cleared: str = ""
    missing: str = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        parts = (
            Part("Event", self.event),
            Part("Root cause", self.root_cause),
            Part("Mechanism", self.mechanism),
            Part("Effect", self.effect),
            Part("Link", self.link),
            Part("Fix", self.fix, self.fix_command),
            Part("Prove it", self.proof),
            Part("Next", self.todo, self.todo_command),
            Part("Cleared", self.cleared),
            Part("Missing", self.missing),
        )
        return tuple(part for part in parts if part.text)

    @property
    def summary(self) -> str:
        event = f"Event: {' '.join(self.event.split())}." if self.event else ""
        sentences = (f"{self.headline}.", event, self.root_cause, self.mechanism, self.effect)
        link = f"Link: {self.link}" if self.link else ""
        todo = f"Fix: {self.fix}" if self.fix else f"Next: {self.todo}" if self.todo else ""
        return " ".join(filter(None, (*sentences, link, todo)))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The diagnosis of one event.

    `confidence` is the probability that the claimed or suspected cause is a true one, 0 without either;
    `score` is the best chain's, with the factors of missing evidence.
    """

    event: Event | None
    status: VerdictStatus
    confidence: float = 0.0
    chain: Chain | None = None
    alternatives: tuple[Chain, ...] = ()
    gaps: tuple[Gap, ...] = ()
    next: tuple[Step, ...] = ()  # the experiment that confirms or refutes
    fix: tuple[Step, ...] = ()
    answers: tuple[Answer, ...] = ()
    findings: tuple[Finding, ...] = ()
    fleet: Mapping[str, object] = dataclasses.field(default_factory=dict)
    ruled_out: tuple[RuledOut, ...] = ()
    narrative: Narrative = Narrative()
    notes: tuple[str, ...] = ()  # about the recording; they lower nothing
    suspects: tuple[Suspect, ...] = ()  # checked whatever the status; they change nothing
    score: float = 0.0

    @property
    def blamed(self) -> Chain | None:
        """Return the chain whose root is claimed or suspected to be the cause."""
        if self.status is VerdictStatus.CAUSE_FOUND:
            return self.chain
        return self.alternatives[0] if self.confidence else None

    @property
    def summary(self) -> str:
        return self.narrative.summary

    def as_json(self) -> dict[str, object]:
        """Schema diagnosis-1."""
        chain = self.chain.as_json() if self.chain else {"chain": [], "links": []}
        names = ("headline", "root_cause", "mechanism", "effect", "link", "summary")
        return {
            "schema": SCHEMA,
            "event": self.event.as_json() if self.event else None,
            "verdict": {
                "status": str(self.status),
                "confidence": round(self.confidence, 3),
                "score": round(self.score, 3),
                **{name: getattr(self.narrative, name) for name in names},
                "chain": chain["chain"],
                "links": chain["links"],
            },
            "alternatives": [each.as_json() for each in self.alternatives],
            "gaps": list(map(dataclasses.asdict, self.gaps)),
            "notes": list(self.notes),
            "next": list(map(dataclasses.asdict, self.next)),
            "fix": list(map(dataclasses.asdict, self.fix)),
            "findings": [finding.as_json() for finding in self.findings],
            "detectors": [answer.as_json() for answer in self.answers],
            "fleet": dict(self.fleet),
            "ruled_out": list(map(dataclasses.asdict, self.ruled_out)),
            "suspects": [suspect.as_json() for suspect in self.suspects],
        }
