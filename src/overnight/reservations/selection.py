"""Which hosts an order takes, and why not the others. Pure, and in the same order every time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from overnight import errors
from overnight.model import times
from overnight.model.reservation import (
    MAX_SECONDS,
    Candidate,
    HostPlan,
    Lease,
    Order,
    Preflight,
)
from overnight.model.text import foreign, plural

MIN_SECONDS = 60
MIN_RENEWED_SECONDS = 300  # several ticks of a driver
LEASE_CHARACTERS = 256  # of a tag of EC2, the shortest place where a lease is written
MAX_PLANS = 100  # hosts that are compared, if each disturbs others
HELP = "overnight reserve --help"
OPTIONS = {
    "seconds": "--for",
    "min_uptime_seconds": "--min-uptime",
    "max_uptime_seconds": "--max-uptime",
    "instance_type": "--type",
}


def check_order(order: Order, ignored: frozenset[str]) -> None:
    """Raise UsageError for an order that no platform can fill, or with what its provider would ignore."""
    for field in dataclasses.fields(Order):
        default = field.default if field.default is not dataclasses.MISSING else {}
        if field.name in ignored and getattr(order, field.name) != default:
            option = OPTIONS.get(field.name, "--" + field.name.replace("_", "-").removesuffix("s"))
            raise errors.UsageError(
                f"provider {order.provider} does not take {option}",
                why="it would have no effect there",
                todo=f"leave out {option}",
            )
    if order.count < 1:
        _refuse("--count", order.count, "at least 1")
    if len({*order.hosts}) != len(order.hosts):
        _refuse("--host", ", ".join(order.hosts), "given once for each host")
    lowest = MIN_RENEWED_SECONDS if order.renew else MIN_SECONDS
    if not lowest <= order.seconds <= MAX_SECONDS:
        limits = f"{times.format_duration(lowest)} to {times.format_duration(MAX_SECONDS)}"
        _refuse("--for", times.format_duration(order.seconds), limits)
    if not order.seconds <= order.max_seconds <= MAX_SECONDS:
        limits = f"at least --for, and at most {times.format_duration(MAX_SECONDS)}"
        _refuse("--at-most", times.format_duration(order.max_seconds), limits)
    if order.prepare_seconds < 1:
        _refuse("--wait", order.prepare_seconds, "greater than 0")
    text = Lease("r-" + "0" * 12, order.owner, 10**15, 10**15, order.purpose).text()
    if len(text) > LEASE_CHARACTERS or not (order.owner + order.purpose).isprintable():
        _refuse("--purpose", order.purpose, "short and printable: it is written on each host")


def _refuse(option: str, value: object, wanted: str) -> None:
    raise errors.UsageError(
        f"invalid {option} {value}", why=f"{option} must be {wanted}", todo=HELP
    )


def rank(
    order: Order, candidates: Sequence[Candidate], now_us: int
) -> tuple[list[Candidate], dict[str, str]]:
    """Return the hosts that fit, best first, and why each other one does not."""
    if order.hosts:
        known = {host.name: host for host in candidates}
        fit = [known[name] for name in order.hosts if name in known]
        left_out = {name: "no such host" for name in order.hosts if name not in known}
    else:
        fit, left_out = sorted(candidates, key=lambda host: host.name), {}
    chosen = []
    for host in fit:
        if why := _misfit(order, host, now_us):
            left_out[host.name] = why
        else:
            chosen.append(host)
    return chosen, left_out


def _misfit(order: Order, host: Candidate, now_us: int) -> str:
    """Return why a host does not fit an order, '' if it does."""
    if host.taken:
        return f"reserved by {host.taken}"
    if host.unhealthy and not order.allow_unhealthy:
        return f"unhealthy: {host.unhealthy}"
    if host.name == order.reference:
        return "the reference host"
    for name, value in order.labels.items():
        if (found := host.labels.get(name)) != value:
            return f"label {name} is {found}" if found is not None else f"no label {name}"
    if order.zone and host.zone != order.zone:
        return f"in zone {host.zone or '(unknown)'}"
    if order.instance_type and host.instance_type != order.instance_type:
        return f"of type {host.instance_type or '(unknown)'}"
    if order.min_uptime_seconds or order.max_uptime_seconds:
        if host.booted_us is None:
            return "its uptime is unknown"
        up = max(0.0, (now_us - host.booted_us) / times.SECOND_US)
        if up < order.min_uptime_seconds:
            return f"up for {times.format_duration(up)} only"
        if up > order.max_uptime_seconds > 0:
            return f"up for {times.format_duration(up)}"
    return ""


def unfit(plan: HostPlan, order: Order) -> str:
    """Return why a host cannot be reserved by this order, by its plan; '' if it can."""
    if plan.blockers:
        return "; ".join(plan.blockers)
    running = [workload.name for workload in plan.workloads if not workload.stays]
    if running and not order.evict:
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        return f"runs {running[0]}{more}; --evict would move {'them' if more else 'it'} away"
    return ""


def disturbance(plan: HostPlan) -> tuple[int, int, int]:
    """Return how much reserving a host disturbs others; the host with the lowest value is taken first."""
    moved = [workload for workload in plan.workloads if not workload.stays]
    return sum(bool(workload.blocked) for workload in moved), len(plan.disrupts), len(moved)


def needs_consent(plan: HostPlan) -> bool:
    """Whether reserving this host disturbs others, or gives a host that is not like production."""
    evicted = any(not workload.stays for workload in plan.workloads)
    return evicted or bool(plan.disrupts or plan.differences)


def compare_facts(host: Candidate, reference: Candidate) -> tuple[str, ...]:
    """Return what differs from the reference host, of what the platform knows about both."""
    return tuple(
        f"{name} is {foreign(host.facts[name])}, {reference.name} has {foreign(reference.facts[name])}"
        for name in sorted({*host.facts} & {*reference.facts})
        if host.facts[name] != reference.facts[name]
    )


def check_enough(preflight: Preflight) -> None:
    """Raise CannotError if the preflight did not find enough hosts."""
    order = preflight.order
    found = len(preflight.hosts)
    if found >= order.wanted:
        return
    listed = [f"{name}: {why}" for name, why in [*preflight.left_out.items()][:5]]
    more = len(preflight.left_out) - len(listed)
    raise errors.CannotError(
        f"only {found} of {plural(order.wanted, 'host')} can be reserved"
        if found
        else "no host can be reserved",
        why="; ".join([*listed, *([f"{more} more"] if more else [])])
        or f"{order.provider} lists no host" + (f" in {order.where}" if order.where else ""),
        todo="`overnight reserve --dry-run` shows every host; change the order",
    )
