"""What to do next with a reservation, and with a mark on a platform: state and clock in, instructions out."""

from __future__ import annotations

import enum

from overnight.model import times
from overnight.model.reservation import (
    MAX_SECONDS,
    Held,
    Lease,
    Order,
    Reservation,
    ReservationState,
)
from overnight.model.times import DAY_US, SECOND_US

GRACE_SECONDS = 120  # clocks of hosts differ
UNREADABLE_US = DAY_US
WATCH_SECONDS = 45  # less than the tick of a server: of several, the first one checks
BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, MAX_WATCH_BACKOFF_SECONDS = 15, 900, 60
State = ReservationState


class Action(enum.Enum):
    """The next thing that a driver does."""

    PREPARE = "prepare"
    GIVE_UP = "give up"  # the hosts were not held in time
    WATCH = "watch"
    EXPIRE = "expire"
    GIVE_BACK = "give back"
    NOTHING = "nothing"


def next_action(reservation: Reservation, now_us: int) -> Action:
    match reservation.state:
        case State.PREPARING:
            return Action.GIVE_UP if now_us >= deadline_us(reservation) else Action.PREPARE
        case State.ACTIVE:
            return Action.EXPIRE if now_us >= reservation.until_us else Action.WATCH
        case State.RELEASING:
            return Action.GIVE_BACK
        case State.RELEASED:
            return Action.NOTHING


def deadline_us(reservation: Reservation) -> int:
    """Return when every host must be held."""
    return min(
        reservation.made_us + reservation.order.prepare_seconds * SECOND_US, reservation.cap_us
    )


def first_lease(order: Order, now_us: int) -> tuple[int, int]:
    """Return expiry and cap of a lease while its hosts are prepared.

    Short: if its driver dies before the hosts are held, nobody uses them.
    """
    cap_us = now_us + (order.max_seconds if order.renew else order.seconds) * SECOND_US
    return min(cap_us, now_us + order.prepare_seconds * SECOND_US), cap_us


def active_until(reservation: Reservation, now_us: int) -> int:
    """Return the expiry of a lease whose hosts are held."""
    if not reservation.order.renew:
        return reservation.cap_us
    return min(now_us + reservation.order.seconds * SECOND_US, reservation.cap_us)


def renewed_until(reservation: Reservation, now_us: int) -> int:
    """Return the expiry after this tick: later once half of a renewed lease is over."""
    half = reservation.order.seconds * SECOND_US // 2
    if reservation.order.renew and reservation.until_us - now_us < half:
        return active_until(reservation, now_us)
    return reservation.until_us


def next_step_at(reservation: Reservation, now_us: int, *, watched: bool = False) -> int:
    """Return when a driver takes the next step; after failed attempts in a row the wait doubles, with a cap."""
    if not reservation.attempts:
        return min(now_us + WATCH_SECONDS * SECOND_US, reservation.until_us) if watched else 0
    doubled = BACKOFF_SECONDS << min(reservation.attempts - 1, 20)
    # Soon where a lease must be renewed or a caller waits; rarely where the marks expire anyway.
    releasing = reservation.state is State.RELEASING
    cap = MAX_BACKOFF_SECONDS if releasing else MAX_WATCH_BACKOFF_SECONDS
    return now_us + min(cap, doubled) * SECOND_US


def is_valid(lease: Lease, now_us: int) -> bool:
    """Return whether a reservation may last as long as a record says, which anybody may have written."""
    latest_us = now_us + (MAX_SECONDS + GRACE_SECONDS) * SECOND_US
    return max(lease.until_us, lease.cap_us) <= latest_us


def judge_mark(held: Held, now_us: int, *, unclaimed: bool) -> str:
    """Return why a janitor removes a mark, '' to leave it. `unclaimed`: two looks found no claim, or no host."""
    if unclaimed:
        return held.gone or "its claim is gone"
    if held.lease is None or not is_valid(held.lease, now_us):
        old = held.since_us is not None and now_us - held.since_us > UNREADABLE_US
        return "its record is not valid, and it is older than a day" if old else ""
    ended_us = min(held.lease.until_us, held.lease.cap_us)
    if held.since_us is not None:  # a record can be renewed for ever
        ended_us = min(ended_us, held.since_us + MAX_SECONDS * SECOND_US)
    late = (now_us - ended_us) / SECOND_US
    return f"expired {times.format_duration(late)} ago" if late > GRACE_SECONDS else ""
