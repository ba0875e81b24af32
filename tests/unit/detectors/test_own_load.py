"""Workers of overnight's own load, known by pid and start, are context; culprits only if nothing else can be."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING

import captures
import casebook
import pytest
import rings

from overnight.app import diagnose
from overnight.detectors import culprit, own_load
from overnight.diagnosis import decision, recording
from overnight.model import process_identity
from overnight.model.actor import Actor
from overnight.model.finding import Answer, Finding, Status, Subject
from overnight.model.load import VICTIM
from overnight.model.selection import Window
from overnight.queries import processes
from overnight.store import loads

if TYPE_CHECKING:
    from collections.abc import Iterator

AT = casebook.EVENT_SECOND
LOAD, OTHER = "load-cpu-1", "dd"
PYTHON = (captures.user("main"), captures.user("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"))
READ = (captures.user("main"), captures.kernel("ksys_read"), captures.kernel("read_zero"))


def saturated(second: int, core: int) -> tuple[float, float, float]:
    return (1.0, 0.0, 0.0) if core == 2 and AT - 8 <= second < AT else (0.05, 0.0, 0.0)


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


class World:
    """A night in which a load and maybe another process ran on core 2; `pids` are what was sampled."""

    def __init__(
        self,
        folder: pathlib.Path,
        load_pid: int,
        share: float,
        other: float,
        *,
        baseline: bool = True,
        workload: str = "cpu",
        shares: casebook.Shares = saturated,
    ) -> None:
        self.home = casebook.Home(folder).cpu(shares, 0 if baseline else AT - 20)
        rows = casebook.busy(AT - 120, AT - 8, 2, "trainer", (captures.user("forward"),), hertz=5)
        rows = rows if baseline else []
        for name, stack, part in ((LOAD, PYTHON, share), (OTHER, READ, other)):
            if part:
                rows += casebook.busy(AT - 8, AT, 2, name, stack, hertz=round(100 * part))
        self.home.stacks(rows, begin=0 if baseline else AT - 20).event(core=2)
        store_load(folder, load_pid, workload)
        self.case = self.home.case()
        self.start_us = process_identity.read_started_us(load_pid)
        self.sampled(load_pid)

    def sampled(self, pid: int, late_us: int = 0, more: tuple[processes.Process, ...] = ()) -> None:
        """Set the processes of the samples; the actor of the load had `pid`, started `late_us` after its worker."""
        known = make_process(pid, self.start_us + late_us, LOAD)
        table = {Actor(LOAD): (known, *more), Actor(OTHER): (make_process(77, self.start_us, OTHER),)}  # fmt: skip
        self.case.actors = lambda *_: table  # type: ignore[method-assign]

    def ask(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Return kind and process of all findings about processes, and the evidence about loads."""
        every = (culprit.DETECTORS[0], own_load.DETECTORS[0])
        answers = [*diagnose.run_detectors(self.case, diagnose.discover_detectors())]
        assert {each.name for each in every} <= {answer.detector for answer in answers}
        assert not [a for a in answers if a.status is Status.FAILED], answers
        found = [f for answer in answers for f in answer.findings if f.subject.process]
        texts = [e.text for f in found for e in f.evidence if e.source == "loads"]
        return [(f.kind, f.subject.process) for f in found], texts


def store_load(folder: pathlib.Path, pid: int, workload: str = "cpu", ended: int = AT + 60) -> None:
    writer = loads.LoadWriter(folder, "db-7", workload, (2,), rings.us(AT - 100), {}, [pid])
    writer.verdict(rings.us(ended), {"status": "constant"}, ended=True)
    writer.close()


def make_process(pid: int, started_us: int, name: str, samples: int = 100) -> processes.Process:
    return processes.Process(pid, started_us, 1, samples, name, "", "", "", "", "", "", "", ())


def test_without_a_baseline_another_process_is_the_culprit_too(
    tmp_path: pathlib.Path, worker: subprocess.Popen[bytes]
) -> None:
    found, texts = World(tmp_path, worker.pid, 0.55, 0.45, baseline=False).ask()
    assert {process for _, process in found} == {OTHER}
    assert len(set(texts)) == 1


def test_the_victim_of_a_rehearsal_is_named_as_that(
    tmp_path: pathlib.Path, worker: subprocess.Popen[bytes]
) -> None:
    world = World(tmp_path, worker.pid, 1.0, 0.0, workload=VICTIM)
    found, _ = world.ask()
    assert {*found} == {("cpu.culprit", LOAD), ("load.own", LOAD)}
    (own,) = own_load.DETECTORS[0].look(world.case).findings
    assert own.summary.startswith(f"{LOAD} is the victim of a rehearsal, and no other")
    assert (
        recording.read_recording(world.case).loads == ()
    )  # a victim's noise is no gap in the evidence
    load = World(tmp_path / "load", worker.pid, 1.0, 0.0)
    assert [each.workload for each in recording.read_recording(load.case).loads] == ["cpu"]


def make_answer(*subjects: Subject) -> Answer:
    window = Window(rings.us(AT - 8), rings.us(AT))
    found = (Finding(each.process, "reclaim", "mem.reclaim", each, window, 0.9, "", ()) for each in subjects)  # fmt: skip
    return Answer("reclaim", Status.FOUND, tuple(found))


