"""The lock convoy: its draw from the seed, its truth, and processes that really wait for a lock."""

from __future__ import annotations

import os
import pathlib
import time

import stages

from overnight.rehearsals import lock_convoy
from overnight.undo import journal

FAULT = lock_convoy.LockConvoy()


def test_equal_seeds_draw_equal_names_and_other_seeds_other_names(tmp_path: pathlib.Path) -> None:
    drawn = []
    for seed in (1, 1, 2, 3, 4, 5):
        with stages.make_stage(tmp_path, seed) as stage:
            FAULT.prepare(stage)
            drawn.append(stage.facts)
    assert drawn[0] == drawn[1]
    assert len({facts["process"] for facts in drawn}) >= 3
    assert all(len(str(facts["process"])) <= 15 for facts in drawn)  # the kernel cuts off more


def test_the_truth_names_the_process_and_forbids_other_causes(tmp_path: pathlib.Path) -> None:
    with stages.make_stage(tmp_path, core=1, spare=0) as stage:
        FAULT.prepare(stage)
        truth = FAULT.truth(stage)
    kinds = [kind for kind, _ in truth.chain]
    assert kinds == ["kernel.lock_contention", "cpu.core_saturated", "net.driver_reset"]
    assert truth.chain[0][1] == {"core": 1, "process": stage.facts["process"]}
    assert "memory.reclaim" in truth.absent
    assert "kernel.lock_contention" not in truth.absent


def test_it_strikes_twice_and_ends_each_time(tmp_path: pathlib.Path) -> None:
    core = min(os.sched_getaffinity(0))
    with stages.make_stage(tmp_path, core=core, spare=core) as stage:
        FAULT.prepare(stage)
        stage.facts["waiters"] = 2
        for _ in range(2):
            FAULT.strike(stage)
            # One holds, two wait.
            assert until(lambda: len(running(stage.journal.run, stage.facts["process"])) == 3)
            stage.stop.set()
            for thread in stage.ending:
                thread.join(5)
            assert until(lambda: not journal.processes_of(stage.journal.run))
            stage.stop.clear()
            stage.ending.clear()


def running(run: str, name: object) -> list[int]:
    pids = []
    for pid in journal.processes_of(run):
        try:
            comm = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if comm == name:
            pids.append(pid)
    return pids


def until(condition: object, seconds: float = 6.0) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
