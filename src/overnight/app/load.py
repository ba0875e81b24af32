"""`overnight load`: one load from its start to its verdict, with everything undone behind it."""

from __future__ import annotations

import pathlib
import threading

from overnight import errors
from overnight.app import home as homes
from overnight.load import runner
from overnight.undo import journal

__all__ = ["make", "parse_share"]


def make(
    plan: runner.Plan,
    home: pathlib.Path | None,
    stop: threading.Event,
    on_second: runner.OnSecond = lambda _second, _verdict: None,
) -> runner.Outcome:
    """Run it. What an earlier run left after kill -9 is undone first."""
    if home is not None:
        homes.need_writable(home)
    _, problems = journal.clean()
    if problems:
        raise errors.CannotError(
            f"an earlier run is not undone: {problems[0]}",
            why="it was killed, and what it left cannot be removed",
            todo="remove it by hand, then try again",
        )
    with journal.Journal(f"load {plan.workload}") as book:
        made = runner.run(plan, book, home=home, stop=stop, on_second=on_second)
    if book.problems:
        raise errors.CannotError(
            f"the load ended, but not all of it is undone: {book.problems[0]}",
            why="the ledger still holds it",
            todo=f"look at {book.path}; the next run tries again",
        )
    return made


def parse_share(option: str, text: str) -> float:
    """A share as operators write it.

    >>> parse_share("--duty", "60%"), parse_share("--duty", "0.6")
    (0.6, 0.6)
    """
    words = text.strip()
    try:
        return float(words.removesuffix("%")) / (100 if words.endswith("%") else 1)
    except ValueError:
        raise errors.UsageError(
            f"{option} {text!r} is no share",
            why="a share is a number, or one of percent",
            todo=f"write it like {option} 60% or {option} 0.6",
        ) from None
