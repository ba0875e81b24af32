"""Every operation on reservations, by the names that operators use.

    plane = control.ControlPlane(context.Context(engine.Database("sqlite:////…"), providers))
    reservation = plane.reserve(plane.preflight(Order(provider="local")))
    plane.tick()          # every minute: renews, checks, gives back what has ended
    plane.release(reservation.id)

Several control planes may use one database at once, in one process or in many.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from typing import NoReturn

from overnight import errors, reservations
from overnight.model.reservation import (
    MAX_SECONDS,
    Member,
    Order,
    Preflight,
    Reservation,
    ReservationEvent,
    ReservationState,
    ReservedHost,
)
from overnight.model.times import SECOND_US
from overnight.reservations import acceptance, context, decisions, driver, preflight, selection
from overnight.reservations.sql import reservation_rows

POLL_SECONDS = 2.0  # between two steps while hosts become empty
State = ReservationState


def _quiet(_: str) -> None:
    return


class ControlPlane:
    def __init__(self, control: context.Context) -> None:
        self.context = control

    def list(self, *, ended: bool = False) -> tuple[Reservation, ...]:
        with self.context.database.read() as connection:
            return tuple(reservation_rows.list_all(connection, ended=ended))

    def show(self, reservation_id: str) -> Reservation:
        with self.context.database.read() as connection:
            found = reservation_rows.find(connection, reservation_id)
        return found or _refuse_unknown(reservation_id)

    def events(self, reservation_id: str, limit: int = 100) -> tuple[ReservationEvent, ...]:
        with self.context.database.read() as connection:
            return reservation_rows.list_events(connection, reservation_id, limit)

    def members(self, reservation_id: str) -> tuple[Member, ...]:
        now, members = self.show(reservation_id), []
        for host in now.held:
            heard, known = (
                self.context.hear(host.name, now.order),
                self.context.hooks.heard(host.name),
            )
            name = known.name if known else ""
            members.append(Member(name=host.name, agent=host.agent, fleet_host=name, agent_us=heard.agent_us))  # fmt: skip
        return tuple(members)

    def preflight(self, order: Order) -> Preflight:
        """Return what an order would do; change nothing."""
        provider = self.context.provider(order.provider)
        selection.check_order(order, provider.ignores)
        return preflight.plan_hosts(provider, order, self.context.clock())

    def find_created(self, order: Order, key: str) -> Reservation | None:
        """Return what an earlier `create` with this key and order made; raise ConflictError for another order."""
        with self.context.database.read() as connection:
            found = reservation_rows.find(connection, _make_id(order, key)) if key else None
        if found is not None and found.order != order:
            raise errors.ConflictError(
                f"the idempotency key {key!r} was used before",
                why=f"{found.id} was made with it by another order",
                todo="use a new key for a new order",
            )
        return found

    def create(self, plan: Preflight, key: str = "") -> Reservation:
        """Write the record of a reservation, before the first call to the platform.

        The same order with the same key returns the reservation that the first call made.
        """
        if (found := self.find_created(plan.order, key)) is not None:
            return found
        selection.check_enough(plan)
        now_us = self.context.clock()
        until_us, cap_us = decisions.first_lease(plan.order, now_us)
        made = Reservation(
            id=_make_id(plan.order, key),
            order=plan.order,
            state=State.PREPARING,
            made_us=now_us,
            until_us=until_us,
            cap_us=cap_us,
            hosts=tuple(map(ReservedHost.planned, plan.hosts)),
        )
        with self.context.database.write("create reservation") as connection:
            if reservation_rows.insert(connection, made):
                created = ReservationEvent(now_us, "created", "", plan.order.owner)
                reservation_rows.add_events(connection, made.id, [created])
        return self.find_created(plan.order, key) or made

    def reserve(self, plan: Preflight, progress: reservations.Progress = _quiet) -> Reservation:
        """Reserve hosts and wait until all are held; if not all can be, release them and raise CannotError."""
        made = self.create(plan)
        progress(f"created {made.id}")
        try:
            driven = driver.take(self.context, made, progress)
            while (now := driven.step()).state is State.PREPARING:
                wait = (now.next_us - self.context.clock()) / SECOND_US
                self.context.sleep(max(POLL_SECONDS, wait))
            if driven.reservation.state is State.ACTIVE:
                driven.step()  # the first checks
            return accept(driven.free())
        except driver.FenceLostError:
            return self._wait_for_other(made.id)
        except KeyboardInterrupt:
            self.release(made.id, "stopped by Ctrl-C", progress)
            raise

    def _wait_for_other(self, reservation_id: str) -> Reservation:
        """Return the reservation once the driver that took it over, or its successor, has prepared it."""
        while (now := self.show(reservation_id)).state is State.PREPARING:
            self.context.sleep(POLL_SECONDS)
            self.drive(now)
        return accept(now)

    def release(
        self,
        reservation_id: str,
        reason: str = "released by hand",
        progress: reservations.Progress = _quiet,
        *,
        later: bool = False,
    ) -> Reservation:
        """Give the hosts back; takes over from any other driver. What the platform refuses is retried later.

        With `later` only the record is written: the next tick of a server does the work.
        """
        while (now := self.show(reservation_id)).state is not State.RELEASED:
            ending = now.state is State.RELEASING
            changes = {} if ending else {"state": State.RELEASING, "reason": reason}
            try:
                driven = driver.take(self.context, now, progress, next_us=0, attempts=0, **changes)
                if not later:
                    driven.step()
                return driven.free()
            except driver.FenceLostError:
                continue  # another one was quicker: look again
        return now

    def extend(self, reservation_id: str, seconds: int) -> Reservation:
        """Set the end of an active reservation, from now, and its cap if that is earlier."""
        now = self.show(reservation_id)
        now_us = self.context.clock()
        until_us = now_us + seconds * SECOND_US
        if now.state is not State.ACTIVE or now_us >= now.until_us:
            raise errors.ConflictError(
                f"cannot extend {reservation_id}: it is {now.state}",
                why="only an active reservation whose lease has not ended can be extended",
                todo="reserve hosts again",
            )
        if not now_us < until_us <= now.made_us + MAX_SECONDS * SECOND_US:
            raise errors.UsageError(
                f"invalid --for {seconds}s",
                why=f"a reservation ends {MAX_SECONDS // 86400} days after it was made, at the latest",
                todo="choose a shorter time",
            )
        changes = {"until_us": until_us, "cap_us": max(now.cap_us, until_us)}
        try:
            driven = driver.take(self.context, now, _quiet, **changes)
            driven.step()  # writes it on the hosts
            return driven.free()
        except driver.FenceLostError:
            raise errors.ConflictError(
                f"cannot extend {reservation_id} now",
                why="another process changes it at this moment",
                todo="try again",
            ) from None

    def tick(self, progress: reservations.Progress = _quiet) -> tuple[Reservation, ...]:
        """Drive every open reservation that no other driver has, one step; call it about every minute."""
        with self.context.database.read() as connection:
            due = reservation_rows.list_due(connection, self.context.clock())
        driven: list[Reservation] = []
        for reservation in due:
            if why := self.context.find_obstacle(reservation):
                progress(f"{reservation.id}: {why}")
                continue
            try:
                driven += filter(None, [self.drive(reservation, progress)])
            except errors.OvernightError as error:  # must not keep the others from being given back
                progress(f"{reservation.id}: {error.what}: {error.why}")
        return tuple(driven)

    def drive(
        self, reservation: Reservation, progress: reservations.Progress = _quiet
    ) -> Reservation | None:
        """Drive a reservation, as it was read, one step if one is due; None if not, or if another driver has it."""
        if max(reservation.driver_until_us, reservation.next_us) > self.context.clock():
            return None
        with contextlib.suppress(driver.FenceLostError):
            driven = driver.take(self.context, reservation, progress)
            driven.step()
            return driven.free()
        return None

    def forget(self, before_us: int) -> int:
        """Delete released reservations that were made before a time, with their hosts and events; return how many."""
        with self.context.database.write("forget reservations") as connection:
            return reservation_rows.delete_released(connection, before_us)

    def check(self, reservation_id: str, *, load: bool = False) -> Reservation:
        """Check every held host now, without a change to the platform; `load` runs a load on each, too."""
        now = self.show(reservation_id)
        provider = self.context.provider(now.order.provider)
        claims = {
            h.host: h.gone for h in provider.list_held(now.order) if h.claimed and h.id == now.id
        }
        for host in now.held:
            lost = claims.get(host.name, "the host does not carry the lease")
            found = provider.list_workloads(host.name, now.order, now.lease)
            heard = self.context.hear(host.name, now.order)
            checks = [
                acceptance.check_marks(lost),
                acceptance.check_workloads(found),
                acceptance.check_agent(heard, self.context.clock()),
                acceptance.check_clock(heard),
            ]
            if load:
                gate = self.context.hooks.load_gate
                checks.append(gate(now.order.provider, host.name))
            with self.context.database.write("write checks") as connection:
                merged = acceptance.merge(host, checks, self.context.clock())
                reservation_rows.write_checks(connection, now.id, host.name, merged)
        return self.show(reservation_id)


def _make_id(order: Order, key: str) -> str:
    """Return a new id; with a key, the one of this order's owner and key."""
    if not key:
        return f"r-{secrets.token_hex(6)}"
    return "r-" + hashlib.sha256(f"{order.owner}\0{key}".encode()).hexdigest()[:12]


def accept(reservation: Reservation) -> Reservation:
    """Return a reservation that was made; raise CannotError for one that failed, or that others still prepare."""
    if reservation.state is State.ACTIVE:
        return reservation
    if reservation.state is State.PREPARING:
        raise errors.CannotError(
            f"{reservation.id} is still being prepared",
            why="; ".join(f"{h.name}: {h.detail or h.state}" for h in reservation.open),
            todo=f"the server goes on: `overnight reservations show {reservation.id}` follows it, `overnight release {reservation.id}` ends it",
        )
    left = [host.name for host in reservation.open]
    raise errors.CannotError(
        f"{reservation.id} could not be made",
        why=reservation.reason,
        todo=f"still to be released: {', '.join(left)}; `overnight release {reservation.id}` tries again"
        if left
        else "every host was released; change the order, and try again",
    )


def _refuse_unknown(reservation_id: str) -> NoReturn:
    raise errors.NotFoundError(
        f"no reservation {reservation_id!r}",
        why="this database has none of that id",
        todo="overnight reservations list --all",
    )
