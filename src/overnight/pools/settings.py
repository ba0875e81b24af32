"""Checks of pool settings: a bad value is refused when it is written, never coerced."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from overnight.model.pool import PoolSettings
from overnight.pools import pool_errors

CHOICES = {"claimed_ttl_action": ("flag", "terminate"), "failed_units_action": ("fail", "ignore")}
# 0 would make everything stale at once; it is allowed only where it has a meaning.
LOWEST = {
    "breaker_retry_seconds": 0,
    "launch_backoff_seconds": 0,
    "priority_ageing_seconds": 0,
    "terminate_backoff_seconds": 0,
}
HIGHEST = {"terminate_attempts": 100, "breaker_failures": 1000, "launch_parallel": 64}
MAX_SECONDS = 366 * 86400
NAMES = tuple(field.name for field in dataclasses.fields(PoolSettings))
DEFAULTS = PoolSettings()


def changed(settings: PoolSettings, given: Mapping[str, object]) -> PoolSettings:
    """Return the settings with these changes; raises for an unknown name or a bad value."""
    pool_errors.check_known(given, NAMES)
    for name, value in given.items():
        _check(name, value)
    return dataclasses.replace(settings, **given)  # type: ignore[arg-type]  # checked above


def _check(name: str, value: object) -> None:
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise pool_errors.BadKnobError(name, value, "one of " + ", ".join(CHOICES[name]))
        return
    if isinstance(getattr(DEFAULTS, name), bool):
        if not isinstance(value, bool):
            raise pool_errors.BadKnobError(name, value, "true or false")
        return
    pool_errors.check_whole(name, value, LOWEST.get(name, 1), HIGHEST.get(name, MAX_SECONDS))


def parse(text: str) -> tuple[str, object]:
    """Parse `ready_ttl_seconds=600` from a command line.

    >>> parse("reuse_without_reset=true"), parse("ready_ttl_seconds=600")
    (('reuse_without_reset', True), ('ready_ttl_seconds', 600))
    """
    name, equals, value = text.partition("=")
    pool_errors.check_known([name], NAMES)
    if not equals:
        raise pool_errors.BadKnobError(name, "", "written as NAME=VALUE")
    if isinstance(getattr(DEFAULTS, name), bool) and value in ("true", "false"):
        return name, value == "true"
    if value.isascii() and value.isdigit() and len(value) < 12:
        return name, int(value)
    _check(name, value)
    return name, value
