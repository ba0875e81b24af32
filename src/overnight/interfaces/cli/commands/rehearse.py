"""`overnight rehearse`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight import rehearsals
    from overnight.app import scoreboard

__all__ = ["ORDER", "register"]

ORDER = 40
SEEDS = 1_000_000


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        rich_help_panel="Before the night", epilog="Example: overnight rehearse rt-hog --brief"
    )(rehearse)


def rehearse(
    context: typer.Context,
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="Which one; --list tells them.")
    ] = "",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Chooses core, names, rates and timing. Default: a new one."),
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="The short form, under a minute.")] = False,
    core: Annotated[
        int | None, typer.Option(min=0, help="The victim's core, instead of the seed's.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every rehearsal there is.")] = False,
    score: Annotated[bool, typer.Option("--score", help="Show the scoreboard at the end.")] = False,
    repeat: Annotated[
        int, typer.Option(min=1, max=1000, help="So often, each time with the next seed.")
    ] = 1,
    replay: Annotated[
        bool, typer.Option("--replay", help="Diagnose a recorded run; nothing happens here.")
    ] = False,
    bundle: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="Keep the run as a bundle, for --replay elsewhere."),
    ] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORD", help="--bundle: hide this word wherever it stands; repeatable."
        ),
    ] = None,
    keep: Annotated[
        int, typer.Option(min=1, help="How many runs stay in the data home, the newest.")
    ] = 20,
    listing: Annotated[bool, typer.Option("--list", help="What can be rehearsed.")] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Undo what runs that were killed have left.")
    ] = False,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Make a real incident on this host, record it, diagnose it, and undo it.

    The fault is real, and so is its victim: a packet queue that falls 5 s behind and resets.
    What is true of it is known, and the verdict is compared with that. Needs root and two cores.
    Ends with 0 when the verdict is right, with 1 when it is not.
    """
    from overnight.app import rehearsal

    current: session.Session = context.obj
    if listing:
        return _list(current, rehearsal.discover(), output)
    if clean:
        return _clean(current, output)
    if everything == bool(scenario):
        raise errors.UsageError(
            "which rehearsal?",
            why="a scenario or --all is needed, and not both",
            todo="overnight rehearse --list   tells what there is",
        )
    import secrets

    chosen = _chosen(replay=replay) if everything else (rehearsal.find(scenario),)
    first = secrets.randbelow(SEEDS) if seed is None else seed
    runs = [(one, first + number) for number in range(repeat) for one in chosen]
    single = len(runs) == 1
    if bundle is not None:
        _check_bundle(bundle, chosen, single=single, replay=replay)
    outcomes: list[scoreboard.Outcome] = []
    cannot: dict[str, errors.CannotError] = {}
    for one, its_seed in runs:
        try:
            made = _run(
                current, one, its_seed, brief, core, keep, replay=replay, real=bundle is not None
            )
        except errors.CannotError as error:
            if single:
                raise
            cannot[one.name] = error
            current.notes().print(f"{one.name}: {error.what}: {error.why}", markup=False)
            continue
        outcomes.append(made)
        _show(current, made, output, single=single)
        if bundle is not None:
            _save(made, bundle, tuple(hide or ()))
    if score or not single:
        _scoreboard(current, outcomes, cannot, output)
    if not outcomes:
        raise next(iter(cannot.values()))
    good = all(one.correct and not one.leftovers for one in outcomes)
    return errors.ExitCode.DONE if good else errors.ExitCode.FOUND


def _chosen(*, replay: bool) -> tuple[rehearsals.Rehearsal, ...]:
    """All there are; of replays all that are shipped."""
    from overnight.app import recorded_rehearsal, rehearsal

    return tuple(
        one
        for one in rehearsal.discover()
        if not replay or recorded_rehearsal.find_recorded(one.name) is not None
    )


def _run(
    current: session.Session,
    one: rehearsals.Rehearsal,
    seed: int,
    brief: bool,
    core: int | None,
    keep: int,
    *,
    replay: bool,
    real: bool,
) -> scoreboard.Outcome:
    from overnight.app import recorded_rehearsal, rehearsal, rehearsal_host
    from overnight.interfaces.cli import rehearsalview

    recorded = recorded_rehearsal.find_recorded(one.name)
    if not replay:
        try:
            rehearsal_host.check_needs(one.needs)
        except errors.CannotError as error:
            if recorded is None or real:
                raise
            current.notes().print(
                f"{error.what} ({error.why}): a run that was recorded elsewhere is shown instead",
                style="yellow",
                markup=False,
            )
            replay = True
    if not replay:
        with rehearsalview.shown(f"{one.name} (seed {seed})", current.notes()) as tell:
            return rehearsal.rehearse(
                one,
                seed=seed,
                home=current.home,
                brief=brief,
                core=core,
                keep=keep,
                on_progress=tell,
            )
    if recorded is None:
        raise errors.CannotError(
            f"no recorded run of {one.name} is here",
            why="none is shipped with this version",
            todo=f"as root on a host of yours: overnight rehearse {one.name} --bundle FILE",
        )
    with current.notes().status("diagnosing a recorded run …"):
        return recorded_rehearsal.replay(recorded, current.home)


