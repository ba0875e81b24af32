"""Real workers and a collector, all python3, in pods of this host: recorded, diagnosed, and told apart."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import secrets
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

import noise
import pytest
from tests import mechanisms
from tests.mechanisms import programs

from overnight import load
from overnight.app import diagnose, rehearsal, rehearsal_host
from overnight.model import cgroups
from overnight.model.actor import Actor
from overnight.model.selection import Selection, Window
from overnight.queries import consumers, processes, reader, top
from overnight.sources import perf
from overnight.store import segments
from overnight.store.ring import reader as rings
from overnight.undo import journal

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.verdict import Verdict

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf, pytest.mark.timeout(300)]
POD = ("monitoring", "node-agent-x7k2p")
COLLECTOR, WORKER = Actor("collect_metrics.py (python3)", "/".join(POD)), "train.py (python3)"
HOST = perf.read_identity().host
JOBS = (("ml", "resnet-0"), ("ml", "resnet-1"))
WORKERS = 16
# Together they use 40 % of a core; children of the first worker of a pod end with it.
TRAIN = mechanisms.Program(
    """
import ctypes, os, sys, time
for _ in range(SEED - 1):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 9)
        break
while True:
    end = time.thread_time() + 0.0025
    while time.thread_time() < end:
        sum(range(2_000))
    time.sleep(0.0975)
""",
    "python",
)
COLLECT = mechanisms.discover()["smaps-reading"].program
# A namespace of its own: the folders of the pods end with the recorder, and that with this process.
RECORD = """
mount -t tmpfs none /var/log
for pod in $PODS; do mkdir -p /var/log/pods/$pod; done
exec "$@"
"""
IN_NAMESPACE = (
    "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-ec", RECORD, "record",
)  # fmt: skip
QUIET_SHARE = 0.4  # of a core, before anything of this test runs


@dataclasses.dataclass(frozen=True)
class Night:
    """A recording of the workers, and of the collector in the last seconds of it."""

    home: pathlib.Path
    core: int
    began_us: int
    ended_us: int
    busy_before: float
    others: tuple[str, ...]

    @property
    def event(self) -> Event | None:
        """The event of the collector's core that the recorder found itself."""
        found = rings.Reader(self.home).events(self.began_us - 1_500_000, 1 << 62)
        kinds = (each for each in found if each.kind == "cpu.core_pinned")
        return next((each for each in kinds if each.core == self.core), None)


def _create_pods(run_journal: journal.Journal) -> dict[tuple[str, str], tuple[str, str]]:
    """Return a log folder and a cgroup for each pod."""
    layout = cgroups.read_layout()
    hierarchy = layout.systemd or layout.memory  # the one that names a process's place
    assert hierarchy is not None
    top_group = pathlib.Path(hierarchy) / f"kubepods-{run_journal.run.rpartition('-')[2]}"
    run_journal.write("cgroup", top_group)
    pods = {}
    for pod in (POD, *JOBS):
        uid = str(uuid.uuid4())
        group = top_group / "burstable" / f"pod{uid}" / secrets.token_hex(32)
        group.mkdir(parents=True)
        pods[pod] = ("_".join((*pod, uid)), str(group))
    return pods


