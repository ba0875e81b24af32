"""Built-in changes of this host, one module each: what an experiment does, and how it is undone.

Prior state is in the undo journal before a change is made. A change that was made stays until its task is undone; one
whose process was killed halfway is undone by the next run of overnight, or with its task.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from overnight import app, errors
from overnight.model import stop_signals
from overnight.undo import journal

if TYPE_CHECKING:
    from overnight.model import host_changes

WHAT = "change "  # prefix of the journals; the id of the task and the change follow


@dataclasses.dataclass(frozen=True)
class Context:
    """What a change needs: where it records what it is about to do, and the data home."""

    journal: journal.Journal
    home: pathlib.Path


class Kind(Protocol):
    """One built-in change: a module with these names."""

    BUILTIN: host_changes.Builtin

    def apply(self, words: tuple[str, ...], context: Context) -> str:
        """Make the change, each step in the journal first, and return what was done.

        Raise CannotError where that fails: the caller then undoes the journal.
        """


def kinds() -> dict[host_changes.Builtin, Kind]:
    import sys

    modules = cast("tuple[Kind, ...]", app.discover(sys.modules[__name__]))
    return {kind.BUILTIN: kind for kind in modules}


def apply(task: str, change: host_changes.Change, home: pathlib.Path) -> str:
    """Make a change for a task, and return what was done; on an error nothing of it is left."""
    if known := journal.runs(what=f"{WHAT}{task} "):
        if known[0].state != "left":
            return f"task {task} has already made this change"
        undo(task)  # its process was killed halfway
    kind = kinds()[change.builtin]
    with stop_signals.interrupt_on_signals(), journal.Journal(f"{WHAT}{task} {change}") as run:
        made = kind.apply(change.words, Context(run, home))
        if run.targets():
            run.keep()
    return made


def undo(task: str) -> str:
    """Undo the change of a task, also after kill -9 or a reboot; raise CannotError where something stays."""
    what = f"{WHAT}{task} "
    if any(run.state == "running" for run in journal.runs(what=what)):
        refuse(f"the change of task {task} is still being made", "its process runs", "stop the task first")  # fmt: skip
    done, problems = journal.clean(kept=True, what=what)
    if problems:
        refuse(f"not everything was undone: {'; '.join(problems)}", "see above", "undo it again")
    return f"undone: {', '.join(done)}" if done else f"nothing of task {task} is left to undo"


def refuse(what: str, why: str, todo: str) -> NoReturn:
    raise errors.CannotError(what, why=why, todo=todo)
