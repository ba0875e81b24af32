from __future__ import annotations

import json
import pathlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session, terminal
from overnight.model.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight.app import scoreboard

ORDER = 40


def register(cli: typer.Typer) -> None:
    session.add_command(cli, rehearse, "Before the night", "rehearse rt-hog --brief")


def rehearse(
    context: typer.Context,
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="Rehearsal from --list.")
    ] = "",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of core, names, rates and timing. Default: random."),
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Short form, under a minute.")] = False,
    core: Annotated[
        int | None, typer.Option(min=0, help="Core of the victim. Default: drawn from the seed.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Run every rehearsal.")] = False,
    score: Annotated[bool, typer.Option("--score", help="Show the scoreboard at the end.")] = False,
    repeat: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of runs, each with the next seed.")
    ] = 1,
    replay: Annotated[
        bool, typer.Option("--replay", help="Diagnose a recorded run; this host is not changed.")
    ] = False,
    bundle: Annotated[
        pathlib.Path | None,
        typer.Option(metavar="FILE", help="Save the run as a bundle, for --replay elsewhere."),
    ] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="Word to hide in the bundle (repeatable)."),
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="Number of runs to keep in the data home.")] = 20,
    listing: Annotated[bool, typer.Option("--list", help="List the rehearsals.")] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Undo the leftovers of killed runs.")
    ] = False,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Cause a real incident, diagnose it, and undo it.

    The fault is real, and so is its victim: a packet queue that resets when it is 5 s behind. Compares the
    verdict with the true cause. Needs root and two cores. Exits with 0 if the verdict is right, with 1 if it
    is wrong.
    """
    from overnight.app import rehearsal_series as series
    from overnight.interfaces.cli import rehearsal_view

    current: session.Session = context.obj
    if listing or clean:
        (_list if listing else _clean)(current, output)
        return errors.ExitCode.DONE
    if everything == bool(scenario):
        raise errors.UsageError(
            "SCENARIO and --all are mutually exclusive" if scenario else "no rehearsal was given",
            why="exactly one of SCENARIO and --all is needed",
            todo="overnight rehearse --list   shows the rehearsals",
        )
    request = series.Request(
        current.home, scenario, seed, brief, core, repeat, replay, bundle, tuple(hide or ()), keep
    )
    runs = series.plan(request)
    single = len(runs) == 1
    notes = current.notes()
    outcomes: list[scoreboard.Outcome] = []
    failures: dict[str, errors.CannotError] = {}
    for run in runs:
        try:
            outcome = series.run(
                request,
                run,
                lambda title: rehearsal_view.shown(title, notes),
                lambda text: terminal.print_line(notes, text, "yellow"),
            )
        except errors.CannotError as error:
            if single:
                raise
            failures[run.name] = error
            terminal.print_line(notes, f"{run.name}: {error.what}: {error.why}")
            continue
        outcomes.append(outcome)
        _show(current, outcome, output, single=single)
    if score or not single:
        _show_scoreboard(current, outcomes, failures, output)
    if not outcomes:
        raise next(iter(failures.values()))
    good = all(outcome.correct and not outcome.leftovers for outcome in outcomes)
    return errors.ExitCode.DONE if good else errors.ExitCode.FOUND


def _show(
    current: session.Session, outcome: scoreboard.Outcome, output: session.Output, *, single: bool
) -> None:
    if output is session.Output.JSON:
        sys.stdout.write(json.dumps(outcome.as_json()) + "\n")
        sys.stdout.flush()
        return
    console = current.console()
    if single and (verdict := outcome.render()) is not None:
        console.print(verdict)
        console.print()
    for line, style in _format_outcome(outcome):
        terminal.print_line(console, line, style)


def _format_outcome(outcome: scoreboard.Outcome) -> list[tuple[str, str]]:
    """Return lines, each with its style."""
    took = outcome.event_to_verdict_s
    after = f", {took:.0f} s after the event" if took else ""
    if outcome.correct and outcome.expected.chain:
        result = f"right: the verdict names the true cause{after}"
    elif outcome.correct:
        result = "right: no fault, and the verdict claims no cause"
    else:
        place = f"ranked {outcome.rank}" if outcome.rank else "not among the candidates"
        result = f"wrong: the true cause is {place}{after}"
    head = f"{outcome.scenario} (seed {outcome.seed}): {result}"
    lines = [(head, "bold green" if outcome.correct else "bold red")]
    lines += [(f"  {problem}", "yellow") for problem in (*outcome.problems, *outcome.disturbances)]
    if outcome.replayed:
        lines.append(("  recorded on another host; this host was not changed", ""))
    else:
        victim = outcome.victim
        counters = (
            f"  victim: {plural(victim.completed, 'packet')} completed, at most {victim.worst_ms / 1000:.1f} s late,"
            f" {plural(victim.resets, 'queue reset')}, {plural(victim.dropped, 'packet')} dropped"
        )
        lines.append((counters, ""))
        leftovers = ", ".join(outcome.leftovers)
        undone = f"not undone: {leftovers}" if leftovers else "everything is undone"
        lines.append((f"  {undone}; {outcome.seconds:.0f} s in total", "red" if leftovers else ""))
    if outcome.report:
        lines.append((f"  report: {outcome.report}", ""))
    return lines


def _show_scoreboard(
    current: session.Session,
    outcomes: Sequence[scoreboard.Outcome],
    failures: dict[str, errors.CannotError],
    output: session.Output,
) -> None:
    if output is session.Output.JSON:
        return  # each run has printed its object
    from overnight.app import scoreboard

    table = terminal.table("rehearsal", right=("runs", "right", "ranks", "event to verdict"))
    table.add_column("missed")
    for row in scoreboard.score(outcomes):
        colour = "green" if row.right == row.runs else "red"
        missed = ", ".join(f"{kind} {times}x" for kind, times in row.missed)
        table.add_row(
            terminal.cell(row.scenario),
            str(row.runs),
            f"[{colour}]{row.right} of {row.runs}[/]",
            " ".join(map(str, row.ranks)) if row.runs <= 10 else "",
            "-" if row.event_to_verdict_s is None else f"{row.event_to_verdict_s:.1f} s",
            terminal.cell(missed or (row.wrong[0] if row.wrong else "-")),
        )
    for name, error in failures.items():
        table.add_row(name, "0", "[yellow]cannot run[/]", "", "-", terminal.cell(error.why))
    current.console().print("", table, sep="\n")


def _list(current: session.Session, output: session.Output) -> None:
    from overnight.app import rehearsal_series

    listing = rehearsal_series.list_rehearsals()
    if output is session.Output.JSON:
        current.print_json(listing.as_json())
        return
    table = terminal.table("rehearsal", "what happens", "needs", "--replay")
    for row in listing.rehearsals:
        needs = ", ".join(row.needs)
        table.add_row(row.name, terminal.cell(row.about), needs, "yes" if row.recorded else "-")
    current.console().print(table)


def _clean(current: session.Session, output: session.Output) -> None:
    from overnight.app import rehearsal_series

    undone = rehearsal_series.clean()
    if output is session.Output.JSON:
        current.print_json(undone.as_json())
    else:
        for run in undone.runs:
            terminal.print_line(current.console(), f"undone: {run}")
        if not undone.runs:
            current.console().print("nothing to undo")
