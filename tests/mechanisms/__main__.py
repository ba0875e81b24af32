"""Record scenes one after the other, diagnose each, and print a table of what was right.

    python -m tests.mechanisms --only smaps-reading --seeds 3 --load 0 --load 30
    python -m tests.mechanisms --share 10 --baseline 12 --last 12

A run that was killed continues where it stopped: give the same results file. With `--share` it repeats at most the
runs of one recording. docs/diagnosis.md has the table of tests/mechanisms/results.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from tests import mechanisms
from tests.mechanisms import recording, results

from overnight import errors

RESULTS = pathlib.Path("out/mechanisms.jsonl")
MAX_LOAD = 90


def main(words: list[str] | None = None) -> int:
    options = parse(words)
    scenes = mechanisms.discover()
    chosen = options.only or list(scenes)
    if unknown := sorted(set(chosen) - set(scenes)):
        sys.exit(f"error: no scene {', '.join(unknown)}; scenes: {', '.join(scenes)}")
    if options.list:
        for name in chosen:
            why = scenes[name].obstacle()
            print(f"{name}: {scenes[name].about}{f' [not here: {why}]' if why else ''}")
        return 0
    done = {row.key: row for row in results.read(options.results) if row.cores == recording.CORES}
    if not (options.table or options.publish):
        for keys in divide(options, chosen, done):
            print(" ".join(key.label for key in keys), file=sys.stderr, flush=True)
            try:
                for row in recording.play(keys, scenes, _options(options), _report):
                    results.append(options.results, row)
                    print(f"  {row.key.label}: {_describe(row)}", file=sys.stderr, flush=True)
            except errors.OvernightError as error:
                sys.exit(f"error: {error.what}: {error.why}")
    rows = results.read(options.results)
    if options.publish:
        results.publish(rows)
    print(results.format_table(row for row in rows if row.mechanism in chosen))
    return 0


def divide(
    options: argparse.Namespace, chosen: list[str], done: Mapping[results.Key, results.Row]
) -> Iterator[Sequence[results.Key]]:
    """Yield the missing runs of one load that share a recording; programs that never ran here come first."""
    missing = [
        key
        for key in _plan(options, chosen)
        if key not in done or (options.retry and not done[key].event)
    ]
    known = {(row.mechanism, row.lookalike) for row in done.values() if row.event}
    missing.sort(key=lambda key: (key.seed, key.load, (key.mechanism, key.lookalike) in known))
    for _, same in itertools.groupby(missing, key=lambda key: key.load):
        keys = list(same)
        for at in range(0, len(keys), options.share):
            yield keys[at : at + options.share]


def parse(words: list[str] | None) -> argparse.Namespace:
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
    add("--publish", action="store_true",
        help="add the results to tests/mechanisms/results.jsonl and docs/diagnosis.md, run nothing")  # fmt: skip
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
    add("--share", type=int, default=1, metavar="NUMBER", help="runs in one recording (default 1)")
    add("--for", type=float, metavar="SECONDS", dest="seconds",
        help="begin no run that would end later; diagnosis takes longer")  # fmt: skip
    add("--commit", default=_read_commit(), metavar="ID", help="of this code (default: ask git)")
    add("--bundles", type=pathlib.Path, metavar="DIR", help="folder for a bundle of each event")
    options = parser.parse_args(words)
    options.load = options.load or [0]
    if any(not 0 <= load <= MAX_LOAD for load in options.load):
        parser.error(f"--load must be from 0 to {MAX_LOAD} (got {options.load})")
    if options.share < 1:
        parser.error(f"--share must be at least 1 (got {options.share})")
    options.until = time.monotonic() + options.seconds if options.seconds else None
    return options


def _read_commit() -> str:
    command = ["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]  # fmt: skip
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


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
        options.baseline,
        options.last,
        options.recorder,
        options.core,
        options.bundles,
        options.until,
        options.commit,
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
