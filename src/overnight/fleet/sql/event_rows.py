"""Rows of events. Texts and fields are in a document; columns hold what is searched."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.fleet.sql import schema
from overnight.model.event import Event
from overnight.model.severity import Severity
from overnight.model.times import MINUTE_US

if TYPE_CHECKING:
    from overnight.model.control_plane import EventFilter

events, hosts = schema.events, schema.hosts
COLUMNS = ("id", "time_us", "until_us", "count", "kind", "severity")
PLAIN = Event(0, "").as_json()
AHEAD_US = 5 * MINUTE_US  # a host's clock may be this much ahead of the server's


def put(connection: sa.Connection, host_id: str, new: Iterable[Event], now_us: int) -> None:
    """Write events; a known id is replaced by a later version alone: a later end, or a higher count.

    `until_us` is stored as it was sent, to compare versions by; `read` limits it.
    """
    rows = []
    for event in new:
        plain = event.as_json()
        rest = {k: v for k, v in plain.items() if k not in (*COLUMNS, "host") and v != PLAIN[k]}
        columns = {name: plain[name] for name in COLUMNS}
        stored = {"host_id": host_id, "received_us": now_us, "first_us": now_us, "document": rest}
        rows.append(columns | stored)
    if not rows:
        return
    insert = statements.insert(connection, events)
    later = insert.excluded
    changed = ("until_us", "count", "severity", "received_us", "document")
    statement = insert.on_conflict_do_update(
        index_elements=[events.c.host_id, events.c.id],
        set_={name: later[name] for name in changed},
        where=sa.or_(
            later.until_us > events.c.until_us,
            sa.and_(later.until_us == events.c.until_us, later["count"] > events.c["count"]),
        ),
    )
    connection.execute(statement, rows)


def _event(row: sa.Row[Any]) -> Event:
    fields = {name: row._mapping[name] for name in COLUMNS}
    fields["until_us"] = min(row.until_us, row.received_us + AHEAD_US)
    return Event(host=row.host, **fields, **row.document)


def _select(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(events, hosts.c.name.label("host")).join(hosts).where(*where)


def _matches(chosen: EventFilter) -> Iterator[sa.ColumnElement[bool]]:
    if chosen.kinds:
        exact = [kind for kind in chosen.kinds if not kind.endswith(".")]
        under = [events.c.kind.startswith(k, autoescape=True) for k in chosen.kinds if k.endswith(".")]  # fmt: skip
        yield sa.or_(events.c.kind.in_(exact), *under) if exact else sa.or_(*under)
    if chosen.hosts:
        ids = sa.select(hosts.c.id).where(hosts.c.name.in_(chosen.hosts))
        yield events.c.host_id.in_(ids)
    if chosen.severity:
        least = Severity.of(chosen.severity).rank
        yield events.c.severity.in_([s.value for s in Severity if s.rank >= least])
    if chosen.begin_us:
        yield events.c.time_us >= chosen.begin_us
    if chosen.end_us:
        yield events.c.time_us < chosen.end_us


def list_page(
    connection: sa.Connection, chosen: EventFilter, after: Sequence[Any], limit: int
) -> list[tuple[str, Event]]:
    """Return events with their host ids, the newest first, after a time, host id and id."""
    order = (events.c.time_us, events.c.host_id, events.c.id)
    where = [*_matches(chosen)]
    if after:
        where.append(sa.tuple_(*order) < sa.tuple_(*map(sa.literal, after)))
    newest = _select(*where).order_by(*(column.desc() for column in order)).limit(limit)
    return [(row.host_id, _event(row)) for row in connection.execute(newest)]


def read(connection: sa.Connection, chosen: EventFilter) -> Iterator[tuple[str, Event]]:
    """Yield all events with their host ids, in order of time."""
    for row in connection.execute(_select(*_matches(chosen)).order_by(events.c.time_us)):
        yield row.host_id, _event(row)


def find(connection: sa.Connection, text: str, host: str, limit: int = 6) -> list[Event]:
    """Return the event of an id, else those with an id or short id that begins with the text.

    Where several hosts have the id, the first that sent it has it, also after later versions of its event.
    """
    of_host = [hosts.c.name == host] if host else []
    first = _select(events.c.id == text, *of_host).order_by(events.c.first_us).limit(1)
    found = connection.execute(first).all()
    if not found and len(text) >= 4:
        begins = events.c.id.startswith(text, autoescape=True)
        short = events.c.id.contains(f"-{text}", autoescape=True)
        some = _select(sa.or_(begins, short), *of_host).order_by(events.c.received_us).limit(500)
        events_found = map(_event, connection.execute(some))
        return [e for e in events_found if e.id.startswith(text) or e.short_id.startswith(text)][:limit]  # fmt: skip
    return [_event(row) for row in found]


def dated_back(event: Event, now_us: int) -> Event:
    """Return an event that is dated in the future with the time of now; its fields keep the host's time."""
    if event.time_us <= now_us + AHEAD_US:
        return event
    fields = {**event.fields, "host_time_us": event.time_us}
    return dataclasses.replace(event, time_us=now_us, fields=fields)


def delete_old(connection: sa.Connection, before_us: int) -> None:
    connection.execute(events.delete().where(events.c.time_us < before_us))
