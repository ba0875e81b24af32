"""Texts of all formats of an investigation's report. Names from hosts are cleaned where they are written."""

from __future__ import annotations

import re
import shlex
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from overnight.detectors.fleet import arms
from overnight.model import times
from overnight.model.investigation import Answer, ArmRun, Investigation, Outcome
from overnight.model.protocol import TaskKind
from overnight.model.reservation import CheckState, HostState
from overnight.model.text import fraction, host_time, percent, plural, rounded
from overnight.model.verdict import Narrative, Part, Verdict, VerdictStatus
from overnight.queries import contrast, rates

if TYPE_CHECKING:
    from overnight.reports import investigation as package

EXPERIMENT = "experiment"
REFUTED = "None because of this verdict: an experiment refutes its cause."
CAUSE = "Cause found: "
OUTCOMES = {
    rates.Outcome.FELL: "lower rate",
    rates.Outcome.ROSE: "higher rate",
    rates.Outcome.UNCHANGED: "no large difference",
    rates.Outcome.CANNOT_TELL: "cannot tell",
    rates.Outcome.NO_EVENTS: "no events",
}
TRENDS = {
    **OUTCOMES,
    rates.Outcome.FELL: "falls with the dose",
    rates.Outcome.ROSE: "rises with the dose",
    rates.Outcome.UNCHANGED: "no large effect",
}
ANSWERS = {
    Answer.CONFIRMED: "confirmed by an experiment",
    Answer.REFUTED: "refuted by an experiment",
    Answer.UNDECIDED: "experiment undecided",
}
FAILED = ("failed", "refused", "expired")


def rank(verdict: Verdict) -> tuple[bool, float]:
    """Order verdicts: a cause before none, then the highest confidence."""
    return verdict.status is VerdictStatus.CAUSE_FOUND, verdict.confidence


def find_leading(report: package.Report) -> Verdict | None:
    """Return the verdict that an experiment tested, else the best one."""
    event = find_leading_event(report)
    return next((each.verdict for each in report.diagnosed if each.occurrence.event == event), None)


def find_leading_event(report: package.Report) -> str:
    experiment = report.investigation.experiment
    tested = experiment.event if experiment else ""
    known = [(each.occurrence.event, each.verdict) for each in report.diagnosed if each.verdict]
    best = max(known, key=lambda pair: (pair[0] == tested, *rank(pair[1])), default=None)
    return best[0] if best else ""


def is_refuted(run: Investigation) -> bool:
    return run.experiment is not None and run.experiment.answer is Answer.REFUTED


def headline(report: package.Report) -> str:
    run, verdict, missed = report.investigation, find_leading(report), report.not_reproduced
    kinds = ", ".join(report.contrast.kinds)
    if run.outcome is Outcome.FAILED:
        return f"Failed: {run.reason or 'no arm could be observed'}"
    if run.outcome is Outcome.NOT_REPRODUCED:
        where = f" in {host_time(missed.host_hours)} of the {missed.arm} arm" if missed else ""
        return f"Did not reproduce: no {kinds}{where}"
    lead = "Reproduced" if run.outcome is Outcome.REPRODUCED else "Not finished"
    answer = f", {ANSWERS[run.experiment.answer]}" if run.experiment else ""
    if verdict is None:
        return f"{lead}{answer}: {kinds}; no verdict"
    text = verdict.narrative.headline
    if is_refuted(run):
        return f"{lead}, cause not found; an experiment refutes this one: {text.removeprefix(CAUSE)}"  # fmt: skip
    if verdict.status is VerdictStatus.CAUSE_FOUND:
        return f"{lead}, cause found{answer}: {text.removeprefix(CAUSE)}"
    return f"{lead}{answer}: {text}"


def parts(report: package.Report) -> tuple[Part, ...]:
    """Return the answer in labelled parts: what came, why, what to change."""
    run, verdict = report.investigation, find_leading(report)
    narrative = verdict.narrative if verdict else Narrative()
    cause = narrative.root_cause or narrative.headline
    sure = f" (confidence {verdict.confidence:.2f})" if verdict and verdict.confidence else ""
    change = narrative.fix or narrative.todo, narrative.fix_command or narrative.todo_command
    every = (
        Part("Events", _sum_events(report)),
        Part("Cause", f"{cause}{sure}"),
        Part("Mechanism", narrative.mechanism),
        Part("Change", *((REFUTED, "") if is_refuted(run) else change)),
        *_compare_arms(report),
        Part("Experiment", format_experiment(report)),
        Part("Rate", format_missed(report)),
        Part("Next plan", format_next_plan(report), next_command(report)),
        Part("Hosts", format_hosts(report)),
        Part("Stopped", run.reason if run.outcome is not Outcome.FAILED else ""),
    )
    return tuple(part for part in every if part.text)


