"""Apply each change of tests/mutants.toml to a copy of the tree, and run the tests that must notice it.

Start-up takes most of the time of such a run. Each one is therefore forked from a process that has loaded
pytest and the installed packages, but no module of the tree.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import importlib
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterator, Sequence

OUTCOMES = ("killed", "survived", "equivalent", "stale")
LEAST_KILLED = 0.9
HANG_SECONDS = 300.0  # of a test; most have a shorter limit of their own
NOT_COPIED = (".git", ".venv*", ".*_cache", ".hypothesis", "out", "build", "dist", "node_modules")
RAN = 100  # plus pytest's exit code; anything else means that pytest itself failed
PASSED, FAILED = RAN, RAN + 1
LOADED = "ignore::pytest.PytestAssertRewriteWarning"  # plug-ins are loaded before the fork
PR_SET_PDEATHSIG = 1
fork = multiprocessing.get_context("fork")
tree = pathlib.Path()  # the copy that this process works in


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str
    old: str
    new: str
    tests: Sequence[str]
    survives: str | None = None  # why no test can notice it

    def __str__(self) -> str:
        return f"{self.path}: {self.old.strip()!r} -> {self.new.strip()!r}"

    def find_fault(self) -> str | None:
        """Return why the entry does not fit the tree; reads files only."""
        count = _read(self.path).count(self.old)
        if count != 1 or bool(self.tests) is (self.survives is not None):
            return f"`old` occurs {count} times" if count != 1 else "needs `tests` or `survives`"
        for test in self.tests:
            function, _, case = test.partition("[")
            name, *inner = function.split("::")
            text = _read(name)
            # What has a space is written out in a table; other names of cases are derived.
            found = text and all(" " not in c or c in text for c in case.rstrip("]").split("-"))
            if not found or not all(re.search(rf"(def|class) {each}\b", text) for each in inner):
                return f"no such test: {test}"
        return None


def _read(name: str) -> str:
    return pathlib.Path(name).read_text() if pathlib.Path(name).is_file() else ""


def judge(mutant: Mutant) -> tuple[str, str]:
    """Run the tests of a mutant, each of which must fail; return its outcome and the reason."""
    if fault := mutant.find_fault():
        return "stale", fault
    if mutant.survives:
        return "equivalent", mutant.survives
    file = tree / mutant.path
    text, before = file.read_text(), file.stat()
    file.write_text(text.replace(mutant.old, mutant.new))
    os.utime(file, ns=(0, 0))  # not the time in the cached bytecode
    for test in mutant.tests:
        status = run_tests([test])
        if status != FAILED:
            break
    file.write_text(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    if status in (PASSED, FAILED):
        return ("killed", "") if status == FAILED else ("survived", f"passed: {test}")
    return "stale", f"{test} ended with status {status}: {_read(f'{tree}.log')[-2000:]}"


def run_tests(tests: Sequence[str], *, cached: bool = False) -> int | None:
    """Run tests in a child process until one fails; return its status."""
    child = fork.Process(target=_run_here, args=(tests, cached))
    child.start()
    child.join(HANG_SECONDS * len(tests))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid or 0, signal.SIGKILL)  # also what the tests have left
    child.join()
    return child.exitcode


def _run_here(tests: Sequence[str], cached: bool) -> None:
    import pytest

    os.setsid()
    use(tree)
    with pathlib.Path(f"{tree}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.chdir(tree)
    # CI: the same examples of Hypothesis each time, and a test that is skipped fails.
    os.environ |= {"CI": "true", "PYTHONPATH": f"{tree}/src"}
    sys.path[:1] = [str(tree), f"{tree}/src"]
    if not cached:  # bytecode of one mutant must not be taken for that of the next
        sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
    status = pytest.main(["-qx", "-W", LOADED, "-p", "no:cacheprovider", *tests])
    sys.stdout.flush()
    files = {name: getattr(each, "__file__", None) for name, each in sys.modules.items()}
    packages = [name for name, file in files.items() if "site-packages" in str(file)]
    pathlib.Path(f"{tree}.packages").write_text("\n".join(packages))
    os._exit(RAN + status)  # whatever threads the tests have left


def use(copy: str | pathlib.Path) -> None:
    """Let this process work in a copy of the tree, and end with its parent."""
    global tree  # noqa: PLW0603  one for each process
    tree = pathlib.Path(copy)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def copy_tree(folder: str) -> None:
    """Copy the tree, and let this process work in the copy."""
    ignored = shutil.ignore_patterns(*NOT_COPIED)
    use(shutil.copytree(".", folder, symlinks=True, ignore=ignored))


def run_all(mutants: list[Mutant], folder: str, jobs: int) -> Iterator[tuple[str, str]]:
    """Yield the outcome of each mutant and the reason, in order; first the tests run without a mutant."""
    copy_tree(f"{folder}/0")
    tests = sorted({test for each in mutants if not each.find_fault() for test in each.tests})
    # The second run has the packages that the first one loads, as the runs with a mutant do.
    for option in ("--collect-only", "-v") if tests else ():
        if run_tests([option, *tests], cached=True) != PASSED:
            sys.exit(f"{_read(f'{tree}.log')}\nerror: tests fail without a mutant")
        for name in _read(f"{tree}.packages").split():
            with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
                importlib.import_module(name)
    trees = fork.SimpleQueue()
    for number in range(jobs):
        trees.put(shutil.copytree(tree, f"{folder}/{number + 1}", symlinks=True))
    with concurrent.futures.ProcessPoolExecutor(jobs, fork, lambda: use(trees.get())) as workers:
        yield from workers.map(judge, mutants)


def main() -> str | None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only check the entries; run no test")
    parser.add_argument("--only", default="", help="part of the path of the changed files")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    options = parser.parse_args()
    entries = tomllib.loads(_read("tests/mutants.toml"))["mutant"]
    mutants = [Mutant(**entry) for entry in entries if options.only in entry["path"]]
    if options.check:
        return "\n".join(f"{m}: {fault}" for m in mutants if (fault := m.find_fault())) or None
    if not mutants:
        return f"error: no mutant of a path with {options.only!r}"
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory(prefix="overnight-mutants-") as folder:
        results = zip(mutants, run_all(mutants, folder, options.jobs), strict=True)
        for number, (each, (outcome, reason)) in enumerate(results, 1):
            counts[each.path.rpartition("/")[0]][outcome] += 1
            print(f"{number}/{len(mutants)} {outcome}: {each} {reason}", flush=True)
    total = sum(counts.values(), collections.Counter[str]())
    for area, seen in [*sorted(counts.items()), ("all", total)]:
        print(f"{area:40}", *(f"{seen[outcome]:4} {outcome}" for outcome in OUTCOMES))
    failed = total["stale"] or total["killed"] < LEAST_KILLED * len(mutants)
    return f"error: stale entries, or fewer than {LEAST_KILLED:.0%} are killed" if failed else None


if __name__ == "__main__":
    sys.exit(main())
