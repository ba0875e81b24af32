"""`overnight hosts`, `cohorts`, `hazard`, and the fleet's part of a diagnosis; `answer` is what servers call."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from overnight import errors
from overnight.app import questions, windows
from overnight.model import decoding
from overnight.model.event import Value
from overnight.model.finding import Answer, Finding, Status
from overnight.model.selection import Window
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight.model.fleet import Fleet, Host

T = TypeVar("T")
DAY, WEEK, HOUR = 86_400.0, 7 * 86_400.0, 3_600.0


@dataclasses.dataclass(frozen=True)
class KindRequest:
    """A kind of event, or a prefix that ends with a dot, in a window; times as users write them."""

    kind: str = ""
    begin: str = ""
    end: str = ""


# --- hosts


@dataclasses.dataclass(frozen=True)
class HostSummary:
    name: str
    labels: Mapping[str, str]
    seen_us: int  # the last reading or report; 0: none
    booted_us: int = 0  # 0: unknown
    snapshot_us: int | None = None
    # What its agent could not send, and the last problem with what it sent.
    lost_events: int = 0
    lost_rollups: int = 0
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Hosts:
    hosts: tuple[HostSummary, ...]
    problems: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the document; docs/schemas/hosts-1.json describes it."""
        return {"schema": "overnight.hosts/1", **dataclasses.asdict(self)}

    def having(self, labels: Mapping[str, str]) -> Hosts:
        """Return the hosts that have all these labels."""
        wanted = labels.items()
        chosen = (host for host in self.hosts if wanted <= host.labels.items())
        return dataclasses.replace(self, hosts=tuple(chosen))


def list_hosts(home: pathlib.Path) -> Hosts:
    """Return the hosts that are recorded in a data home; raise CannotError where there are none."""
    from overnight.queries import fleet

    recorded = fleet.read_fleet(home, (), snapshots=True)
    return Hosts(tuple(map(_summarize, questions.choose_hosts(recorded))), recorded.problems)


def _summarize(host: Host) -> HostSummary:
    last = max(host.spells, key=lambda spell: spell.end_us, default=None)
    booted = last.begin_us - round(last.uptime * SECOND_US) if last else 0
    seen = last.end_us if last else max((event.time_us for event in host.events), default=0)
    return HostSummary(host.name, dict(host.labels), seen, booted, _taken_us(host))


def _taken_us(host: Host) -> int | None:
    if host.snapshot is None:
        return None
    try:
        taken = datetime.datetime.fromisoformat(str(host.snapshot.header.get("taken_at")))
        return round(taken.timestamp() * SECOND_US)
    except (ValueError, OverflowError):
        return 0  # at an unknown time


# --- cohorts and hazard


@dataclasses.dataclass(frozen=True)
class Watched:
    """What an answer is about: the denominators of its rates."""

    hosts: int
    hosts_with_event: int
    events: int  # in watched time
    host_days: float


@dataclasses.dataclass(frozen=True)
class Label:
    name: str
    value: str


@dataclasses.dataclass(frozen=True)
class Cohort:
    """Hosts that share labels, against all other hosts. `p` is adjusted for all cohorts."""

    labels: tuple[Label, ...]
    hosts: int
    hosts_with_event: int
    events: int
    expected_events: float  # at the rate of all hosts
    host_days: float
    rate_ratio: float
    p: float
    smallest_p: float  # attainable
    spared: bool  # fewer events than expected, not more


@dataclasses.dataclass(frozen=True)
class Band:
    """Events per watched host week in a band of uptime, with the exact 95 % interval."""

    from_hours: float
    to_hours: float | None  # None: no limit
    events: int
    host_days: float
    rate: float
    rate_low: float
    rate_high: float


