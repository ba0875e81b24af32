"""The final report of an investigation: gather the evidence of its arms, diagnose with it, and write the files.

On this machine the evidence is in the data home of the investigation; on a server it is in the fleet's tables, and
`diagnose` reads the window that a host has uploaded.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import io
import json as jsons
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from overnight import errors
from overnight.app import diagnose as diagnoses
from overnight.app import fleet_questions, report_files, windows
from overnight.detectors.fleet import arms as arm_detector
from overnight.investigations import plan_file
from overnight.model import decoding, files, times
from overnight.model.event import Event
from overnight.model.investigation import ArmRun, Investigation, Occurrence, Outcome
from overnight.model.plan import ArmPlan
from overnight.model.selection import Window
from overnight.model.severity import Severity
from overnight.model.text import printable
from overnight.queries import contrast, diff, not_reproduced, top
from overnight.reports import investigation as reports
from overnight.reports.investigation import html, json, text, wording
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.model.fleet import Fleet, Host
    from overnight.model.investigation import Note
    from overnight.model.reservation import Reservation
    from overnight.model.verdict import Verdict
    from overnight.queries import reader

MAX_KINDS = 6
MAX_ROWS = 15  # of processes that changed
MAX_PROCESSES = 1000  # of an arm: one that is left out would read as 0 %
RUN_FILE = "investigation.json"
ANY = "warning"  # the row of arms in which nothing happened, of any kind
CORES = "cores"  # among the doses: not one, but what makes hours core-hours
_Part = TypeVar("_Part")
# The verdict on an event with what the arms say, or None where its evidence is not here.
Diagnose = Callable[[Occurrence, diagnoses.AskFleet | None], "diagnoses.Diagnosis | None"]


@dataclasses.dataclass(frozen=True)
class Paths:
    html: pathlib.Path
    json: pathlib.Path
    text: pathlib.Path
    next_plan: pathlib.Path | None = None
    verdicts: tuple[pathlib.Path, ...] = ()


def write(
    run: Investigation,
    fleet: Fleet,
    home: pathlib.Path,
    *,
    reservations: Sequence[Reservation] = (),
    notes: Sequence[Note] = (),
    diagnose: Diagnose | None = None,
) -> Paths:
    """Write the report as HTML, JSON and text, the verdicts it links to, and the next plan; repeatable.

    `home` is the data home of this investigation, `fleet` its hosts with their events.
    """
    diagnose = diagnose or functools.partial(diagnose_here, run, home)

    def write_to(page: pathlib.Path, *problems: str) -> Paths:
        files.make_folder(page.parent)
        report = gather(run, fleet, home, diagnose=diagnose, page=page)
        return _write(
            dataclasses.replace(
                report,
                problems=(*problems, *report.problems),
                reservations=tuple(reservations),
                notes=tuple(notes),
                folder=str(page.parent),
            ),
            home,
            page,
        )

    # The plan of a client must not choose where a server writes.
    own = pathlib.Path(run.plan.report if run.plan.is_local else "")
    if not own.name:
        return write_to(home / "report.html")
    if not (why := report_files.find_obstacle(own)):
        try:
            return write_to(own)
        except OSError as error:  # the night must not be lost
            why = errors.reason(error)
    return write_to(home / "report.html", f"the report is not in {own}: {why}")


def _write(report: reports.Report, home: pathlib.Path, page: pathlib.Path) -> Paths:
    following, run = None, report.investigation
    if missed := report.not_reproduced:
        following = report_files.next_plan(page)
        plan = plan_file.dump(missed.next_plan, "\n".join(map(printable, missed.changes)))
        files.write_atomically(following, plan)
        name = str(following) if run.plan.is_local else following.name
        report = dataclasses.replace(report, next_plan=name, next_plan_text=plan)
    if run.plan.is_local:
        save_run(run, home, wording.find_leading_event(report))
    verdicts = tuple(page.parent / each.report for each in report.diagnosed if each.report)
    paths = Paths(page, page.with_suffix(".json"), page.with_suffix(".txt"), following, verdicts)
    for path, module in ((paths.html, html), (paths.json, json), (paths.text, text)):
        out = io.BytesIO()
        module.write(report, out)
        files.write_atomically(path, out.getvalue())
    return paths


def gather(
    run: Investigation,
    fleet: Fleet,
    home: pathlib.Path,
    *,
    diagnose: Diagnose | None = None,
    page: pathlib.Path | None = None,
) -> reports.Report:
    """Return the report; what cannot be read is among its problems. Verdicts are written beside `page`."""
    problems = [*fleet.problems]
    arms = observe(run, fleet, home, problems)
    compared = contrast.contrast(arms, find_kinds(run, arms))
    diagnosed = []
    if diagnose is not None and page is not None:
        ask = ask_arms(run, compared)
        for number, seen in enumerate(choose_occurrences(run), 1):
            path = report_files.verdict(page, number)
            write_verdict = functools.partial(_write_verdict, seen, diagnose, ask, path)
            found = _try(f"verdict on {seen.event}", write_verdict, problems)
            diagnosed.append(found or reports.Diagnosed(seen, None))
    missed = None
    if run.outcome is Outcome.NOT_REPRODUCED:
        hours = {arm.name: sum(each.hours for each in arm.hosts) for arm in arms}
        missed = not_reproduced.explain(run, hours)
    return reports.Report(
        investigation=run,
        contrast=compared,
        diagnosed=tuple(diagnosed),
        differences=tuple(_compare_profiles(run, home, problems)),
        not_reproduced=missed,
        problems=tuple(dict.fromkeys(problems)),
        written_us=times.now_us(),
    )


def _try(name: str, read: Callable[[], _Part], problems: list[str]) -> _Part | None:
    try:
        return read()
    except Exception as error:  # one part that cannot be read must not cost the report
        problems.append(f"{name}: {str(error) or type(error).__name__}")
        return None


# --- arms


def list_arms(run: Investigation) -> Iterator[tuple[str, ArmRun]]:
    """Yield the arms that were observed, the experiment's last."""
    yield from ((name, arm) for name, arm in wording.all_arms(run) if arm.began_us)