def _check_bundle(
    file: pathlib.Path, chosen: Sequence[rehearsals.Rehearsal], *, single: bool, replay: bool
) -> None:
    """Before anything happens: what cannot be kept is not worth the minutes."""
    if replay or not single:
        raise errors.UsageError(
            "--bundle keeps one run that really happens here",
            why="a replay records nothing" if replay else "each run would replace the one before",
            todo="leave --replay out" if replay else "name one rehearsal, without --repeat",
        )
    if not chosen[0].has_event:
        raise errors.UsageError(
            f"{chosen[0].name} cannot be made a bundle",
            why="a bundle is made around an event, and it has none",
            todo="choose a rehearsal with an event, such as zombies",
        )
    if not file.absolute().parent.is_dir() or file.is_dir():
        raise errors.UsageError(
            f"{file} cannot be written",
            why="it is a folder" if file.is_dir() else "the folder it is to lie in is not there",
            todo="name a file in a folder that is there",
        )


def _save(made: scoreboard.Outcome, file: pathlib.Path, hide: tuple[str, ...]) -> None:
    from overnight.app import recorded_rehearsal

    recorded_rehearsal.save(made, file, hide)


def _show(
    current: session.Session, made: scoreboard.Outcome, output: session.Output, *, single: bool
) -> None:
    if output is session.Output.JSON:
        sys.stdout.write(json.dumps(made.as_json()) + "\n")
        sys.stdout.flush()
        return
    console = current.console()
    if single and made.verdict is not None:
        from overnight.reports import diagnosis
        from overnight.reports.diagnosis import text

        console.print(text.render(made.verdict, made.material or diagnosis.EMPTY))
        console.print()
    for line, style in _lines(made):
        console.print(session.printable(line), style=style, markup=False, soft_wrap=True)


def _lines(made: scoreboard.Outcome) -> list[tuple[str, str]]:
    """How it ended, in words."""
    head = f"{made.scenario} (seed {made.seed}): "
    took = f", {made.event_to_verdict_s:.0f} s after the event" if made.event_to_verdict_s else ""
    if made.correct and made.expected.chain:
        said = f"right: the true chain is the one claimed{took}"
    elif made.correct:
        said = "right: nothing happened, and no cause is claimed"
    else:
        place = f"in place {made.rank}" if made.rank else "nowhere"
        said = f"wrong: the true chain is {place}{took}"
    lines = [(head + said, "bold green" if made.correct else "bold red")]
    lines += [(f"  {problem}", "yellow") for problem in made.problems]
    if made.replayed:
        lines.append(("  recorded on another host; nothing happened here", ""))
    else:
        victim = made.victim
        did = (
            f"  the victim completed {victim.completed} packets, was {victim.worst_ms / 1000:.1f} s late at most,"
            f" reset its queue {victim.resets} time{'s' * (victim.resets != 1)} and dropped {victim.dropped}"
        )
        lines.append((did, ""))
        left = "not undone: " + ", ".join(made.leftovers) if made.leftovers else "all is undone"
        lines.append((f"  {left}; {made.seconds:.0f} s in all", "red" if made.leftovers else ""))
    if made.report:
        lines.append((f"  report: {made.report}", ""))
    return lines


def _scoreboard(
    current: session.Session,
    outcomes: Sequence[scoreboard.Outcome],
    cannot: dict[str, errors.CannotError],
    output: session.Output,
) -> None:
    if output is session.Output.JSON:
        return  # one object a run is all that a program needs
    import rich.table
    from rich.markup import escape

    from overnight.app import scoreboard

    table = rich.table.Table(box=None, pad_edge=False)
    for heading, side in (
        ("rehearsal", "left"), ("runs", "right"), ("right chain first", "right"),
        ("places", "left"), ("event to verdict", "right"), ("missed", "left"),
    ):  # fmt: skip
        table.add_column(heading, justify="right" if side == "right" else "left")
    for one in scoreboard.score(outcomes):
        colour = "green" if one.right == one.runs else "red"
        missed = ", ".join(f"{kind} {times}x" for kind, times in one.missed)
        table.add_row(
            escape(one.scenario),
            str(one.runs),
            f"[{colour}]{one.right} of {one.runs}[/]",
            " ".join(map(str, one.ranks)) if one.runs <= 10 else "",
            "-" if one.event_to_verdict_s is None else f"{one.event_to_verdict_s:.1f} s",
            escape(missed or (one.wrong[0] if one.wrong else "-")),
        )
    for name, error in cannot.items():
        table.add_row(escape(name), "0", "[yellow]cannot[/]", "", "-", escape(error.why))
    console = current.console()
    console.print()
    console.print(table)


def _list(
    current: session.Session, known: Sequence[rehearsals.Rehearsal], output: session.Output
) -> int:
    from overnight.app import recorded_rehearsal

    recorded = {one.name: recorded_rehearsal.find_recorded(one.name) is not None for one in known}
    if output is session.Output.JSON:
        rows = [
            {
                "name": one.name,
                "about": one.about,
                "needs": list(one.needs),
                "recorded": recorded[one.name],
            }
            for one in known
        ]
        current.print_json({"schema": "overnight.rehearsals/1", "rehearsals": rows})
        return errors.ExitCode.DONE
    import rich.table
    from rich.markup import escape

    table = rich.table.Table(box=None, pad_edge=False)
    for heading in ("rehearsal", "what happens", "needs", "--replay"):
        table.add_column(heading)
    for one in known:
        needs = escape(", ".join(one.needs))
        there = "yes" if recorded[one.name] else "-"
        table.add_row(escape(one.name), escape(one.about), needs, there)
    current.console().print(table)
    return errors.ExitCode.DONE


def _clean(current: session.Session, output: session.Output) -> int:
    from overnight.app import rehearsal

    done = rehearsal.clean()
    if output is session.Output.JSON:
        current.print_json({"schema": "overnight.rehearsals/1", "undone": done})
    else:
        for one in done:
            current.console().print(f"undone: {one}", markup=False)
        if not done:
            current.console().print("no run has left anything")
    return errors.ExitCode.DONE
