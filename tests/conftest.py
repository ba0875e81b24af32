"""Rules for the whole suite: what a test needs, how long a unit test may take, no skips in CI."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies as st

# CPU time, with that of its child processes. A unit test takes a tenth of it.
UNIT_SECONDS = float(os.environ.get("OVERNIGHT_UNIT_SECONDS", "10"))
# Wall clock, against a hang: on a machine that others use, a test waits for a core most of the time.
UNIT_HANG_SECONDS = float(os.environ.get("OVERNIGHT_UNIT_HANG_SECONDS", "60"))
HAS_CPU_LIMIT = pytest.StashKey[bool]()
TESTS = pathlib.Path(__file__).parent


# A shell starts what runs in the background with Ctrl-C ignored, and so would be what tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What records every core, or boots a machine, measures what runs beside it, too.
ALONE = ("needs_perf", "needs_nspawn")
ALONE_FOLDERS = ("integration/agent", "integration/sources")


def _is_below(item: pytest.Item, folders: tuple[str, ...]) -> bool:
    return any(item.path.is_relative_to(TESTS / folder) for folder in folders)


def _is_alone(item: pytest.Item) -> bool:
    return any(map(item.get_closest_marker, ALONE)) or _is_below(item, ALONE_FOLDERS)


def _lacking(marker: str) -> str:
    """Why a test with that marker cannot run here; '' when it can."""
    match marker:
        case "needs_root":
            return "" if os.geteuid() == 0 else "needs root"
        case "needs_perf":
            return "" if shutil.which("perf") else "needs the perf binary"
        case "needs_nspawn":
            return (
                ""
                if os.geteuid() == 0 and shutil.which("systemd-nspawn")
                else "needs systemd-nspawn and root"
            )
        case "needs_chromium":
            return "" if shutil.which("chromium") else "needs Chromium"
    return ""


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


# In CI the same examples each time: a rare find there would stop work that has nothing to do with it. New
# ones are tried with every run elsewhere, and many more by the long tests and `make fuzz`.
hypothesis.settings.register_profile("overnight", deadline=None, derandomize=in_ci())
hypothesis.settings.load_profile("overnight")


@pytest.fixture(scope="session", autouse=True)
def warm_hypothesis() -> None:
    """Hypothesis makes its table of all characters once, in seconds that are no test's own."""

    @hypothesis.settings(max_examples=1, database=None)
    @hypothesis.given(st.text())
    def warm(_: str) -> None: ...

    warm()


@pytest.fixture(autouse=True)
def preferred(request: pytest.FixtureRequest) -> Iterator[None]:
    """What needs the machine to itself comes first where others use it, too."""
    if not request.node.get_closest_marker("alone"):
        yield
        return
    import noise  # here: test_suite_rules.py copies this file to where tests/support is not on the path

    with noise.prefer_this_process():
        yield


@pytest.fixture(autouse=True)
def limit_cpu_time(request: pytest.FixtureRequest) -> Iterator[None]:
    before = sum(os.times()[:4])
    yield
    used = sum(os.times()[:4]) - before
    assert HAS_CPU_LIMIT not in request.node.stash or used < UNIT_SECONDS, (
        f"used {used:.1f} s of CPU time; a unit test has {UNIT_SECONDS} s"
    )


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_alone(item):
            item.add_marker(pytest.mark.alone)
        if item.path.is_relative_to(TESTS / "unit") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(UNIT_HANG_SECONDS, func_only=True))
            item.stash[HAS_CPU_LIMIT] = True


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        if reason := _lacking(marker.name):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """In CI a skipped test is a failed one: a check that does not run guards nothing."""
    report = yield
    if in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which CI does not allow: {report.longrepr}"
    return report
