"""Pools as text for people, and as JSON."""

from __future__ import annotations

import sys
import textwrap
import threading
from typing import TYPE_CHECKING

from overnight import errors
from overnight.app import pool_documents
from overnight.interfaces.cli import local_time, session, suggestions, terminal
from overnight.model import times
from overnight.model.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from overnight.app import pools as use_cases
    from overnight.model import pool as values


def _print(text: str) -> None:
    terminal.echo(text, keep="\n")


def _age(us: int | None, now_us: int) -> str:
    """Return the time since an instant; '-' for never."""
    return "-" if us is None else times.format_duration(max(0.0, (now_us - us) / 1e6))


def _rare(details: values.PoolDetails) -> list[str]:
    counts = details.counts
    rare = ((counts.held_back, "held back"), (counts.draining, "draining"), (counts.errored, "errored"), (counts.waiting, "waiting"))  # fmt: skip
    return [f"{number} {word}" for number, word in rare if number]


def _row(details: values.PoolDetails) -> list[str]:
    counts, pool = details.counts, details.pool
    numbers = (counts.ready, counts.warming, counts.claimed, pool.target_size, pool.min_size, pool.max_size)  # fmt: skip
    notes = _rare(details)
    notes += ["autoscaled"] * (details.autoscale is not None)
    notes += ["assembling a cluster"] * pool.assembles
    notes += ["BREAKER OPEN"] * (pool.breaker_opened_us is not None)
    return [pool.name, pool.status, *map(str, numbers), ", ".join(notes)]


def _summary(details: values.PoolDetails) -> str:
    counts, pool = details.counts, details.pool
    more = "".join(f", {text}" for text in _rare(details))
    autoscaled = ", autoscaled" if details.autoscale is not None else ""
    breaker = "  BREAKER OPEN" if pool.breaker_opened_us is not None else ""
    return (
        f"{pool.name:20} {pool.status:9} {counts.ready} ready, {counts.warming} warming, {counts.claimed} claimed{more}"
        f"  (target {pool.target_size}{autoscaled}, min {pool.min_size}, max {pool.max_size}){breaker}"
    )


def pools(
    current: session.Session,
    read: Callable[[], tuple[values.PoolDetails, ...]],
    stop: threading.Event,
    every_s: float = 2.0,
) -> None:
    """Print a table of pools, and again every `every_s` seconds until `stop` is set."""
    headings = ("pool", "status", "ready", "warming", "claimed", "target", "min", "max", "notes")
    while True:
        listed = read()
        if current.output is session.Output.JSON:
            current.print_json(pool_documents.pools_document(listed))
        elif listed:
            if not stop.is_set() and sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")  # a fresh screen
            _print(terminal.columns(headings, map(_row, listed)))
        else:
            _print("no pools; create one: `overnight pool create NAME --template plain --target 5`")
        if stop.wait(every_s):
            return


def changed(current: session.Session, report: values.PoolReport, message: str) -> None:
    if not current.printed_json(pool_documents.pool_document(report)):
        _print(message)
        _print(_summary(report.details))


def show(current: session.Session, report: values.PoolReport) -> int:
    """Print everything about one pool; FOUND if there is an alert."""
    report = suggestions.complete_values(report)
    if not current.printed_json(pool_documents.pool_document(report)):
        details = report.details
        _print(_summary(details))
        if details.autoscale is not None:
            _print("")
            _print_policy(details.autoscale)
        print_problems(report.problems)
        print_contents(details)
    has_alert = any(problem.alert for problem in report.problems)
    return errors.ExitCode.FOUND if has_alert else errors.ExitCode.DONE


def print_problems(problems: Sequence[values.Problem]) -> None:
    for problem in problems:
        level = "ALERT" if problem.alert else "note"
        _print(f"\n{level}: {problem.what}\n  why: {problem.why}\n  do:  {problem.todo}")
        if problem.host_text:
            _print("  reported text: " + problem.host_text.replace("\n", " "))


