"""The rules that tests/conftest.py makes for the suite, proved on small suites of their own."""

from __future__ import annotations

import pathlib

import pytest

pytest_plugins = ["pytester"]
CONFTEST = (pathlib.Path(__file__).parents[1] / "conftest.py").read_text()
MARKERS = "[pytest]\nmarkers =\n  needs_root: x\n  needs_perf: x\n"


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
def test_a_skip_fails_in_ci_alone(
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


def test_a_unit_test_has_only_seconds(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNIT_SECONDS", "0.5")
    unit = suite.mkpydir("unit")
    (unit / "test_slow.py").write_text("import time\ndef test_slow(): time.sleep(5)\n")
    (suite.path / "test_elsewhere.py").write_text("import time\ndef test_slow(): time.sleep(0.8)\n")
    result = suite.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Timeout (>0.5*"])