def window_of(arm: ArmRun) -> Window:
    """Return the time of an arm, until now where it still runs."""
    end = arm.ended_us or times.now_us()
    return Window(arm.began_us, max(end, arm.began_us + 1))


def observe(
    run: Investigation, fleet: Fleet, home: pathlib.Path, problems: list[str]
) -> tuple[contrast.Arm, ...]:
    """Return the hosts of each arm, cut to its time."""
    known = {host.name: host for host in fleet.hosts}
    cores = functools.cache(functools.partial(_count_cores, rings.Reader(home)))
    hosts: dict[str, list[contrast.Observed]] = {}
    for name, arm in list_arms(run):
        own = hosts.setdefault(name, [])
        for host_name in arm.hosts:
            if host_name not in known:
                problems.append(f"{name} arm: nothing was recorded of {host_name}")
                continue
            host = _add_occurrences(known[host_name], arm).cut(window_of(arm))
            doses = dict(arm.doses.get(host_name, {}))
            number = int(doses.pop(CORES, 0)) or cores(host_name)
            own.append(contrast.Observed(host, number, doses))
    return tuple(contrast.Arm(name, tuple(own)) for name, own in hosts.items())


def _add_occurrences(host: Host, arm: ArmRun) -> Host:
    """Add events that the runner saw and the tables do not have yet."""
    stored = {event.id for event in host.events}
    new = (
        Event(seen.time_us, seen.kind, host=seen.host, id=seen.event)
        for seen in arm.occurrences
        if seen.host == host.name and seen.event not in stored
    )
    return dataclasses.replace(host, events=(*host.events, *new))


def _count_cores(source: rings.Reader, host: str) -> int:
    """Return the cores that the recorder noted; 0: not known here."""
    if host not in source.hosts() or (extent := source.extent(host)) is None:
        return 0
    state = source.facts(host, "host", extent[1]).state or {}
    number = state.get("", {}).get(CORES, 0)
    return number if isinstance(number, int) else 0


