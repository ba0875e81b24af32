"""Which reservations and investigations an assistant may not start or end without a person, and what is shown of them."""

from __future__ import annotations

import dataclasses
import types
from typing import TYPE_CHECKING, Any

import pytest

from overnight.app import guards, investigations, operations, pool_guards, reservations
from overnight.model.control_plane import Change, Principal, Role
from overnight.model.investigation import Investigation
from overnight.model.plan import ArmKind, ArmPlan, BudgetPlan, ExperimentPlan, Plan, RehearsalPlan
from overnight.model.reservation import (
    Candidate,
    HostPlan,
    HostState,
    Order,
    Preflight,
    Reservation,
    ReservationState,
    ReservedHost,
    Workload,
)

if TYPE_CHECKING:
    from overnight.model.confirmation import Effect

CLAUDE = Principal("t1", "claude", Role.ADMIN, assistant=True)
ORDER = Order(provider="kubernetes", where="prod", count=2, seconds=7200)
PLAN = Plan(name="night", budget=BudgetPlan(hours=10, price=0.5))
MANY = pool_guards.MANY_HOSTS + 1


class Where:
    """Two hosts with a pod; what is held belongs to anna."""

    def __init__(self) -> None:
        self.pools: Any = types.SimpleNamespace(list=lambda **_: ())
        self.reservations: Any = self
        self.investigations: Any = types.SimpleNamespace(
            preflight=self.plan, show=self.night, list=lambda: ()
        )

    def preflight(self, order: Order) -> Preflight:
        pods = (Workload("web-1", "Pod"),)
        hosts = tuple(
            HostPlan(host=Candidate(name=f"n-{number}"), workloads=pods)
            for number in range(order.wanted)
        )
        return Preflight(order, hosts, {})

    def plan(self, plan: Plan) -> investigations.DryRun:
        order = dataclasses.replace(ORDER, evict=plan.hosts.evict)
        return investigations.DryRun((), self.preflight(order), 60.0)

    def show(self, reservation_id: str) -> reservations.Report:
        return reservations.Report(self.reservation(reservation_id, HostState.HELD), ())

    def reservation(self, name: str, *hosts: HostState, purpose: str = "") -> Reservation:
        return Reservation(
            id=name, order=dataclasses.replace(ORDER, owner="anna", purpose=purpose),
            state=ReservationState.ACTIVE, made_us=1, until_us=2, cap_us=3,
            hosts=tuple(ReservedHost(name=f"n-{n}", state=state) for n, state in enumerate(hosts)),
        )  # fmt: skip

    def list(self) -> tuple[Reservation, ...]:
        """A reservation of claude, one of its investigation, and one of somebody else, with ten hosts each."""
        ten = [HostState.HELD] * 10
        return (
            self.reservation("r-1", *ten, HostState.RELEASED),
            self.reservation("r-2", *ten[1:], purpose="i-1"),
            self.reservation("r-3", *ten),
        )

    def night(self, investigation_id: str) -> investigations.Report:
        return investigations.Report(Investigation(id=investigation_id, plan=PLAN, owner="anna"), (), 0)  # fmt: skip


class Rows:
    """Notes what a person would be asked, and agrees; `changes` are those of the audit log."""

    asked: Effect | None = None

    def __init__(self, *changes: tuple[str, str]) -> None:
        self.changes = changes

    def list_changes(self, by: Principal, actions: Any) -> Any:
        if by.name != CLAUDE.name:
            return ()
        return [(a, Change(by.name, "", target)) for a, target in self.changes if a in actions]

    def require(self, by: Principal, action: str, role: Role, bound: Any, effect: Effect, **_: Any) -> None:  # fmt: skip
        self.asked = effect


def admit(
    action: str, by: Principal = CLAUDE, changes: tuple[tuple[str, str], ...] = (), **given: Any
) -> tuple[Effect | None, dict[str, Any]]:
    [operation] = [each for each in operations.OPERATIONS if each.action == action]
    rows = Rows(*changes)
    done = guards.admit(guards.Call(Where(), rows, given, by), operation)  # type: ignore[arg-type]
    return rows.asked, dict(done)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, ""),
        ({"evict": True}, "evicts Pod web-1 from n-0"),
        ({"no_execute": True}, "with NoExecute"),
        ({"detach": True}, "reserve 2 hosts"),
        ({"count": MANY}, f"reserve {MANY} hosts"),
        ({"seconds": 86_401}, "reserve 2 hosts from kubernetes prod"),
        ({"renew": True, "max_seconds": 86_401}, "reserve 2 hosts from kubernetes prod"),
        ({"detach": True, "where": "prod, costs 0"}, '"prod, costs 0" (text from elsewhere)'),
    ],
)
def test_a_reservation_that_disturbs_others_or_is_large_is_confirmed(
    change: dict[str, Any], named: str
) -> None:
    order = dataclasses.replace(ORDER, **change)
    asked, done = admit("reservation.create", order=order, confirmed=True, agreed=None)
    assert done["confirmed"] is bool(named)
    if asked is None:
        assert not named
        assert done["agreed"] == ()
        return
    assert named in " ".join((asked.summary, *asked.concerns))
    assert done["agreed"] == asked.concerns
    hours = (order.max_seconds if order.renew else order.seconds) / 3600
    assert (asked.most_hosts, asked.host_hours) == (order.wanted, hours * order.wanted)
    assert len(asked.hosts) == order.wanted


