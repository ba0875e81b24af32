"""Texts of all formats of an investigation's report. Names from hosts are cleaned where they are written."""

from __future__ import annotations

import re
import shlex
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from overnight.detectors.fleet import arms
from overnight.model import times
from overnight.model.investigation import Answer, ArmRun, Investigation, Occurrence, Outcome
from overnight.model.reservation import CheckState, HostState
from overnight.model.text import fraction, percent, plural, rounded
from overnight.model.verdict import Narrative, Part, Verdict, VerdictStatus
from overnight.queries import not_reproduced, rates

if TYPE_CHECKING:
    from overnight.queries import contrast
    from overnight.reports import investigation as package

EXPERIMENT = "experiment"
REFUTED = "Nothing because of this verdict: an experiment refutes its cause."
NO_LARGER = "the budget allows no larger one: raise budget.hours or budget.money"
DAY_H = 24.0
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
DOSES = arms.DOSES
MOVES = {
    not_reproduced.Move.LONGER: "observe longer",
    not_reproduced.Move.OLDER_HOST: "older host",
    not_reproduced.Move.HEAVIER_LOAD: "heavier load",
    not_reproduced.Move.SAME_IMAGE: "same image",
    not_reproduced.Move.SAME_NEIGHBOURS: "same neighbours",
    not_reproduced.Move.MORE_HOSTS: "more hosts",
}
ANSWERS = {
    Answer.CONFIRMED: "confirmed by an experiment",
    Answer.REFUTED: "refuted by an experiment",
    Answer.UNDECIDED: "experiment undecided",
}
FAILED = ("failed", "refused", "expired")


def leading(report: package.Report) -> package.Diagnosed | None:
    """Return the event with the best verdict: a cause before none, then the highest confidence."""
    known = [each for each in report.diagnosed if each.verdict]
    return max(known, key=lambda each: _rank(each.verdict), default=None)


def _rank(verdict: Verdict | None) -> tuple[bool, float]:
    assert verdict is not None
    return verdict.status is VerdictStatus.CAUSE_FOUND, verdict.confidence


def headline(report: package.Report) -> str:
    run, best = report.investigation, leading(report)
    kinds = ", ".join(report.contrast.kinds) or "event"
    if run.outcome is Outcome.FAILED:
        return f"Failed: {run.reason or 'no arm could be observed'}"
    if run.outcome is Outcome.NOT_REPRODUCED:
        missed = report.not_reproduced
        long = f" in {format_hours(missed.host_hours)} of the {missed.arm} arm" if missed else ""
        return f"Did not reproduce: no {kinds}{long}"
    lead = "Reproduced" if run.outcome is Outcome.REPRODUCED else "Not finished"
    answer = f", {ANSWERS[run.experiment.answer]}" if run.experiment else ""
    if best is None or best.verdict is None:
        return f"{lead}{answer}: {kinds}; no verdict"
    text = best.verdict.narrative.headline
    if run.experiment and run.experiment.answer is Answer.REFUTED:
        return (
            f"{lead}, cause not found; an experiment refutes this one: {text.removeprefix(CAUSE)}"
        )
    if best.verdict.status is VerdictStatus.CAUSE_FOUND:
        return f"{lead}, cause found{answer}: {text.removeprefix(CAUSE)}"
    return f"{lead}{answer}: {text}"


def parts(report: package.Report) -> tuple[Part, ...]:
    """Return the answer in labelled parts: what came, why, what to change."""
    run, best = report.investigation, leading(report)
    verdict = best.verdict if best else None
    narrative = verdict.narrative if verdict else Narrative()
    cause = narrative.root_cause or narrative.headline
    sure = f" (confidence {verdict.confidence:.2f})" if verdict and verdict.confidence else ""
    change = narrative.fix or narrative.todo, narrative.fix_command or narrative.todo_command
    if run.experiment and run.experiment.answer is Answer.REFUTED:
        change = REFUTED, ""
    every = (
        Part("Events", _sum_events(report)),
        Part("Cause", f"{cause}{sure}"),
        Part("Mechanism", narrative.mechanism),
        Part("Change", *change),
        *_compare_arms(report),
        Part("Experiment", format_experiment(report)),
        Part("Missed", format_missed(report)),
        Part("Next plan", _list_changes(report), next_command(report)),
        Part("Hosts", format_hosts(report)),
        Part("Stopped", run.reason if run.outcome is not Outcome.FAILED else ""),
    )  # fmt: skip
    return tuple(part for part in every if part.text)