def find_kinds(run: Investigation, arms: Sequence[contrast.Arm]) -> tuple[str, ...]:
    """Return the kinds that the plan waits for, or every one that is at least a warning, the most frequent first."""
    if run.plan.wait.events:
        return tuple(dict.fromkeys(run.plan.wait.events))
    events = (event for arm in arms for each in arm.hosts for event in each.host.events)
    counts = collections.Counter(e.kind for e in events if Severity.of(e.severity).rank)
    most = sorted(counts, key=lambda kind: (-counts[kind], kind))[:MAX_KINDS]
    return tuple(most) or (ANY,)


# --- verdicts


def ask_arms(run: Investigation, compared: contrast.Contrast) -> diagnoses.AskFleet:
    """Return what a diagnosis asks about other hosts: the arms.

    The usual fleet detectors are not asked: the hosts of arms were made different on purpose.
    """
    arms = dict(list_arms(run))
    planned = {arm.kind: arm for arm in run.plan.arms}
    treatments = {}
    for name, arm in arms.items():
        plan = planned.get(arm.kind, ArmPlan(kind=arm.kind))
        treatments[name] = arm_detector.Treatment(tuple(plan.age), arm.changes or plan.changes)
    if run.experiment:
        treatments[wording.EXPERIMENT] = arm_detector.Treatment(changes=(run.experiment.change,))
    hosts = {host for arm in arms.values() for host in arm.hosts}

    def ask(kind: str) -> fleet_questions.Findings:
        spans = [window_of(arm) for arm in arms.values()]
        window = Window(min(s.begin_us for s in spans), max(s.end_us for s in spans))
        answer = arm_detector.Arms().ask(compared, treatments, window, kind)
        return fleet_questions.Findings(kind, len(hosts), (answer,))

    return ask


def choose_occurrences(run: Investigation) -> tuple[Occurrence, ...]:
    """Return the last event of each kind, in the hot arm if it was there: by then its state was the oldest."""
    every = [
        ((name == "hot", name != wording.EXPERIMENT, seen.time_us), seen)
        for name, arm in list_arms(run)
        for seen in arm.occurrences
    ]
    last = {seen.kind: seen for _, seen in sorted(every, key=lambda pair: pair[0])}
    return tuple(last.values())[: report_files.MAX_VERDICTS]


def find_leading(
    run: Investigation, fleet: Fleet, home: pathlib.Path, diagnose: Diagnose
) -> tuple[Occurrence, Verdict] | None:
    """Return the event whose verdict leads the report, for an experiment to test its cause; None without evidence."""
    ask = ask_arms(run, compare_arms(run, fleet, home))
    known = [
        (seen, found.verdict)
        for seen in choose_occurrences(run)
        if (found := _try(seen.event, functools.partial(diagnose, seen, ask), []))
    ]
    return max(known, key=lambda pair: wording.rank(pair[1]), default=None)


def compare_arms(run: Investigation, fleet: Fleet, home: pathlib.Path) -> contrast.Contrast:
    arms = observe(run, fleet, home, [])
    return contrast.contrast(arms, find_kinds(run, arms))


def save_run(run: Investigation, home: pathlib.Path, leading: str = "") -> None:
    """Write what a diagnosis in the data home of an investigation has to know; `leading` is the event of the report."""
    document = {"leading": leading, "investigation": run.as_json()}
    files.make_folder(home)  # also where nothing was recorded
    files.write_atomically(home / RUN_FILE, jsons.dumps(document))


