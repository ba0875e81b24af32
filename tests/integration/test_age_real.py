"""Real zombies and dentries: made, counted by the census, taken off; after kill -9, and two at once.

All below a cgroup of the test's own, whose kernel memory tells how many are below it whatever else the
machine does: what a zombie is made of stays charged to the one above until it is freed.
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
from overnight.load.host_state import memory_cgroups
from overnight.model import meminfo
from overnight.sources.memorycgroups import parents
from overnight.undo import journal

SCHEMA = json.loads((pathlib.Path(__file__).parents[2] / "docs/schemas/age-1.json").read_text())
V2 = zombies.LAYOUT.memory_version == 2
SECONDS = 30.0

pytestmark = pytest.mark.needs_root


class Place:
    """A cgroup of the test's own, and the home and ledgers of what is run."""

    def __init__(self, cgroup: pathlib.Path, folder: pathlib.Path) -> None:
        self.cgroup = cgroup
        self.home = folder / "home"
        self.undo = folder / "undo"
        self.environment = {**os.environ, "OVERNIGHT_UNDO": str(self.undo)}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "overnight", "--home", str(self.home), "age", *words]

    def run(self, *words: str, code: int = 0) -> dict[str, object]:
        done = subprocess.run(
            [*self.command(*words), "-O", "json"], env=self.environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        document = json.loads(done.stdout if code < 2 else done.stderr)
        if code < 2:
            jsonschema.validate(document, SCHEMA)
        return document

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*words), env=self.environment, stdout=subprocess.DEVNULL
        )

    @property
    def zombies(self) -> float:
        """About how many are below."""
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


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    cgroup = zombies.MEMORY / f"overnight-age-{os.getpid()}"
    cgroup.mkdir()
    if V2:
        (cgroup / "cgroup.subtree_control").write_text("+memory")
    one = Place(cgroup, tmp_path)
    try:
        yield one
    finally:
        journal.clean(one.undo, kept=True)
        zombies.remove_tree(cgroup)


def nothing_is_left(place: Place) -> None:
    assert place.below() == []
    assert journal.runs(place.undo) == ()
    until(lambda: place.zombies < 60, f"about {place.zombies:.0f} zombies are left")


def shm() -> set[str]:
    return {path.name for path in pathlib.Path("/dev/shm").iterdir()}


def test_zombies_are_made_counted_and_taken_off(place: Place) -> None:
    made = place.run("memory-cgroups", "3000", "--under", place.cgroup.name, "--limit", "32MB")
    assert (made["made"], made["verified"], made["arm"]) == (3000, True, "hot")
    assert made["where"] == f"/{place.cgroup.name}/{made['run']}"
    assert made["after"]["dying"] >= 2900
    assert place.zombies > 2000
    assert made["where"] in [one["path"] for one in made["hang"]]
    assert place.files
    listed = place.run("--list")
    assert [one["state"] for one in listed["runs"]] == ["kept"]
    (parent,) = place.below()
    limit = "memory.max" if V2 else "memory.limit_in_bytes"
    assert 32_000_000 < int((parent / limit).read_text()) < 32_000_000 + 3000 * 500_000
    undone = place.run("--undo")
    assert undone["undone"] == [f"age memory-cgroups 3000 ({made['run']})"]
    assert undone["after"]["tracked"] < undone["before"]["tracked"]
    nothing_is_left(place)
    assert not [name for name in shm() if name.startswith(str(made["run"]))]
    assert place.run("--undo")["undone"] == []


def test_a_kill_in_the_middle_leaves_nothing_after_the_undoing(place: Place) -> None:
    making = place.begin("memory-cgroups", "60000", "--rate", "3000", "--under", place.cgroup.name)
    try:
        until(lambda: place.zombies > 300, "none is made")
        (left,) = journal.runs(place.undo)
        assert left.state == "running"
        assert place.run("--undo")["runs"] == [{"run": left.run, "what": left.what, "state": "running"}]  # fmt: skip
        assert place.zombies > 300
    finally:
        making.kill()
        making.wait()
    names = place.files
    assert names
    undone = place.run("--undo")
    assert undone["undone"] == [f"age memory-cgroups 60000 ({left.run})"]
    nothing_is_left(place)
    assert journal.processes_of(left.run) == ()
    assert not shm().intersection(names)


