"""What can be tuned on a pool. A bad value is refused when it is written, never coerced."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from overnight.pools import refusals

__all__ = ["DEFAULTS", "NAMES", "Knobs", "changed", "parse", "read"]

WEEK = 7 * 86400
CHOICES = {"claimed_ttl_action": ("flag", "terminate")}
# 0 would make everything stale at once; where it has a meaning of its own it is said.
LOWEST = {"breaker_retry_seconds": 0, "launch_backoff_seconds": 0, "terminate_backoff_seconds": 0}
HIGHEST = {"terminate_attempts": 100, "breaker_failures": 1000, "launch_parallel": 64}
MOST_SECONDS = 366 * 86400


@dataclasses.dataclass(frozen=True)
class Knobs:
    """How one pool is kept; every field can be set by name."""

    warming_timeout_seconds: int = 1800  # a member not ready by then has failed
    ready_ttl_seconds: int = 14400  # an idle member this old is replaced
    claimed_ttl_seconds: int = 86400  # a claim without a lease this old is stale
    claimed_ttl_action: str = "flag"  # or "terminate"
    heartbeat_stale_after_seconds: int = 180
    terminate_attempts: int = 5
    terminate_backoff_seconds: int = 300
    terminate_backoff_max_seconds: int = 3600
    record_retention_seconds: int = WEEK
    reuse_without_reset: bool = False
    lease_max_seconds: int = 86400  # a lease is renewed up to this long after the claim
    launch_backoff_seconds: int = 10
    launch_backoff_max_seconds: int = 600
    launch_parallel: int = 8
    breaker_failures: int = 5  # this many in a row, and launching stops
    breaker_retry_seconds: int = 1800  # then one trial; 0: only when it is closed by hand
    provider_timeout_seconds: int = 120
    bootstrap_token_seconds: int = 1800
    waiter_stale_seconds: int = 15  # a waiter that has not been heard for so long has left


NAMES = tuple(field.name for field in dataclasses.fields(Knobs))
DEFAULTS = Knobs()


def read(given: Mapping[str, object]) -> Knobs:
    """Knobs from names and values; raises on an unknown name or a value that does not fit."""
    return changed(DEFAULTS, given)


def changed(knobs: Knobs, given: Mapping[str, object]) -> Knobs:
    """The same knobs with some of them set anew."""
    for name, value in given.items():
        if name not in NAMES:
            raise refusals.UnknownParameterError(name, NAMES)
        _check(name, value)
    return dataclasses.replace(knobs, **given)  # type: ignore[arg-type]  # each was checked


def _check(name: str, value: object) -> None:
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise refusals.BadKnobError(name, value, "one of " + ", ".join(CHOICES[name]))
        return
    if isinstance(getattr(DEFAULTS, name), bool):
        if not isinstance(value, bool):
            raise refusals.BadKnobError(name, value, "true or false")
        return
    lowest, highest = LOWEST.get(name, 1), HIGHEST.get(name, MOST_SECONDS)
    # True is an int in Python, and a number in quotes is a guess.
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise refusals.BadKnobError(name, value, f"a whole number from {lowest} to {highest}")


def parse(text: str) -> tuple[str, object]:
    """`ready_ttl_seconds=600` from a command line.

    >>> parse("reuse_without_reset=true"), parse("ready_ttl_seconds=600")
    (('reuse_without_reset', True), ('ready_ttl_seconds', 600))
    """
    name, equals, value = text.partition("=")
    if name in NAMES and not equals:
        raise refusals.BadKnobError(name, "", "written as KNOB=VALUE")
    if name not in NAMES:
        raise refusals.UnknownParameterError(name, NAMES)
    if isinstance(getattr(DEFAULTS, name), bool) and value in ("true", "false"):
        return name, value == "true"
    if value.isascii() and value.isdigit() and len(value) < 12:
        return name, int(value)
    _check(name, value)
    return name, value