def print_contents(details: values.PoolDetails) -> None:
    now = times.now_us()
    members = [
        (member.id, str(member.state), _age(member.warming_started_us, now), _age(member.beat_us, now),
         _place(member), " ".join((member.reason, *["cordoned"] * member.cordoned,
                                   *["machine missing"] * (member.missing_us is not None))).strip())
        for member in details.members
    ]  # fmt: skip
    _print_table(
        "Members", ("member", "state", "age", "last heartbeat", "address", "note"), members
    )
    tasks = [
        (member.task, _age(member.ended_us or member.warming_started_us, now), str(member.attempts or "-"))
        for member in details.members
        if member.task
    ]  # fmt: skip
    _print_table("Tasks", ("task", "pending for", "attempts"), tasks)
    _print_claims("Claims", [claim for claim in details.claims if claim.released_us is None], now)
    waiters = [
        (waiter.acquired_by or waiter.id, str(waiter.wanted), str(waiter.priority), _age(waiter.queued_us, now))
        for waiter in details.waiters
    ]  # fmt: skip
    _print_table("Queue, next first", ("caller", "wanted", "priority", "waiting for"), waiters)
    _print_events(details.events)


def _place(member: values.Member) -> str:
    return member.address if member.host is None else f"{member.address} on {member.host}".strip()


