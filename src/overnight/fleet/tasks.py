"""Tasks for hosts. The reply to a report leases them to the agent; after a lease without news they are sent again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.fleet import agents, context
from overnight.fleet.sql import audit_rows, task_rows
from overnight.model import checked_json
from overnight.model.control_plane import AgentIdentity, TaskRow
from overnight.model.text import printable
from overnight.model.times import DAY_US, MINUTE_US
from overnight.model.uplink import Task, TaskKind, TaskReport, TaskState

if TYPE_CHECKING:
    from overnight.database import engine

LEASE_US = 3 * MINUTE_US  # an agent reports a running task more often
EXPIRES_US = DAY_US
ATTEMPTS = 5
SENT = 8  # in one reply
State = TaskState


def lease(connection: engine.Connection, host_id: str, now_us: int) -> tuple[Task, ...]:
    """Lease waiting tasks to their host; those that were leased too often, or too late, end."""
    leased = []
    for task in task_rows.list_waiting(connection, host_id, now_us, SENT):
        values: dict[str, object] = {"updated_us": now_us}
        if task.expires_us < now_us:
            values["state"] = State.EXPIRED
        elif task.attempts >= ATTEMPTS:
            detail = f"the agent took it {task.attempts} times and reported nothing"
            values |= {"state": State.FAILED, "detail": detail}
        else:
            until = now_us + LEASE_US
            values |= {"state": State.LEASED, "leased_until_us": until, "attempts": task.attempts + 1}  # fmt: skip
        # An operator may have cancelled it at this moment.
        if task_rows.change(connection, task.id, task.state, **values) and "attempts" in values:
            leased.append(task.task())
    return tuple(leased)


class Tasks:
    def __init__(self, control: context.Context) -> None:
        self._control = control
        self._database = control.database

    def create(
        self, host: str, kind: TaskKind, arguments: Mapping[str, Any], *,
        by: str = "", why: str = "", expires_us: int | None = None, task_id: str = "",
    ) -> TaskRow:  # fmt: skip
        """Ask a host for something; `/etc/overnight/agent.toml` there decides whether it is done.

        A caller that may be killed chooses the id: asking again for the same one changes nothing.
        """
        now = self._control.clock()
        given = checked_json.Object({"arguments": dict(arguments)}, "task").document("arguments")
        task = TaskRow(
            task_id or f"t-{secrets.token_hex(8)}", host, kind, given, State.PENDING, now,
            printable(by, limit=100), printable(why, limit=1_000), expires_us or now + EXPIRES_US, now,
        )  # fmt: skip
        with self._database.write("create task") as connection:
            if task_id and (found := task_rows.find(connection, task_id)):
                return found
            self._insert(connection, context.find_host(connection, host), task)
        return task

    def _insert(self, connection: engine.Connection, host_id: str, task: TaskRow) -> None:
        if task_rows.count_open(connection, host_id) >= self._control.limits.open_tasks:
            raise errors.QuotaError(
                f"host {task.host} has too many open tasks",
                why=f"a host has at most {self._control.limits.open_tasks}",
                todo="cancel some, or wait until they are done",
            )
        task_rows.insert(connection, host_id, task)
        target = f"{task.id} {task.host}"
        audit_rows.add(connection, task.created_us, task.created_by, f"task.{task.kind}", target, task.why)  # fmt: skip

    def get(self, task_id: str) -> TaskRow:
        with self._database.read() as connection:
            return _find(connection, task_id)

    def list(self, host: str = "", limit: int = 100) -> list[TaskRow]:
        """Return tasks, the newest first, of one host or of all."""
        with self._database.read() as connection:
            return task_rows.list_recent(connection, printable(host), limit)

    def cancel(self, task_id: str, *, by: str = "", why: str = "") -> TaskRow:
        """Cancel a task; the host is asked to stop one that it has taken."""
        now = self._control.clock()
        with self._database.write("cancel task") as connection:
            task = _find(connection, task_id, lock=True)
            if not task.state.is_final:
                task_rows.change(connection, task.id, state=State.CANCELLED, updated_us=now)
                audit_rows.add(connection, now, by, "task.cancel", f"{task.id} {task.host}", why)
        if not task.state.is_final and task.state is not State.PENDING:
            self.create(task.host, TaskKind.STOP, {"task": task.id}, by=by, why=why)
        return self.get(task_id)

    def report(self, who: AgentIdentity, task_id: str, given: TaskReport) -> TaskState:
        """Store how a task goes; return its state, from which an agent sees that it was cancelled.

        A final state stays: the same report again, or one that comes late, changes nothing.
        """
        now = self._control.clock()
        with self._database.write("report task") as connection:
            agents.check(connection, who)
            task = _find(connection, task_id, lock=True)
            if task.host != who.host:
                context.refuse_unknown("task", task_id, "report tasks of this host alone")
            # One that expired meanwhile has been done all the same.
            if task.state.is_final and task.state is not State.EXPIRED:
                return task.state
            values: dict[str, Any] = {
                "state": given.state,
                "detail": printable(given.detail),
                "updated_us": now,
            }
            values |= {"progress": given.progress, "result": dict(given.result)}
            task_rows.change(connection, task.id, **values, leased_until_us=now + LEASE_US)
        return given.state


def _find(connection: engine.Connection, task_id: str, *, lock: bool = False) -> TaskRow:
    task = task_rows.find(connection, printable(task_id), lock=lock)
    return task or context.refuse_unknown(
        "task", task_id, "list the tasks of a host: GET /api/v1/tasks?host=NAME"
    )
