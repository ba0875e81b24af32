"""Commands import only the modules they need, which keeps start-up fast."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import captures
import pytest
import rings

HEAVY = {"numpy", "duckdb", "scipy", "sqlalchemy", "mcp", "pydantic"}
LIGHT = {
    "help": ["--help"],
    "no command": [],
    "events": ["events"],
    "events as JSON": ["events", "-O", "json"],
    "event": ["event", "add", "--kind", "job.failed"],
    "rules": ["rules", "list"],
    "census": ["census", "--root", "ROOT", "--for", "0s"],
    "doctor": ["doctor", "-O", "json"],
    "doctor help": ["doctor", "--help"],
    "pool help": ["pool", "--help"],
    "record help": ["record", "--help"],
    "top help": ["top", "--help"],
    "mcp help": ["mcp", "--help"],
    "pins": ["store", "pin"],
    "audit": ["audit", "--root", "ROOT"],
    "snapshot": ["snapshot", "--root", "ROOT"],
    "unknown command": ["frobnicate"],
}
PROFILES = {
    "top": ["top"],
    "flame": ["flame"],
    "heatmap": ["heatmap", "--step", "1s"],
    "diff": ["diff", "-b", "15s"],
    "import": ["import", "CAPTURE"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    home = tmp_path_factory.mktemp("home")
    ring = rings.open_writer(home)
    rings.record(ring, range(10))
    ring.close()
    begin = captures.NIGHT
    samples = captures.random_samples(5, 300, begin=begin, end=begin + 30 * captures.SECOND)
    captures.store(home, captures.build(samples))
    (home / "a.collapsed").write_text("bash;main;read 5\n")
    (home / "root/proc/self").mkdir(parents=True)
    return home


def run(home: pathlib.Path, arguments: list[str]) -> set[str]:
    """Run a command in a fresh interpreter; return the modules that it imported."""
    paths = {"ROOT": str(home / "root"), "CAPTURE": str(home / "a.collapsed")}
    words = ["--home", str(home), *(paths.get(word, word) for word in arguments)]
    code = (
        "import json, sys; from overnight.interfaces import cli; code = cli.main(sys.argv[1:]);"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.__stdout__)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    exit_code, modules = json.loads(process.stdout.splitlines()[-1])
    assert exit_code != 70, process.stderr
    return set(modules)


@pytest.mark.parametrize("name", LIGHT)
def test_commands_without_profiles_import_neither_numpy_nor_duckdb(
    home: pathlib.Path, name: str
) -> None:
    modules = run(home, LIGHT[name])
    assert modules & HEAVY == set()
    assert modules & {"asyncio", "zstandard"} == set()


@pytest.mark.parametrize("name", PROFILES)
def test_commands_that_read_profiles_import_neither_scipy_nor_sqlalchemy(
    home: pathlib.Path, name: str
) -> None:
    modules = run(home, PROFILES[name])
    assert ("duckdb" in modules) == (name != "import")  # ingest runs all night without it
    assert modules & {"scipy", "sqlalchemy", "jinja2"} == set()
    assert "overnight.ingest.perfdata" not in modules


def run_code(code: str) -> set[str]:
    """Run code in a fresh interpreter; return the modules that it imported."""
    process = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(process.stdout.split())


def test_the_fast_path_of_a_claim_imports_nothing_heavy() -> None:
    modules = run_code("from overnight.pools.sql import fast_claim")
    assert "overnight.database.sqlite_files" in modules
    assert modules & {*HEAVY, "alembic"} == set()


def test_a_server_starts_without_what_reads_profiles() -> None:
    modules = run_code("from overnight.interfaces.http import server")
    assert modules & {"duckdb", "scipy", "jinja2"} == set()


def test_commands_of_pools_import_neither_numpy_nor_scipy(home: pathlib.Path) -> None:
    assert run(home, ["pool", "list"]) & HEAVY == {"sqlalchemy"}


def test_cpu_reads_signals_without_duckdb(home: pathlib.Path) -> None:
    assert run(home, ["cpu"]) & HEAVY == {"numpy"}


def test_a_command_imports_no_other_command(home: pathlib.Path) -> None:
    prefix = "overnight.interfaces.cli.commands."
    imported = {name.removeprefix(prefix) for name in run(home, ["top"]) if name.startswith(prefix)}
    assert imported == {"top"}
