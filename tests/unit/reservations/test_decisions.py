from __future__ import annotations

import dataclasses

import pytest

from overnight.model.reservation import Held, Lease, Order, Reservation, ReservationState
from overnight.reservations import decisions

S = 1_000_000
HOUR, DAY = 3600, 86_400
NOW = 1_800_000_000 * S
State, Action = ReservationState, decisions.Action


def reservation(**changes: object) -> Reservation:
    order = Order(provider="played", seconds=12 * HOUR)
    until_us, cap_us = decisions.first_lease(order, NOW)
    made = Reservation(
        id="r-0123456789ab", order=order, state=State.PREPARING, made_us=NOW, until_us=until_us, cap_us=cap_us
    )  # fmt: skip
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "seconds", "action"),
    [
        (State.PREPARING, 0, Action.PREPARE),
        (State.PREPARING, 899, Action.PREPARE),
        (State.PREPARING, 900, Action.GIVE_UP),
        (State.ACTIVE, 899, Action.WATCH),
        (State.ACTIVE, 900, Action.EXPIRE),
        (State.RELEASING, 0, Action.GIVE_BACK),
        (State.RELEASED, 900, Action.NOTHING),
    ],
)
def test_the_next_action(state: State, seconds: int, action: Action) -> None:
    assert decisions.next_action(reservation(state=state), NOW + seconds * S) is action


def test_a_lease_is_short_while_hosts_are_prepared_and_whole_afterwards() -> None:
    made = reservation()
    assert (made.until_us, made.cap_us) == (NOW + 900 * S, NOW + 12 * HOUR * S)
    assert decisions.active_until(made, NOW + 60 * S) == made.cap_us


def test_hosts_are_held_before_a_short_lease_ends_or_not_at_all() -> None:
    order = Order(provider="played", seconds=60, prepare_seconds=900)
    until_us, cap_us = decisions.first_lease(order, NOW)
    assert until_us == cap_us == NOW + 60 * S
    made = reservation(order=order, until_us=until_us, cap_us=cap_us)
    assert decisions.next_action(made, NOW + 59 * S) is Action.PREPARE
    assert decisions.next_action(made, NOW + 60 * S) is Action.GIVE_UP


@pytest.mark.parametrize(
    ("seconds", "until"),
    [(0, 600), (300, 600), (301, 901), (599, 1199), (1400, 1500)],
)
def test_a_lease_is_renewed_after_half_of_it_up_to_the_cap(seconds: int, until: int) -> None:
    order = Order(provider="played", seconds=600, renew=True, max_seconds=1500)
    now = max(600, min(seconds + 200, 1500)) if seconds > 600 else 600
    made = reservation(order=order, until_us=NOW + now * S, cap_us=NOW + 1500 * S)
    assert decisions.renewed_until(made, NOW + seconds * S) == NOW + until * S


def test_retries_are_rare_only_while_hosts_are_released() -> None:
    def waits(state: State) -> list[int]:
        tried = (reservation(state=state, attempts=n) for n in (1, 2, 3, 4, 9, 90))
        return [(decisions.next_step_at(each, NOW) - NOW) // S for each in tried]

    assert waits(State.RELEASING) == [15, 30, 60, 120, 900, 900]
    assert waits(State.ACTIVE) == waits(State.PREPARING) == [15, 30, 60, 60, 60, 60]


def lease(until: int, cap: int) -> Lease:
    return Lease("r-0123456789ab", "ops", NOW + until * S, NOW + cap * S)


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (Held("a", "r-1", lease(1, 1)), ""),
        (Held("a", "r-1", lease(-120, 0)), ""),
        (Held("a", "r-1", lease(-121, 0)), "expired 2 min 1 s ago"),
        (Held("a", "r-1", lease(HOUR, -121)), "expired 2 min 1 s ago"),  # later than its cap
        (Held("a", "r-1", lease(1, DAY * 14 + 120), since_us=NOW - DAY * 2 * S), ""),
        (Held("a", "r-1", lease(1, DAY * 14 + 121), since_us=NOW - DAY * S), ""),  # longer than any
        (Held("a", "r-1", lease(1, DAY * 14 + 121), since_us=NOW - (DAY + 1) * S), "its record is not valid, and it is older than a day"),
        (Held("a", "r-1", lease(DAY * 14 + 121, 1), since_us=NOW - (DAY + 1) * S), "its record is not valid, and it is older than a day"),
        (Held("a", "r-1", lease(1, 1), since_us=NOW - (DAY * 14 + 120) * S), ""),
        (Held("a", "r-1", lease(1, 1), since_us=NOW - (DAY * 14 + 121) * S), "expired 2 min 1 s ago"),
        (Held("a", "", None, since_us=NOW - 86_400 * S), ""),
        (Held("a", "", None, since_us=NOW - 86_401 * S), "its record is not valid, and it is older than a day"),
        (Held("a", "", None), ""),
    ],
)  # fmt: skip
def test_a_janitor_removes_what_has_ended_and_nothing_else(held: Held, why: str) -> None:
    assert decisions.judge_mark(held, NOW, unclaimed=False) == why


def test_a_janitor_removes_a_mark_without_its_claim() -> None:
    held = Held("a", "r-1", lease(HOUR, HOUR), claimed=False)
    assert decisions.judge_mark(held, NOW, unclaimed=False) == ""
    assert decisions.judge_mark(held, NOW, unclaimed=True) == "its claim is gone"