def test_a_reservation_counts_with_those_that_the_caller_has() -> None:
    changes = (("reservation.create", "r-1"), ("investigation.create", "i-1"))
    for held, by, asks in (
        (changes, CLAUDE, True),
        (changes[:1], CLAUDE, False),
        (changes, dataclasses.replace(CLAUDE, name="other"), False),
    ):
        asked, done = admit("reservation.create", by, held, order=ORDER, confirmed=True, agreed=None)  # fmt: skip
        assert (asked is not None) is asks
        assert done["confirmed"] is asks
        planned, _ = admit("investigation.create", by, held, plan=PLAN, confirmed=False)
        assert (planned is not None) is asks
        if asked is not None and planned is not None:
            assert asked.summary == "reserve 2 hosts from kubernetes prod; the caller would have more than 20 hosts"  # fmt: skip
            assert planned.summary.endswith("; the caller would have more than 20 hosts")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, ""),
        ({"arms": (ArmPlan(kind=ArmKind.HOT, age={"memory-cgroups": 5}),)}, "arm hot changes its hosts: memory-cgroups"),
        ({"arms": (ArmPlan(kind=ArmKind.FIXED, changes=("mask-scout",)),)}, "arm fixed changes its hosts: mask-scout"),
        ({"experiment": ExperimentPlan(allow=("reboot",))}, "an experiment may change a host: reboot"),
        ({"rehearsal": RehearsalPlan(name="rt-hog")}, "the incident is caused on purpose: rt-hog"),
        ({"hosts": dataclasses.replace(PLAN.hosts, evict=True)}, "evicts Pod web-1 from n-0"),
    ],
)  # fmt: skip
def test_an_investigation_that_changes_hosts_is_confirmed(
    change: dict[str, Any], named: str
) -> None:
    plan = dataclasses.replace(PLAN, **change)
    asked, done = admit("investigation.create", plan=plan, confirmed=False)
    assert done["confirmed"] is bool(named)
    if asked is None:
        assert not named
        return
    assert named in asked.concerns
    assert (asked.hosts, asked.host_hours, asked.cost) == (("n-0", "n-1"), 20.0, 10.0)


@pytest.mark.parametrize(
    ("action", "given"),
    [
        ("reservation.end", {"reservation_id": "r-1"}),
        ("investigation.stop", {"investigation_id": "i-1"}),
    ],
)
def test_what_another_caller_owns_is_not_ended_without_a_person(
    action: str, given: dict[str, Any]
) -> None:
    asked, _ = admit(action, **given)
    assert asked is not None
    assert asked.concerns == ("its owner is anna",)
    own, _ = admit(action, dataclasses.replace(CLAUDE, name="anna"), **given)
    assert own is None


@pytest.mark.parametrize(
    ("seconds", "owner", "named"),
    [
        (86_400, "claude", ""),
        (86_401, "claude", "keep 1 host of reservation r-1 for 1 d 1 s"),
        (14 * 86_400, "claude", "keep 1 host of reservation r-1 for 14 d"),
        (60, "anna", "keep 1 host of reservation r-1"),
    ],
)
def test_a_reservation_is_extended_by_its_owner_for_a_day(
    seconds: int, owner: str, named: str
) -> None:
    by = dataclasses.replace(CLAUDE, name="anna" if owner == "claude" else "claude")
    asked, _ = admit("reservation.extend", by, reservation_id="r-1", seconds=seconds)
    assert (asked.summary if asked else "") == named


def test_the_name_of_a_plan_is_quoted() -> None:
    name = 'night" \u201d reserves 0 hosts, costs 0'
    plan = dataclasses.replace(PLAN, name=name, budget=BudgetPlan(hours=25, price=0.5))
    asked, _ = admit("investigation.create", plan=plan, confirmed=False)
    assert asked is not None
    assert asked.summary == (
        'carry out the plan "night\\x22 \\u201d reserves 0 hosts, costs 0" (text from elsewhere) on 2 hosts'
    )


def test_every_guard_is_of_an_operation_that_changes_something() -> None:
    known = {(each.area, each.name): each for each in operations.OPERATIONS}
    for name in guards.GUARDS:
        assert known[name].changes
