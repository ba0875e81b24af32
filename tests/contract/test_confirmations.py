"""Confirmations: single use, short-lived, bound to caller, arguments and effect, never by the caller itself."""

from __future__ import annotations

import concurrent.futures
import dataclasses

import pytest
from fleetworld import S, World

from overnight import errors
from overnight.fleet import confirmations
from overnight.model.confirmation import (
    Confirmation,
    ConfirmationNeededError,
    ConfirmationState,
    Effect,
)
from overnight.model.control_plane import Principal, Role

CLAUDE = Principal("t1", "claude", Role.ADMIN, assistant=True)
OTHER = Principal("t2", "other", Role.ADMIN, assistant=True)
ANNA = Principal("t3", "anna", Role.ADMIN)
EFFECT = Effect(summary="drain pool ci", ends=("m-1", "m-2"), claims=("c-1 of job-17",))
ARGUMENTS = {"name": "ci"}


def call(
    fleet: World,
    by: Principal = CLAUDE,
    effect: Effect = EFFECT,
    arguments: dict[str, str] | None = None,
    *,
    only_ask: bool = False,
    action: str = "pool.drain",
) -> Confirmation | None:
    """Make a call; return the request that it waits for, or None if it is carried out."""
    given = ARGUMENTS if arguments is None else arguments
    try:
        fleet.plane.confirmations.require(by, action, Role.ADMIN, given, effect, only_ask=only_ask)
    except ConfirmationNeededError as error:
        return error.confirmation
    return None


def code(fleet: World, by: Principal = ANNA) -> str:
    return fleet.plane.confirmations.list(by)[0].code


def audit(fleet: World) -> list[tuple[str, str]]:
    return [(row.who, row.action) for row in fleet.plane.audit_log().items][::-1]


def test_a_call_is_made_once_after_a_person_has_confirmed_it(fleet: World) -> None:
    first = call(fleet)
    assert first is not None
    assert call(fleet) == first  # the same request, however often it is repeated
    assert call(fleet, only_ask=True) == first
    decided = fleet.plane.confirmations.confirm(code(fleet), ANNA)
    assert (decided.state, decided.decided_by) == (ConfirmationState.CONFIRMED, "anna (t3)")
    waiting = call(fleet, only_ask=True)
    assert waiting is not None
    assert waiting.state is ConfirmationState.CONFIRMED  # asking does not use it up
    assert call(fleet) is None
    second = call(fleet)
    assert second is not None
    assert second.id != first.id
    shown = fleet.another().confirmations.show(first.id, ANNA)
    assert shown.state is ConfirmationState.USED
    assert audit(fleet) == [
        ("claude (t1, assistant)", "confirmation.request"),
        ("anna (t3)", "confirmation.confirmed"),
        ("claude (t1, assistant)", "confirmation.used"),
        ("claude (t1, assistant)", "confirmation.request"),
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"by": OTHER},
        {"arguments": {"name": "lab"}},
        {"action": "pool.delete"},
    ],
    ids=["caller", "arguments", "action"],
)
def test_a_confirmation_is_for_one_caller_and_one_call(
    fleet: World, other: dict[str, object]
) -> None:
    call(fleet)
    fleet.plane.confirmations.confirm(code(fleet), ANNA)
    assert call(fleet, **other) is not None  # type: ignore[arg-type]
    assert call(fleet) is None


def test_a_changed_state_voids_it(fleet: World) -> None:
    first = call(fleet)
    assert first is not None
    fleet.plane.confirmations.confirm(code(fleet), ANNA)
    changed = Effect(summary=EFFECT.summary, ends=("m-1", "m-3"), claims=EFFECT.claims)
    second = call(fleet, effect=changed)
    assert second is not None
    assert second.id != first.id
    assert second.effect == changed
    assert call(fleet) is not None  # the old state does not bring it back
    assert fleet.plane.confirmations.show(first.id, ANNA).state is ConfirmationState.VOID


def test_what_is_not_shown_counts_as_well(fleet: World) -> None:
    call(fleet, effect=Effect(summary="x", basis="pool-1"))
    fleet.plane.confirmations.confirm(code(fleet), ANNA)
    assert call(fleet, effect=Effect(summary="x", basis="pool-2")) is not None


