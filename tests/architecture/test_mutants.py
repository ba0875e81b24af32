"""tests/mutants.toml fits the tree, and `make mutants` reports what the tests notice."""

from __future__ import annotations

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]

SOURCE = "def is_full(size): return size >= 5\ndef is_empty(size): return size == 0\n"
TESTS = """
import pytest, tank
@pytest.mark.parametrize("size", [4, 6])
def test_full(size): assert tank.is_full(size) is (size > 5)
def test_empty(): assert tank.is_empty(0)
"""
ENTRIES = (
    (">= 5", "> 6", ["test_full", "test_full[6]"], "killed"),
    # Same file, same size, other bytecode.
    (">= 5", "> 3", ["test_full[4]"], "killed"),
    (">= 5", "> 5", ["test_full"], "survived"),
    ("== 0", "<= 0", ["test_empty"], "survived"),
    ("== 0", "!= 0", ["test_empty", "test_full"], "survived"),
    ("== 0", "== (", ["test_empty"], "stale"),
    ("== 0", "== 1", ["test_empty[0]"], "stale"),
    ("== 0", "== 1", ["test_gone"], "stale"),
    ("def", "class", ["test_empty"], "stale"),
    ("== 7", "== 1", ["test_empty"], "stale"),
    ("== 0", "is 0", [], "equivalent"),
)


def run(folder: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/mutants.py", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_entry_changes_one_place_and_its_tests_exist() -> None:
    done = run(ROOT, "--check")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_outcomes(tmp_path: pathlib.Path) -> None:
    for folder in ("src", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "src/tank.py").write_text(SOURCE)
    (tmp_path / "tests/test_tank.py").write_text(TESTS)
    lines = []
    for old, new, tests, outcome in ENTRIES:
        ids = [f"tests/test_tank.py::{name}" for name in tests]
        why = "survives = 'why not'\n" if outcome == "equivalent" else ""
        lines.append(
            f"[[mutant]]\npath = 'src/tank.py'\nold = '{old}'\nnew = '{new}'\ntests = {ids}\n{why}"
        )
    (tmp_path / "tests/mutants.toml").write_text("".join(lines))
    done = run(tmp_path, "--jobs", "2")
    begins = [f"{n}/{len(ENTRIES)} {entry[3]}: " for n, entry in enumerate(ENTRIES, 1)]
    shown = [line for line in done.stdout.splitlines() if line.startswith(tuple(begins))]
    assert len(shown) == len(ENTRIES), done.stdout + done.stderr
    assert done.returncode == 1
    total = " ".join(done.stdout.splitlines()[-1].split())
    assert total == "all 2 killed 3 survived 1 equivalent 5 stale"
    assert "no mutant of a path with 'pump'" in run(tmp_path, "--only", "pump").stderr
    assert (tmp_path / "src/tank.py").read_text() == SOURCE
    # The checks that run no test find three of the stale ones.
    assert run(tmp_path, "--check").stderr.count("src/tank.py") == 3
