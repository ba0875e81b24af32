"""Pools for people, and as JSON."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    from overnight.model.pool import (
        Autoscale,
        Claim,
        Grant,
        Member,
        MemberDetails,
        PoolDetails,
        PoolEvent,
    )
    from overnight.pools import autoscaler, control

__all__ = ["autoscale", "claims", "done", "member", "member_details", "pool", "pools", "show"]


def _say(text: str) -> None:
    typer.echo(session.printable(text))


def _line(details: PoolDetails) -> str:
    held, kept = details.counts, details.pool
    more = "".join(
        f", {number} {word}"
        for number, word in ((held.held_back, "held back"), (held.draining, "draining"), (held.errored, "errored"), (held.waiting, "waited for"))
        if number
    )  # fmt: skip
    follows = ", follows" if details.autoscale is not None else ""
    breaker = "  BREAKER OPEN" if kept.breaker_opened_us is not None else ""
    return (
        f"{kept.name:20} {kept.status:9} {held.ready} ready, {held.warming} warming, {held.claimed} claimed{more}"
        f"  (target {kept.target_size}{follows}, {kept.min_size} to {kept.max_size}){breaker}"
    )


def pools(current: session.Session, listed: tuple[PoolDetails, ...], output: session.Output) -> int:
    """Every pool, a line each."""
    from overnight.app import pools

    if output is session.Output.JSON:
        current.print_json(pools.pools_document(listed))
        return errors.ExitCode.DONE
    for details in listed:
        _say(_line(details))
    if not listed:
        _say("there is no pool: overnight pool create NAME --template T --target 5")
    return errors.ExitCode.DONE


def pool(
    current: session.Session,
    plane: control.ControlPlane,
    name: str,
    output: session.Output,
    *,
    said: str,
) -> int:
    """One pool after a change."""
    from overnight.app import pools

    shown = plane.show(name, recent=20)
    if output is session.Output.JSON:
        current.print_json(pools.pool_document(plane, shown))
    else:
        _say(said)
        _say(_line(shown))
    return errors.ExitCode.DONE


def show(
    current: session.Session,
    plane: control.ControlPlane,
    name: str,
    recent: int,
    output: session.Output,
) -> int:
    """Everything about one pool; FOUND when there is an alert."""
    from overnight.app import pools

    shown = plane.show(name, recent=recent)
    wrong = pools.troubles(plane, shown)
    if output is session.Output.JSON:
        current.print_json(pools.pool_document(plane, shown))
    else:
        _say(_line(shown))
        if shown.autoscale is not None:
            _say("")
            _policy(shown.autoscale)
        for one in wrong:
            _say(
                f"\n{'ALERT' if one.alert else 'note'}: {one.what}\n  why: {one.why}\n  do:  {one.todo}"
            )
        _details(shown)
    return errors.ExitCode.FOUND if any(one.alert for one in wrong) else errors.ExitCode.DONE


def _details(shown: PoolDetails) -> None:
    from overnight.app import pools

    now = time.time_ns() // 1000
    if shown.members:
        _say("\nMembers")
    for one in shown.members:
        held = "  cordoned" if one.cordoned else ""
        missing = "  its machine is missing" if one.missing_us is not None else ""
        _say(
            f"  {one.id}  {one.state:8} {pools.ago(one.warming_started_us, now):>8} old, "
            f"heard {pools.ago(one.beat_us, now)} ago  {one.address}  {one.reason}{held}{missing}"
        )
    open_claims = [one for one in shown.claims if one.released_us is None]
    if open_claims:
        _say("\nClaims")
    for claim in open_claims:
        _say(
            f"  {claim.id}  {claim.member_id}  {claim.acquired_by or '-'}  {claim.acquired_for or '-'}  "
            f"{_held(claim, now)}"
        )
    if shown.waiters:
        _say("\nWaiting, the next one first")
    for waiter in shown.waiters:
        _say(
            f"  {waiter.acquired_by or waiter.id}  wants {waiter.wanted}, priority {waiter.priority}, "
            f"for {pools.ago(waiter.queued_us, now)}"
        )
    _happened(shown.events)


def _policy(policy: Autoscale) -> None:
    """How the size follows, and what was last decided."""
    from overnight.app import pools
    from overnight.model import times

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
        parts.append(f"to zero after {length(policy.zero_after_seconds)} without a claim")
    if policy.burst_mean > 1:
        parts.append(f"bursts of {policy.burst_mean:g}")
    if policy.warm_up_seconds is not None:
        parts.append(f"warm-up {length(policy.warm_up_seconds)}")
    elif policy.measured_warm_up_seconds is not None:
        parts.append(f"warm-up {length(policy.measured_warm_up_seconds)}, measured")
    # Between the parts, not in them.
    said = "Autoscale: " + ", ".join(part.replace(" ", "\0") for part in parts)
    for line in textwrap.wrap(said, 80, subsequent_indent="  ", break_on_hyphens=False):
        _say(line.replace("\0", " "))
    for opening in policy.openings:
        _say(f"  at {opening}")
    if policy.decided_us:
        now = time.time_ns() // 1000
        _say(f"  decided {pools.ago(policy.decided_us, now)} ago: {policy.reason}")
        if policy.changed_us is not None:
            _say(f"  last changed {pools.ago(policy.changed_us, now)} ago")
    else:
        _say("  nothing decided yet: overnight pool serve does")


def autoscale(
    current: session.Session,
    shown: PoolDetails,
    outlook: autoscaler.Outlook | None,
    output: session.Output,
    *,
    said: str = "",
) -> int:
    """The policy of a pool, and what it would do now where that was asked."""
    from overnight.app import pools
    from overnight.model import times

    policy = shown.autoscale if outlook is None else outlook.policy
    if output is session.Output.JSON:
        current.print_json(pools.autoscale_document(shown.pool, policy, outlook))
        return errors.ExitCode.DONE
    if said:
        _say(said)
    if policy is None:
        _say(f"the size of pool {shown.pool.name} is set by hand: target {shown.pool.target_size}")
        return errors.ExitCode.DONE
    _say(_line(shown))
    _policy(policy)
    if outlook is not None:
        _say(f"now it would: {outlook.decision.reason}")
        _say(f"  with a warm-up of {times.format_duration(outlook.warm_up_s)}; nothing was changed")
        for text in outlook.assumed:
            _say(f"  assumed: {text}")
    return errors.ExitCode.DONE


def claims(current: session.Session, grants: tuple[Grant, ...], output: session.Output) -> int:
    """What was claimed."""
    from overnight.app import pools
    from overnight.model import times

    if output is session.Output.JSON:
        current.print_json(pools.claims_document(grants))
        return errors.ExitCode.DONE
    for grant in grants:
        lease = grant.claim.lease_until_us
        until = "" if lease is None else f"  until {times.format_instant(lease)}"
        _say(f"{grant.claim.id}  {grant.member.id}  {grant.member.address}{until}")
    return errors.ExitCode.DONE


def member(current: session.Session, one: Member, output: session.Output) -> int:
    """What became of a member."""
    from overnight.app import pools

    if output is session.Output.JSON:
        current.print_json(pools.member_document(one))
        return errors.ExitCode.DONE
    state = "gone" if one.gone_us is not None else str(one.state)
    held = ", cordoned" if one.cordoned else ""
    _say(f"{one.id} is {state}{held}")
    return errors.ExitCode.DONE


def member_details(current: session.Session, shown: MemberDetails, output: session.Output) -> int:
    """Everything about one member."""
    from overnight.app import pools
    from overnight.model import times

    one = shown.member
    if output is session.Output.JSON:
        current.print_json(pools.member_document(one, shown))
        return errors.ExitCode.DONE
    now = time.time_ns() // 1000
    member(current, one, output)
    rows = [
        ("pool", shown.pool),
        ("why", one.reason),
        ("machine", f"{one.machine_id or 'none yet'}, {one.provider}{one.region and f' in {one.region}'}"),
        ("address", one.address),
        ("heard", f"{pools.ago(one.beat_us, now)} ago" if one.beat_us else "never"),
        ("missing", f"the provider does not know its machine, for {pools.ago(one.missing_us, now)}" if one.missing_us else ""),
        ("end", f"tried {one.attempts} {'time' if one.attempts == 1 else 'times'}" if one.attempts else ""),
    ]  # fmt: skip
    for word, text in rows:
        if text:
            _say(f"  {word:9} {text}")
    steps = [
        ("launching", one.warming_started_us), ("launched", one.launched_us), ("ready", one.ready_us),
        ("claimed", one.acquired_us), ("ending", one.ended_us), ("given up", one.abandoned_us), ("gone", one.gone_us),
    ]  # fmt: skip
    for word, at in steps:
        if at:
            _say(f"  {word:9} {times.format_instant(at)}, {pools.ago(at, now)} ago")
    if shown.claims:
        _say("\nWho had it, the newest first")
    for claim in shown.claims:
        _say(
            f"  {claim.id}  {claim.acquired_by or '-'}  {claim.acquired_for or '-'}  {_held(claim, now)}"
        )
    _happened(shown.events)
    return errors.ExitCode.DONE


def _held(claim: Claim, now: int) -> str:
    from overnight.app import pools

    if claim.released_us is not None:
        return f"for {pools.ago(claim.acquired_us, claim.released_us)}, until {pools.ago(claim.released_us, now)} ago"
    return f"for {pools.ago(claim.acquired_us, now)}{_until(claim)}"


def _until(claim: Claim) -> str:
    from overnight.model import times

    lease = claim.lease_until_us
    return "" if lease is None else f", until {times.format_instant(lease)}"


def _happened(events: tuple[PoolEvent, ...]) -> None:
    from overnight.model import times

    if events:
        _say("\nWhat happened, the newest first")
    for event in events:
        about = " ".join(
            x for x in (event.member_id, event.claim_id, event.reason, event.detail) if x
        )
        _say(f"  {times.format_instant(event.at_us)}  {event.kind}  {about}")


def done(
    current: session.Session,
    operation: str,
    name: str,
    numbers: dict[str, int],
    output: session.Output,
) -> int:
    """What an operation came to, in numbers."""
    if output is session.Output.JSON:
        current.print_json(
            {"schema": "overnight.pool-done/1", "operation": operation, "pool": name, **numbers}
        )
    else:
        _say(
            f"pool {name}: "
            + ", ".join(f"{n} {word.replace('_', ' ')}" for word, n in numbers.items())
        )
    return errors.ExitCode.DONE
