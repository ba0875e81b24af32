"""Rows of reservations. A write of a driver whose fence is not the last one changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.model import decoding
from overnight.model.reservation import (
    Check,
    Order,
    Reservation,
    ReservationEvent,
    ReservationState,
    ReservedHost,
)
from overnight.reservations.sql import schema

reservations, hosts, events = schema.reservations, schema.hosts, schema.events
# In words of the partial index: the planner uses it.
OPEN: sa.ColumnElement[bool] = sa.literal_column("reservations.state <> 'released'", sa.Boolean)


def insert(connection: sa.Connection, reservation: Reservation) -> bool:
    """Write a new reservation; False if one with its id is there, which stays as it is."""
    new = statements.insert(connection, reservations).on_conflict_do_nothing()
    written = new.values(_row(reservation)).returning(reservations.c.id)
    if connection.execute(written).first() is None:
        return False
    _write_hosts(connection, reservation)
    return True


def delete_released(connection: sa.Connection, before_us: int) -> int:
    old = (reservations.c.state == ReservationState.RELEASED, reservations.c.made_us < before_us)
    return connection.execute(sa.delete(reservations).where(*old)).rowcount


def save(connection: sa.Connection, reservation: Reservation) -> bool:
    """Write a reservation with its hosts; False if another driver has it."""
    row = _row(reservation)
    fenced = reservations.c.fence == row.pop("fence")
    if not statements.update(reservations, connection, row.pop("id"), fenced, **row):
        return False
    _write_hosts(connection, reservation)
    return True


def change(connection: sa.Connection, reservation: Reservation, **changes: object) -> bool:
    """Change columns of a reservation; False if another driver has taken it since it was read."""
    fenced = reservations.c.fence == reservation.fence
    return statements.update(reservations, connection, reservation.id, fenced, **changes)


def _row(reservation: Reservation) -> dict[str, Any]:
    row = {name: value for name, value in vars(reservation).items() if name != "hosts"}
    return row | {"order": dataclasses.asdict(reservation.order)}


def _write_hosts(connection: sa.Connection, reservation: Reservation) -> None:
    for position, host in enumerate(reservation.hosts):
        row = {**vars(host), "reservation_id": reservation.id, "position": position}
        row |= {"facts": dict(host.facts), "checks": [vars(check) for check in host.checks]}
        statements.upsert(connection, hosts, row)


def find(connection: sa.Connection, reservation_id: str) -> Reservation | None:
    return next(iter(_read(connection, reservations.c.id == reservation_id)), None)


def list_all(connection: sa.Connection, *, ended: bool) -> list[Reservation]:
    """Return open reservations, and with `ended` also others, the newest first."""
    return _read(connection, *(() if ended else (OPEN,)), limit=1000)


def list_due(connection: sa.Connection, now_us: int) -> list[Reservation]:
    """Return the open reservations that a driver may take now."""
    free = reservations.c.driver_until_us <= now_us
    return _read(connection, OPEN, free, reservations.c.next_us <= now_us)


def _read(
    connection: sa.Connection, *where: sa.ColumnElement[bool], limit: int | None = None
) -> list[Reservation]:
    newest = (reservations.c.made_us.desc(), reservations.c.id)
    chosen = sa.select(reservations).where(*where).order_by(*newest).limit(limit)
    rows = [dict(row._mapping) for row in connection.execute(chosen)]
    of = sa.select(hosts).where(hosts.c.reservation_id.in_([row["id"] for row in rows]))
    known: dict[str, list[ReservedHost]] = {}
    for row in connection.execute(of.order_by(hosts.c.position)):
        known.setdefault(row.reservation_id, []).append(_host(dict(row._mapping)))
    return [_reservation(row, known.get(row["id"], [])) for row in rows]


def _reservation(row: dict[str, Any], of: Iterable[ReservedHost]) -> Reservation:
    return Reservation(**row | {"order": decoding.decode(Order, row["order"]), "hosts": tuple(of)})


def _host(row: dict[str, Any]) -> ReservedHost:
    del row["reservation_id"], row["position"]
    return ReservedHost(**row | {"checks": decoding.decode(tuple[Check, ...], row["checks"])})


def write_checks(
    connection: sa.Connection, reservation_id: str, host: str, checks: Iterable[Check]
) -> None:
    changed = sa.update(hosts).where(hosts.c.reservation_id == reservation_id, hosts.c.name == host)
    connection.execute(changed.values(checks=[vars(check) for check in checks]))


def add_events(
    connection: sa.Connection, reservation_id: str, happened: Iterable[ReservationEvent]
) -> None:
    for event in happened:
        connection.execute(events.insert().values(reservation_id=reservation_id, **vars(event)))


def list_events(
    connection: sa.Connection, reservation_id: str, limit: int
) -> tuple[ReservationEvent, ...]:
    """Return the last events, the oldest first."""
    shown = [events.c[field.name] for field in dataclasses.fields(ReservationEvent)]
    chosen = sa.select(*shown).where(events.c.reservation_id == reservation_id)
    rows = connection.execute(chosen.order_by(events.c.id.desc()).limit(limit)).all()
    return tuple(ReservationEvent(**row._mapping) for row in reversed(rows))
