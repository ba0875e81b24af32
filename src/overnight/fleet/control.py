"""The control plane of a fleet: every operation, by the names that agents and operators use.

    plane = control.ControlPlane(engine.Database("postgresql://…"), blobs.Blobs(folder))
    token = plane.tokens.create(Role.AGENT, name="db-7", expires_us=…)
    identity = plane.agents.enrol(token.text, credential, "db-7")
    reply = plane.report(identity, Report.from_json(…))
    plane.fleet(["net.driver_reset"], window)

Several control planes may use one database and one blob folder at once, in one process or in many.
"""

from __future__ import annotations

import functools
import math
import time
from typing import TYPE_CHECKING

from overnight import errors
from overnight.fleet import (
    agents,
    confirmations,
    context,
    inventory,
    reports,
    rollups,
    tasks,
    tokens,
    windows,
)
from overnight.fleet.sql import (
    audit_rows,
    confirmation_rows,
    event_rows,
    host_rows,
    rollup_rows,
    task_rows,
    token_rows,
    window_rows,
)
from overnight.model import control_plane, times, uplink
from overnight.model.times import DAY_US

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight.database import engine
    from overnight.fleet import blobs as blob_folders
    from overnight.model.control_plane import AgentIdentity, AuditRow, Page

TRIM_SECONDS, SWEEP_SECONDS = 3_600.0, 86_400.0
KEPT_SECONDS = 7 * 86_400.0  # an unfinished upload, or a file that the database does not know


class ControlPlane:
    def __init__(
        self,
        where: engine.Database,
        blobs: blob_folders.Blobs,
        *,
        clock: Callable[[], int] = times.now_us,
        limits: context.Limits | None = None,
    ) -> None:
        """Raise CannotError for a blob folder that is not the one of this database."""
        self.context = control = context.Context(where, blobs, clock, limits or context.Limits())
        _check_folder(control)
        self.tokens = tokens.Tokens(control)
        self.agents = agents.Agents(control)
        self.tasks = tasks.Tasks(control)
        self.confirmations = confirmations.Confirmations(control)
        self._windows = stored = windows.Windows(control)
        self._rollups = summaries = rollups.Rollups(control)
        known = inventory.Inventory(control)
        self.count_hosts = known.count
        self.hosts, self.host, self.unit_audit = known.hosts, known.host, known.unit_audit
        self.events, self.event, self.fleet = known.events, known.event, known.fleet
        self.forget = self.agents.forget
        self.put_blob, self.windows, self.open_window = stored.put, stored.search, stored.open
        self.rollups, self.compact = summaries.read, summaries.compact
        self._swept, self._trimmed = time.monotonic(), -math.inf

    def report(self, identity: AgentIdentity, report: uplink.Report) -> uplink.Reply:
        """Store what an agent reports; the answer has its tasks, and the windows that it shall upload."""
        return reports.accept(self.context, identity, report)

    def audit_log(self, cursor: str = "", limit: int = 100) -> Page[AuditRow]:
        """Return the audit log, the newest first."""
        [before] = control_plane.decode_cursor(cursor, int) if cursor else [0]
        with self.context.database.read() as connection:
            read = functools.partial(audit_rows.list_page, connection, before)
            return context.read_page(limit, read, lambda row: (row.id,))

    def maintain(self) -> int:
        """Compact rollups and remove what is too old; every server calls it every minute or so.

        Return how many rollup files changed.
        """
        with self.context.database.write("expire tasks") as connection:
            task_rows.expire(connection, self.context.clock())
        if time.monotonic() - self._trimmed > TRIM_SECONDS:
            self._trimmed = time.monotonic()
            self._trim()
        if time.monotonic() - self._swept > SWEEP_SECONDS:
            self._swept = time.monotonic()
            self.sweep()
        return self._rollups.maintain()

    def _trim(self) -> None:
        before = self.context.clock() - self.context.limits.event_days * DAY_US
        with self.context.database.write("trim") as connection:
            for delete in (
                task_rows.delete_old,
                confirmation_rows.delete_old,
                event_rows.delete_old,
                host_rows.delete_old_spells,
                token_rows.delete_expired,
            ):
                delete(connection, before)
        self._windows.trim()

    def sweep(self) -> int:
        """Remove files of unfinished uploads and of crashes; return how many."""
        with self.context.database.read() as connection:
            held = {row.sha256 for row in window_rows.list_held(connection)}
            kept = held | rollup_rows.list_files(connection)
        return self.context.blobs.sweep(kept, time.time() - KEPT_SECONDS)


def _check_folder(control: context.Context) -> None:
    """Compare the marker of the blob folder with the database; the first server writes both."""
    with control.database.read() as connection:
        known = audit_rows.find_setting(connection, "blobs")
    mark = control.blobs.mark()
    if not known:
        mark = mark or control.blobs.create_mark()
        with control.database.write("mark blobs") as connection:
            known = audit_rows.keep_setting(connection, "blobs", mark)
    if mark != known:
        raise errors.CannotError(
            f"{control.blobs.folder} is not the blob folder of this database",
            why="its marker is missing, or that of another folder; is the shared disk mounted?",
            todo="start the server with the folder that the others use: --blobs DIR",
        )
