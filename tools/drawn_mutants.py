"""Measure how many new small mistakes the tests notice, at places that a seed chooses.

    python tools/drawn_mutants.py draw --seed 7 --count 60 > drawn.toml    # places; write `new` for each
    python tools/drawn_mutants.py run drawn.toml                           # the share that is noticed

Whoever writes the mistakes writes all of them before the first run. Unlike tests/mutants.toml, which keeps what tests must
notice, an entry names no test: all tests of its area run, and a mistake that changes nothing counts as survived.
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
import pathlib
import random
import sys
import tempfile
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from tools import mutants

# The tests of each area, the most telling first: a run ends with the first failure.
AREAS: dict[str, tuple[str, ...]] = {
    "reservations": ("tests/unit/reservations", "tests/contract", "tests/integration/reservations"),
    "investigations": (
        "tests/unit/investigations", "tests/contract/test_investigations.py",
        "tests/contract/test_investigated_fleet.py", "tests/contract/test_investigation_crashes.py",
        "tests/unit/app", "tests/unit/interfaces", "tests/integration/test_run_real.py",
    ),
    "fleet": (
        "tests/unit/fleet", "tests/contract", "tests/unit/interfaces", "tests/integration/test_serve.py",
        "tests/integration/uplink",
    ),
    "detectors": ("tests/unit/detectors", "tests/unit/diagnosis", "tests/scenarios"),
    "diagnosis": ("tests/unit/diagnosis", "tests/unit/reports", "tests/scenarios"),
    "agent/uplink": ("tests/unit/agent", "tests/integration/uplink", "tests/integration/test_fleet_faults.py"),
    "ingest/logs": ("tests/unit/ingest/logs", "tests/unit/app/test_imported_logs.py", "tests/integration/test_import_real.py"),
    "database": ("tests/unit/database", "tests/contract"),
}  # fmt: skip
# Kinds of code in which a small mistake changes what the program does.
LOGIC = (
    ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Call, ast.Subscript, ast.Return, ast.Raise,
    ast.If, ast.While, ast.For, ast.Assign, ast.AugAssign, ast.keyword, ast.comprehension,
)  # fmt: skip


def _lines(path: pathlib.Path) -> list[int]:
    """List the lines in functions on which logic begins."""
    tree = ast.parse(path.read_text())
    functions = [
        each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inside = (node for function in functions for part in function.body for node in ast.walk(part))
    found = {node.lineno for node in inside if isinstance(node, LOGIC) and hasattr(node, "lineno")}
    return sorted(found)


def draw(seed: int, count: int) -> None:
    places = [
        (area, path, line)
        for area in AREAS
        for path in sorted(pathlib.Path("src/overnight", area).rglob("*.py"))
        for line in _lines(path)
    ]
    for area, path, line in sorted(random.Random(seed).sample(places, count)):
        old = path.read_text().splitlines()[line - 1]
        print(f"[[mutant]]\narea = '{area}'\npath = '{path}'\nline = {line}")
        print(f"old = {json.dumps(old)}\nnew = {json.dumps(old)}\n")


def judge(entry: dict[str, str | int]) -> str:
    file = mutants.tree / str(entry["path"])
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    number = int(entry["line"]) - 1
    if lines[number].rstrip("\n") != entry["old"] or entry["old"] == entry["new"]:
        return "stale"
    lines[number] = f"{entry['new']}\n"
    file.write_text("".join(lines))
    outcome = "survived"
    for tests in AREAS[str(entry["area"])]:
        status = mutants.run_tests(["-m", "not long", tests])
        if status not in (mutants.PASSED, mutants.FAILED):
            # A broken collection, or a hang: no user would get such a change past the tests either.
            outcome = f"noticed (status {status} of {tests})"
            break
        if status == mutants.FAILED:
            outcome = f"noticed by {tests}"
            break
    file.write_text(text)
    return outcome


def run(name: str, only: str) -> str | None:
    entries = [
        entry
        for entry in tomllib.loads(pathlib.Path(name).read_text())["mutant"]
        if only in entry["path"]
    ]
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory(prefix="overnight-drawn-") as folder:
        mutants.copy_tree(f"{folder}/0")
        for number, entry in enumerate(entries, 1):
            outcome = judge(entry)
            counts[entry["area"]][outcome.split()[0]] += 1
            print(
                f"{number}/{len(entries)} {outcome}: {entry['path']}:{entry['line']} {entry['new'].strip()}",
                flush=True,
            )
    total = sum(counts.values(), collections.Counter[str]())
    for area, seen in [*sorted(counts.items()), ("all", total)]:
        print(
            f"{area:20}",
            *(f"{seen[outcome]:4} {outcome}" for outcome in ("noticed", "survived", "stale")),
        )
    return "error: stale entries" if total["stale"] else None


def main() -> str | None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    drawing = verbs.add_parser("draw", help="print the places")
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--count", type=int, default=60)
    running = verbs.add_parser("run", help="run the tests with each mistake")
    running.add_argument("file")
    running.add_argument("--only", default="", help="part of the path of the changed files")
    options = parser.parse_args()
    if options.verb == "draw":
        draw(options.seed, options.count)
        return None
    return run(options.file, options.only)


if __name__ == "__main__":
    sys.exit(main())
