from __future__ import annotations

import json
import pathlib
import sys
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import session, terminal
from overnight.model.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight.app import scoreboard

ORDER = 40


def rehearse(
    current: session.Session,
    scenario: str = session.argument("", "Rehearsal from --list.", "SCENARIO"),
    seed: int | None = session.option(
        None, "Seed of core, names, rates and timing. Default: random.", min=0
    ),
    brief: bool = session.flag("Short form, under a minute."),
    core: int | None = session.option(
        None, "Core of the victim. Default: drawn from the seed.", min=0
    ),
    everything: bool = session.flag("Run every rehearsal.", "--all"),
    score: bool = session.flag("Show the scoreboard at the end."),
    repeat: int = session.option(1, "Number of runs, each with the next seed.", min=1, max=1000),
    replay: bool = session.flag("Diagnose a recorded run; this host is not changed."),
    bundle: pathlib.Path | None = session.option(
        None, "Save the run as a bundle, for --replay elsewhere.", "FILE"
    ),
    hide: list[str] | None = session.option(
        None, "Word to hide in the bundle (repeatable).", "WORD"
    ),
    keep: int = session.option(20, "Number of runs to keep in the data home.", min=1),
    listing: bool = session.flag("List the rehearsals.", "--list"),
    clean: bool = session.flag("Undo the leftovers of killed runs."),
) -> int:
    """Cause a real incident, diagnose it, and undo it.

    The fault is real, and so is its victim: a packet queue that resets when it is 5 s behind. Compares the
    verdict with the true cause. Needs root and two cores. Exits with 0 if the verdict is right, with 1 if it
    is wrong.
    """
    from overnight.app import rehearsal_series as series
    from overnight.interfaces.cli import rehearsal_view

    if listing or clean:
        (_list if listing else _clean)(current)
        return errors.ExitCode.DONE
    if everything == bool(scenario):
        raise errors.UsageError(
            "SCENARIO and --all are mutually exclusive" if scenario else "no rehearsal was given",
            why="exactly one of SCENARIO and --all is needed",
            todo="`overnight rehearse --list` shows the rehearsals",
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
        _show(current, outcome, single=single)
    if score or not single:
        _show_scoreboard(current, outcomes, failures)
    if not outcomes:
        raise next(iter(failures.values()))
    good = all(outcome.correct and not outcome.leftovers for outcome in outcomes)
    return errors.ExitCode.DONE if good else errors.ExitCode.FOUND


def _show(current: session.Session, outcome: scoreboard.Outcome, *, single: bool) -> None:
    if current.output is session.Output.JSON:
        sys.stdout.write(json.dumps(outcome.as_json()) + "\n")
        sys.stdout.flush()
        return
    console = current.console()
    if single and outcome.diagnosis is not None:
        console.print(outcome.diagnosis.render())
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
) -> None:
    if current.output is session.Output.JSON:
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


def _list(current: session.Session) -> None:
    from overnight.app import rehearsal_series

    listing = rehearsal_series.list_rehearsals()
    if current.printed_json(listing):
        return
    table = terminal.table("rehearsal", "what happens", "needs", "--replay")
    for row in listing.rehearsals:
        needs = ", ".join(row.needs)
        table.add_row(row.name, terminal.cell(row.about), needs, "yes" if row.recorded else "-")
    current.console().print(table)


def _clean(current: session.Session) -> None:
    from overnight.app import rehearsal_series

    undone = rehearsal_series.clean()
    if not current.printed_json(undone):
        for line in [f"undone: {run}" for run in undone.runs] or ["nothing to undo"]:
            terminal.print_line(current.console(), line)


register = session.command(rehearse, "Before the night", "rehearse rt-hog --brief")