def test_a_killed_maker_is_an_error_that_leaves_nothing(place: Place) -> None:
    making = place.begin("memory-cgroups", "60000", "--rate", "2000", "--under", place.cgroup.name)
    try:
        until(lambda: place.zombies > 100, "none is made")
        (left,) = journal.runs(place.undo)
        (maker,) = journal.processes_of(left.run)
        os.kill(maker, signal.SIGKILL)
        assert making.wait(SECONDS) == 3
    finally:
        making.kill()
        making.wait()
    nothing_is_left(place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_undoes_at_once(place: Place, number: signal.Signals) -> None:
    making = place.begin("memory-cgroups", "60000", "--rate", "2000", "--under", place.cgroup.name)
    try:
        until(lambda: place.zombies > 100, "none is made")
        making.send_signal(number)
        assert making.wait(SECONDS) == 130
    finally:
        making.kill()
        making.wait()
    nothing_is_left(place)


def test_two_at_once_are_each_their_own(place: Place) -> None:
    words = ("memory-cgroups", "1000", "--under", place.cgroup.name)
    both = [place.begin(*words) for _ in range(2)]
    assert [one.wait(SECONDS) for one in both] == [0, 0]
    assert len(place.below()) == 2
    assert place.zombies > 1300
    undoing = [place.begin("--undo") for _ in range(2)]
    assert [one.wait(SECONDS) for one in undoing] == [0, 0]
    nothing_is_left(place)


def test_a_rehearsal_has_them_made_below_its_own_at_its_rate(place: Place) -> None:
    """A given parent stays; whoever sets `stop` gets what is made."""
    stop = threading.Event()
    told: list[int] = []

    def tell(made: int, _: str) -> None:
        told.append(made)
        if made >= 200:
            stop.set()

    with journal.Journal("a test", place.undo) as run_journal:
        made = memory_cgroups.make(
            place.cgroup, 100_000, run_journal, rate=1000, stop=stop, on_progress=tell
        )
        assert 200 <= made.count < 100_000
        assert made.parent == place.cgroup
        assert told == sorted(told)
    assert run_journal.problems == []
    assert place.cgroup.is_dir()


def test_one_that_is_stopped_at_once_is_no_failure(place: Place) -> None:
    """Before the maker listens to a signal it dies of it; and of a second one while it ends."""
    stop = threading.Event()
    stop.set()
    with journal.Journal("a test", place.undo) as run_journal:
        made = memory_cgroups.make(place.cgroup, 100_000, run_journal, stop=stop)
        assert made.count < 100_000
    assert run_journal.problems == []


@pytest.mark.alone  # its limit is 50 MB below what the host has, which others change
def test_more_than_the_host_can_bear_is_refused_and_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        journal.Journal("a test", place.undo) as run_journal,
        pytest.raises(errors.CannotError, match="would take about"),
    ):
        memory_cgroups.make(place.cgroup / "p", 1_000, run_journal, share=1e-6)
    # One whose cost was thought to be nothing is found out by what the kernel charges.
    monkeypatch.setattr(parents, "own_cost", lambda _: -memory_cgroups.PAGE)
    # Room for the maker's own start, and far less than so many cost.
    share = 50_000_000 / meminfo.read_available()
    with (
        journal.Journal("a test", place.undo) as run_journal,
        pytest.raises(errors.CannotError, match="would take about"),
    ):
        memory_cgroups.make(place.cgroup / "p", 12_000, run_journal, share=share)
    monkeypatch.undo()
    nothing_is_left(place)
    assert not [name for name in shm() if name.startswith(run_journal.run)]


def test_dentries_are_counted_and_taken_off(place: Place) -> None:
    words = ("dentries", "40000", "--folder", "/var/tmp")
    made = place.run(*words)
    assert (made["made"], made["verified"]) == (40000, True)
    folder = pathlib.Path(str(made["where"]))
    assert folder.is_dir()
    undone = place.run("--undo")
    assert not folder.exists()
    assert undone["after"]["dentries"] < undone["before"]["dentries"] - 30_000