def read_run(home: pathlib.Path) -> tuple[Investigation, str] | None:
    """Return the investigation of a data home, and the event of its report."""
    try:
        document = jsons.loads((home / RUN_FILE).read_bytes())
        return decoding.decode(Investigation, document["investigation"]), str(document["leading"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def diagnose_like_report(request: diagnoses.Request) -> diagnoses.Request:
    """Return a request in the data home of an investigation as its report makes it: one arm, and what all arms say."""
    from overnight.queries import fleet

    home = request.home
    if request.within or request.bundle or request.reported or not (found := read_run(home)):
        return request
    run, leading = found
    event_id = leading if request.event_id == diagnoses.LAST and leading else request.event_id
    event = diagnoses.choose_event(home, event_id, request.host)
    arms = [window_of(arm) for _, arm in list_arms(run)]
    within = next((w for w in arms if event and event.overlaps(w.begin_us, w.end_us)), None)
    if within is None:
        return request
    ask = ask_arms(run, compare_arms(run, fleet.read_fleet(home, snapshots=False), home))
    return dataclasses.replace(request, event_id=event_id, within=within, ask_fleet=ask)


def diagnose_here(
    run: Investigation, home: pathlib.Path, seen: Occurrence, ask: diagnoses.AskFleet | None = None
) -> diagnoses.Diagnosis:
    """Diagnose an event that is recorded in the data home, by what was recorded in its arm."""
    arm = next(arm for _, arm in list_arms(run) if seen in arm.occurrences)
    return diagnoses.diagnose(
        diagnoses.Request(
            home, event_id=seen.event, host=seen.host, ask_fleet=ask, within=window_of(arm)
        )
    )


def read_windows(find: Callable[[Occurrence], pathlib.Path | None]) -> Diagnose:
    """Return how a server diagnoses: from the bundle that a host has uploaded for an event, if it has."""

    def diagnose(seen: Occurrence, ask: diagnoses.AskFleet | None) -> diagnoses.Diagnosis | None:
        if (bundle := find(seen)) is None:
            return None
        request = diagnoses.Request(bundle.parent, bundle, event_id=seen.event, ask_fleet=ask)
        return diagnoses.diagnose(request)

    return diagnose


def _write_verdict(
    seen: Occurrence, diagnose: Diagnose, ask: diagnoses.AskFleet, path: pathlib.Path
) -> reports.Diagnosed | None:
    found = diagnose(seen, ask)
    if found is None:
        return None
    out = io.BytesIO()
    found.write("html", out)
    files.write_atomically(path, out.getvalue())
    return reports.Diagnosed(seen, found.verdict, path.name)


# --- profiles


def _compare_profiles(
    run: Investigation, home: pathlib.Path, problems: list[str]
) -> Iterator[reports.ProfileDifference]:
    arms = dict(list_arms(run))
    source = _try("profiles", lambda: windows.open_reader(home), problems)
    for name, base in contrast.PAIRS:
        if source and name in arms and base in arms:
            compare = functools.partial(_diff, source, name, arms[name], base, arms[base])
            if found := _try(f"profiles of {name} and {base}", compare, problems):
                yield found


def _diff(
    source: reader.Reader, name: str, arm: ArmRun, base_name: str, base: ArmRun
) -> reports.ProfileDifference | None:
    recorded = source.catalogue.hosts()
    hosts, base_hosts = (sorted({*recorded} & {*each.hosts}) for each in (arm, base))
    if not hosts or not base_hosts:
        return None
    window, before = window_of(arm), window_of(base)
    functions = diff.diff(source, window, before, hosts=hosts, baseline_hosts=base_hosts)
    by_capacity = bool(functions.coverage.capacity and functions.baseline.capacity)

    def measure(span: Window, names: list[str]) -> dict[str, float]:
        rows = top.top(source, span, hosts=names, limit=MAX_PROCESSES).rows
        return {row.name: (row.share_of_capacity if by_capacity else row.share_of_samples) or 0.0 for row in rows}  # fmt: skip

    shares, base_shares = measure(window, hosts), measure(before, base_hosts)
    processes = [
        reports.ProcessShare(process, shares.get(process, 0.0), base_shares.get(process, 0.0))
        for process in {*shares, *base_shares}
    ]
    processes.sort(key=lambda each: (-abs(each.difference), each.name))
    return reports.ProfileDifference(name, base_name, functions, tuple(processes[:MAX_ROWS]))
