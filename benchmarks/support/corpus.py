"""Diagnoses with a known truth, to calibrate confidence: made-up nights, rehearsals and scenes.

    python -m benchmarks.support.corpus nights out/nights.jsonl --seeds 40
    python -m benchmarks.support.corpus rehearsals out/rehearsals.jsonl --seeds 2
    python -m benchmarks.support.corpus csv out/nights.jsonl out/rehearsals.jsonl out/mechanisms.jsonl

`nights` and `rehearsals` append a JSON line per diagnosis and continue where they were stopped; the same seed
gives the same night on every host. `csv` combines them, and the results of `python -m tests.mechanisms`, into
`benchmarks/data/diagnoses.csv`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import csv
import json
import os
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overnight.app import scoreboard
    from overnight.model.truth import Expected
    from overnight.model.verdict import Chain, Verdict

ROOT = pathlib.Path(__file__).parents[2]
CSV = ROOT / "benchmarks/data/diagnoses.csv"
COLUMNS = ("source", "family", "seed", "status", "score", "right")
FAMILIES = (
    "reference", "modern", "rt-hog", "softirq-storm", "reclaim", "lock-convoy", "busy-process",
    "one-name",
    "decoy", "two-cause", "random", "polled", "half-missing",
    # Evidence that misleads: tests/support/scenarios/hard.py
    "coincidence", "outside", "job", "periodic", "below", "remote", "kernel-path", "crowded", "namesake",
    "weak", "launcher",
)  # fmt: skip
RECURRING = frozenset(
    ("reference", "modern", "rt-hog", "softirq-storm", "reclaim", "lock-convoy", "busy-process")
)
SIGNALS = (
    "processes", "softirqs", "softnet", "nic-queues", "ethtool", "memory-cgroups", "cgroup-births",
    "memory-cgroup-parents", "unit-restarts", "vmstat", "pressure", "rt-threads",
)  # fmt: skip
# They blame a process without a statement about what it did.
GENERIC = frozenset(("cpu.culprit", "stack.lift"))
MECHANISM = "mechanism."
QUIET_POLL_SECONDS = 20.0
Row = dict[str, Any]


def vary(family: str, seed: int) -> dict[str, object]:
    """Choose how a night differs from the usual one: load, missing evidence, size, recurrences."""
    chance = random.Random(f"corpus {family} {seed}")
    changes: dict[str, object] = {
        "cores": chance.choice((4, 8, 16, 32)),
        "minutes": chance.choice((5.0, 7.0, 12.0, 16.0, 24.0)),
        "busy": chance.choice((0.05, 0.15, 0.3, 0.5, 0.65)),
        "lost": chance.choice((0.0, 0.0, 0.0, 0.03, 0.15, 0.4)),
        "bystander": chance.random() < 0.3,
        "profiles": chance.random() >= 0.1,
        "missing": tuple(
            name for name in SIGNALS if chance.random() < chance.choice((0.0, 0.0, 0.3))
        ),
    }
    if family in RECURRING:
        changes["recurrences"] = chance.choice((0, 0, 1, 3))
        changes["close"] = chance.choice((0.0, 0.0, 25.0, 75.0))
    return changes


def diagnose_night(family: str, seed: int) -> Row:
    """Build a night, diagnose its event, and compare what is blamed with the truth."""
    sys.path.insert(0, str(ROOT / "tests/support"))
    import scenarios
    from overnight.app import diagnose

    row: Row = {"source": "made-up", "family": family, "seed": seed}
    with tempfile.TemporaryDirectory(prefix="overnight-corpus-") as name:
        try:
            truth = scenarios.build(family, pathlib.Path(name), seed, **vary(family, seed))
            assert truth.event is not None
        except (ValueError, IndexError) as error:  # no event, or too small a host
            return {**row, "impossible": repr(error)}
        core = truth.facts.get("core", truth.event.core)
        # Something else raised the event, or saturated the same core.
        others = truth.facts.get("bystander_core") == core
        if others or truth.event.known_core not in (None, core):
            return {**row, "impossible": f"not only the incident is on core {core}"}
        verdict, _ = diagnose.diagnose_event(truth.home, truth.event)
    return row | judge(verdict, truth.chain, truth.absent, truth.facts.get("unit"))


def judge(verdict: Verdict, chain: Sequence[Expected], absent: frozenset[str], unit: object) -> Row:
    """Return status and score of a verdict, and whether what it blames is a cause; the event ends `chain`."""
    blamed = verdict.blamed
    return {
        "status": str(verdict.status),
        "score": round(verdict.score, 4) if blamed else None,
        "right": is_cause(blamed, chain[:-1], absent, unit) if blamed else None,
        "root": blamed.root.kind if blamed else None,
        "blamed": blamed.root.subject.as_json() if blamed else None,
    }


def is_cause(
    chain: Chain, causes: Iterable[Expected], absent: frozenset[str], unit: object
) -> bool:
    """Return whether the root of a chain is a cause of the incident, if not always the deepest one.

    A process is right if its name, its core and, where both are known, its unit (`unit`, None: not known) are:
    another one may have the same name. What the root states about it must be true: a wrong mechanism of the right process is wrong; kinds of
    causes that are not `absent` are true.
    """
    from overnight.diagnosis import knowledge
    from overnight.model import truth

    kind, subject = chain.root.kind, chain.root.subject.as_json()
    states = knowledge.known().kinds[kind].yields_to
    for cause, parts in causes:
        needed = dict(parts)
        if kind != cause:
            is_open = kind in GENERIC | (truth.CAUSES - absent) or (
                kind.startswith(MECHANISM) and cause in ("cpu.culprit", states)
            )
            if not is_open or "process" not in parts:
                continue
            needed = {name: parts[name] for name in ("process", "core") if name in parts}
        if kind in GENERIC and "core" not in subject:
            needed.pop("core", None)
        own_unit = subject.get("unit") if "process" in needed else None
        if (own_unit is None or unit in (None, own_unit)) and _agree(subject, needed):
            return True
    return False


def _agree(subject: Mapping[str, object], needed: Mapping[str, object]) -> bool:
    return all(
        subject.get(name) in right if isinstance(right, frozenset) else subject.get(name) == right
        for name, right in needed.items()
    )


def rehearse(name: str, seed: int) -> Row:
    """Run one rehearsal on this host; a short one for even seeds."""
    from overnight.app import rehearsal

    with tempfile.TemporaryDirectory(prefix="overnight-corpus-", dir="/var/tmp") as home:
        return _judge_rehearsal(
            rehearsal.rehearse(
                rehearsal.find(name), seed=seed, home=pathlib.Path(home), brief=seed % 2 == 0
            )
        )


def _replay(path: pathlib.Path) -> Row:
    from overnight.app import recorded_rehearsal

    with tempfile.TemporaryDirectory(prefix="overnight-corpus-") as home:
        return _judge_rehearsal(recorded_rehearsal.replay(path, pathlib.Path(home)))


def _judge_rehearsal(outcome: scoreboard.Outcome) -> Row:
    assert outcome.diagnosis is not None
    row = judge(outcome.diagnosis.verdict, outcome.expected.chain, outcome.expected.absent, None)
    disturbed = list(outcome.disturbances)
    return {"source": "rehearsal", "family": outcome.scenario, "seed": outcome.seed, **row} | (
        {"impossible": disturbed} if disturbed else {}
    )


def collect_nights(file: pathlib.Path, seeds: int, jobs: int) -> Iterator[Row]:
    """Diagnose the nights that the file does not have yet; yield each."""
    known = {(row["family"], row["seed"]) for row in read(file)}
    wanted = [(name, n) for n in range(seeds) for name in FAMILIES if (name, n) not in known]
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(diagnose_night, *each) for each in wanted]
        for future in concurrent.futures.as_completed(futures):
            yield future.result()


def collect_rehearsals(file: pathlib.Path, seeds: int, max_load: float) -> Iterator[Row]:
    """Replay the recorded rehearsals, then run those that the file does not have, on a quiet host."""
    from overnight import errors
    from overnight.app import recorded_rehearsal, rehearsal

    known = {(row["family"], row["seed"]) for row in read(file) if "impossible" not in row}
    names = [each.name for each in rehearsal.discover()]
    for path in filter(None, map(recorded_rehearsal.find_recorded, names)):
        row = _replay(path)
        if (row["family"], row["seed"]) not in known:
            yield row
    for name, seed in ((name, seed) for seed in range(seeds) for name in names):
        if (name, seed) in known:
            continue
        while os.getloadavg()[0] >= max_load:
            time.sleep(QUIET_POLL_SECONDS)
        try:
            yield rehearse(name, seed)
        except errors.CannotError as error:
            yield {"source": "rehearsal", "family": name, "seed": seed, "impossible": error.why}


def read(file: pathlib.Path) -> list[Row]:
    """Return the rows of a file; a line that a killed run did not complete does not count."""
    rows = []
    for line in file.read_text().splitlines() if file.exists() else ():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def append(file: pathlib.Path, rows: Iterable[Row]) -> int:
    """Append rows as they come; return how many."""
    count = 0
    is_cut = file.exists() and not file.read_bytes().endswith(b"\n")
    with file.open("a") as log:
        log.write("\n" if is_cut else "")
        for row in rows:
            log.write(json.dumps(row) + "\n")
            log.flush()
            count += 1
    return count


def from_scene(row: Row) -> Row:
    """Convert a result of a scene: right is the right actor without a wrong mechanism."""
    is_wrong = row["mechanism_found"] and not row["mechanism_right"]
    blames = row["confidence"] > 0
    return {
        "source": "scene",
        "family": row["mechanism"] + ("-lookalike" if row["lookalike"] else ""),
        "seed": row["seed"],
        "status": row["status"],
        "score": row["score"] if blames else None,
        "right": (row["actor_right"] and not is_wrong) if blames else None,
        **({} if row["event"] else {"impossible": row["why"]}),
    }


def write_csv(files: Iterable[pathlib.Path], path: pathlib.Path) -> int:
    """Write the rows of all files, sorted; those without a verdict are left out."""
    rows = [row if "source" in row else from_scene(row) for file in files for row in read(file)]
    lines = sorted(_format(row) for row in rows if "impossible" not in row)
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows((COLUMNS, *lines))
    return len(lines)


def _format(row: Row) -> tuple[str, str, int, str, str, str]:
    score, right = row["score"], row["right"]
    return (
        row["source"],
        row["family"],
        row["seed"],
        row["status"],
        "" if score is None else f"{score:.4f}",
        "" if right is None else str(int(right)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("nights", "rehearsals"):
        command = commands.add_parser(name)
        command.add_argument("file", type=pathlib.Path)
        command.add_argument("--seeds", type=int, default=40, help="of each family")
    commands.choices["nights"].add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    commands.choices["rehearsals"].add_argument("--max-load", type=float, default=2.0)
    combine = commands.add_parser("csv")
    combine.add_argument("files", type=pathlib.Path, nargs="+")
    combine.add_argument("--to", type=pathlib.Path, default=CSV)
    options = parser.parse_args()
    if options.command == "csv":
        print(f"{write_csv(options.files, options.to)} diagnoses in {options.to}")
        return
    rows = (
        collect_nights(options.file, options.seeds, options.jobs)
        if options.command == "nights"
        else collect_rehearsals(options.file, options.seeds, options.max_load)
    )
    print(f"{append(options.file, rows)} diagnoses added to {options.file}")


if __name__ == "__main__":
    main()
