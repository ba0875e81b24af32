"""Measure how many new small mistakes the tests notice, at places that a seed chooses.

    python tools/drawn_mutants.py draw --seed 7 --count 60 > drawn.toml    # places; write `new` for each
    python tools/drawn_mutants.py run drawn.toml --jobs 4                  # the share that is noticed

Whoever writes the mistakes writes all of them before the first run. Unlike tests/mutants.toml, which keeps what tests must
notice, an entry names no test: all tests of its area run, and a mistake that changes nothing counts as survived. Tests that
fail on this host without a mistake notice nothing: --leave-out names a file of them. All tests of an area take minutes for
each mistake that survives. With the coverage of one run, only those that execute the line run, and those of processes:

    pytest tests/unit tests/contract tests/scenarios --cov --cov-context=test --cov-report=
    python tools/drawn_mutants.py run drawn.toml --coverage .coverage
"""

from __future__ import annotations

import argparse
import ast
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence

import coverage

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
SELECTED = "not long and not alone"  # several run at a time
NO_TESTS = 5  # of pytest: all are left out, or long
HANG_SECONDS = 900.0  # of the tests of a folder; the longest take two minutes
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


def find_tests(entry: dict[str, str | int], coverage_file: str) -> list[tuple[str, ...]]:
    """Return the tests to run, in groups; those that measured coverage does not see are a group each."""
    tests = AREAS[str(entry["area"])]
    if not coverage_file:
        return [(each,) for each in tests]
    measured = coverage.CoverageData(coverage_file)
    measured.read()
    contexts = measured.contexts_by_lineno(str(pathlib.Path(str(entry["path"])).resolve()))
    names = {
        context.rpartition("|")[0]
        for line in _statement(str(entry["path"]), int(entry["line"]))
        for context in contexts.get(line, ())
        if "|" in context
    }
    processes: list[tuple[str, ...]] = [
        (each,) for each in tests if each.startswith("tests/integration")
    ]
    return [tuple(sorted(names)), *processes] if names else processes


def _statement(path: str, line: int) -> range:
    """Return the lines of the statement of a line, without those of statements in it."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(pathlib.Path(path).read_text())):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            end = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
            if node.lineno <= line < max(end, node.lineno + 1):
                found = range(node.lineno, max(end, node.lineno + 1))
    return found


def judge(
    entry: dict[str, str | int], groups: Sequence[tuple[str, ...]], broken: tuple[str, ...]
) -> str:
    file = mutants.tree / str(entry["path"])
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    number = int(entry["line"]) - 1
    if lines[number].rstrip("\n") != entry["old"] or entry["old"] == entry["new"]:
        return "stale"
    lines[number] = f"{entry['new']}\n"
    file.write_text("".join(lines))
    outcome = "survived"
    for tests in groups:
        status = run_tests(tests, broken)
        # A collection that breaks is noticed, too; a run that had to be ended is noticed only if it does so again.
        if status is None:
            status = run_tests(tests, broken)
        if status not in (0, NO_TESTS):
            outcome = f"noticed by {find_failed() or tests[0]}" if status else "noticed: it hangs"
            break
    file.write_text(text)
    return outcome


def run_tests(tests: tuple[str, ...], broken: tuple[str, ...]) -> int | None:
    """Run tests of the copy that this process works in until one fails; return pytest's status, None if it hangs."""
    own = {"PYTHONPATH": f"{mutants.tree}/src:{os.environ.get('PYTHONPATH', '')}", "CI": "true"}
    options = ["-qx", "--tb=no", "-p", "no:cacheprovider", "-m", SELECTED]
    names = pathlib.Path(f"{mutants.tree}.tests")
    names.write_text("\n".join(tests))
    left_out = (f"--deselect={name}" for name in broken)
    command = [sys.executable, "-m", "pytest", *options, *left_out, f"@{names}"]
    with pathlib.Path(f"{mutants.tree}.log").open("w") as log:
        child = subprocess.Popen(
            command, cwd=mutants.tree, env=os.environ | own | {"PYTHONDONTWRITEBYTECODE": "1"},
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            return child.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # also what the tests have left
            child.wait()


def find_failed() -> str:
    """Return the test that failed last, to judge whether it noticed the mistake or failed for another reason."""
    lines = pathlib.Path(f"{mutants.tree}.log").read_text().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return failed[-1].split(" ", 1)[1][:150] if failed else ""


def run(name: str, only: str, jobs: int, broken: tuple[str, ...], measured: str) -> str | None:
    entries = [
        entry
        for entry in tomllib.loads(pathlib.Path(name).read_text())["mutant"]
        if only in entry["path"]
    ]
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory(prefix="overnight-drawn-") as folder:
        mutants.copy_tree(f"{folder}/0")
        trees = mutants.fork.SimpleQueue()
        for number in range(jobs):
            trees.put(shutil.copytree(mutants.tree, f"{folder}/{number + 1}", symlinks=True))
        with concurrent.futures.ProcessPoolExecutor(
            jobs, mutants.fork, lambda: mutants.use(trees.get())
        ) as workers:
            judged = {
                workers.submit(judge, entry, find_tests(entry, measured), broken): entry
                for entry in entries
            }
            for number, done in enumerate(concurrent.futures.as_completed(judged), 1):
                entry, outcome = judged[done], done.result()
                counts[entry["area"]][outcome.split()[0].rstrip(":")] += 1
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
    running.add_argument("--jobs", type=int, default=2, help="runs at a time")
    running.add_argument(
        "--leave-out",
        type=pathlib.Path,
        help="file of tests that fail on this host without a mistake",
    )
    running.add_argument("--coverage", default="", help="file of pytest-cov, with a context a test")
    options = parser.parse_args()
    if options.verb == "draw":
        draw(options.seed, options.count)
        return None
    broken = options.leave_out.read_text().splitlines() if options.leave_out else ()
    return run(options.file, options.only, options.jobs, tuple(broken), options.coverage)


if __name__ == "__main__":
    sys.exit(main())
