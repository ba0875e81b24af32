"""Reservations as text for people, and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.interfaces.cli import local_time, session, suggestions, terminal
from overnight.model import times
from overnight.model.reservation import CheckState, Reservation, ReservationState
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.app import reservations as use_cases
    from overnight.model.reservation import Preflight

FINISHED = ReservationState.RELEASED


def progress(current: session.Session) -> Callable[[str], None]:
    """Return a function that prints what a reservation does, on standard error; not the same line twice."""
    notes, shown = current.notes(), set[str]()

    def note(text: str) -> None:
        if text not in shown:
            shown.add(text)
            terminal.print_line(notes, text, "dim")

    return note


def plan(current: session.Session, planned: Preflight) -> int:
    """Print what a reservation would do; the exit code is 3 if it cannot be made."""
    enough = len(planned.hosts) >= planned.order.wanted
    code = errors.ExitCode.DONE if enough else errors.ExitCode.CANNOT
    if current.printed_json(planned):
        return code
    for each in planned.hosts:
        host = each.host
        facts = (f"{name} {value}" for name, value in host.facts.items())
        about = ", ".join(filter(None, (host.zone, host.instance_type, *facts)))
        terminal.echo(f"{host.name}  {about}".rstrip())
        for work in each.workloads:
            what = f"{work.kind} {work.name}".strip()
            fate = f"stays: {work.stays}" if work.stays else "is evicted"
            blocked = f", blocked now: {work.blocked}" if work.blocked else ""
            terminal.echo(f"  {what} {fate}{blocked}")
        for label, texts in (
            ("disrupts", each.disrupts),
            ("warning", each.warnings),
            ("differs", each.differences),
        ):
            for text in texts:
                terminal.echo(f"  {label}: {text}")
    for name, why in planned.left_out.items():
        terminal.echo(f"left out: {name}: {why}")
    if enough:
        terminal.echo(f"would reserve {plural(len(planned.hosts), 'host')}; nothing was changed")
    else:
        terminal.echo(f"only {len(planned.hosts)} of {planned.order.wanted} hosts can be reserved; nothing was changed")  # fmt: skip
    return code


def _ends(reservation: Reservation) -> str:
    if reservation.state is FINISHED:
        return "-"
    left = (reservation.until_us - times.now_us()) / 1e6
    return f"in {times.format_duration(left)}" if left > 0 else "expired"


def _document(listed: tuple[Reservation, ...], **more: Any) -> dict[str, Any]:
    documents = [each.as_json() for each in listed]
    return {"schema": "overnight.reservations/1", "reservations": documents, **more}


def listing(current: session.Session, listed: tuple[Reservation, ...]) -> None:
    if current.printed_json(_document(listed)):
        return
    rows = []
    for each in listed:
        order, shown = each.order, each.hosts if each.state is FINISHED else each.open
        names = ", ".join(host.name for host in shown)
        notes = each.reason or order.purpose
        rows.append([each.id, each.state, _ends(each), order.provider, order.owner, names, notes])
    headings = ("reservation", "state", "ends", "provider", "owner", "hosts", "notes")
    terminal.echo_columns(headings, rows, "no reservations")


def report(current: session.Session, shown: use_cases.Report) -> int:
    """Print a reservation; the exit code is 1 if a check of it failed."""
    code = errors.ExitCode.FOUND if shown.failed else errors.ExitCode.DONE
    shown = suggestions.complete_values(shown)
    if current.printed_json(shown):
        return code
    this = shown.reservation
    until = local_time.format_instant(this.until_us)
    terminal.echo(f"{this.id}  {this.state}  until {until}  {this.order.provider} {this.order.where}".rstrip())  # fmt: skip
    if this.reason:
        terminal.echo(f"  {this.reason}")
    for host in this.hosts:
        agent = f", agent {host.agent}" if host.agent else ""
        terminal.echo(f"  {host.name}  {host.state}{agent}")
        if host.detail:
            terminal.echo(f"    {host.detail}")
        for check in host.checks:
            terminal.echo(f"    {check.state:8} {check.name}  {check.detail}".rstrip())
            if check.state is not CheckState.PASSED and check.advice:
                terminal.echo(f"             do: {check.advice}")
    for event in shown.events:
        at = local_time.short(event.at_us)
        terminal.echo(f"  {at}  {event.kind}  {event.host}  {event.detail}".rstrip())
    if this.state is ReservationState.ACTIVE:
        terminal.echo(f"give it back: `overnight release {this.id}`")
    return code


def released(
    current: session.Session, gone: tuple[Reservation, ...], marks: use_cases.Cleaning | None
) -> int:
    """Print what was released; the exit code is 3 if something is left."""
    left = [each for each in gone if each.state is not FINISHED]
    problems = marks.problems if marks else ()
    code = errors.ExitCode.CANNOT if left or problems else errors.ExitCode.DONE
    removed = {"marks": marks.as_json()["marks"]} if marks else {}
    if current.printed_json(_document(gone, **removed)):
        return code
    for each in gone:
        names = ", ".join(host.name for host in each.hosts)
        terminal.echo(f"{each.id}  {each.state}  {names}")
        for host in each.open:
            terminal.echo(f"  {host.name} is still marked: {host.detail}")
    if marks:
        _print_marks(marks)
    if not gone and not marks:
        terminal.echo("no reservations")
    return code


def cleaning(current: session.Session, done: use_cases.Cleaning) -> int:
    """Print what a janitor did; the exit code is 3 if a host could not be released."""
    code = errors.ExitCode.CANNOT if done.problems else errors.ExitCode.DONE
    if not current.printed_json(done):
        _print_marks(done)
    return code


def _print_marks(done: use_cases.Cleaning) -> None:
    for mark in done.marks:
        held = mark.held
        if mark.problem:
            what = f"not released: {mark.problem}"
        elif mark.why:
            what = f"{'released' if mark.released else 'would be released'}: {mark.why}"
        elif held.lease:
            what = f"left: reserved until {local_time.format_instant(held.lease.until_us)}"
        else:
            what = "left until it is a day old: its record is not valid"
        terminal.echo(f"{held.host}  {held.id}  {what}")
    if not done.marks:
        terminal.echo("no marks")