def _sum_events(report: package.Report) -> str:
    by_kind: dict[str, list[str]] = {}
    for row in report.contrast.arms:
        if row.rate:
            text = f"{row.rate.events} in the {row.arm} arm ({host_time(row.host_hours)})"
            by_kind.setdefault(row.kind, []).append(text)
    return "; ".join(f"{kind}: {', '.join(texts)}" for kind, texts in by_kind.items())


def _compare_arms(report: package.Report) -> Iterator[Part]:
    """Yield a part for each comparison of arms with events; only the first has a label."""
    pairs = [p for p in report.contrast.pairs if p.compared.outcome is not rates.Outcome.NO_EVENTS]
    for number, pair in enumerate(pairs):
        yield Part("" if number else "Arms", format_pair(pair, report.contrast.unit))


# --- arms


def format_rate(row: contrast.ArmRate) -> str:
    """Return the rate with its interval: `0.13 (0.026 to 0.37)`."""
    if row.rate is None:
        return "not observed"
    return f"{rounded(row.rate.rate)} ({rounded(row.rate.low)} to {rounded(row.rate.high)})"


def format_ratio(ratio: float | None) -> str:
    return "∞" if ratio is None else rounded(ratio)


def format_interval(low: float | None, high: float | None) -> str:
    return f"{rounded(low or 0.0)} to {format_ratio(high)}"


def format_pair(pair: contrast.Pair, unit: str) -> str:
    both = pair.compared
    return (
        f"{pair.arm} against {pair.base}, {pair.kind}: {OUTCOMES[both.outcome]}; {rounded(both.after.rate)} against "
        f"{rounded(both.before.rate)} per {unit.removesuffix('s')}, ratio {format_ratio(both.ratio)} "
        f"({100 * both.confidence:.3g} % interval {format_interval(both.ratio_low, both.ratio_high)})"
    )


def list_caveats(pair: contrast.Pair) -> str:
    both, caveats = pair.compared, list[str]()
    if both.outcome is rates.Outcome.NO_EVENTS:
        return ""
    if pair.is_confounded:
        caveats.append("different hosts, too few to tell the arm from the host: swap the arms, or reserve more")  # fmt: skip
    elif both.is_chance and both.p_hosts is not None:
        caveats.append(f"hosts assigned to arms at random differ as much in {percent(both.p_hosts)} of cases")  # fmt: skip
    if pair.same_hosts:
        caveats.append("each host is compared with itself; other changes between arms count too")
    if both.dispersion > 1.5:
        caveats.append(f"bursts: {both.dispersion:.1f} events count as one")
    return "; ".join(caveats)


def name_dose(dose: str) -> str:
    return arms.DOSES.get(dose, dose)


def format_dose(name: str, value: float) -> str:
    if name.endswith("_s"):
        return times.format_duration(value)
    return percent(value) if name == "load" else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def format_trend(trend: contrast.Trend) -> str:
    if not trend.can_tell or trend.p is None:
        return trend.why
    ratio = format_interval(trend.low, trend.high)
    why = f"; {trend.why}" if trend.why else ""
    return f"ratio {ratio} from the lowest to the highest dose; p = {fraction(trend.p)}{why}"


def explain_no_trend(report: package.Report) -> str:
    """Return why no dose can be judged; '' if one can, or nothing happened."""
    trends = [trend for trend in report.contrast.trends if trend.has_events]
    if not trends or any(trend.can_tell for trend in trends):
        return ""
    hosts = len({point.host for trend in trends for point in trend.points})
    seen = f"{plural(hosts, 'host')} {'was' if hosts == 1 else 'were'} observed"
    return f"No dose can be judged: {seen}. {contrast.NEEDED_HOSTS.capitalize()}."


# --- experiment, and an event that did not come


def format_experiment(report: package.Report) -> str:
    run = report.investigation.experiment
    if run is None:
        return ""
    why = f" ({run.why})" if run.why else ""
    undone = "is undone" if run.undone else "is NOT undone"
    return (
        f"{run.answer}: {run.says or 'no result'}. Change: {run.change}{why}; the change {undone}."
    )


