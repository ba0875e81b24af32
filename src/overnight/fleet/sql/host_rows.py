"""Rows of hosts, with labels, snapshots, audits and spells."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from overnight.database import column_types, statements
from overnight.fleet.sql import schema
from overnight.model import decoding
from overnight.model.audit import Report as Audit
from overnight.model.control_plane import AgentIdentity, HostFilter, HostRow
from overnight.model.snapshot import Snapshot
from overnight.model.uplink import Observed

hosts, labels, snapshots, spells = schema.hosts, schema.labels, schema.snapshots, schema.spells
credentials, unit_audits = schema.credentials, schema.unit_audits
SHOWN = [column for column in hosts.c if not column.name.startswith("day")]
# Every report needs these statements: built once, as building one takes longer than running it.
_LOCK = (
    sa.select(hosts)
    .join(credentials)
    .where(
        hosts.c.id == sa.bindparam("of_host"), credentials.c.hash == sa.bindparam("of_credential")
    )
    .with_for_update(of=hosts)
)
_SAVE = sa.update(hosts).where(hosts.c.id == sa.bindparam("of_host"))
_SPELLS = (
    sa.select(
        spells.c.host_id, spells.c.boot, spells.c.begin_us, spells.c.end_us, spells.c.uptime_us
    )
    .where(spells.c.begin_us <= sa.bindparam("until"), spells.c.end_us >= sa.bindparam("since"))
    .order_by(spells.c.begin_us)
)
_SPELLS_OF_HOST = _SPELLS.where(spells.c.host_id == sa.bindparam("of_host"))


def insert(connection: sa.Connection, host_id: str, name: str, now_us: int) -> str:
    """Add a host unless the name is taken; return the id of the host with the name."""
    unknown = {c.name: c.type.python_type() for c in hosts.c if not c.nullable}  # 0 or ''
    given = {"id": host_id, "name": name, "enrolled_us": now_us}
    statements.add_missing(connection, hosts, unknown | given)
    return find_id(connection, name) or ""


def lock(connection: sa.Connection, who: AgentIdentity) -> sa.Row[Any] | None:
    """Read the host of a valid credential; other reports of it wait until this transaction ends."""
    given = {"of_host": who.host_id, "of_credential": who.credential_hash}
    return connection.execute(_LOCK, given).first()


def save(connection: sa.Connection, host_id: str, **values: object) -> None:
    connection.execute(_SAVE, {"of_host": host_id, **values})


def find_id(connection: sa.Connection, name: str, *, lock: bool = False) -> str | None:
    chosen = sa.select(hosts.c.id).where(hosts.c.name == name)
    return connection.execute(chosen.with_for_update() if lock else chosen).scalar()


def delete(connection: sa.Connection, host_id: str) -> None:
    """Delete a host and all that belongs to it."""
    connection.execute(hosts.delete().where(hosts.c.id == host_id))


def list_page(
    connection: sa.Connection, chosen: HostFilter, after: str, limit: int
) -> list[HostRow]:
    """Return hosts by name, after one of them."""
    where = [hosts.c.name > after] if after else []
    if chosen.prefix:
        where.append(hosts.c.name.startswith(chosen.prefix, autoescape=True))
    if chosen.seen_since_us:
        where.append(hosts.c.seen_us >= chosen.seen_since_us)
    if chosen.seen_before_us:
        where.append(hosts.c.seen_us < chosen.seen_before_us)
    for name, value in chosen.labels.items():
        having = sa.select(labels.c.host_id).where(labels.c.name == name, labels.c.value == value)
        where.append(hosts.c.id.in_(having))
    return _rows(connection, sa.select(*SHOWN).where(*where).order_by(hosts.c.name).limit(limit))


def find(connection: sa.Connection, name: str) -> HostRow | None:
    found = _rows(connection, sa.select(*SHOWN).where(hosts.c.name == name))
    return found[0] if found else None


def _rows(connection: sa.Connection, chosen: sa.Select[Any]) -> list[HostRow]:
    rows = connection.execute(chosen).all()
    by_host = read_labels(connection, [row.id for row in rows])
    return [HostRow(**row._mapping, labels=by_host.get(row.id, {})) for row in rows]


def count_seen(connection: sa.Connection, since_us: int) -> tuple[int, int]:
    """Return how many hosts there are, and how many of them reported since a time."""
    seen = sa.func.count().filter(hosts.c.seen_us >= since_us)
    total, recent = connection.execute(sa.select(sa.func.count(), seen).select_from(hosts)).one()
    return total, recent


def read_names(connection: sa.Connection) -> dict[str, str]:
    """Return the names of all hosts by id, ordered by name."""
    chosen = sa.select(hosts.c.id, hosts.c.name).order_by(hosts.c.name)
    return {row.id: row.name for row in connection.execute(chosen)}


def read_labels(
    connection: sa.Connection, host_ids: Collection[str] | None = None
) -> dict[str, dict[str, str]]:
    """Return labels by host id, of all hosts by default."""
    chosen = sa.select(labels.c.host_id, labels.c.name, labels.c.value)
    if host_ids is not None:
        chosen = chosen.where(labels.c.host_id.in_(host_ids))
    by_host: dict[str, dict[str, str]] = {}
    for host_id, name, value in connection.execute(chosen):
        by_host.setdefault(host_id, {})[name] = value
    return by_host


def replace_labels(connection: sa.Connection, host_id: str, given: Mapping[str, str]) -> None:
    connection.execute(labels.delete().where(labels.c.host_id == host_id))
    if given:
        rows = [{"host_id": host_id, "name": name, "value": value} for name, value in given.items()]
        connection.execute(labels.insert(), rows)


def add_snapshot(
    connection: sa.Connection, host_id: str, snapshot: Snapshot, now_us: int, keep: int
) -> None:
    """Add a snapshot unless the latest one has the same parts; the oldest beyond `keep` are deleted.

    Its time is that of the server: the clock of the host may be set back.
    """
    document = snapshot.as_json()
    digest = hashlib.sha256(column_types.dump_json(document["parts"]).encode()).hexdigest()
    of_host = snapshots.c.host_id == host_id
    newest = sa.select(snapshots.c.taken_us, snapshots.c.digest).where(of_host)
    known = connection.execute(newest.order_by(snapshots.c.taken_us.desc())).all()
    if known and known[0].digest == digest:
        return
    taken_us = max(now_us, known[0].taken_us + 1) if known else now_us
    values = {"host_id": host_id, "taken_us": taken_us, "digest": digest}
    connection.execute(snapshots.insert().values(**values, document=document))
    if len(known) >= keep:
        old = snapshots.c.taken_us <= known[keep - 1].taken_us
        connection.execute(snapshots.delete().where(of_host, old))


def read_snapshots(
    connection: sa.Connection, at_us: Mapping[str, int]
) -> Iterable[tuple[str, Snapshot]]:
    """Yield the snapshot of each host that is nearest to a time."""
    times: dict[str, list[int]] = {}
    for host_id, taken_us in connection.execute(
        sa.select(snapshots.c.host_id, snapshots.c.taken_us)
    ):
        times.setdefault(host_id, []).append(taken_us)
    for host_id, at in at_us.items():
        if taken := times.get(host_id):
            nearest = min(taken, key=lambda time: abs(time - at))
            found = sa.select(snapshots.c.document).where(
                snapshots.c.host_id == host_id, snapshots.c.taken_us == nearest
            )
            yield host_id, Snapshot.from_json(connection.execute(found).scalar_one())


def save_audit(connection: sa.Connection, host_id: str, audit: Audit) -> None:
    values = {"host_id": host_id, "document": audit.as_json()}
    statements.upsert(connection, unit_audits, values)


def find_audit(connection: sa.Connection, host_id: str) -> Audit | None:
    chosen = sa.select(unit_audits.c.document).where(unit_audits.c.host_id == host_id)
    document = connection.execute(chosen).scalar()
    return None if document is None else decoding.decode(Audit, document)


def read_spells(
    connection: sa.Connection, begin_us: int, end_us: int, host_id: str | None = None
) -> Iterable[tuple[str, Observed]]:
    """Yield the spells that touch a window by host id, in order of their begin."""
    given = {"since": begin_us, "until": end_us, "of_host": host_id}
    chosen = _SPELLS if host_id is None else _SPELLS_OF_HOST
    for owner, boot, begin, end, uptime in connection.execute(chosen, given):
        yield owner, Observed(boot, begin, end, uptime)


def change_spells(
    connection: sa.Connection, host_id: str, gone: Iterable[int], new: Iterable[Observed]
) -> None:
    """Delete spells by their begin, and write others."""
    if gone := list(gone):
        old = sa.and_(spells.c.host_id == host_id, spells.c.begin_us.in_(gone))
        connection.execute(spells.delete().where(old))
    statements.upsert(connection, spells, *({"host_id": host_id, **vars(spell)} for spell in new))


def count_spells(connection: sa.Connection, host_id: str) -> int:
    chosen = sa.select(sa.func.count()).where(spells.c.host_id == host_id)
    return int(connection.execute(chosen).scalar_one())


def delete_old_spells(connection: sa.Connection, before_us: int) -> None:
    connection.execute(spells.delete().where(spells.c.end_us < before_us))
