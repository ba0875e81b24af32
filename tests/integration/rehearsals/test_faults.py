"""Real faults in their short form: the right chain comes first, and nothing is left behind."""

from __future__ import annotations

import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time

import noise
import pytest
import rehearsed

from overnight.app import rehearsal, rehearsal_host
from overnight.undo import journal

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_perf, pytest.mark.timeout(240)]
UNDER_WAY = 8
# In `make test`, which has ten minutes, only zombies, rt-hog and quiet run; these are long tests.
FAULTS = ("softirq-storm", "reclaim", "lock-convoy")
LOOP = "while :; do :; done"
RUN = """
import pathlib, sys
from overnight.app import rehearsal
say = lambda progress: print(progress.phase, flush=True)
rehearsal.rehearse(
    rehearsal.find(sys.argv[1]), seed=5, home=pathlib.Path(sys.argv[2]), brief=True, on_progress=say
)
"""


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_real_fault_is_diagnosed(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    outcome = rehearsed.rehearse(name, 3, tmp_path, need_verdict=True)
    assert outcome.event_to_verdict_s is not None
    assert outcome.victim.dropped > 0


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_killed_rehearsal_is_undone_by_the_next(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    before = rehearsal_host.take_inventory()
    words = [sys.executable, "-c", RUN, name, str(tmp_path / "home")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        # It prints a few lines a second: after UNDER_WAY of them the fault is active.
        lines = (line for line in run.stdout if line.startswith("strike"))
        struck = len(list(itertools.islice(lines, UNDER_WAY)))
        os.kill(run.pid, signal.SIGKILL)
    assert struck == UNDER_WAY
    (leftover,) = journal.runs()
    _, problems = journal.clean()
    assert problems == []
    deadline = time.monotonic() + noise.HANG_SECONDS
    while journal.processes_of(leftover.run) and time.monotonic() < deadline:
        time.sleep(0.05)
    (home,) = (tmp_path / "home/rehearsals").glob(f"*{leftover.run}")
    remaining, _ = rehearsal_host.left_behind(
        leftover.run,
        home / "stage",
        [change["target"] for change in leftover.changes],
        before,
        rehearsal_host.take_inventory(),
    )
    assert remaining == []
    assert journal.runs() == ()


@pytest.mark.long
@pytest.mark.alone
def test_a_rehearsal_waits_until_the_host_is_less_busy(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    core = noise.find_quietest_core()
    loops = [subprocess.Popen(["taskset", "-c", str(core), "sh", "-c", LOOP]) for _ in range(4)]
    notes: list[str] = []

    def on_progress(progress: rehearsal.Progress) -> None:
        if "the host is busy, trying again" in progress.note:
            notes.append(progress.note)
            for loop in loops:
                loop.kill()

    try:
        outcome = rehearsal.rehearse(
            rehearsal.find("quiet"),
            seed=5,
            home=tmp_path,
            brief=True,
            core=core,
            on_progress=on_progress,
        )
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert outcome.correct, outcome.problems
    assert f"behind on core {core} before the fault" in notes[0]
    assert sum(f"sh [{loop.pid}]" in notes[0] for loop in loops) == 3
