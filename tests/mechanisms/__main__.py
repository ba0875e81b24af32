"""Record scenes one after the other, diagnose each, and print a table of what was right.

    python -m tests.mechanisms --only smaps-reading --seeds 3 --load 0 --load 30

A run that was killed continues where it stopped: give the same results file.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from tests import mechanisms
from tests.mechanisms import recording, results

from overnight import errors

RESULTS = pathlib.Path("out/mechanisms.jsonl")
MAX_LOAD = 40  # the others must average below 50 % for the event


def main(words: list[str] | None = None) -> int:
    options = _parse(words)
    scenes = mechanisms.discover()
    chosen = options.only or list(scenes)
    if unknown := sorted(set(chosen) - set(scenes)):
        sys.exit(f"error: no scene {', '.join(unknown)}; scenes: {', '.join(scenes)}")
    if options.list:
        for name in chosen:
            why = scenes[name].obstacle()
            print(f"{name}: {scenes[name].about}{f' [not here: {why}]' if why else ''}")
        return 0
    done = results.read(options.results)
    if not options.table:
        for key in _plan(options, chosen):
            if key in done and (done[key].event or not options.retry):
                continue
            print(f"{key.label} …", file=sys.stderr, flush=True)
            try:
                row = recording.play(key, scenes[key.mechanism], _options(options), _report)
            except errors.OvernightError as error:
                sys.exit(f"error: {error.what}: {error.why}")
            results.append(options.results, row)
            done[key] = row
            print(f"  {_describe(row)}", file=sys.stderr, flush=True)
    print(results.format_table(row for row in done.values() if row.mechanism in chosen))
    return 0


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests.mechanisms", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--list", action="store_true", help="list the scenes, and those that this host cannot run")
    add("--only", action="append", metavar="NAME", help="mechanism (repeatable)")
    add("--seeds", type=int, default=1, metavar="NUMBER", help="runs of each scene (default 1)")
    add("--load", action="append", type=int, metavar="PERCENT",
        help=f"load of the other cores, at most {MAX_LOAD} (repeatable, default 0)")  # fmt: skip
    add("--programs", choices=("both", "scene", "lookalike"), default="both",
        help="which programs of a scene (default both)")  # fmt: skip
    add("--results", type=pathlib.Path, default=RESULTS, metavar="FILE", help=f"default {RESULTS}")
    add("--retry", action="store_true", help="repeat runs that had no verdict")
    add("--table", action="store_true", help="print the table of the results, run nothing")
    add(
        "--baseline",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="recording before the scene (default 30; 150 makes the evidence complete)",
    )
    add(
        "--last",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="duration of a scene (default 20)",
    )
    add("--recorder", choices=("auto", "perf", "native"), default="auto", help="default auto")
    add("--core", type=int, metavar="NUMBER", help="core of the scene (default: the least busy)")
    add("--bundles", type=pathlib.Path, metavar="DIR", help="folder for a bundle of each event")
    options = parser.parse_args(words)
    options.load = options.load or [0]
    if any(not 0 <= load <= MAX_LOAD for load in options.load):
        parser.error(f"--load must be from 0 to {MAX_LOAD} (got {options.load})")
    return options


def _plan(options: argparse.Namespace, chosen: list[str]) -> list[results.Key]:
    """Return all runs: every scene once before any scene a second time."""
    kinds = {"both": (False, True), "scene": (False,), "lookalike": (True,)}[options.programs]
    return [
        results.Key(name, lookalike, seed, load)
        for seed in range(options.seeds)
        for load in options.load
        for name in chosen
        for lookalike in kinds
    ]


def _options(options: argparse.Namespace) -> recording.Options:
    return recording.Options(
        options.baseline, options.last, options.recorder, options.core, options.bundles
    )


def _report(phase: str) -> None:
    print(f"  {phase}", file=sys.stderr, flush=True)


def _describe(row: results.Row) -> str:
    if not row.event:
        return f"no verdict: {'; '.join((row.why, *row.problems))}"
    right = {True: "right", False: "wrong"}
    return (
        f"actor {right[row.actor_right]} ({row.actor}), mechanism {right[row.mechanism_right]}"
        f" ({row.mechanism_found or 'none'}), {row.status} {row.confidence:.2f}: {row.headline}"
    )


if __name__ == "__main__":
    sys.exit(main())
