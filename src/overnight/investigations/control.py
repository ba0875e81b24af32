"""Every operation on investigations.

    plane = control.ControlPlane(context.Context(database, reservations, hosts))
    made = plane.create(plan)
    with plane.drive(made) as step: …    # here, until it has ended
    plane.tick(progress)                 # or, on a server, every few seconds for all that have hosts elsewhere

Several control planes may use one database at once, in one process or in many.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

from overnight import errors
from overnight.investigations import context, decisions, driver
from overnight.investigations.sql import investigation_rows
from overnight.model.investigation import Investigation, Note

if TYPE_CHECKING:
    from overnight.model.plan import Plan


class ControlPlane:
    def __init__(self, control: context.Context) -> None:
        self.context = control

    def create(self, plan: Plan, owner: str = "") -> Investigation:
        """Write the record of an investigation, before anything is reserved."""
        now_us = self.context.clock()
        made = Investigation(
            id=f"i-{secrets.token_hex(6)}", plan=plan, owner=owner, made_us=now_us, phase_us=now_us
        )
        with self.context.database.write("create investigation") as connection:
            investigation_rows.insert(connection, made)
        return made

    def list(self, *, ended: bool = False) -> tuple[Investigation, ...]:
        with self.context.database.read() as connection:
            return tuple(investigation_rows.list_all(connection, ended=ended))

    def show(self, investigation_id: str) -> Investigation:
        with self.context.database.read() as connection:
            found = investigation_rows.find(connection, investigation_id)
        return found or _refuse_unknown(investigation_id)

    def notes(self, investigation_id: str, limit: int) -> tuple[Note, ...]:
        """Return the last lines of the log, the oldest first."""
        with self.context.database.read() as connection:
            return investigation_rows.list_notes(connection, investigation_id, limit)

    def stop(self, investigation_id: str) -> Investigation:
        """Ask for a clean end with what was learnt; its driver does the work."""
        with self.context.database.write("stop investigation") as connection:
            investigation_rows.ask_to_stop(connection, investigation_id)
        return self.show(investigation_id)

    @contextlib.contextmanager
    def drive(self, read: Investigation) -> Iterator[Callable[[], float]]:
        """Become the driver; yield a function that takes the next step, and returns how long to wait after it.

        Raise ConflictError if another driver takes it over. The caller makes sure that no other process drives it: on
        this machine by the lock of `hosts.LocalHost`.
        """
        try:
            driven = driver.take(self.context, read, lambda _: None)
            yield lambda: decisions.pause_seconds(driven.step(), self.context.clock())
            driven.free()
        except driver.FenceLostError:
            raise errors.ConflictError(
                f"another process drives {read.id} now",
                why="it took it over",
                todo=f"overnight run status {read.id}",
            ) from None

    def tick(self, progress: driver.Progress) -> tuple[Investigation, ...]:
        """Drive every investigation with hosts elsewhere that no other driver has, one step."""
        with self.context.database.read() as connection:
            due = investigation_rows.list_due(connection, self.context.clock())
        driven: list[Investigation] = []
        for investigation in due:
            # The process that `overnight run` started has the tasks of its machine.
            if investigation.plan.is_local:
                continue
            try:
                taken = driver.take(
                    self.context, investigation, lambda text, of=investigation.id: progress(f"{of}: {text}")  # type: ignore[misc]
                )  # fmt: skip
                taken.step()
                driven.append(taken.free())
            except driver.FenceLostError:
                continue
            except errors.OvernightError as error:  # must not keep the others from going on
                progress(f"{investigation.id}: {error.what}: {error.why}")
        return tuple(driven)


def _refuse_unknown(investigation_id: str) -> NoReturn:
    raise errors.NotFoundError(
        f"no investigation {investigation_id!r}",
        why="this database has none of that id",
        todo="overnight run list --all",
    )
