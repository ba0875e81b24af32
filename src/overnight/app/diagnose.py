"""`overnight diagnose`: run every detector, decide which chain explains an event best, and report it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import pathlib
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from overnight import app, detectors, errors
from overnight.agent.uplink import windows as uploads
from overnight.app import (
    added_events,
    bundles,
    events,
    foreign_agents,
    open_segment,
    report_material,
    spool_ingest,
    spool_paths,
)
from overnight.detectors import fleet, own_load
from overnight.diagnosis import completeness, decision, knowledge, narrative, recording, suspects
from overnight.model import times
from overnight.model.event import is_outcome
from overnight.model.finding import Answer, Status
from overnight.model.selection import Window
from overnight.model.severity import Severity
from overnight.model.text import plural
from overnight.model.times import SECOND_US
from overnight.model.verdict import Step, VerdictStatus
from overnight.queries import case as cases
from overnight.reports import diagnosis
from overnight.sources import perf
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    import rich.console

    from overnight.app import fleet_questions
    from overnight.model.event import Event
    from overnight.model.verdict import Verdict

LAST = events.LAST
INCIDENT_US = 30 * SECOND_US
# A whole window is bundled and uploaded within half a minute after its end; after five minutes it is not coming.
ARRIVAL_US, REST_US = 30 * SECOND_US, 300 * SECOND_US
# An outcome may come a timeout after its incident, and before the line of the log that reports it.
REACH_US, LATE_US = 60 * SECOND_US, 3 * SECOND_US
MAX_INCIDENTS = 3
RUNNING_US = 10 * SECOND_US  # since the last reading of a recorder that runs
FLEET_HOSTS = 3  # fewer are not a fleet
REPORTED = "incident.reported"  # the kind of an incident that no rule and no watch saw
FLEET = "fleet"  # the detector named where a server does not answer for its fleet
OnAnswer = Callable[[Answer], None]
AskFleet = Callable[[str], "fleet_questions.Findings"]  # about a kind of event


@dataclasses.dataclass(frozen=True)
class Reported:
    """An incident that only its reporter saw; `at` is a time as users write it."""

    at: str
    core: int | None = None
    kind: str = REPORTED
    text: str | None = None
    save: bool = False  # store it as an event of `overnight event add`


@dataclasses.dataclass(frozen=True)
class Request:
    home: pathlib.Path
    bundle: pathlib.Path | None = None  # instead of the data home
    event_id: str = LAST  # `last`: the last serious event, or the one a bundle was made for
    host: str = ""
    knowledge: tuple[pathlib.Path, ...] = ()
    reported: Reported | None = None  # instead of a stored event
    ask_fleet: AskFleet | None = None  # None: the hosts of the data home are the fleet
    within: Window | None = None  # what was recorded before and after is not evidence
    until_us: int = 0  # where the window ends that a host has uploaded; 0: unknown


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """The verdict, and what a report shows beside it."""

    verdict: Verdict
    material: diagnosis.Material

    def write(self, form: str, out: BinaryIO) -> None:
        """Write the report as json, markdown or html."""
        module = importlib.import_module(f"overnight.reports.diagnosis.{form}")
        module.write(self.verdict, out, self.material)

    def render(self) -> rich.console.Group:
        """Return the report for a terminal."""
        from overnight.reports.diagnosis import text

        return text.render(self.verdict, self.material)


def diagnose(request: Request, on_answer: OnAnswer = lambda _: None) -> Diagnosis:
    """Diagnose one event; `on_answer` gets the answer of each detector as it comes."""
    from overnight.app import investigation_reports

    known = knowledge.read_knowledge(request.knowledge)
    with _evidence(investigation_reports.diagnose_like_report(request)) as given:
        if given.reported is None:
            event = choose_event(given.home, given.event_id, given.host)
        else:
            event = make_reported(given.home, given.host, given.reported)
        verdict, case = diagnose_event(
            given.home, event, known=known, ask_fleet=given.ask_fleet, within=given.within,
            on_answer=on_answer,
        )  # fmt: skip
        rest = _describe_rest(event, given.until_us) if event is not None and given.until_us else ""
        if event is not None and rest:
            note = f"provisional: {event.host} has not uploaded {rest}"
            verdict = dataclasses.replace(verdict, notes=(note, *verdict.notes))
        if request.until_us:  # the agent that uploaded it records
            verdict = _drop_recording(verdict)
            if event is not None and rest:
                verdict = _advise_again(verdict, event, rest, "a verdict on the whole window")
        return add_material(verdict, case, known)


def _describe_rest(event: Event, until_us: int) -> str:
    """Return what a first window lacks and when it comes; '' for a whole one, and if the rest never came."""
    whole_us, now_us = uploads.find_whole_end(event.time_us, event.until_us), times.now_us()
    if until_us >= whole_us or now_us > whole_us + REST_US:
        return ""
    end, whole, at = map(times.format_instant, (until_us, whole_us, whole_us + ARRIVAL_US))
    return f"the rest of the window, {end} to {whole}, which follows at about {at}"


@contextlib.contextmanager
def _evidence(request: Request) -> Iterator[Request]:
    """Yield the request; that for a bundle with its data home, its event and the end of its window."""
    if request.bundle is None:
        yield request
        return
    with bundles.open_temporarily(request.bundle) as opened:
        assert opened.home is not None
        event_id = (request.event_id == LAST and opened.header.event) or request.event_id
        until_us = opened.header.end_us
        yield dataclasses.replace(request, home=opened.home, event_id=event_id, until_us=until_us)


def choose_event(home: pathlib.Path, event_id: str = LAST, host: str = "") -> Event | None:
    """Return the event of that id; `last`: the last that is at least a warning, or None."""
    hosts = events.resolve_hosts(home, (host,) if host else ())
    if event_id != LAST:
        return events.find_event(home, event_id, hosts)
    return choose_worst(rings.Reader(home).events(0, events.EVER, hosts))


def choose_worst(stored: Iterable[Event]) -> Event | None:
    """Return the worst event of the last incident, or None where no event is at least a warning."""
    serious = [event for event in stored if _is_serious(event)]
    last = max((event.time_us for event in serious), default=0)
    incident = [event for event in serious if last - event.time_us <= INCIDENT_US]
    return max(incident, key=_rank, default=None)


def _is_serious(event: Event) -> bool:
    return Severity.of(event.severity).rank > Severity.INFO.rank


def _rank(event: Event) -> tuple[int, float, int]:
    """Rank the events of one incident: the worst of them, and the one closest to what users felt."""
    damage = knowledge.known().damage(event.kind)
    return Severity.of(event.severity).rank, damage, event.time_us


def make_reported(home: pathlib.Path, host: str, reported: Reported) -> Event:
    """Return the event of an incident that was not recorded as one; store it only if asked to."""
    hosts = events.resolve_hosts(home, (host,) if host else ())
    if len(hosts) > 1:
        raise errors.UsageError(
            "--at needs a host",
            why=f"{len(hosts)} hosts are recorded: {', '.join(hosts[: events.MAX_KNOWN])}",
            todo="name it: --host NAME",
        )
    text = reported.text or "an incident that was reported, not recorded"
    event = added_events.make_event(
        {"kind": reported.kind, "at": reported.at, "host": hosts[0], "core": reported.core, "text": text}
    )  # fmt: skip
    if reported.save:
        added_events.add(home, [event])
    return event


def diagnose_event(
    home: pathlib.Path,
    event: Event | None,
    *,
    known: knowledge.Knowledge | None = None,
    ask_fleet: AskFleet | None = None,
    within: Window | None = None,
    on_answer: OnAnswer = lambda _: None,
) -> tuple[Verdict, cases.Case | None]:
    """Return the verdict on one event, and the case it was reached on."""
    if event is None:
        return _advise_while_recording(decision.decide(None, ()), home), None
    case = cases.Case(home, event, within)
    answers = foreign_agents.add_evidence(
        case, run_detectors(case, discover_detectors(), on_answer)
    )
    of_fleet, fleet_answers = _run_fleet_detectors(case, ask_fleet, on_answer)

    def decide(around: cases.Case) -> Verdict:
        recorded = _add_pending(recording.read_recording(around), around)
        # A log that ended after the incident shows nothing of the outcome.
        if own.kernel_log is False:
            recorded = dataclasses.replace(recorded, kernel_log=False)
        findings = [finding for answer in answers for finding in answer.findings]
        checked = suspects.check_suspects(around, findings)
        every = (*answers, *fleet_answers)
        return decision.decide(event, every, recorded, known, of_fleet, checked)

    own = recording.read_recording(case)
    verdict = decide(case)
    if case.outcome and verdict.status is not VerdictStatus.CAUSE_FOUND:
        incidents = [cases.Case(home, each, within, event) for each in choose_incidents(case)]
        if incidents:
            # Without a cause of its own, it leads to what happened before.
            looked = [
                foreign_agents.add_evidence(each, run_detectors(each, discover_detectors()))
                for each in incidents
            ]
            answers = decision.merge_answers((*looked, answers))
            verdict = decide(incidents[0])
            if verdict.chain or verdict.alternatives:
                case = incidents[0]
            else:  # neither leads to it: what matters is how well its own time was recorded
                verdict = decide(case)
    return _advise_while_recording(verdict, home, case), case


def choose_incidents(case: cases.Case) -> tuple[Event, ...]:
    """Return the worst event of each incident that an outcome falls into, the worst first; each is about another place."""
    at_us, known = case.event.time_us, knowledge.known()
    by_place: dict[object, Event] = {}
    for event in sorted(
        case.events(Window(at_us - REACH_US, at_us + LATE_US)), key=_rank, reverse=True
    ):
        is_state = event.until_us - event.time_us >= cases.STATE_US
        if (
            _is_serious(event)
            and known.damage(event.kind)
            and not is_state
            and not is_outcome(event.kind)
        ):
            device = event.fields.get("interface") or event.fields.get("device")
            by_place.setdefault(device or (event.known_core, event.process), event)
    return tuple(by_place.values())[:MAX_INCIDENTS]


def _advise_while_recording(
    verdict: Verdict, home: pathlib.Path, case: cases.Case | None = None
) -> Verdict:
    """Advise to wait for stacks that are being written; a recording that runs needs no command to start it."""
    ring, now_us = rings.Reader(home), times.now_us()
    extents = filter(None, map(ring.extent, ring.hosts()))
    if all(last_us < now_us - RUNNING_US for _, last_us in extents):
        return verdict
    verdict = _drop_recording(verdict)
    writing = open_segment.read_open(home)
    if case is None or writing is None or not writing.holds(case.window):
        return verdict
    # These stacks are being recorded already.
    steps = tuple(step for step in verdict.next if str(writing) not in step.what)
    verdict = dataclasses.replace(verdict, next=steps)
    return _advise_again(verdict, case.event, str(writing), "a verdict with these stacks")


def _drop_recording(verdict: Verdict) -> Verdict:
    """Leave out the command that starts a recording."""
    steps = tuple(
        dataclasses.replace(step, command="") if step.command == narrative.RECORD else step
        for step in verdict.next
    )
    text = verdict.narrative
    if text.todo_command == narrative.RECORD:
        text = dataclasses.replace(text, todo_command="")
    return dataclasses.replace(verdict, next=steps, narrative=text)


def _advise_again(verdict: Verdict, event: Event, why: str, expect: str) -> Verdict:
    """Make a later diagnosis the first step."""
    what, command, text = (
        f"Diagnose again: {why}",
        f"overnight diagnose {event.id}",
        verdict.narrative,
    )
    if text.todo:
        text = dataclasses.replace(text, todo=f"{what}.", todo_command=command)
    steps = (Step(what, command, expect), *verdict.next)
    return dataclasses.replace(verdict, next=steps, narrative=text)


def _add_pending(recorded: completeness.Recording, case: cases.Case) -> completeness.Recording:
    """Add raw segments of the incident window that were not ingested as a reason for missing stacks."""
    folder, count = spool_paths.spool_folder(case.home), 0
    for path in spool_ingest.find_pending(folder) if folder.is_dir() else ():
        name, end_us = perf.parse_segment_name(path.name), path.stat().st_mtime_ns // 1000
        if name is not None and name.host == case.host and end_us >= case.window.begin_us:
            count += name.start_ns // 1000 < case.window.end_us
    writing = open_segment.read_open(case.home)
    reasons = []
    if writing is not None and writing.holds(case.window):
        reasons.append(str(writing))
    if count:
        what = plural(count, "raw segment")
        is_running = "the recording that runs does so within seconds"
        how = is_running if writing else "`overnight store ingest`"
        reasons.append(f"{what} not ingested: {how}")
    if not reasons or recorded.stacks is None:
        return recorded
    gaps = [(case.window.begin_us, case.window.end_us, why) for why in reasons]
    stacks = dataclasses.replace(recorded.stacks, gaps=(*recorded.stacks.gaps, *gaps))
    return dataclasses.replace(recorded, stacks=stacks)


def add_material(
    verdict: Verdict, case: cases.Case | None, known: knowledge.Knowledge | None = None
) -> Diagnosis:
    material = report_material.gather(case, verdict, known) if case else diagnosis.EMPTY
    return Diagnosis(verdict, material)


def discover_detectors() -> tuple[detectors.Detector, ...]:
    """Return every detector of one host: those that modules list in DETECTORS."""
    return _list_detectors(app.discover(detectors))


def discover_fleet_detectors() -> tuple[fleet.FleetDetector, ...]:
    return _list_detectors(app.discover(fleet))


def _list_detectors(modules: tuple[types.ModuleType, ...]) -> tuple[Any, ...]:
    return tuple(detector for module in modules for detector in getattr(module, "DETECTORS", ()))


def _run_fleet_detectors(
    case: cases.Case, ask_fleet: AskFleet | None, on_answer: OnAnswer
) -> tuple[dict[str, object], tuple[Answer, ...]]:
    if ask_fleet is None:
        hosts = len(case.ring.hosts())
        if hosts < FLEET_HOSTS:
            return {}, ()
        answers = tuple(run_detectors(case, discover_fleet_detectors(), on_answer))
    else:
        try:
            found = ask_fleet(case.event.kind)
            hosts, answers = found.hosts, found.answers
        except errors.OvernightError as error:  # the verdict does not wait for the fleet
            hosts, answers = 0, (_failed(FLEET, error),)
        for answer in answers:
            on_answer(answer)
    summaries = [finding.summary for answer in answers for finding in answer.findings]
    return {"hosts": hosts, "findings": summaries} if hosts >= FLEET_HOSTS else {}, answers


def run_detectors(
    case: cases.Case,
    selected: Sequence[detectors.Detector],
    on_answer: OnAnswer = lambda _: None,
) -> Iterator[Answer]:
    """Yield the answer of each detector; a failure is an answer, too."""
    for detector in selected:
        answer = run_guarded(detector.name, functools.partial(_look, detector, case))
        on_answer(answer)
        yield answer


def _look(detector: detectors.Detector, case: cases.Case) -> Answer:
    return own_load.set_apart(case, detector.look(case))


def run_guarded(name: str, ask: Callable[[], Answer]) -> Answer:
    """Return the answer of a detector, failed where it raises."""
    try:
        return ask()
    except errors.OvernightError as error:  # evidence that cannot be read
        return _failed(name, error)
    except Exception as error:  # a bug in one must not hide the answers of the others
        return Answer(name, Status.FAILED, why=f"{type(error).__name__}: {error}")


def _failed(name: str, error: errors.OvernightError) -> Answer:
    return Answer(name, Status.FAILED, why=f"{error.what}: {error.why}")