def test_only_actors_of_the_load_are_left_out_and_only_beside_a_culprit(
    tmp_path: pathlib.Path, worker: subprocess.Popen[bytes]
) -> None:
    """Another unit may run a program of the same name; without a culprit everything is reported."""
    load, other = Subject("db-7", process=LOAD), Subject("db-7", process=LOAD, unit="other.service")
    world = World(tmp_path / "saturated", worker.pid, 0.55, 0.45)
    left = own_load.set_apart(world.case, make_answer(load, other))
    assert [each.subject for each in left.findings] == [other]
    assert own_load.set_apart(world.case, make_answer(load)).status is Status.CLEAR
    quiet = World(tmp_path / "quiet", worker.pid, 0.55, 0.45, shares=casebook.quiet)
    assert own_load.set_apart(quiet.case, make_answer(load)) == make_answer(load)


def test_another_process_is_the_culprit_and_the_load_is_context(
    tmp_path: pathlib.Path, worker: subprocess.Popen[bytes]
) -> None:
    found, texts = World(tmp_path, worker.pid, 0.55, 0.45).ask()
    assert {process for _, process in found} == {OTHER}
    assert ("cpu.culprit", OTHER) in found
    assert len(set(texts)) == 1
    assert texts[0].startswith(f"{LOAD} is a worker of overnight's own load cpu (")
    assert texts[0].endswith("and had 55 % of the core")


@pytest.mark.parametrize("baseline", [True, False])
@pytest.mark.parametrize(
    ("share", "other", "is_load"), [(0.6, 0.4, False), (0.7, 0.3, True), (0.8, 0.2, True)]
)
def test_a_small_process_beside_a_large_load_did_not_saturate_the_core(
    tmp_path: pathlib.Path,
    worker: subprocess.Popen[bytes],
    share: float,
    other: float,
    is_load: bool,
    baseline: bool,
) -> None:
    """One that wants all of the core gets as much of it as the worker."""
    world = World(tmp_path, worker.pid, share, other, baseline=baseline)
    found, texts = world.ask()
    assert (("load.own", LOAD) in found) == is_load
    assert len(set(texts)) == 1
    answers = [*diagnose.run_detectors(world.case, diagnose.discover_detectors())]
    recorded = recording.read_recording(world.case)
    said = decision.decide(world.case.event, answers, recorded).narrative
    if is_load:
        assert said.headline.endswith("overnight's own load saturated core 2")
    else:
        assert said.headline.endswith("dd saturated core 2")
        assert said.root_cause.startswith(
            "Apart from overnight's own load with 0.6 cores, dd was the top consumer"
        )


def test_the_load_alone_is_said_to_be_it(
    tmp_path: pathlib.Path, worker: subprocess.Popen[bytes]
) -> None:
    world = World(tmp_path, worker.pid, 1.0, 0.0)
    found, _ = world.ask()
    assert {*found} == {("cpu.culprit", LOAD), ("load.own", LOAD)}


@pytest.mark.parametrize(("pid", "late_s"), [(1, 0.0), (None, 60.0), (None, -60.0)])
def test_a_recycled_pid_or_a_borrowed_name_is_not_the_load(
    tmp_path: pathlib.Path, worker: subprocess.Popen[bytes], pid: int | None, late_s: float
) -> None:
    world = World(tmp_path, worker.pid, 0.55, 0.45)
    world.sampled(pid or worker.pid, round(late_s * 1e6))
    found, texts = world.ask()
    assert (("cpu.culprit", LOAD) in found, texts) == (True, [])


def test_another_process_of_the_same_name_is_not_excused(
    tmp_path: pathlib.Path, worker: subprocess.Popen[bytes]
) -> None:
    world = World(tmp_path, worker.pid, 1.0, 0.0)
    world.sampled(worker.pid, more=(make_process(99, world.start_us, LOAD, 150),))
    found, _ = world.ask()
    assert "load.own" not in {kind for kind, _ in found}
    assert ("cpu.culprit", LOAD) in found


@pytest.mark.parametrize(
    ("ended", "share", "blamed"),
    [(AT + 60, 55, [OTHER]), (AT - 60, 55, [LOAD, OTHER]), (AT + 60, 75, [LOAD, OTHER])],
    ids=["it ran", "it had ended", "it used three quarters"],
)
def test_without_samples_the_pid_names_a_load_that_still_ran(
    tmp_path: pathlib.Path,
    worker: subprocess.Popen[bytes],
    ended: int,
    share: int,
    blamed: list[str],
) -> None:
    """A minute after the load, its pid may be another process's."""
    home = casebook.Home(tmp_path).cpu(saturated)

    def rows(second: int) -> dict[str, tuple[int, ...]]:
        late = max(0, min(8, second - AT + 8))
        keys = {f"{worker.pid} {LOAD}": share * late, f"77 {OTHER}": (100 - share) * late}
        return {key: (ticks, 0, 9, 2, 0, 82, 0, 0) for key, ticks in keys.items()}

    home.numbers("processes", casebook.PROCESSES, rows, range(AT - 400, AT + 30))
    home.event(core=2)
    store_load(tmp_path, worker.pid, ended=ended)
    findings = culprit.DETECTORS[0].look(home.case()).findings
    assert sorted(each.subject.process for each in findings) == sorted(blamed)
    texts = " ".join(entry.text for each in findings for entry in each.evidence)
    assert (f"{LOAD} is a worker of overnight's own load" in texts) == (ended > AT)
