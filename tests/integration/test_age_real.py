"""Real zombies and dentries: created, counted by the census, undone; after kill -9, and two at once.

All are below a cgroup of the test. Its kernel memory shows how many zombies are below it, whatever else
the machine does: the memory of a zombie stays charged to its parent until the zombie is freed.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import jsonschema
import pytest
import zombies

from overnight import errors
from overnight.load import host_state
from overnight.load.host_state import memory_cgroups
from overnight.model import meminfo
from overnight.sources.memorycgroups import parents
from overnight.undo import journal

SCHEMA = json.loads((pathlib.Path(__file__).parents[2] / "docs/schemas/age-1.json").read_text())
V2 = zombies.LAYOUT.memory_version == 2
SECONDS = 30.0

pytestmark = pytest.mark.needs_root


class AgedCgroup:
    """A cgroup of the test, and the home and undo journals of the commands it runs."""

    def __init__(self, cgroup: pathlib.Path, folder: pathlib.Path) -> None:
        self.cgroup = cgroup
        self.home = folder / "home"
        self.undo = folder / "undo"
        self.environment = {**os.environ, "OVERNIGHT_UNDO": str(self.undo)}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "overnight", "--home", str(self.home), "age", *words]

    def run(self, *words: str, code: int = 0) -> dict[str, object]:
        process = subprocess.run(
            [*self.command(*words), "-O", "json"], env=self.environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert process.returncode == code, process.stdout + process.stderr
        document = json.loads(process.stdout if code < 2 else process.stderr)
        if code < 2:
            jsonschema.validate(document, SCHEMA)
        return document

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*words), env=self.environment, stdout=subprocess.DEVNULL
        )

    @property
    def zombies(self) -> float:
        """Approximate number of zombies below the cgroup."""
        if V2:
            for line in (self.cgroup / "cgroup.stat").read_text().splitlines():
                if line.startswith("nr_dying_descendants "):
                    return int(line.split()[1])
        return int((self.cgroup / "memory.kmem.usage_in_bytes").read_text()) / parents.own_cost(os.cpu_count() or 1)  # fmt: skip

    @property
    def files(self) -> list[str]:
        runs = [path.stem for path in self.undo.glob("*.undo")] if self.undo.exists() else []
        return [path.name for path in pathlib.Path("/dev/shm").iterdir() if path.name.startswith(tuple(runs))]  # fmt: skip

    def below(self) -> list[pathlib.Path]:
        return [path for path in self.cgroup.iterdir() if path.is_dir()]


def until(condition: Callable[[], bool], message: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.02)


@pytest.fixture
def aged(tmp_path: pathlib.Path) -> Iterator[AgedCgroup]:
    cgroup = zombies.MEMORY / f"overnight-age-{os.getpid()}"
    cgroup.mkdir()
    if V2:
        (cgroup / "cgroup.subtree_control").write_text("+memory")
    created = AgedCgroup(cgroup, tmp_path)
    try:
        yield created
    finally:
        journal.clean(created.undo, kept=True)
        zombies.remove_tree(cgroup)


def assert_nothing_is_left(aged: AgedCgroup) -> None:
    assert aged.below() == []
    assert journal.runs(aged.undo) == ()
    until(lambda: aged.zombies < 60, f"about {aged.zombies:.0f} zombies are left")


def list_shm() -> set[str]:
    return {path.name for path in pathlib.Path("/dev/shm").iterdir()}


def test_zombies_are_created_counted_and_undone(aged: AgedCgroup) -> None:
    report = aged.run("memory-cgroups", "3000", "--under", aged.cgroup.name, "--limit", "32MB")
    assert (report["made"], report["verified"], report["arm"]) == (3000, True, "hot")
    assert report["where"] == f"/{aged.cgroup.name}/{report['run']}"
    assert report["after"]["dying"] >= 2900
    assert aged.zombies > 2000
    assert report["where"] in [entry["path"] for entry in report["hang"]]
    assert aged.files
    listed = aged.run("--list")
    assert [entry["state"] for entry in listed["runs"]] == ["kept"]
    (parent,) = aged.below()
    limit = "memory.max" if V2 else "memory.limit_in_bytes"
    assert 32_000_000 < int((parent / limit).read_text()) < 32_000_000 + 3000 * 500_000
    undone = aged.run("--undo")
    assert undone["undone"] == [f"age memory-cgroups 3000 ({report['run']})"]
    assert undone["after"]["tracked"] < undone["before"]["tracked"]
    assert_nothing_is_left(aged)
    assert not [name for name in list_shm() if name.startswith(str(report["run"]))]
    assert aged.run("--undo")["undone"] == []


def test_undo_after_kill_9_leaves_nothing(aged: AgedCgroup) -> None:
    process = aged.begin("memory-cgroups", "60000", "--rate", "3000", "--under", aged.cgroup.name)
    try:
        until(lambda: aged.zombies > 300, "no zombie was created")
        (run,) = journal.runs(aged.undo)
        assert run.state == "running"
        assert aged.run("--undo")["runs"] == [{"run": run.run, "what": run.what, "state": "running"}]  # fmt: skip
        assert aged.zombies > 300
    finally:
        process.kill()
        process.wait()
    names = aged.files
    assert names
    undone = aged.run("--undo")
    assert undone["undone"] == [f"age memory-cgroups 60000 ({run.run})"]
    assert_nothing_is_left(aged)
    assert journal.processes_of(run.run) == ()
    assert not list_shm().intersection(names)


def test_a_killed_maker_is_an_error_and_leaves_nothing(aged: AgedCgroup) -> None:
    process = aged.begin("memory-cgroups", "60000", "--rate", "2000", "--under", aged.cgroup.name)
    try:
        until(lambda: aged.zombies > 100, "no zombie was created")
        (run,) = journal.runs(aged.undo)
        (maker,) = journal.processes_of(run.run)
        os.kill(maker, signal.SIGKILL)
        assert process.wait(SECONDS) == 3
    finally:
        process.kill()
        process.wait()
    assert_nothing_is_left(aged)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_undoes_at_once(aged: AgedCgroup, number: signal.Signals) -> None:
    process = aged.begin("memory-cgroups", "60000", "--rate", "2000", "--under", aged.cgroup.name)
    try:
        until(lambda: aged.zombies > 100, "no zombie was created")
        process.send_signal(number)
        assert process.wait(SECONDS) == 130
    finally:
        process.kill()
        process.wait()
    assert_nothing_is_left(aged)


def test_two_at_once_are_independent(aged: AgedCgroup) -> None:
    words = ("memory-cgroups", "1000", "--under", aged.cgroup.name)
    both = [aged.begin(*words) for _ in range(2)]
    assert [process.wait(SECONDS) for process in both] == [0, 0]
    assert len(aged.below()) == 2
    assert aged.zombies > 1300
    undoing = [aged.begin("--undo") for _ in range(2)]
    assert [process.wait(SECONDS) for process in undoing] == [0, 0]
    assert_nothing_is_left(aged)


def test_zombies_are_created_below_a_given_cgroup_at_a_given_rate(aged: AgedCgroup) -> None:
    """The parent stays; setting `stop` returns the zombies created so far."""
    stop = threading.Event()
    counts: list[int] = []

    def on_progress(count: int, _: str) -> None:
        counts.append(count)
        if count >= 200:
            stop.set()

    with journal.Journal("a test", aged.undo) as run_journal:
        parent = aged.cgroup / run_journal.run
        request = host_state.Request(
            100_000, aged.undo, {"rate": "1000"}, stop=stop, on_progress=on_progress
        )
        created, _ = memory_cgroups.make(parent, request, run_journal)
        assert 200 <= created < 100_000
        assert counts == sorted(counts)
    assert run_journal.problems == []
    assert (parent.exists(), aged.cgroup.is_dir()) == (False, True)


def test_an_immediate_stop_is_not_an_error(aged: AgedCgroup) -> None:
    """A signal kills the maker before it installs its handler, and a second one while it exits."""
    stop = threading.Event()
    stop.set()
    with journal.Journal("a test", aged.undo) as run_journal:
        parent = aged.cgroup / run_journal.run
        request = host_state.Request(100_000, aged.undo, stop=stop)
        created, _ = memory_cgroups.make(parent, request, run_journal)
        assert created < 100_000
    assert run_journal.problems == []


@pytest.mark.alone  # its limit is 50 MB below the available memory, which other processes change
def test_more_than_the_memory_allows_is_refused_and_leaves_nothing(
    aged: AgedCgroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = host_state.Request(1_000, aged.undo, share=1e-6)
    with (
        journal.Journal("a test", aged.undo) as run_journal,
        pytest.raises(errors.CannotError, match="would take about"),
    ):
        memory_cgroups.make(aged.cgroup / run_journal.run, request, run_journal)
    # A cost estimated as zero is corrected by the memory that the kernel charges.
    monkeypatch.setattr(parents, "own_cost", lambda _: -memory_cgroups.PAGE)
    # Enough for the maker to start, and far less than 12,000 zombies need.
    share = 50_000_000 / meminfo.read_available()
    request = host_state.Request(12_000, aged.undo, share=share)
    with (
        journal.Journal("a test", aged.undo) as run_journal,
        pytest.raises(errors.CannotError, match="would take about"),
    ):
        memory_cgroups.make(aged.cgroup / run_journal.run, request, run_journal)
    monkeypatch.undo()
    assert_nothing_is_left(aged)
    assert not [name for name in list_shm() if name.startswith(run_journal.run)]


def test_dentries_are_counted_and_undone(aged: AgedCgroup) -> None:
    words = ("dentries", "40000", "--folder", "/var/tmp")
    report = aged.run(*words)
    assert (report["made"], report["verified"]) == (40000, True)
    folder = pathlib.Path(str(report["where"]))
    assert folder.is_dir()
    undone = aged.run("--undo")
    assert not folder.exists()
    assert undone["after"]["dentries"] < undone["before"]["dentries"] - 30_000
