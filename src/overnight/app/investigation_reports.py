"""The final report of an investigation: gather the evidence of its arms, diagnose with it, and write the files.

On this machine the evidence is in the data home of the investigation; on a server it is in the fleet's tables, and
`diagnose` reads the window that a host has uploaded.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from overnight.app import diagnose as diagnoses
from overnight.app import fleet_questions, windows
from overnight.detectors.fleet import arms as arm_detector
from overnight.investigations import plan_file
from overnight.model import files
from overnight.model.event import Event
from overnight.model.investigation import ArmRun, Investigation, Occurrence, Outcome
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
    from overnight.queries import reader

MAX_KINDS = 6
MAX_VERDICTS = 3
MAX_CHANGES = 15
MAX_PROCESSES = 1000  # of an arm: one that is left out would read as 0 %
ANY = "any warning"  # the row of arms in which nothing happened
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
    # The plan of a client must not choose where a server writes.
    own = run.plan.report if run.plan.is_local else ""
    page = pathlib.Path(own) if own else home / "report.html"
    paths = Paths(page, page.with_suffix(".json"), page.with_suffix(".txt"))
    files.make_folder(page.parent)
    read = functools.partial(diagnose_here, run, home)
    report = gather(run, fleet, home, reservations=reservations, diagnose=diagnose or read, page=page)  # fmt: skip
    report = dataclasses.replace(report, notes=tuple(notes), folder=str(page.parent))
    if missed := report.not_reproduced:
        following = page.with_name(f"{page.stem}-next-plan.yaml")
        changes = "\n".join(map(printable, missed.changes))
        files.write_atomically(following, plan_file.dump(missed.next_plan, changes))
        report = dataclasses.replace(report, next_plan=str(following))
        paths = dataclasses.replace(paths, next_plan=following)
    for path, module in ((paths.html, html), (paths.json, json), (paths.text, text)):
        out = io.BytesIO()
        module.write(report, out)
        files.write_atomically(path, out.getvalue())
    written = (page.parent / each.report for each in report.diagnosed if each.report)
    return dataclasses.replace(paths, verdicts=tuple(written))


def gather(
    run: Investigation,
    fleet: Fleet,
    home: pathlib.Path,
    *,
    reservations: Sequence[Reservation] = (),
    diagnose: Diagnose | None = None,
    page: pathlib.Path | None = None,
) -> reports.Report:
    """Return the report; what cannot be read is among its problems. Verdicts are written beside `page`."""
    problems = [*fleet.problems]
    arms = observe(run, fleet, home, problems)
    kinds = find_kinds(run, arms)
    compared = contrast.contrast(arms, kinds)
    diagnosed = []
    if diagnose is not None and page is not None:
        ask = ask_arms(run, compared)
        for number, seen in enumerate(choose_occurrences(run), 1):
            write_verdict = functools.partial(_write_verdict, seen, diagnose, ask, page, number)
            diagnosed.append(_try("verdict on " + seen.event, write_verdict, problems) or reports.Diagnosed(seen, None))  # fmt: skip
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
        reservations=tuple(reservations),
        problems=tuple(dict.fromkeys(problems)),
        written_us=time.time_ns() // 1000,
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
    end = arm.ended_us or time.time_ns() // 1000
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
    counts: dict[str, int] = {}
    for arm in arms:
        for event in (event for each in arm.hosts for event in each.host.events):
            if Severity.of(event.severity).rank:
                counts[event.kind] = counts.get(event.kind, 0) + 1
    most = tuple(sorted(counts, key=lambda kind: (-counts[kind], kind))[:MAX_KINDS])
    return most or (ANY,)


# --- verdicts


def ask_arms(
    run: Investigation, compared: contrast.Contrast, also: diagnoses.AskFleet | None = None
) -> diagnoses.AskFleet:
    """Return what a diagnosis asks about other hosts: the arms, and `also` the rest of the fleet.

    The usual fleet detectors are not asked about the arms: their hosts were made different on purpose.
    """
    arms = list(list_arms(run))
    changed = {arm.kind: arm for arm in run.plan.arms}
    treatments = {
        name: arm_detector.Treatment(
            tuple(changed[arm.kind].age) if arm.kind in changed else (),
            arm.changes or (changed[arm.kind].changes if arm.kind in changed else ()),
        )
        for name, arm in arms
    }
    if run.experiment:
        treatments[wording.EXPERIMENT] = arm_detector.Treatment(changes=(run.experiment.change,))

    def ask(kind: str) -> fleet_questions.Findings:
        found = also(kind) if also else fleet_questions.Findings(kind, 0, ())
        spans = [window_of(arm) for _, arm in arms]
        window = Window(min(s.begin_us for s in spans), max(s.end_us for s in spans))
        answer = arm_detector.Arms().ask(compared, treatments, window, kind)
        hosts = max(found.hosts, len({host for _, arm in arms for host in arm.hosts}))
        return dataclasses.replace(found, hosts=hosts, answers=(*found.answers, answer))

    return ask


def choose_occurrences(run: Investigation) -> tuple[Occurrence, ...]:
    """Return the last event of each kind, in the hot arm if it was there: by then its state was the oldest."""
    every = [(name == "hot", seen) for name, arm in list_arms(run) for seen in arm.occurrences]
    every.sort(key=lambda pair: (pair[0], pair[1].time_us))
    last = {seen.kind: seen for _, seen in every}
    return tuple(last.values())[:MAX_VERDICTS]


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
    seen: Occurrence,
    diagnose: Diagnose,
    ask: diagnoses.AskFleet,
    page: pathlib.Path,
    number: int,
) -> reports.Diagnosed:
    found = diagnose(seen, ask)
    if found is None:
        return reports.Diagnosed(seen, None)
    out, path = io.BytesIO(), page.with_name(f"{page.stem}-verdict-{number}.html")
    found.write("html", out)
    files.write_atomically(path, out.getvalue())
    return reports.Diagnosed(seen, found.verdict, path.name)


# --- profiles


def _compare_profiles(
    run: Investigation, home: pathlib.Path, problems: list[str]
) -> Iterator[reports.ProfileDifference]:
    arms = dict(list_arms(run))
    source = _try("profiles", lambda: windows.open_reader(home), problems)
    recorded = set(source.catalogue.hosts()) if source else set()
    for name, base in contrast.PAIRS:
        if source and recorded and name in arms and base in arms:
            compare = functools.partial(_diff, source, recorded, name, arms[name], base, arms[base])
            if found := _try(f"profiles of {name} and {base}", compare, problems):
                yield found


def _diff(
    source: reader.Reader,
    recorded: set[str],
    name: str,
    arm: ArmRun,
    base_name: str,
    base: ArmRun,
) -> reports.ProfileDifference | None:
    hosts, base_hosts = (sorted(recorded & {*each.hosts}) for each in (arm, base))
    if not hosts or not base_hosts:
        return None
    window, before = window_of(arm), window_of(base)
    functions = diff.diff(source, window, before, hosts=hosts, baseline_hosts=base_hosts, limit=MAX_CHANGES)  # fmt: skip
    shares = [
        {row.name: row for row in top.top(source, span, hosts=names, limit=MAX_PROCESSES).rows}
        for span, names in ((window, hosts), (before, base_hosts))
    ]
    by_capacity = bool(functions.coverage.capacity and functions.baseline.capacity)

    def share(rows: dict[str, top.Row], process: str) -> float:
        row = rows.get(process)
        return (row.share_of_capacity if by_capacity else row.share_of_samples) or 0.0 if row else 0.0  # fmt: skip

    names = {process for rows in shares for process in rows}
    processes = [reports.ProcessShare(each, *(share(rows, each) for rows in shares)) for each in names]  # fmt: skip
    processes.sort(key=lambda each: (-abs(each.difference), each.name))
    return reports.ProfileDifference(name, base_name, functions, tuple(processes[:MAX_CHANGES]))
