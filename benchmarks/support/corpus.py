"""Diagnoses with a known truth, to calibrate confidence: made-up nights over the generator's whole range.

`python -m benchmarks.support.corpus FILE [--seeds N] [--jobs N]` appends a JSON line per night and goes on
where it was stopped. Seeds of one number give the same nights everywhere.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.verdict import Chain
    from scenarios import Truth

ROOT = pathlib.Path(__file__).parents[2]
FAMILIES = (
    "reference", "modern", "rt-hog", "softirq-storm", "reclaim", "lock-convoy", "busy-process",
    "coincidence", "decoy", "two-cause", "random", "polled", "coincidence",
    "half-missing",
)  # fmt: skip
RECURRING = frozenset(
    ("reference", "modern", "rt-hog", "softirq-storm", "reclaim", "lock-convoy", "busy-process")
)
SIGNALS = (
    "processes", "softirqs", "softnet", "nic-queues", "ethtool", "memory-cgroups", "cgroup-births",
    "memory-cgroup-parents", "unit-restarts", "vmstat", "pressure", "rt-threads",
)  # fmt: skip


def vary(family: str, seed: int) -> dict[str, object]:
    """Choose how a night differs from the usual one: load, missing evidence, size, recurrences."""
    chance = random.Random(f"corpus {family} {seed}")
    changes: dict[str, object] = {
        "cores": chance.choice((4, 8, 16, 32)),
        "minutes": chance.choice((7.0, 12.0, 16.0, 24.0)),
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


def diagnose(family: str, seed: int) -> dict[str, object]:
    """Build a night, diagnose its event, and compare what is blamed with the truth."""
    sys.path.insert(0, str(ROOT / "tests/support"))
    import scenarios
    from overnight.app import diagnose as diagnoses

    with tempfile.TemporaryDirectory(prefix="overnight-corpus-") as name:
        try:
            truth = scenarios.build(family, pathlib.Path(name), seed, **vary(family, seed))
        except (
            ValueError,
            IndexError,
        ) as error:  # the agent saw no event, or the host is too small
            return {"family": family, "seed": seed, "impossible": repr(error)}
        verdict, _ = diagnoses.diagnose_event(truth.home, truth.event)
    blamed = verdict.blamed
    return {
        "family": family,
        "seed": seed,
        "status": verdict.status,
        "score": round(verdict.score, 4) if blamed else None,
        "chain": round(blamed.score, 4) if blamed else None,
        "root": blamed.root.kind if blamed else None,
        "right": _is_cause(blamed, truth) if blamed else None,
    }


def _is_cause(chain: Chain, truth: Truth) -> bool:
    """Return whether the root of a chain is a cause of the incident, if not always the deepest one.

    A process that is blamed without a mechanism is one if the truth blames it for anything.
    """
    subject = chain.root.subject.as_json()
    for kind, parts in truth.chain[:-1]:  # the last one is the event
        if "process" in parts and subject.get("process") == parts["process"]:
            return True
        same = all(
            subject.get(name) in right
            if isinstance(right, frozenset)
            else subject.get(name) == right
            for name, right in parts.items()
        )
        if kind == chain.root.kind and same:
            return True
    return False


def collect(file: pathlib.Path, seeds: int, jobs: int) -> Iterator[dict[str, object]]:
    """Append the diagnoses that the file does not have yet; yield each."""
    lines = file.read_text().splitlines() if file.exists() else []
    known = {(row["family"], row["seed"]) for row in map(json.loads, lines)}
    wanted = [(name, n) for n in range(seeds) for name in FAMILIES if (name, n) not in known]
    with file.open("a") as log, concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        for future in concurrent.futures.as_completed(
            pool.submit(diagnose, *one) for one in wanted
        ):
            row = future.result()
            log.write(json.dumps(row) + "\n")
            log.flush()
            yield row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    done = sum(1 for _ in collect(options.file, options.seeds, options.jobs))
    print(f"{done} diagnoses added to {options.file}")


if __name__ == "__main__":
    main()