def _compare_arms(report: package.Report) -> Iterator[Part]:
    """Yield a part for each comparison of arms with events; only the first has a label."""
    pairs = [p for p in report.contrast.pairs if p.compared.outcome is not rates.Outcome.NO_EVENTS]
    for number, pair in enumerate(pairs):
        yield Part("" if number else "Arms", format_pair(pair, report.contrast.unit))


def next_command(report: package.Report) -> str:
    return f"overnight run {shlex.quote(report.next_plan)}" if report.next_plan else ""


def _sum_events(report: package.Report) -> str:
    by_kind: dict[str, list[str]] = {}
    for row in report.contrast.arms:
        if row.rate:
            text = f"{row.rate.events} in the {row.arm} arm ({format_hours(row.host_hours)})"
            by_kind.setdefault(row.kind, []).append(text)
    return "; ".join(f"{kind}: {', '.join(texts)}" for kind, texts in by_kind.items())


def _list_changes(report: package.Report) -> str:
    missed = report.not_reproduced
    return "; ".join(missed.changes) if missed and missed.changes else ""


# --- arms


def format_rate(row: contrast.ArmRate) -> str:
    """Return the rate with its interval: `0.13 (0.026 to 0.37)`."""
    if row.rate is None:
        return "not observed"
    return f"{rounded(row.rate.rate)} ({rounded(row.rate.low)} to {rounded(row.rate.high)})"


def format_interval(low: float | None, high: float | None) -> str:
    return f"{rounded(low or 0.0)} to {'∞' if high is None else rounded(high)}"


def format_pair(pair: contrast.Pair, unit: str) -> str:
    both = pair.compared
    if both.outcome is rates.Outcome.NO_EVENTS:
        return f"{pair.arm} against {pair.base}, {pair.kind}: no events in either arm"
    ratio = "∞" if both.ratio is None else rounded(both.ratio)
    return (
        f"{pair.arm} against {pair.base}, {pair.kind}: {OUTCOMES[both.outcome]}; {rounded(both.after.rate)} against "
        f"{rounded(both.before.rate)} per {unit.removesuffix('s')}, ratio {ratio} ({100 * both.confidence:.3g} % interval "
        f"{format_interval(both.ratio_low, both.ratio_high)})"
    )


def list_caveats(pair: contrast.Pair) -> str:
    both, caveats = pair.compared, list[str]()
    if both.outcome is rates.Outcome.NO_EVENTS:
        return ""
    if pair.is_confounded:
        caveats.append(
            "different hosts, too few to tell the arm from the host: swap the arms, or reserve more"
        )
    elif both.is_chance and both.p_hosts is not None:
        caveats.append(f"hosts assigned to arms at random differ as much in {percent(both.p_hosts)} of cases")  # fmt: skip
    if pair.same_hosts:
        caveats.append("each host compared with itself; all else that changed meanwhile counts too")
    if both.dispersion > 1.5:
        caveats.append(f"bursts: {both.dispersion:.1f} events count as one")
    return "; ".join(caveats)


def format_dose(name: str, value: float) -> str:
    if name.endswith("_s"):
        return times.format_duration(value)
    return percent(value) if name == "load" else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def format_trend(trend: contrast.Trend) -> str:
    if trend.p is None or trend.smallest_p is None:
        return trend.why
    return (
        f"ratio {format_interval(trend.low, trend.high)} from the lowest to the highest dose; p = {fraction(trend.p)}"
        f" (smallest attainable {fraction(trend.smallest_p)})" + (f"; {trend.why}" if trend.why else "")
    )  # fmt: skip


# --- experiment, and an event that did not come


def format_experiment(report: package.Report) -> str:
    run = report.investigation.experiment
    if run is None:
        return ""
    undone = "; the change is undone" if run.undone else "; the change is NOT undone"
    return f"{run.answer}: {run.change}{f' ({run.why})' if run.why else ''}: {run.says or 'no result'}{undone}"


