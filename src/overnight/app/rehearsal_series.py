"""Use case of `overnight rehearse`: one or more rehearsals, run on this host or replayed."""

from __future__ import annotations

import dataclasses
import pathlib
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from overnight import errors
from overnight.app import recorded_rehearsal, rehearsal, rehearsal_host

if TYPE_CHECKING:
    from overnight import rehearsals
    from overnight.app import scoreboard

SCHEMA = "overnight.rehearsals/1"
SEEDS = 1_000_000
OnProgress = Callable[[rehearsal.Progress], None]


@dataclasses.dataclass(frozen=True)
class Request:
    home: pathlib.Path
    scenario: str = ""  # empty: all of them
    seed: int | None = None  # None: a random one
    brief: bool = False
    core: int | None = None  # None: drawn from the seed
    repeat: int = 1
    replay: bool = False
    bundle: pathlib.Path | None = None
    hide: tuple[str, ...] = ()  # words to hide in the bundle
    keep: int = rehearsal.KEEP


@dataclasses.dataclass(frozen=True)
class Run:
    rehearsal: rehearsals.Rehearsal
    seed: int

    @property
    def name(self) -> str:
        return self.rehearsal.name


@dataclasses.dataclass(frozen=True)
class Listed:
    """A rehearsal, and whether a recorded run of it is shipped."""

    name: str
    about: str
    needs: tuple[str, ...]
    recorded: bool


@dataclasses.dataclass(frozen=True)
class Listing:
    rehearsals: tuple[Listed, ...]

    def as_json(self) -> dict[str, object]:
        rows = [{**dataclasses.asdict(row), "needs": list(row.needs)} for row in self.rehearsals]
        return {"schema": SCHEMA, "rehearsals": rows}


@dataclasses.dataclass(frozen=True)
class Undone:
    """Killed runs whose changes were undone."""

    runs: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {"schema": SCHEMA, "undone": list(self.runs)}


def list_rehearsals() -> Listing:
    return Listing(
        tuple(
            Listed(known.name, known.about, tuple(known.needs), _recorded(known) is not None)
            for known in rehearsal.discover()
        )
    )


def clean() -> Undone:
    return Undone(tuple(rehearsal.clean()))


def _recorded(known: rehearsals.Rehearsal) -> pathlib.Path | None:
    return recorded_rehearsal.find_recorded(known.name)


def plan(request: Request) -> tuple[Run, ...]:
    """Return the runs of a request, each with its seed; raises UsageError."""
    if request.scenario:
        chosen = [rehearsal.find(request.scenario)]
    else:
        chosen = [each for each in rehearsal.discover() if not request.replay or _recorded(each)]
    first = secrets.randbelow(SEEDS) if request.seed is None else request.seed
    runs = tuple(Run(known, first + number) for number in range(request.repeat) for known in chosen)
    if request.bundle is not None:
        _check_bundle(request.bundle, runs, replay=request.replay)
    return runs


def run(
    request: Request,
    chosen: Run,
    show: Callable[[str], AbstractContextManager[OnProgress]],
    on_note: Callable[[str], None],
) -> scoreboard.Outcome:
    """Run one rehearsal, or replay a recorded run where this host cannot; `show` gets a title."""
    recorded = _recorded(chosen.rehearsal)
    replay = request.replay
    if not replay:
        try:
            rehearsal_host.check_needs(chosen.rehearsal.needs)
        except errors.CannotError as error:
            if recorded is None or request.bundle is not None:
                raise
            on_note(f"{error.what} ({error.why}): replaying a recorded run instead")
            replay = True
    if replay:
        if recorded is None:
            raise errors.CannotError(
                f"no recorded run of {chosen.name} is available",
                why="this version ships none",
                todo=f"record one as root: `overnight rehearse {chosen.name} --bundle FILE`",
            )
        with show(f"{chosen.name} (recorded)") as on_progress:
            on_progress(rehearsal.Progress("replay"))
            return recorded_rehearsal.replay(recorded, request.home)
    with show(f"{chosen.name} (seed {chosen.seed})") as on_progress:
        outcome = rehearsal.rehearse(
            chosen.rehearsal,
            seed=chosen.seed,
            home=request.home,
            brief=request.brief,
            core=request.core,
            keep=request.keep,
            on_progress=on_progress,
        )
    if request.bundle is not None:
        recorded_rehearsal.save(outcome, request.bundle, request.hide)
    return outcome


def _check_bundle(file: pathlib.Path, runs: tuple[Run, ...], *, replay: bool) -> None:
    """Refuse before the run what could not be saved after it."""
    if replay or len(runs) != 1:
        raise errors.UsageError(
            "--bundle needs exactly one real run",
            why="a replay records nothing" if replay else "each run would replace the last one",
            todo="omit --replay" if replay else "name one rehearsal, without --repeat",
        )
    if not runs[0].rehearsal.has_event:
        raise errors.UsageError(
            f"cannot save {runs[0].name} as a bundle",
            why="a bundle is made around an event, and this rehearsal has none",
            todo="choose a rehearsal with an event, such as zombies",
        )
    if not file.absolute().parent.is_dir() or file.is_dir():
        raise errors.UsageError(
            f"cannot write {file}",
            why="it is a folder" if file.is_dir() else "its folder does not exist",
            todo="name a file in an existing folder",
        )