@pytest.mark.parametrize("confirmed", [False, True])
def test_it_is_short_lived(fleet: World, confirmed: bool) -> None:
    first = call(fleet)
    waiting = code(fleet)
    if confirmed:
        fleet.plane.confirmations.confirm(waiting, ANNA)
        fleet.clock.forward(confirmations.CONFIRMED_US // S + 1)
        again = call(fleet)
        assert again is not None
        assert first is not None
        assert again.id != first.id
    else:
        fleet.clock.forward(confirmations.PENDING_US // S + 1)
        assert fleet.plane.confirmations.list(ANNA) == ()
        with pytest.raises(errors.NotFoundError):
            fleet.plane.confirmations.confirm(waiting, ANNA)


def test_nobody_but_another_person_with_the_role_confirms(fleet: World) -> None:
    person = Principal(
        "t1", "claude", Role.ADMIN
    )  # the same token, without the header of an assistant
    viewer = Principal("t4", "vera", Role.VIEWER)
    operator = Principal("t5", "otto", Role.OPERATOR)
    pending = call(fleet)
    assert pending is not None
    assert pending.code not in str(pending.as_json())
    waiting = code(fleet)
    for by in (CLAUDE, OTHER):
        with pytest.raises(errors.NotAllowedError):
            fleet.plane.confirmations.list(by)
    for by in (person, viewer, operator):
        [listed] = fleet.plane.confirmations.list(by)
        assert listed.code == ""
    for by in (CLAUDE, OTHER, person, viewer, operator):
        for decide in (fleet.plane.confirmations.confirm, fleet.plane.confirmations.decline):
            with pytest.raises(errors.NotAllowedError):
                decide(waiting, by)
    assert call(fleet) is not None
    with pytest.raises(errors.NotFoundError):
        fleet.plane.confirmations.show(pending.id, OTHER)
    assert fleet.plane.confirmations.show(pending.id, CLAUDE).code == ""


def test_a_code_may_be_typed_as_it_is_shown(fleet: World) -> None:
    call(fleet)
    waiting = code(fleet)
    fleet.plane.confirmations.confirm(f" {waiting[:4]}-{waiting[4:]}".lower(), ANNA)
    assert call(fleet) is None


def test_what_was_declined_is_not_asked_again_for_a_while(fleet: World) -> None:
    call(fleet)
    fleet.plane.confirmations.decline(code(fleet), ANNA)
    with pytest.raises(errors.NotAllowedError, match="declined"):
        call(fleet)
    fleet.clock.forward(confirmations.CONFIRMED_US // S + 1)
    assert call(fleet) is not None


ABOUT = dataclasses.replace(EFFECT, about="pool ci")


@pytest.mark.parametrize(
    ("changed", "is_refused"),
    [
        pytest.param({}, True, id="the object by another name"),
        pytest.param({"by": Principal("t9", "claude", Role.ADMIN, assistant=True)}, True, id="another token of the name"),
        pytest.param({"by": OTHER}, False, id="another assistant"),
        pytest.param({"action": "pool.delete"}, False, id="another action"),
        pytest.param({"effect": dataclasses.replace(EFFECT, about="pool lab")}, False, id="another object"),
        pytest.param({"effect": EFFECT}, False, id="no object"),
    ],
)  # fmt: skip
def test_what_was_declined_about_an_object_is_declined_by_any_name_of_it(
    fleet: World, changed: dict[str, object], *, is_refused: bool
) -> None:
    call(fleet, effect=ABOUT)
    fleet.plane.confirmations.decline(code(fleet), ANNA)
    again: dict[str, object] = {"arguments": {"name": "CI"}, "effect": ABOUT, **changed}
    if is_refused:
        with pytest.raises(errors.NotAllowedError, match="declined"):
            call(fleet, **again)  # type: ignore[arg-type]
    else:
        assert call(fleet, **again) is not None  # type: ignore[arg-type]


def test_a_declined_call_without_an_object_declines_no_other_one(fleet: World) -> None:
    call(fleet)
    fleet.plane.confirmations.decline(code(fleet), ANNA)
    assert call(fleet, arguments={"name": "lab"}) is not None


def test_a_caller_cannot_flood_people(fleet: World) -> None:
    for number in range(confirmations.MOST):
        assert call(fleet, arguments={"name": str(number)}) is not None
    with pytest.raises(errors.QuotaError):
        call(fleet, arguments={"name": "one more"})
    assert call(fleet, by=OTHER) is not None


def test_a_confirmation_is_used_by_one_of_many_calls_at_once(fleet: World) -> None:
    call(fleet)
    fleet.plane.confirmations.confirm(code(fleet), ANNA)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda _: call(fleet), range(8)))
    assert outcomes.count(None) == 1


def test_old_requests_are_removed(fleet: World) -> None:
    pending = call(fleet)
    assert pending is not None
    fleet.clock.forward(500 * 86_400)
    fleet.plane.maintain()
    with pytest.raises(errors.NotFoundError):
        fleet.plane.confirmations.show(pending.id, ANNA)


def test_a_person_has_ten_minutes_to_decide_and_the_caller_five_to_repeat(fleet: World) -> None:
    call(fleet)
    fleet.clock.forward(599)
    fleet.plane.confirmations.confirm(code(fleet), ANNA)
    fleet.clock.forward(299)
    assert call(fleet) is None
    call(fleet)
    fleet.clock.forward(600)
    assert fleet.plane.confirmations.list(ANNA) == ()
    call(fleet)
    fleet.plane.confirmations.confirm(code(fleet), ANNA)
    fleet.clock.forward(300)
    assert call(fleet) is not None


def test_the_order_of_arguments_does_not_matter(fleet: World) -> None:
    call(fleet, arguments={"name": "ci", "why": "x"})
    fleet.plane.confirmations.confirm(code(fleet), ANNA)
    assert call(fleet, arguments={"why": "x", "name": "ci"}) is None


def test_a_decision_shows_who_made_it_and_when(fleet: World) -> None:
    for decide in (fleet.plane.confirmations.confirm, fleet.plane.confirmations.decline):
        asked = call(fleet, arguments={"name": decide.__name__})
        assert asked is not None
        fleet.clock.forward(60)
        decide(code(fleet), ANNA)
        shown = fleet.plane.confirmations.show(asked.id, ANNA)
        assert (shown.decided_by, shown.decided_us) == ("anna (t3)", fleet.clock())
        row = fleet.plane.audit_log().items[0]
        assert (row.target, row.why) == (asked.id, "drain pool ci")
    with pytest.raises(errors.NotAllowedError) as raised:
        call(fleet, arguments={"name": "decline"})
    assert raised.value.why == f"anna (t3) declined {shown.id}"


def test_a_code_is_of_use_once(fleet: World) -> None:
    for decide in (fleet.plane.confirmations.confirm, fleet.plane.confirmations.decline):
        fleet.clock.forward(1)  # the newest one is the first of the list
        call(fleet, arguments={"name": decide.__name__})
        waiting = code(fleet)
        decide(waiting, ANNA)
        for again in (fleet.plane.confirmations.confirm, fleet.plane.confirmations.decline):
            with pytest.raises(errors.NotFoundError):
                again(waiting, ANNA)


def test_open_requests_are_listed_newest_first(fleet: World) -> None:
    asked = []
    for number in range(3):
        fleet.clock.forward(1)
        asked.append(call(fleet, arguments={"name": str(number)}))
    assert fleet.plane.confirmations.list(ANNA) == tuple(reversed(asked))


def test_a_request_of_another_effect_says_that_the_first_is_void(fleet: World) -> None:
    call(fleet)
    changed = dataclasses.replace(EFFECT, ends=("m-9",))
    with pytest.raises(ConfirmationNeededError) as raised:
        fleet.plane.confirmations.require(CLAUDE, "pool.drain", Role.ADMIN, ARGUMENTS, changed)
    assert raised.value.why == "the state has changed since the first request, which is void"