def format_missed(report: package.Report) -> str:
    missed = report.not_reproduced
    if missed is None:
        return ""
    hours = missed.hours_per_event
    if hours is None:
        return "No host was observed, so no rate can be excluded."
    more = f" The next plan observes {host_time(missed.next_host_hours)}." if missed.next_host_hours else ""  # fmt: skip
    return (
        f"The event is rarer than once in {host_time(hours)} ({missed.missed_rate:.3g} per host-hour), with 95 % confidence: "
        f"{host_time(missed.host_hours)} were observed without it.{more}"
    )


def format_next_plan(report: package.Report) -> str:
    """Return what the next plan changes."""
    missed = report.not_reproduced
    if missed is None:
        return ""
    return "; ".join(missed.changes) or "the budget does not allow a longer night: raise budget.hours or budget.money"  # fmt: skip


def next_command(report: package.Report) -> str:
    return f"overnight run {shlex.quote(report.next_plan)}" if report.next_plan else ""


# --- hosts


def format_hosts(report: package.Report) -> str:
    hosts = [host for each in report.reservations for host in each.hosts]
    if not hosts:
        return ""
    held = [host.name for host in hosts if host.state is not HostState.RELEASED]
    rest = f"; still held: {', '.join(held)}" if held else ""
    return f"{len(hosts) - len(held)} of {plural(len(hosts), 'host')} given back{rest}"


def all_arms(run: Investigation) -> Iterator[tuple[str, ArmRun]]:
    """Yield every arm with its name, the experiment's last."""
    yield from ((str(arm.kind), arm) for arm in run.arms)
    if run.experiment:
        yield EXPERIMENT, run.experiment.arm


def list_checks(report: package.Report) -> Iterator[tuple[str, str, str, str]]:
    """Yield host, state, the checks that passed, and those that did not: such as a foreign workload."""
    for host in (host for reservation in report.reservations for host in reservation.hosts):
        state = "given back" if host.state is HostState.RELEASED else str(host.state)
        passed = [check.name for check in host.checks if check.state is CheckState.PASSED]
        others = [
            f"{check.name} {check.state}" + (f": {check.detail}" if check.detail else "")
            for check in host.checks
            if check.state is not CheckState.PASSED
        ]
        others += [host.detail] if host.detail else []
        yield host.name, state, ", ".join(passed) or "none", "; ".join(others) or "-"


def list_constancy(report: package.Report) -> Iterator[tuple[str, str, str]]:
    """Yield arm, host, and whether its load was constant; with the figures where the host has them."""
    for name, arm in all_arms(report.investigation):
        details = {task.host: task.detail for task in arm.tasks if task.kind == TaskKind.LOAD}
        for host, status in arm.constancy.items():
            detail = details.get(host, "")
            yield name, host, detail if detail.startswith(status) else status


def list_limits(report: package.Report) -> Iterator[str]:
    """Yield what is missing or failed, and why."""
    for name, arm in all_arms(report.investigation):
        if arm.note:
            yield f"{name} arm: {arm.note}"
        for task in arm.tasks:
            # The conditions have these.
            if task.kind == TaskKind.INSTRUMENT or (task.kind == TaskKind.LOAD and task.host in arm.constancy):  # fmt: skip
                continue
            # A task that the end of its arm stopped is reported as failed.
            if task.state in FAILED and not task.detail.startswith("stopped by"):
                what, why = f"{task.kind} {task.name}".strip(), task.detail.partition("\n")[0]
                yield f"{name} arm, {task.host}: {what} {task.state}: {why}"
    for row in report.contrast.arms:
        if row.rate is None:
            yield f"{row.arm} arm: no host was observed, so {row.kind} has no rate"
    yield from report.problems


def shorten_path(address: str, folder: str) -> str:
    """Return an address; the path of a file in the folder of the report relative to it."""
    return address.removeprefix(f"{folder}/") if folder else address


def link(address: str, folder: str = "") -> str:
    """Return a link that cannot be a script: an http address, or a path with everything else quoted.

    >>> link("javascript:alert(1)"), link("/n/verdicts/a b.html", "/n")
    ('javascript%3Aalert%281%29', 'verdicts/a%20b.html')
    """
    if re.match(r"https?://[^\s\"'<>]+\Z", address):
        return address
    # Two slashes at the begin would name a server.
    path = re.sub(r"\A[/\\]+", "/", address)
    return urllib.parse.quote(shorten_path(path, folder), errors="replace")
