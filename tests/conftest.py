"""Rules for the whole suite: requirements of tests, time limits of unit tests, no skips in CI."""

from __future__ import annotations

import functools
import gc
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import strategies as st

if TYPE_CHECKING:
    import clusters

# CPU time, with that of its child processes. A unit test takes a tenth of it.
UNIT_SECONDS = float(os.environ.get("OVERNIGHT_UNIT_SECONDS", "10"))
# Wall clock, against a hang: on a machine that others use, a test waits for a core most of the time.
UNIT_HANG_SECONDS = float(os.environ.get("OVERNIGHT_UNIT_HANG_SECONDS", "60"))
HAS_CPU_LIMIT = pytest.StashKey[bool]()
TESTS = pathlib.Path(__file__).parent


# A shell starts background jobs with SIGINT ignored, and child processes of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Not this host's state folder; every version of overnight undoes what a killed test left there.
os.environ.setdefault("OVERNIGHT_UNDO", f"{tempfile.gettempdir()}/overnight-undo-{os.getuid()}")

# Before NumPy is imported: its threads would wait for each other, next to those of the other tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Collected tests and modules stay until the end: to look at them again and again took a sixth of the CPU time of all
# tests. From here until they are all there, nothing is collected.
gc.disable()

# Tests that record all cores or boot a machine also measure everything else that runs on the host.
ALONE = ("needs_perf", "needs_bpftrace", "needs_nspawn")
ALONE_FOLDERS = ("integration/agent", "integration/sources")


@functools.cache  # thousands of tests are in a few hundred files
def _is_below(path: pathlib.Path, folders: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(TESTS / folder) for folder in folders)


def _is_alone(item: pytest.Item) -> bool:
    if item.get_closest_marker("together"):
        return False
    return any(map(item.get_closest_marker, ALONE)) or _is_below(item.path, ALONE_FOLDERS)


def _find_obstacle(marker: str) -> str:
    """Return why a test with that marker cannot run here; '' when it can."""
    match marker:
        case "needs_root":
            return "" if os.geteuid() == 0 else "needs root"
        case "needs_perf":
            return "" if shutil.which("perf") else "needs the perf binary"
        case "needs_bpftrace":
            found = os.geteuid() == 0 and shutil.which("bpftrace")
            return "" if found else "needs bpftrace and root"
        case "needs_nspawn":
            return (
                ""
                if os.geteuid() == 0 and shutil.which("systemd-nspawn")
                else "needs systemd-nspawn and root"
            )
        case "needs_mpstat":
            return "" if shutil.which("mpstat") else "needs mpstat (sysstat)"
        case "needs_prometheus":
            return "" if shutil.which("prometheus") else "needs Prometheus"
        case "needs_chromium":
            return "" if shutil.which("chromium") else "needs Chromium"
        case "needs_docker":
            found = os.geteuid() == 0 and _has_runtimes()
            return "" if found else "needs Docker, as root: scripts/container-runtimes unpack"
        case "needs_kubernetes":
            return "" if _has_kubernetes() else "needs Kubernetes: scripts/kubernetes build"
    return ""


@functools.cache
def _has_runtimes() -> bool:
    """Whether Docker and containerd were unpacked. In CI, `make test-long` does so before the tests."""
    command = [TESTS.parent / "scripts/container-runtimes", "path"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@functools.cache
def _has_kubernetes() -> bool:
    """Whether a control plane is in the cache. In CI, `make test` puts it there before the tests."""
    command = [TESTS.parent / "scripts/kubernetes", "path"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


# CI uses the same examples each time: a rare failure there would block unrelated work. Every other run
# tries new ones, and the long tests and `make fuzz` try many more.
hypothesis.settings.register_profile("overnight", deadline=None, derandomize=in_ci())
hypothesis.settings.load_profile("overnight")


@pytest.fixture(scope="session", autouse=True)
def warm_hypothesis() -> None:
    """Build the character table of Hypothesis once, outside the CPU limit of any test."""

    @hypothesis.settings(max_examples=1, database=None)
    @hypothesis.given(st.text())
    def warm(_: str) -> None: ...

    warm()


@pytest.fixture(scope="session", autouse=True)
def sync_nothing() -> Iterator[None]:
    """Let this process never wait for the disk: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda file: os.fstat(file) and None)  # fails if it is closed
        yield


@functools.cache
def _find_scope(path: str) -> str:
    """Return the group of a file, which one process runs: itself, or all files that share a control plane."""
    text = (TESTS.parent / path).read_text()
    return "kubernetes" if "pytestmark = pytest.mark.needs_kubernetes" in text else path


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run all tests of the control plane: each start costs 6 s, and each idle one 4 % of a core."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import loadfile

    class Scheduling(loadfile.LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _find_scope(super()._split_scope(nodeid))

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def cluster() -> Iterator[clusters.Cluster]:
    """Start a Kubernetes control plane for all tests of this process, which leave it as it was.

    It ends with this process, even if that is killed. Tests need `needs_kubernetes`.
    """
    import clusters

    with clusters.running() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def prefer_alone_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give tests marked `alone` most of the CPU when other processes use the machine."""
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
        if _is_below(item.path, ("unit",)) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(UNIT_HANG_SECONDS, func_only=True))
            item.stash[HAS_CPU_LIMIT] = True


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        if reason := _find_obstacle(marker.name):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Turn skips into failures in CI: a check that does not run guards nothing."""
    report = yield
    if in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which CI does not allow: {report.longrepr}"
    return report
