"""Use cases of reservations: what `overnight reserve`, `release`, `reservations` and `janitor` do."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from overnight import app, errors
from overnight.model import data_home, times
from overnight.model.reservation import (
    Candidate,
    CheckState,
    HostPlan,
    Member,
    Order,
    Preflight,
    Reservation,
    ReservationEvent,
)
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight import reservations
    from overnight.database import engine
    from overnight.model.snapshot import Snapshot
    from overnight.reservations import control, janitor

# Parts of a snapshot that make a host like production; others differ from host to host.
COMPARED = ("os", "kernel", "packages")
SHOWN_DIFFERENCES = 10


@dataclasses.dataclass(frozen=True)
class Report:
    """A reservation and what happened to it, the oldest first."""

    reservation: Reservation
    events: tuple[ReservationEvent, ...]

    @property
    def failed(self) -> bool:
        """Whether a check of a host failed."""
        hosts = self.reservation.held
        return any(check.state is CheckState.FAILED for host in hosts for check in host.checks)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": "overnight.reservation/1",
            **self.reservation.as_json(),
            "events": [vars(event) for event in self.events],
        }


@dataclasses.dataclass(frozen=True)
class Cleaning:
    """What a janitor found on a platform, and did."""

    order: Order
    marks: tuple[janitor.Cleaned, ...]
    dry_run: bool

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(f"{mark.held.host}: {mark.problem}" for mark in self.marks if mark.problem)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": "overnight.janitor/1",
            "provider": self.order.provider,
            "where": self.order.where,
            "region": self.order.region,
            "dry_run": self.dry_run,
            "marks": [dataclasses.asdict(mark) for mark in self.marks],
        }


def list_providers() -> tuple[str, ...]:
    from overnight import app
    from overnight.reservations import providers

    return tuple(sorted(module.NAME for module in app.discover(providers)))


def open_providers(
    home: pathlib.Path, url: str = "", only: str = ""
) -> dict[str, reservations.Provider]:
    """Return the providers by name; `only` one of them needs to be usable here."""
    from overnight import reservations
    from overnight.app import pools
    from overnight.reservations import context, providers

    settings = reservations.Settings(home=home, pools=lambda: pools.Pools(home, url).plane)
    modules = {str(module.NAME): module for module in app.discover(providers)}
    if only and only not in modules:
        context.find_provider(dict.fromkeys(modules), only)  # type: ignore[arg-type]  # raises
    chosen = {only: modules[only]} if only else modules
    available: dict[str, reservations.Provider] = {}
    for name, module in chosen.items():
        create: Callable[[reservations.Settings], reservations.Provider] = module.create
        try:
            available[name] = create(settings)
        except errors.OvernightError:  # a library of that platform is missing
            if only:
                raise
    return available


class Reservations:
    """The reservations of a data home, or of the database at `url`; opened on first use.

    `operations` lists the methods that a server publishes, and that `remote_operations` has from it.
    """

    def __init__(
        self, home: pathlib.Path, url: str = "", database: engine.Database | None = None
    ) -> None:
        self.home = home
        self._url = url
        self._database = database  # one that is open

    @functools.cached_property
    def plane(self) -> control.ControlPlane:
        """Every operation on reservations."""
        from overnight.app import reservation_hooks
        from overnight.database import engine
        from overnight.reservations import context, control

        if not self._url or self.home.exists():
            data_home.prepare(self.home, trusted=())
        url = self._url or engine.default_url(self.home)
        providers = open_providers(self.home, url)
        database = self._database or engine.Database(url)
        return control.ControlPlane(
            context.Context(database, providers, hooks=reservation_hooks.make(database, self.home))
        )

    def preflight(self, order: Order, reference: pathlib.Path | None = None) -> Preflight:
        """Return what an order would do; `reference` is the snapshot of a host of production."""
        from overnight.app import snapshot

        plan = self.plane.preflight(order)
        if reference is not None:
            wanted: Snapshot | None = snapshot.load(reference)
        else:
            wanted = self._fleet_snapshot(order.reference) if order.reference else None
        if wanted is None:
            return plan
        hosts = tuple(self._compare(order, each, wanted) for each in plan.hosts)
        return dataclasses.replace(plan, hosts=hosts)

    def compare_hosts(self, reservation: Reservation) -> dict[str, tuple[str, ...]]:
        """Return what differs on each held host from the reference of the order, by their snapshots."""
        order = reservation.order
        wanted = self._fleet_snapshot(order.reference) if order.reference else None
        if wanted is None:
            return {}
        plans = (HostPlan(host=Candidate(name=host.name)) for host in reservation.held)
        compared = [self._compare(order, plan, wanted) for plan in plans]
        return {each.host.name: each.differences for each in compared}

    def _fleet_snapshot(self, host: str) -> Snapshot | None:
        from overnight.app import reservation_hooks
        from overnight.fleet import inventory

        fleet = reservation_hooks.open_fleet(self.plane.context.database, self.home)
        return inventory.Inventory(fleet).snapshot(host)

    def _compare(self, order: Order, plan: HostPlan, reference: Snapshot) -> HostPlan:
        """Add what differs between a host and the reference, by their snapshots."""
        from overnight.app import reservation_hooks, snapshot
        from overnight.model.snapshot import compare

        here = order.provider == reservation_hooks.LOCAL
        taken = snapshot.take() if here else self._fleet_snapshot(plan.host.name)
        if taken is None:
            warning = "its packages are not compared: no agent has reported a snapshot of it"
            return dataclasses.replace(plan, warnings=(*plan.warnings, warning))
        changes = [c for c in compare(reference, taken).changes if c.part in COMPARED]
        found = [
            f"{c.part} {c.key} {c.property}".rstrip()
            + f" is {c.after or 'missing'}, {reference.header.get('host', 'the reference')} has {c.before or 'none'}"
            for c in changes
        ]
        if len(found) > SHOWN_DIFFERENCES:
            found[SHOWN_DIFFERENCES:] = [f"{len(found) - SHOWN_DIFFERENCES} more differences"]
        return dataclasses.replace(plan, differences=(*plan.differences, *found))

    def reserve(
        self,
        order: Order,
        *,
        confirmed: bool,
        plan: Preflight | None = None,
        progress: reservations.Progress = lambda _: None,
    ) -> Report:
        """Reserve hosts and wait until all are held, by default as a new preflight plans it.

        Raise UnconfirmedError, unless `confirmed`, if others are disturbed or a host is not like production.
        """
        plan = plan or self.preflight(order)
        check_consent(plan, confirmed=confirmed)
        return self.show(self.plane.reserve(plan, progress).id)

    def create(
        self,
        order: Order,
        *,
        confirmed: bool,
        agreed: tuple[str, ...] | None = None,
        idempotency_key: str = "",
    ) -> Report:
        """Write the record of a reservation, which the servers of the database carry out.

        Refused, unless `confirmed`, if others are disturbed or a host is not like production. `agreed` are the
        concerns of the preflight that was confirmed: what is not among them is refused. The same order with the same
        key returns the same reservation.
        """
        made = self.plane.find_created(order, idempotency_key)
        if made is None:
            plan = self.preflight(order)
            check_consent(plan, confirmed=confirmed, agreed=agreed)
            made = self.plane.create(plan, idempotency_key)
        return self.show(made.id)

    def drive(
        self, reservation_id: str, progress: reservations.Progress = lambda _: None
    ) -> Report:
        """Take the next step of one reservation, if it is due and no other process takes it; call it every few seconds."""
        self.plane.drive(self.plane.show(reservation_id), progress)
        return self.show(reservation_id)

    def members(self, reservation_id: str) -> tuple[Member, ...]:
        """List the hosts that are held, with what is known of their agents now."""
        return self.plane.members(reservation_id)

    def release(
        self, reservation_id: str, *, progress: reservations.Progress = lambda _: None
    ) -> Report:
        """Give the hosts of a reservation back."""
        return self.show(self.plane.release(reservation_id, progress=progress).id)

    def end(self, reservation_id: str) -> Report:
        """Ask for the release of a reservation, which the servers of the database carry out."""
        return self.show(self.plane.release(reservation_id, later=True).id)

    def release_all(
        self, *, confirmed: bool, progress: reservations.Progress = lambda _: None
    ) -> tuple[Reservation, ...]:
        """Give back the hosts of every reservation in this database; refused unless `confirmed`."""
        listed = self.list()
        what = f"this releases {plural(len(listed), 'reservation')}"
        named = [f"{r.id} ({r.order.owner or 'no owner'})" for r in listed]
        _check_confirmed(what, named, confirmed=confirmed)
        return tuple(self.release(r.id, progress=progress).reservation for r in listed)

    def release_marks(self, order: Order, *, confirmed: bool) -> Cleaning:
        """Remove every mark of ours on a platform that no open reservation here explains."""
        from overnight.reservations import janitor

        provider = self.plane.context.provider(order.provider)
        known = [reservation.id for reservation in self.list()]
        unknown = [held for held in provider.list_held(order) if held.id not in known]
        what = f"this releases {plural(len(unknown), 'host')} that this database does not know"
        named = [f"{h.host} ({h.lease.owner if h.lease else 'unreadable'})" for h in unknown]
        _check_confirmed(what, named, confirmed=confirmed)
        why = "all marks were to be released"
        marks = tuple(janitor.release_mark(provider, order, held, why) for held in unknown)
        return Cleaning(order, marks, dry_run=False)

    def list(self, *, ended: bool = False) -> tuple[Reservation, ...]:
        """List open reservations, the newest first."""
        return self.plane.list(ended=ended)

    def show(self, reservation_id: str, *, recent: int = 100) -> Report:
        """Show a reservation with its hosts, checks and events."""
        return Report(self.plane.show(reservation_id), self.plane.events(reservation_id, recent))

    def check(self, reservation_id: str, *, load: bool = False) -> Report:
        """Check every host of a reservation now."""
        return self.show(self.plane.check(reservation_id, load=load).id)

    def extend(self, reservation_id: str, seconds: int) -> Report:
        """Set the end of a reservation, from now."""
        return self.show(self.plane.extend(reservation_id, seconds).id)

    def tick(self, progress: reservations.Progress = lambda _: None) -> tuple[Reservation, ...]:
        """Drive every open reservation one step: renew, check, give back; call it every minute."""
        return self.plane.tick(progress)


def clean(home: pathlib.Path, order: Order, *, dry_run: bool = False) -> Cleaning:
    """Remove marks whose lease has ended, with nothing but the platform: the database is not opened."""
    from overnight.reservations import janitor

    provider = open_providers(home, only=order.provider)[order.provider]
    marks = janitor.clean(provider, order, clock=times.now_us, dry_run=dry_run)
    return Cleaning(order, marks, dry_run)


def check_consent(
    plan: Preflight, *, confirmed: bool, agreed: tuple[str, ...] | None = None
) -> None:
    """Raise CannotError for too few hosts, UnconfirmedError or ConflictError for what was not confirmed."""
    from overnight.reservations import selection

    selection.check_enough(plan)
    what = "reserving these hosts disturbs others" if plan.disruptive else "a host is not like the reference"  # fmt: skip
    _check_confirmed(what, plan.concerns, confirmed=confirmed)
    new = [] if agreed is None else [text for text in plan.concerns if text not in agreed]
    if new:
        raise errors.ConflictError(
            "the plan has changed since it was confirmed",
            why=_shorten(new),
            todo="repeat the command, and confirm what it does now",
        )


def _check_confirmed(what: str, concerns: Sequence[str], *, confirmed: bool) -> None:
    if concerns and not confirmed:
        raise errors.UnconfirmedError(what, why=_shorten(concerns), todo="add --yes")


def _shorten(texts: Sequence[str]) -> str:
    return "; ".join(texts[:5]) + (f"; {len(texts) - 5} more" if len(texts) > 5 else "")