def _print_table(title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    if rows:
        _print(f"\n{title}\n{terminal.columns(headings, rows, indent='  ')}")


def _print_claims(title: str, shown: Sequence[values.Claim], now: int) -> None:
    rows = [
        (claim.id, claim.member_id, claim.acquired_by or "-", claim.acquired_for or "-", _held(claim, now))
        for claim in shown
    ]  # fmt: skip
    _print_table(title, ("claim", "member", "by", "purpose", "held"), rows)


def _print_policy(policy: values.Autoscale) -> None:
    length = times.format_duration
    low = "the pool's min" if policy.min_size is None else str(policy.min_size)
    high = "the pool's max" if policy.max_size is None else str(policy.max_size)
    parts = [
        f"{100 * policy.miss:g} % may miss",
        f"{low} to {high}",
        f"claims of the last {length(policy.window_seconds)}",
        f"cooldown {length(policy.cooldown_seconds)}",
    ]
    if policy.zero_after_seconds is not None:
        parts.append(f"zero after {length(policy.zero_after_seconds)} without a claim")
    if policy.burst_mean > 1:
        parts.append(f"bursts of {policy.burst_mean:g}")
    if policy.warm_up_seconds is not None:
        parts.append(f"warm-up {length(policy.warm_up_seconds)}")
    elif policy.measured_warm_up_seconds is not None:
        parts.append(f"warm-up {length(policy.measured_warm_up_seconds)} (measured)")
    # Break lines between the parts, not inside them.
    text = "Autoscale: " + ", ".join(part.replace(" ", "\0") for part in parts)
    for line in textwrap.wrap(text, 80, subsequent_indent="  ", break_on_hyphens=False):
        _print(line.replace("\0", " "))
    for opening in policy.openings:
        _print(f"  at {opening}")
    if policy.decided_us:
        now = times.now_us()
        _print(f"  decided {_age(policy.decided_us, now)} ago: {policy.reason}")
        if policy.changed_us is not None:
            _print(f"  last changed {_age(policy.changed_us, now)} ago")
    else:
        _print("  no decision yet: `overnight pool serve` makes it")


def autoscale(current: session.Session, report: use_cases.AutoscaleReport) -> None:
    """Print the policy of a pool, and the decision that was asked for."""
    if current.printed_json(pool_documents.autoscale_document(report)):
        return
    if report.message:
        _print(report.message)
    pool = report.details.pool
    if report.policy is None:
        _print(f"the size of pool {pool.name} is set by hand: target {pool.target_size}")
        return
    _print(_summary(report.details))
    _print_policy(report.policy)
    if report.outlook is not None:
        _print(f"dry run: {report.outlook.decision.reason}")
        warm_up = times.format_duration(report.outlook.warm_up_s)
        _print(f"  with a warm-up of {warm_up}; nothing was changed")
        for text in report.outlook.assumed:
            _print(f"  assumed: {text}")


def claims(current: session.Session, grants: tuple[values.Grant, ...]) -> None:
    if current.printed_json(pool_documents.claims_document(grants)):
        return
    for grant in grants:
        until = _until(grant.claim).replace(",", " ", 1)
        _print(f"{grant.claim.id}  {grant.member.id}  {grant.member.address}{until}")


def member(current: session.Session, changed: values.Member) -> None:
    if current.printed_json(pool_documents.member_document(changed)):
        return
    state = "gone" if changed.gone_us is not None else str(changed.state)
    held = ", cordoned" if changed.cordoned else ""
    if changed.host is not None and state in ("draining", "errored"):
        held += f"; the reaper on {changed.host} terminates it"
    _print(f"{changed.id} is {state}{held}")


def member_details(current: session.Session, details: values.MemberDetails) -> None:
    """Print everything about one member."""
    shown = details.member
    if current.printed_json(pool_documents.member_details_document(details)):
        return
    now = times.now_us()
    member(current, shown)
    region = f" in {shown.region}" if shown.region else ""
    rows = [
        ("pool", details.pool),
        ("reason", shown.reason),
        ("machine", f"{shown.machine_id or 'none yet'}, {shown.provider}{region}"),
        ("address", _place(shown)),
        ("heartbeat", f"{_age(shown.beat_us, now)} ago" if shown.beat_us else "never"),
        ("missing", f"the provider has not listed its machine for {_age(shown.missing_us, now)}" if shown.missing_us else ""),
        ("ending", f"{plural(shown.attempts, 'attempt')} to terminate" if shown.attempts else ""),
    ]  # fmt: skip
    for label, text in rows:
        if text:
            _print(f"  {label:10} {text}")
    steps = [
        ("launching", shown.warming_started_us), ("launched", shown.launched_us), ("ready", shown.ready_us),
        ("claimed", shown.acquired_us), ("ended", shown.ended_us), ("abandoned", shown.abandoned_us), ("gone", shown.gone_us),
    ]  # fmt: skip
    for label, at in steps:
        if at:
            _print(f"  {label:10} {local_time.cell(at)}, {_age(at, now)} ago")
    _print_claims("Claims, newest first", details.claims, now)
    _print_events(details.events)


def _held(claim: values.Claim, now: int) -> str:
    if claim.released_us is not None:
        return f"for {_age(claim.acquired_us, claim.released_us)}, until {_age(claim.released_us, now)} ago"
    return f"for {_age(claim.acquired_us, now)}{_until(claim)}"


def _until(claim: values.Claim) -> str:
    lease = claim.lease_until_us
    return "" if lease is None else f", until {local_time.cell(lease)}"


def describe(event: values.PoolEvent) -> str:
    """Return the detail of an event as one line; a console has too many."""
    if event.kind == "member_console":
        return f"`overnight pool explain {event.member_id}`"
    return event.detail.replace("\n", " ")


def _print_events(events: tuple[values.PoolEvent, ...]) -> None:
    rows = [
        (local_time.cell(event.at_us), event.kind, " ".join(filter(None, (event.member_id, event.claim_id, event.reason, describe(event)))))
        for event in events
    ]  # fmt: skip
    _print_table("Events, newest first", (local_time.heading(), "event", "about"), rows)


def done(current: session.Session, operation: str, name: str, numbers: dict[str, int]) -> None:
    if not current.printed_json(pool_documents.operation_document(operation, name, numbers)):
        counts = ", ".join(f"{n} {word.replace('_', ' ')}" for word, n in numbers.items())
        _print(f"pool {name}: {counts}" if name else counts)
