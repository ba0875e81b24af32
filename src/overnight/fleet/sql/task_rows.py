"""Rows of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from overnight.database import statements
from overnight.fleet.sql import schema
from overnight.model.control_plane import TaskRow

if TYPE_CHECKING:
    from overnight.model.uplink import TaskState

tasks, hosts = schema.tasks, schema.hosts
SHOWN = [column for column in tasks.c if column.name not in ("host_id", "leased_until_us")]
# In words of the partial index: the planner uses it.
OPEN: sa.ColumnElement[bool] = sa.literal_column(
    "fleet_tasks.state IN ('pending', 'leased', 'running')", sa.Boolean
)


def insert(connection: sa.Connection, host_id: str, task: TaskRow) -> None:
    values = {name: value for name, value in vars(task).items() if name != "host"}
    connection.execute(tasks.insert().values(**values, host_id=host_id, leased_until_us=0))


def count_open(connection: sa.Connection, host_id: str) -> int:
    chosen = sa.select(sa.func.count()).where(tasks.c.host_id == host_id, OPEN)
    return int(connection.execute(chosen).scalar_one())


def _select(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(*SHOWN, hosts.c.name.label("host")).join(hosts).where(*where)


# Every report asks for them: built once.
_WAITING = (
    _select(tasks.c.host_id == sa.bindparam("of_host"), OPEN, tasks.c.leased_until_us <= sa.bindparam("now"))
    .order_by(tasks.c.created_us, tasks.c.id)
    .limit(sa.bindparam("most", type_=sa.Integer))
)  # fmt: skip


def find(connection: sa.Connection, task_id: str, *, lock: bool = False) -> TaskRow | None:
    chosen = _select(tasks.c.id == task_id)
    if lock:
        chosen = chosen.with_for_update(of=tasks)
    row = connection.execute(chosen).first()
    return None if row is None else TaskRow(**row._mapping)


def list_recent(connection: sa.Connection, host: str, limit: int) -> list[TaskRow]:
    """Return tasks, the newest first, of one host or ('') of all."""
    chosen = _select(*([hosts.c.name == host] if host else []))
    newest = chosen.order_by(tasks.c.created_us.desc(), tasks.c.id).limit(limit)
    return [TaskRow(**row._mapping) for row in connection.execute(newest)]


def list_waiting(connection: sa.Connection, host_id: str, now_us: int, limit: int) -> list[TaskRow]:
    """Return open tasks without a lease, the oldest first."""
    rows = connection.execute(_WAITING, {"of_host": host_id, "now": now_us, "most": limit})
    return [TaskRow(**row._mapping) for row in rows]


def change(
    connection: sa.Connection, task_id: str, before: TaskState | None = None, **values: object
) -> bool:
    """Change a task; False if it is no longer in the state `before`."""
    same = [tasks.c.state == before] if before else []
    return statements.update(tasks, connection, task_id, *same, **values)


def expire(connection: sa.Connection, now_us: int) -> None:
    """Expire tasks that were not started in time, and whose lease is over."""
    late = sa.and_(OPEN, tasks.c.expires_us < now_us, tasks.c.leased_until_us <= now_us)
    connection.execute(sa.update(tasks).where(late).values(state="expired", updated_us=now_us))


def delete_old(connection: sa.Connection, before_us: int) -> None:
    connection.execute(tasks.delete().where(sa.not_(OPEN), tasks.c.updated_us < before_us))
