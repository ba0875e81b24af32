"""Investigations as text for people, and as JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import local_time, reservation_view, session, terminal
from overnight.model import times
from overnight.model.investigation import ArmRun, ArmState, Investigation, Outcome, Phase
from overnight.model.text import plural

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
            now = report.investigation
            running = [f"arm {a.kind} {a.state}" for a in now.arms if _is_open(a)]
            parts = [now.phase, *running, plural(len(report.events), "event")]
            if report.left_s:
                parts.append(f"{times.format_duration(round(report.left_s))} left")
            update(min(total, max(0.0, total - report.left_s)), " · ".join(parts))

        yield show, lambda text: terminal.print_line(notes, text, "dim")


def _is_open(arm: ArmRun) -> bool:
    return arm.state not in (ArmState.WAITING, ArmState.ENDED)


def plan(current: session.Session, planned: investigations.DryRun) -> int:
    """Print what a plan would do; the exit code is 3 if its hosts cannot be reserved."""
    hosts = planned.hosts
    if current.printed_json(planned):
        enough = len(hosts.hosts) >= hosts.order.wanted
        return errors.ExitCode.DONE if enough else errors.ExitCode.CANNOT
    for number, step in enumerate(planned.steps, 1):
        terminal.echo(f"{number}. {step}")
    terminal.echo(f"arms take at most {times.format_duration(round(planned.seconds))}")
    return reservation_view.plan(current, hosts)


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
            str(sum(len(arm.occurrences) for arm in each.arms)),
            each.owner,
            each.reason,
        ]
        for each in listed
    ]
    headings = ("investigation", "plan", "phase", "outcome", "began", "events", "owner", "notes")
    terminal.echo(terminal.columns(headings, rows) or "no investigations", keep="\n")


def report(current: session.Session, shown: investigations.Report) -> int:
    """Print an investigation; the exit code says what came out."""
    this = shown.investigation
    code = CODES.get(this.outcome, errors.ExitCode.DONE)
    if current.printed_json(shown):
        return code
    for line in _lines(shown):
        terminal.echo(line)
    for note in shown.notes:
        at = local_time.short(note.at_us)
        terminal.echo(f"  {at}  {note.host}  {note.text}".rstrip())
    if this.phase is not Phase.ENDED:
        terminal.echo("end it: " + current.command(f"run stop {this.id}"))
    return code


def result(current: session.Session, shown: investigations.Report) -> int:
    """Print what an investigation that was followed to its end has found, and what to do next."""
    this = shown.investigation
    code = CODES.get(this.outcome, errors.ExitCode.DONE)
    if current.printed_json(shown):
        return code
    terminal.echo("")
    terminal.echo(shown.summary or "\n".join(_lines(shown)), keep="\n")
    terminal.echo("")
    for name, path in (("report", this.report), ("next plan", this.next_plan)):
        if path:
            terminal.echo(f"{name}: {path}")
    terminal.echo("next:")
    for command in _next_commands(current, shown):
        terminal.echo(f"  {command}")
    return code


def _next_commands(current: session.Session, shown: investigations.Report) -> Iterator[str]:
    this = shown.investigation
    yield current.command(f"run status {this.id}")
    if this.next_plan:
        yield current.command(f"run {this.next_plan}")
    elif shown.events and shown.home:
        yield f"overnight --home {shown.home} diagnose {shown.events[-1].event}"
    yield current.command("run --example driver-resets > plan.yaml")


def _lines(shown: investigations.Report) -> Iterator[str]:
    this = shown.investigation
    left = f"  {times.format_duration(round(shown.left_s))} left" if shown.left_s else ""
    yield f"{this.id}  {this.plan.name}  {this.phase}  {this.outcome}{left}"
    if this.reason:
        yield f"  {this.reason}"
    arms = [(f"arm {arm.kind}", arm) for arm in this.arms]
    if this.experiment is not None:
        arms.append((f"experiment {this.experiment.change}", this.experiment.arm))
    for name, arm in arms:
        lasted = f"  {times.format_duration((arm.ended_us - arm.began_us) / 1e6)}" if arm.began_us and arm.ended_us else ""  # fmt: skip
        yield f"  {name}  {arm.state}{lasted}  {', '.join(arm.hosts)}  {plural(len(arm.occurrences), 'event')}"
        if arm.note:
            yield f"    {arm.note}"
        for host, dose in arm.doses.items():
            figures = ", ".join(f"{key} {value:g}" for key, value in dose.items())
            constant = f", load {arm.constancy[host]}" if host in arm.constancy else ""
            yield f"    {host}: {figures}{constant}"
        for event in arm.occurrences:
            yield f"    {local_time.short(event.time_us)}  {event.kind}  {event.host}  {event.event}"
            if event.headline:
                yield f"      {event.headline}"
    if this.experiment is not None and this.experiment.says:
        yield f"  {this.experiment.answer}: {this.experiment.says}"
    if this.report:
        yield f"  report: {this.report}"
    if this.next_plan:
        yield f"  next plan: {this.next_plan}"
