"""Checks of requests for members: types first, then the limits of the pool."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from overnight.model.pool import Pool, Request
from overnight.pools import pool_errors

PARAMETERS = tuple(field.name for field in dataclasses.fields(Request))
STRINGS = ("acquired_by", "acquired_for", "idempotency_key")
NUMBERS = ("count", "lease_seconds", "priority")
OPTIONAL = ("idempotency_key", "lease_seconds")
PRIORITIES = range(-1_000_000, 1_000_001)


def build(given: Mapping[str, object]) -> Request:
    pool_errors.check_known(given, PARAMETERS)
    for name, value in given.items():
        if value is None and name in OPTIONAL:
            continue
        if wanted := _requirement(name, value):
            raise pool_errors.BadKnobError(name, value, wanted)
    return Request(**given)  # type: ignore[arg-type]  # each was checked


def _requirement(name: str, value: object) -> str:
    """Return what a value must be; '' if it is valid."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if name in STRINGS and not isinstance(value, str):
        return "a string"
    if name == "idempotency_key" and not value:
        # Typically an unset variable: all callers would share one claim.
        return "a non-empty string"
    if name in NUMBERS and not isinstance(number, int):
        return "a whole number"
    if name == "priority" and value not in PRIORITIES:
        return f"a whole number from {PRIORITIES[0]} to {PRIORITIES[-1]}"
    if name == "cold" and not isinstance(value, bool):
        return "true or false"
    if name == "wait_seconds" and (number is None or not 0 <= number < 10**7):
        return "seconds, 0 or more"
    return ""


def check(pool: Pool, request: Request) -> None:
    """Raise for a request that the pool could never serve."""
    if not 1 <= request.count <= pool.max_size:
        raise pool_errors.BadKnobError(
            "count", request.count, f"from 1 to max_size {pool.max_size}"
        )
    lease, limit = request.lease_seconds, pool.settings.lease_max_seconds
    if lease is not None and not 1 <= lease <= limit:
        raise pool_errors.BadKnobError("lease_seconds", lease, f"from 1 to {limit}")