@dataclasses.dataclass(frozen=True)
class FleetAnswer:
    """What a detector answers about a kind of event; `why` is the reason for every status but found."""

    SCHEMA: ClassVar[str]
    kind: str
    status: Status
    why: str
    watched: Watched
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the document; docs/schemas/cohorts-1.json and hazard-1.json describe it."""
        plain = dataclasses.asdict(dataclasses.replace(self, findings=()))
        findings = [finding.as_json() for finding in self.findings]
        return {"schema": self.SCHEMA, **plain, "findings": findings}


@dataclasses.dataclass(frozen=True)
class Cohorts(FleetAnswer):
    SCHEMA = "overnight.cohorts/1"
    cohorts: tuple[Cohort, ...]  # the most striking first


@dataclasses.dataclass(frozen=True)
class Hazard(FleetAnswer):
    SCHEMA = "overnight.hazard/1"
    bands: tuple[Band, ...]  # of uptime, those with watched time


def compare_cohorts(fleet: Fleet, request: KindRequest) -> Cohorts:
    """Find the labels that events of a kind follow."""
    from overnight.detectors.fleet import cohort

    fleet = _cut(fleet, request)
    answer, compared = cohort.CohortSkew().study(fleet, request.kind)
    rows = (
        Cohort(
            tuple(Label(*pair) for pair in row.names), row.hosts, row.sick, round(row.events),
            row.expected, row.seconds / DAY, row.rate_ratio, row.p, row.smallest, row.spared,
        )
        for row in compared
    )  # fmt: skip
    return Cohorts(*_base(fleet, request.kind, answer), tuple(rows))


def measure_hazard(fleet: Fleet, request: KindRequest) -> Hazard:
    """Find how the rate of events of a kind depends on uptime."""
    from overnight.detectors.fleet import hazard, uptime

    fleet = _cut(fleet, request)
    answer = uptime.UptimeHazard().ask(fleet, request.kind)
    bands = hazard.bands(uptime.build_timeline(fleet.watched, request.kind))
    rows = (
        Band(
            band.low / HOUR, None if band.high == float("inf") else band.high / HOUR, band.events,
            band.seconds / DAY, *(WEEK * rate for rate in (band.events / band.seconds, band.rate_low, band.rate_high)),
        )
        for band in bands
    )  # fmt: skip
    return Hazard(*_base(fleet, request.kind, answer), tuple(rows))


def _cut(fleet: Fleet, request: KindRequest) -> Fleet:
    if not request.kind:
        raise errors.UsageError(
            "--kind is missing",
            why="the question is about the rate of one kind of event",
            todo="name it: --kind net.driver_reset; `overnight events` lists kinds",
        )
    hosts = questions.choose_hosts(fleet)
    recorded = questions.extent(hosts)
    if recorded is None or not (request.begin or request.end):
        return fleet
    window = windows.resolve_window(recorded, request.begin, request.end)
    return dataclasses.replace(fleet, hosts=tuple(host.cut(window) for host in hosts))


def _base(
    fleet: Fleet, kind: str, answer: Answer
) -> tuple[str, Status, str, Watched, tuple[Finding, ...], tuple[str, ...]]:
    counts = [len(host.places(kind)) for host in fleet.watched]
    days = sum(host.seconds for host in fleet.watched) / DAY
    watched = Watched(len(counts), sum(map(bool, counts)), sum(counts), days)
    return kind, answer.status, answer.why, watched, answer.findings, fleet.problems


# --- findings, for a diagnosis


@dataclasses.dataclass(frozen=True)
class Findings:
    """What every fleet detector answers about a kind of event, for the verdict on one event."""

    kind: str
    hosts: int
    answers: tuple[Answer, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the document; docs/schemas/findings-1.json describes it."""
        answers = [
            {**answer.as_json(), "findings": [finding.as_json() for finding in answer.findings]}
            for answer in self.answers
        ]
        return {"schema": "overnight.findings/1", "kind": self.kind, "hosts": self.hosts, "answers": answers}  # fmt: skip


def run_detectors(fleet: Fleet, request: KindRequest) -> Findings:
    from overnight.app import diagnose

    fleet = _cut(fleet, request)
    answers = tuple(
        diagnose.run_guarded(detector.name, functools.partial(detector.ask, fleet, request.kind))
        for detector in diagnose.discover_fleet_detectors()
    )
    return Findings(request.kind, len(fleet.watched), answers)


# --- all questions


def _only_kind(request: KindRequest) -> questions.Wanted:
    return questions.Wanted([request.kind])


def _decoder(kind: type[T]) -> Callable[[dict[str, Any]], T]:
    # The hints name types that modules import for type checkers only.
    names = {each.__name__: each for each in (Answer, Finding, Status, Window)}
    return functools.partial(decoding.decode, kind, **names, Value=Value)


COHORTS = questions.Question("cohorts", KindRequest, _only_kind, compare_cohorts, _decoder(Cohorts))
HAZARD = questions.Question("hazard", KindRequest, _only_kind, measure_hazard, _decoder(Hazard))
FINDINGS = questions.Question(
    "findings",
    KindRequest,
    lambda request: questions.Wanted([request.kind], snapshots=True),
    run_detectors,
    _decoder(Findings),
)


def find_question(name: str) -> questions.Question[Any, Any]:
    """Return a question by its name; raise UsageError for any other."""
    from overnight.app import compare, drift  # numpy

    every: tuple[questions.Question[Any, Any], ...] = (
        COHORTS, HAZARD, FINDINGS, drift.QUESTION, compare.QUESTION,
    )  # fmt: skip
    known = {question.name: question for question in every}
    if name not in known:
        raise errors.UsageError(
            f"there is no question {name!r}",
            why=f"the questions are {', '.join(known)}",
            todo="use the same version for client and server",
        )
    return known[name]


def answer(
    name: str, parameters: Mapping[str, Sequence[str]], read: questions.ReadFleet
) -> dict[str, Any]:
    """Return the document that answers a question; `read` returns the fleet with what the question needs."""
    question = find_question(name)
    request = question.parse(parameters)
    document: dict[str, Any] = question.answer(read(question.needs(request)), request).as_json()
    return document
