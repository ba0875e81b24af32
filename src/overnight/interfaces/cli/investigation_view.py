"""Investigations as text for people, and as JSON."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import local_time, reservation_view, session, terminal
from overnight.model import times
from overnight.model.investigation import ArmRun, ArmState, Investigation, Outcome
from overnight.model.text import percent, plural

if TYPE_CHECKING:
    from overnight.app import investigations

CODES = {
    Outcome.NOT_REPRODUCED: errors.ExitCode.FOUND,
    Outcome.FAILED: errors.ExitCode.CANNOT,
}
Show = Callable[["investigations.Report"], None]


@contextlib.contextmanager
def progress(
    current: session.Session, begun: investigations.Report
) -> Iterator[tuple[Show, Callable[[str], None]]]:
    """Yield functions that show phase, arm and remaining time, and that print a line of the log."""
    notes, total = current.notes(), max(begun.left_s, 1.0)
    with current.progress(begun.investigation.plan.name, total) as update:

        def show(report: investigations.Report) -> None:
            now, idle = report.investigation, (ArmState.WAITING, ArmState.ENDED)
            running = [f"arm {arm.kind} {arm.state}" for arm in now.arms if arm.state not in idle]
            parts = [now.phase, *running, plural(len(report.events), "event"), _left(report)]
            update(min(total, max(0.0, total - report.left_s)), " · ".join(filter(None, parts)))

        yield show, lambda text: terminal.print_line(notes, text, "dim")


def _left(report: investigations.Report) -> str:
    return f"{times.format_duration(round(report.left_s))} left" if report.left_s else ""


def plan(current: session.Session, planned: investigations.DryRun) -> int:
    """Print what a plan would do; the exit code is 3 if its hosts cannot be reserved."""
    hosts = planned.hosts
    if current.printed_json(planned):
        enough = not planned.is_asked or len(hosts.hosts) >= hosts.order.wanted
        return errors.ExitCode.DONE if enough else errors.ExitCode.CANNOT
    for number, step in enumerate(planned.steps, 1):
        terminal.echo(f"{number}. {step}")
    terminal.echo(f"arms take at most {times.format_duration(round(planned.seconds))}")
    for label, texts in (("note", planned.notes), ("not checked", planned.unchecked)):
        for text in texts:
            terminal.echo(f"{label}: {text}")
    if planned.is_asked:
        return reservation_view.plan(current, hosts)
    terminal.echo("the plan is valid; no server was asked (--server URL), and nothing was changed")
    return errors.ExitCode.DONE


def listing(current: session.Session, listed: tuple[Investigation, ...]) -> None:
    document = {
        "schema": "overnight.investigations/1",
        "investigations": [each.as_json() for each in listed],
    }
    if current.printed_json(document):
        return
    rows = [
        [
            each.id,
            each.plan.name,
            each.phase,
            each.outcome,
            local_time.short(each.made_us),
            str(sum(len(arm.occurrences) for _, arm in each.list_arms())),
            each.owner,
            each.reason,
        ]
        for each in listed
    ]
    headings = ("investigation", "plan", "phase", "outcome", "began", "events", "owner", "notes")
    terminal.echo_columns(headings, rows, "no investigations")


def report(current: session.Session, shown: investigations.Report) -> int:
    """Print an investigation with its log; the exit code says what came out."""
    this = shown.investigation
    if not current.printed_json(shown):
        for line in _describe(shown):
            terminal.echo(line)
        for note in shown.notes:
            terminal.echo(f"  {local_time.short(note.at_us)}  {note}")
        if not this.is_ended:
            terminal.echo(f"end it: `overnight run stop {this.id}`")
    return CODES.get(this.outcome, errors.ExitCode.DONE)


def result(current: session.Session, shown: investigations.Report) -> int:
    """Print what an investigation that was followed to its end has found, and what to do next."""
    this = shown.investigation
    if not current.printed_json(shown):
        summary = shown.summary or "\n".join(_describe(shown))
        lines = ["", summary, "", f"report: {this.report or 'not written'}", "next:"]
        for line in (*lines, *(f"  {command}" for command in _next_commands(current, shown))):
            terminal.echo(line, keep="\n")
    return CODES.get(this.outcome, errors.ExitCode.DONE)


def _next_commands(current: session.Session, shown: investigations.Report) -> Iterator[str]:
    this = shown.investigation
    yield current.command(f"run status {this.id}")
    if this.next_plan:
        yield current.command(f"run {shlex.quote(str(this.next_plan))}")
    elif shown.events and shown.home:
        yield f"overnight --home {shlex.quote(str(shown.home))} diagnose {shown.events[-1].event}"
    yield current.command("run --example driver-resets > plan.yaml")


def _describe(shown: investigations.Report) -> Iterator[str]:
    this = shown.investigation
    yield f"{this.id}  {this.plan.name}  {this.phase}  {this.outcome}  {_left(shown)}".rstrip()
    if this.reason:
        yield f"  {this.reason}"
    for name, arm in this.list_arms():
        yield from _describe_arm(name, arm)
    if this.experiment is not None and this.experiment.says:
        yield f"  experiment {this.experiment.answer}: {this.experiment.says}"
    for what, path in (("report", this.report), ("next plan", this.next_plan)):
        if path:
            yield f"  {what}: {path}"


def _describe_arm(name: str, arm: ArmRun) -> Iterator[str]:
    seconds = (arm.ended_us - arm.began_us) / 1e6 if arm.began_us and arm.ended_us else 0.0
    lasted = f" after {times.format_duration(seconds)}" if seconds else ""
    hosts = ", ".join(arm.hosts) or "no host"
    yield f"  {name}  {arm.state}{lasted}  {hosts}  {plural(len(arm.occurrences), 'event')}"
    if arm.note:
        yield f"    {arm.note}"
    for host, dose in arm.doses.items():
        figures = [*_describe_dose(dose)]
        figures += [f"load constancy: {arm.constancy[host]}"] if host in arm.constancy else []
        yield f"    {host}: {', '.join(figures) or 'not measured'}"
    for event in arm.occurrences:
        yield f"    {local_time.short(event.time_us)}  {event.kind}  {event.host}  {event.event}"
        if event.headline:
            yield f"      {event.headline}"


def _describe_dose(dose: Mapping[str, float]) -> Iterator[str]:
    if "load" in dose:
        yield f"{plural(round(dose['cores']), 'core')} {percent(dose['load'])} busy"
    if "zombies" in dose:
        yield f"{dose['zombies']:,.0f} dying memory cgroups"
    if "uptime_s" in dose:
        yield f"up for {times.format_duration(round(dose['uptime_s']))}"