@contextlib.contextmanager
def _recording(home: pathlib.Path, folders: list[str], seconds: float) -> Iterator[None]:
    command = [sys.executable, "-m", "overnight", "--home", str(home), "record"]
    options = ["--for", f"{seconds:.0f}s", "--segment", "5s", "--frequency", "199"]
    with subprocess.Popen(
        [*IN_NAMESPACE, *command, *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PODS": " ".join(folders)},
    ) as recorder:  # fmt: skip
        try:
            deadline = time.monotonic() + noise.HANG_SECONDS
            while not list(home.glob("spool/*.writing")):
                assert recorder.poll() is None, recorder.stderr and recorder.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield
        finally:
            recorder.terminate()
            _, errors = recorder.communicate(timeout=noise.HANG_SECONDS)
    assert recorder.returncode == 0, errors


def record(folder: pathlib.Path, *, baseline: float, lasting: float) -> Night:
    """Record the workers for `baseline` seconds, then also the collector on the quietest core."""
    core = noise.find_quietest_core()
    others = sorted(os.sched_getaffinity(0) - {core})
    home = folder / "home"
    folder.mkdir(exist_ok=True)
    rehearsal.clean()  # what a killed test left
    with (
        journal.Journal("one name") as run,
        mock.patch.dict(os.environ, {journal.MARK: run.run}),
        contextlib.ExitStack() as stack,
    ):
        pods = _create_pods(run)
        stack.enter_context(load.keep_off((core,)))

        def start(
            program: mechanisms.Program | None, name: str, pod: tuple[str, str], on: int
        ) -> None:
            assert program is not None
            built = programs.build(program, folder, name, WORKERS // len(JOBS) if on != core else 0)
            python = str(pathlib.Path(sys.executable).with_name("python3"))
            built = dataclasses.replace(built, command=(python, *built.command[1:]))
            process = programs.start(
                built, (), core=on, seconds=baseline + lasting + 120,
                environment=dict(os.environ), cgroup=pods[pod][1],
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)

        for pod in JOBS:
            start(TRAIN, "train", pod, others[0])
        with _recording(home, [name for name, _ in pods.values()], baseline + lasting + 120):
            crowd = rehearsal_host.Crowd(run.run)
            time.sleep(max(0.0, baseline - 2.0))
            busy = rehearsal_host.measure_busy(2.0)[core]
            noisy = tuple(crowd.describe(core=core)[:3])
            began_us = time.time_ns() // 1000
            start(COLLECT, "collect_metrics", POD, core)
            time.sleep(lasting)
            ended_us = time.time_ns() // 1000
    return Night(home, core, began_us, ended_us, busy, noisy)


def check_verdict(text: str, verdict: Verdict) -> None:
    first = " ".join(line.strip() for line in text.splitlines()[:2])
    chains = [chain for chain in (verdict.chain, *verdict.alternatives) if chain]
    steps = [step.subject for chain in chains for step in chain.steps if step.subject.process]
    assert WORKER not in {subject.process for subject in steps}, steps
    assert "train.py" not in first
    named = f"collect_metrics.py (python3, {COLLECTOR.unit}) reads memory maps of processes"
    assert named in first
    assert f"kubectl --namespace {POD[0]} describe pod {POD[1]}" in text


def check_profile(night: Night) -> None:
    """Both programs are recorded where and when they ran, with their pods, however busy the host is."""
    source = reader.Reader(segments.Catalogue(night.home))
    window = Window(night.began_us + 2_000_000, night.ended_us)
    on_core = Selection(cores=(night.core,))
    (used, *_), _ = consumers.rank_processes(source, HOST, [window], on_core)
    assert used.actor == COLLECTOR
    functions = top.top(source, window, on_core, kind="functions", limit=1000).rows
    share = {row.name: row.share_of_samples for row in functions}
    assert share["show_smap"] > 0.2
    ran = processes.describe(source, (HOST,), source.extent())
    assert ran[COLLECTOR][0].comm == "python3"  # the busiest; its launcher is python
    workers = {actor.unit: found for actor, found in ran.items() if actor.process == WORKER}
    assert workers.keys() == {"/".join(pod) for pod in JOBS}
    assert [len(found) for found in workers.values()] == [WORKERS // 2] * 2
    assert {found[0].comm for found in workers.values()} == {"python3"}


@pytest.mark.long  # 13 s; the scenario one-name has the same fault
def test_programs_of_one_name_are_told_apart_with_their_pods(tmp_path: pathlib.Path) -> None:
    check_profile(record(tmp_path, baseline=2.0, lasting=5.0))


def wait_for_quiet() -> None:
    """Wait until the cores have room for the workers and the collector; name those who use them."""
    crowd = rehearsal_host.Crowd("")
    deadline = time.monotonic() + noise.HANG_SECONDS
    while max(rehearsal_host.measure_busy().values()) > QUIET_SHARE:
        assert time.monotonic() < deadline, f"no quiet core; used by {crowd.describe(0.1)}"


@pytest.mark.long
def test_the_recorder_finds_the_event_and_every_command_the_collector(
    tmp_path: pathlib.Path,
) -> None:
    wait_for_quiet()
    night = record(tmp_path, baseline=30.0, lasting=15.0)
    check_profile(night)
    assert night.event is not None, f"{night.busy_before:.0%} busy before: {night.others}"
    assert night.event.process.startswith(f"{COLLECTOR.process}[")

    def overnight(*words: str) -> str:
        command = [sys.executable, "-m", "overnight", "--home", str(night.home), *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=noise.HANG_SECONDS,
            env={**os.environ, "COLUMNS": "80"},
        ).stdout  # fmt: skip

    verdict, _ = diagnose.diagnose_event(night.home, night.event)
    assert verdict.status == "cause-found"
    check_verdict(overnight("diagnose", "--event", night.event.id), verdict)
    for words in (("top", "--who"), ("flame", "-O", "collapsed")):
        text = overnight(*words)
        assert (COLLECTOR.process in text, WORKER in text) == (True, True), words
