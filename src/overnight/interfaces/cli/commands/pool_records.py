"""`overnight pool events`, `explain` and `cancel`."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from overnight.app import pool_documents
from overnight.interfaces.cli import (
    local_time,
    pool_options,
    pool_view,
    session,
    suggestions,
    terminal,
)
from overnight.model import stop_signals
from overnight.model.pool_explanation import Cause

if TYPE_CHECKING:
    from overnight.model.pool import PoolEvent
    from overnight.model.pool_explanation import Explanation

# After the module that creates the group.
ORDER = 54


def events(
    current: session.Session,
    where: pool_options.Pools,
    pool: str = session.argument("", "Name or id of the pool. Default: all pools.", "[POOL]"),
    recent: int = session.option(20, "Number of events to show.", "N", min=1, max=1000),
    follow: bool = session.flag("Print new events until Ctrl-C."),
) -> None:
    """List decisions of the reaper, claims and failures.

    Each decision has its reason and its numbers. A decision to launch nothing is an event when its reason changes.
    """
    if not follow:
        found = where.events(pool, recent=recent)
        if not current.printed_json(pool_documents.events_document(found)):
            rows = [_cells(event) for event in found]
            headings = (local_time.heading(), "pool", "event", "reason", "about", "detail")
            terminal.echo_columns(headings, rows, "no events")
        return
    with stop_signals.stop_on_signals() as stop:
        for event in where.follow(pool, stop, recent):
            if current.output is session.Output.JSON:
                sys.stdout.write(json.dumps(dataclasses.asdict(event)) + "\n")
                sys.stdout.flush()
            else:
                terminal.echo("  ".join(filter(None, _cells(event))))


def _cells(event: PoolEvent) -> tuple[str, ...]:
    about = " ".join(filter(None, (event.member_id, event.claim_id)))
    when = local_time.cell(event.at_us)
    return when, event.pool, event.kind, event.reason, about, pool_view.describe(event)


def explain(
    current: session.Session,
    where: pool_options.Pools,
    name: str = session.argument(
        ..., "Pool, or id of a member, a claim, or a request in the queue.", "POOL|ID"
    ),
) -> None:
    """Explain a failure: its cause, the evidence, the next command.

    With the end of the machine's console where the provider has one, also after the machine is gone.
    """
    explained = suggestions.complete_values(where.explain(name))
    if not current.printed_json(pool_documents.explanation_document(explained)):
        _print(explained)


def _print(explained: Explanation) -> None:
    pool = "" if explained.name == explained.pool else f" of pool {explained.pool}"
    cause = "no failure" if explained.cause is Cause.NONE else explained.cause
    terminal.echo(f"{explained.subject} {explained.name}{pool}: {cause}")
    terminal.echo(f"  why:  {explained.summary}")
    terminal.echo(f"  do:   {explained.todo}")
    if explained.others:
        terminal.echo(f"  also: {', '.join(explained.others)}")
    rows = [
        (local_time.cell(row.at_us), row.source, row.what, row.reason, row.detail, row.host_text.replace("\n", " "))
        for row in explained.evidence
    ]  # fmt: skip
    headings = (local_time.heading(), "source", "what", "reason", "detail", "reported text")
    if rows:
        terminal.echo(f"\nEvidence\n{terminal.columns(headings, rows, indent='  ')}", keep="\n")
    if explained.console:
        terminal.echo("\nConsole of the machine, the last lines", keep="\n")
        for line in explained.console:
            terminal.echo(f"  | {line}")
    elif explained.console_missing:
        terminal.echo(f"\nNo console: {explained.console_missing}", keep="\n")


def cancel(
    current: session.Session,
    where: pool_options.Pools,
    task: str = session.argument(..., "Task, as `overnight pool show POOL` lists it.", "TASK"),
) -> None:
    """Cancel a stalled launch, or give up a stalled teardown.

    The machine of a launch is terminated if it still appears. A member whose teardown is given up stays, with an
    alert: its machine may still run.
    """
    cancelled = where.cancel(task)
    pool_view.member(current, cancelled)
    if cancelled.abandoned_us is not None and current.output is session.Output.TEXT:
        terminal.echo(
            f"machine {cancelled.machine_id} may still run and cost money: terminate it at the provider, "
            f"then: `overnight pool terminate {cancelled.id}`"
        )


register = pool_options.commands(
    (pool_options.takes_pools(events), "events ci --follow"),
    (pool_options.takes_pools(explain), "explain m-0a1b2c3d4e5f"),
    (pool_options.takes_pools(cancel, changes=True), "cancel m-0a1b2c3d4e5f:launch"),
)
