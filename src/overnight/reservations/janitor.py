"""Removes marks of ours whose lease has ended. Needs nothing but the platform: no database, no agent."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from overnight import errors, reservations
from overnight.reservations import decisions

if TYPE_CHECKING:
    from overnight.model.reservation import Held, Order

LOOK_SECONDS = 10.0  # between two looks at a mark without a claim, or without its host


@dataclasses.dataclass(frozen=True)
class Cleaned:
    """What a janitor did with one mark. `released` is False for a dry run, and where `problem` says why."""

    held: Held
    why: str  # '' for a mark that is left
    released: bool = False
    problem: str = ""


def clean(
    provider: reservations.Provider,
    order: Order,
    *,
    clock: Callable[[], int],
    dry_run: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Cleaned, ...]:
    """Release every mark whose lease has ended; the others are in the result, too."""
    marks = provider.list_held(order)
    unclaimed = _find_unclaimed(marks)
    if unclaimed:
        # A claim is made before its marks, but the two may not be listed at one moment.
        sleep(LOOK_SECONDS)
        marks = provider.list_held(order)
        unclaimed &= _find_unclaimed(marks)
    return tuple(
        release_mark(provider, order, held, why) if why and not dry_run else Cleaned(held, why)
        for held in marks
        for why in [
            decisions.judge_mark(held, clock(), unclaimed=(held.host, held.id) in unclaimed)
        ]
    )


def _find_unclaimed(marks: Sequence[Held]) -> set[tuple[str, str]]:
    return {(held.host, held.id) for held in marks if held.gone or not held.claimed}


def release_mark(provider: reservations.Provider, order: Order, held: Held, why: str) -> Cleaned:
    try:
        provider.release(held.host, order, held.id)
    except errors.OvernightError as error:
        return Cleaned(held, why, problem=f"{error.what}: {error.why}")
    return Cleaned(held, why, released=True)
