"""Rows of windows: bundles that hosts offer, and those that are stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.fleet.sql import schema
from overnight.model.control_plane import WindowRow

if TYPE_CHECKING:
    from overnight.model.uplink import Offer

windows, hosts = schema.windows, schema.hosts
SHOWN = [column for column in windows.c if column.name != "host_id"]
HELD = sa.and_(windows.c.received_us.is_not(None), windows.c.dropped_us.is_(None))


def offer(
    connection: sa.Connection, host_id: str, offers: Sequence[Offer], now_us: int, most: int
) -> dict[str, sa.Row[Any]]:
    """Add offered windows that are new, while the host has fewer than `most`; return those that are known by SHA-256."""
    of_host = windows.c.host_id == host_id
    offered = sa.select(windows).where(of_host, windows.c.sha256.in_([o.sha256 for o in offers]))
    known = {row.sha256 for row in connection.execute(offered)}
    if new := [offer for offer in offers if offer.sha256 not in known]:
        waiting = sa.select(sa.func.count()).where(of_host, sa.not_(HELD))
        room = max(0, most - connection.execute(waiting).scalar_one())
        rows = ({"host_id": host_id, "offered_us": now_us, **vars(o)} for o in new[:room])
        statements.add_missing(connection, windows, *rows)
    return {row.sha256: row for row in connection.execute(offered)}


def find(connection: sa.Connection, host_id: str, sha256: str) -> sa.Row[Any] | None:
    own = (windows.c.host_id == host_id, windows.c.sha256 == sha256)
    return connection.execute(sa.select(windows).where(*own)).first()


def search(
    connection: sa.Connection, host: str, event: str, begin_us: int, end_us: int
) -> list[WindowRow]:
    """Return the windows of a host's event, or ('') those that touch a span of time."""
    touching = sa.and_(windows.c.begin_us < end_us, windows.c.end_us > begin_us)
    wanted = windows.c.event == event if event else touching
    chosen = sa.select(*SHOWN, hosts.c.name.label("host")).join(hosts)
    rows = connection.execute(
        chosen.where(hosts.c.name == host, wanted).order_by(
            windows.c.begin_us, windows.c.offered_us
        )
    )
    return [WindowRow(**row._mapping) for row in rows]


def is_held(connection: sa.Connection, sha256: str) -> bool:
    chosen = sa.select(windows.c.sha256).where(windows.c.sha256 == sha256, HELD).limit(1)
    return connection.execute(chosen).first() is not None


def receive(connection: sa.Connection, host_id: str, sha256: str, now_us: int) -> None:
    own = (windows.c.host_id == host_id, windows.c.sha256 == sha256)
    received = sa.update(windows).where(*own, windows.c.received_us.is_(None))
    connection.execute(received.values(received_us=now_us))


def list_held(connection: sa.Connection, host_id: str | None = None) -> list[sa.Row[Any]]:
    """Return what is stored, of all hosts by default, the newest first."""
    of_host = [windows.c.host_id == host_id] if host_id is not None else []
    chosen = sa.select(
        windows.c.host_id, windows.c.sha256, windows.c.bytes, windows.c.received_us
    ).where(HELD, *of_host)
    return [*connection.execute(chosen.order_by(windows.c.received_us.desc()))]


def drop(connection: sa.Connection, rows: Collection[sa.Row[Any]], now_us: int) -> set[str]:
    """Mark windows as dropped; return those SHA-256 that nothing stored has any more."""
    for row in rows:
        own = (windows.c.host_id == row.host_id, windows.c.sha256 == row.sha256)
        connection.execute(sa.update(windows).where(*own).values(dropped_us=now_us))
    gone = {row.sha256 for row in rows}
    still = sa.select(windows.c.sha256).where(HELD, windows.c.sha256.in_(gone))
    return gone - {*connection.execute(still).scalars()}


def delete_old(connection: sa.Connection, before_us: int) -> None:
    """Delete offers and dropped windows of a time before."""
    old = sa.and_(sa.not_(HELD), windows.c.offered_us < before_us)
    connection.execute(windows.delete().where(old))
