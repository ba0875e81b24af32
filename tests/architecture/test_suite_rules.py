"""The rules of tests/conftest.py, tested with small suites."""

from __future__ import annotations

import pathlib
import re

import pytest
from _pytest.mark import expression

pytest_plugins = ["pytester"]
CONFTEST = (pathlib.Path(__file__).parents[1] / "conftest.py").read_text()
MARKERS = "[pytest]\nmarkers =\n  needs_root: x\n  needs_perf: x\n  needs_nspawn: x\n  alone: x\n  together: x\n"
BUSY = """
import time
def test_works():
    end = time.process_time() + 0.4
    while time.process_time() < end: pass
"""
MAKEFILE = (pathlib.Path(__file__).parents[2] / "Makefile").read_text()


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makefile(".ini", pytest=MARKERS)
    pytester.makepyfile(conftest=CONFTEST)
    return pytester


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [("true", {"failed": 1, "errors": 1}), ("", {"skipped": 2})],
    ids=["CI", "at home"],
)
def test_a_skip_fails_only_in_ci(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: dict[str, int]
) -> None:
    monkeypatch.setenv("CI", ci)
    suite.makepyfile(
        """
        import os, pytest
        def test_skips_itself(): pytest.skip("no reason")
        @pytest.mark.needs_perf
        def test_lacks(): pass
        """
    )
    monkeypatch.setenv("PATH", "/nonexistent")
    suite.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(**outcome)


def test_a_unit_test_has_a_cpu_time_limit(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNIT_SECONDS", "0.3")
    (suite.mkpydir("unit") / "test_slow.py").write_text(BUSY)
    (suite.path / "test_elsewhere.py").write_text(BUSY)
    result = suite.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*used * s of CPU time; a unit test has 0.3 s*"])


def test_a_hanging_unit_test_is_stopped(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNIT_HANG_SECONDS", "0.5")
    hang = "import time\ndef test_hangs(): time.sleep({})\n"
    (suite.mkpydir("unit") / "test_slow.py").write_text(hang.format(20))
    (suite.path / "test_elsewhere.py").write_text(hang.format(0.8))
    result = suite.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Timeout (>0.5*"])


def test_tests_that_record_all_cores_or_boot_a_machine_run_alone(
    suite: pytest.Pytester,
) -> None:
    for folder in ("unit", "integration/agent", "integration/ingest", "integration/store"):
        (suite.path / folder).mkdir(parents=True)
        name = folder.replace("/", "_")
        (suite.path / folder / f"test_{name}.py").write_text(
            "import pytest\n"
            "def test_plain(): pass\n"
            "@pytest.mark.needs_perf\ndef test_perf(): pass\n"
            "@pytest.mark.needs_nspawn\ndef test_nspawn(): pass\n"
            "@pytest.mark.alone\ndef test_alone(): pass\n"
            "@pytest.mark.needs_perf\n@pytest.mark.together\ndef test_together(): pass\n"
        )
    result = suite.runpytest_inprocess(
        "-p", "no:cacheprovider", "--collect-only", "-q", "-m", "not alone"
    )
    assert sorted(line for line in result.outlines if "::" in line) == [
        "integration/agent/test_integration_agent.py::test_together",
        "integration/ingest/test_integration_ingest.py::test_plain",
        "integration/ingest/test_integration_ingest.py::test_together",
        "integration/store/test_integration_store.py::test_plain",
        "integration/store/test_integration_store.py::test_together",
        "unit/test_unit.py::test_plain",
        "unit/test_unit.py::test_together",
    ]


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("long", [True, False])
def test_every_test_runs_in_exactly_one_phase_of_make_test_or_make_long(
    alone: bool, long: bool
) -> None:
    has = {"alone": alone, "long": long}
    phases = re.findall(r'^(?:TOGETHER|ALONE) := .*-m "([^"]+)"', MAKEFILE, re.MULTILINE)
    assert len(phases) == 2
    chosen = [phase for phase in phases if expression.Expression.compile(phase).evaluate(lambda name, **_: has[name])]  # fmt: skip
    assert len(chosen) == (0 if long else 1)


def test_tests_that_run_alone_are_in_the_folders_of_that_phase() -> None:
    (folders,) = re.findall(r'^ALONE := -m "[^"]+" (.+)$', MAKEFILE, re.MULTILINE)
    tests = pathlib.Path(__file__).parents[1]
    elsewhere = [
        path
        for path in tests.rglob("test_*.py")
        if not any(path.is_relative_to(tests.parent / folder) for folder in folders.split())
    ]
    marked = re.compile(r"^[^'\"]*mark\.(alone|needs_perf|needs_nspawn)\b", re.MULTILINE)
    this = pathlib.Path(__file__)
    assert [path for path in elsewhere if path != this and marked.search(path.read_text())] == []
