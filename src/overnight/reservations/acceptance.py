"""Acceptance of a reserved host: checks, each with the counter-move for one that fails. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from overnight.model import times
from overnight.model.reservation import Check, CheckState, ReservedHost, Unseen, Workload
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from overnight import reservations

AGENT_US = 120 * SECOND_US  # an agent that reported since then is attached
SKEW_US = SECOND_US
NAMES = ("foreign-workload", "marks", "agent", "clock")  # of the cheap ones
PASSED, FAILED, UNKNOWN = CheckState.PASSED, CheckState.FAILED, CheckState.UNKNOWN


def check_workloads(workloads: Sequence[Workload] | Unseen) -> Check:
    name = "foreign-workload"
    if isinstance(workloads, Unseen):
        advice = "see what runs there: `overnight top` on the host, or reserve with --agent"
        return Check(name, UNKNOWN, workloads.why, advice)
    foreign = sorted(f"{w.kind} {w.name}".strip() for w in workloads if not w.stays)
    if not foreign:
        return Check(name, PASSED, f"{len(workloads)} belong to the host" if workloads else "")
    more = f" and {len(foreign) - 5} more" if len(foreign) > 5 else ""
    advice = "stop what placed it there, or release the host and reserve another; leave its time out of the evidence"
    return Check(name, FAILED, ", ".join(foreign[:5]) + more, advice)


def check_marks(problem: str) -> Check:
    if not problem:
        return Check("marks", PASSED)
    advice = "find out what removed them; if another reservation has the host, release this one and reserve another"
    return Check("marks", FAILED, problem, advice)


def check_agent(heard: reservations.Heard, now_us: int) -> Check:
    if heard.agent_us is None:
        advice = "start one: `overnight agent` on the host, or `overnight reserve --agent`"
        return Check("agent", FAILED, "no agent reports from this host", advice)
    silent = now_us - heard.agent_us
    if silent <= AGENT_US:
        return Check("agent", PASSED)
    detail = f"silent for {times.format_duration(silent / SECOND_US)}"
    advice = "see the journal of overnight-agent.service on the host, and the network to its server"
    return Check("agent", FAILED, detail, advice)


def check_clock(heard: reservations.Heard) -> Check:
    if heard.skew_us is None:
        return Check("clock", UNKNOWN, "no agent reported it, or it is not synchronized")
    text = f"{heard.skew_us / SECOND_US:+.3f} s"
    if abs(heard.skew_us) <= SKEW_US:
        return Check("clock", PASSED, text)
    advice = "start time synchronization on the host (chronyd or systemd-timesyncd), then check again"  # fmt: skip
    return Check("clock", FAILED, text, advice)


def unknown(name: str, why: str) -> Check:
    return Check(name, UNKNOWN, why, "check again when the platform answers")


def merge(host: ReservedHost, new: Iterable[Check], at_us: int) -> tuple[Check, ...]:
    """Return the checks of a host with these, made at this time, in place of the older ones."""
    stamped = (dataclasses.replace(check, at_us=at_us) for check in new)
    by_name = {check.name: check for check in (*host.checks, *stamped)}
    return tuple(by_name[name] for name in sorted(by_name))


def newly_failed(host: ReservedHost, check: Check) -> bool:
    """Whether a check failed in a way that the last one of its name did not."""
    before = next((old for old in host.checks if old.name == check.name), None)
    same = before is not None and (before.state, before.detail) == (check.state, check.detail)
    return check.state is FAILED and not same