def format_missed(report: package.Report) -> str:
    missed = report.not_reproduced
    if missed is None:
        return ""
    hours = missed.hours_per_event
    if hours is None or missed.missed_rate is None:
        return "Nothing was observed, so nothing is known about the rate"
    more = f"; the next plan observes {format_hours(missed.next_host_hours)}" if missed.next_host_hours else ""  # fmt: skip
    return (
        f"An event that comes more often than once in {format_hours(hours)} ({missed.missed_rate:.3g} per host-hour) would "
        f"have come with 95 % probability; observed: {format_hours(missed.host_hours)}{more}"
    )


def format_hours(hours: float) -> str:
    """Format time summed over hosts.

    >>> format_hours(0.01), format_hours(30), format_hours(240)
    ('36 s of a host', '30 host-hours', '10 host-days')
    """
    if hours < 2:
        return f"{times.format_duration(3600 * hours)} of a host"
    return f"{rounded(hours / DAY_H)} host-days" if hours >= 2 * DAY_H else f"{rounded(hours)} host-hours"  # fmt: skip


# --- hosts


def format_hosts(report: package.Report) -> str:
    hosts = [host for each in report.reservations for host in each.hosts]
    if not hosts:
        return ""
    back = [host for host in hosts if host.state is HostState.RELEASED]
    rest = ", ".join(host.name for host in hosts if host.state is not HostState.RELEASED)
    return f"{len(back)} of {plural(len(hosts), 'host')} given back" + (f"; still held: {rest}" if rest else "")  # fmt: skip


def all_arms(run: Investigation) -> Iterator[tuple[str, ArmRun]]:
    """Yield every arm with its name, the experiment's last."""
    yield from ((str(arm.kind), arm) for arm in run.arms)
    if run.experiment:
        yield EXPERIMENT, run.experiment.arm


def list_occurrences(report: package.Report) -> list[tuple[str, Occurrence]]:
    pairs = [
        (name, seen) for name, arm in all_arms(report.investigation) for seen in arm.occurrences
    ]
    return sorted(pairs, key=lambda pair: pair[1].time_us)


def list_checks(report: package.Report) -> Iterator[tuple[str, str, str, str]]:
    """Yield host, state, the checks that passed, and those that did not: such as a foreign workload."""
    for reservation in report.reservations:
        for host in reservation.hosts:
            state = "given back" if host.state is HostState.RELEASED else str(host.state)
            passed = [check.name for check in host.checks if check.state is CheckState.PASSED]
            others = [
                f"{check.name} {check.state}" + (f": {check.detail}" if check.detail else "")
                for check in host.checks
                if check.state is not CheckState.PASSED
            ]
            others += [host.detail] if host.detail else []
            yield host.name, state, ", ".join(passed) or "none", "; ".join(others) or "-"


def list_limits(report: package.Report) -> Iterator[str]:
    """Yield what was not possible, and why."""
    for name, arm in all_arms(report.investigation):
        if arm.note:
            yield f"{name} arm: {arm.note}"
        for task in arm.tasks:
            # A task that the end of its arm stopped is reported as failed.
            if task.state in FAILED and not task.detail.startswith("stopped by"):
                what, why = f"{task.kind} {task.name}".strip(), task.detail.partition("\n")[0]
                yield f"{name} arm, {task.host}: {what} {task.state}: {why}"
    for row in report.contrast.arms:
        if row.rate is None:
            yield f"{row.arm} arm: no host was observed, so {row.kind} has no rate"
    yield from report.problems


def link(address: str, folder: str = "") -> str:
    """Return a link that cannot be a script: an http address, or a path with everything else quoted.

    >>> link("javascript:alert(1)"), link("/n/verdicts/a b.html", "/n")
    ('javascript%3Aalert%281%29', 'verdicts/a%20b.html')
    """
    if re.match(r"https?://[^\s\"'<>]+\Z", address):
        return address
    # Two slashes at the begin would name a server.
    path = re.sub(r"\A[/\\]+", "/", address)
    path = path.removeprefix(f"{folder}/") if folder else path
    return urllib.parse.quote(path, errors="replace")
