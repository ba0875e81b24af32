"""The labelled corpus: nights that mislead are what they say, and labels do not reward luck."""

from __future__ import annotations

import csv
import json
import pathlib
from typing import TYPE_CHECKING

import findings
import numpy as np
import pytest
from benchmarks.support import corpus

import scenarios
from overnight.model.selection import Selection
from overnight.model.truth import forbidden
from overnight.model.verdict import Chain
from overnight.queries import case

if TYPE_CHECKING:
    from overnight.model.finding import Finding
    from overnight.model.truth import Expected

CULPRIT: tuple[Expected, ...] = (("cpu.culprit", {"process": "solver", "core": findings.CORE}),)
RECLAIM: tuple[Expected, ...] = (("memory.reclaim", {"process": "solver"}),)
LOOP: tuple[Expected, ...] = (
    ("unit.crash_loop", {"unit": "scout.service"}),
    ("memory.cgroup_walk", {"process": "kubelet", "function": frozenset(("mem_cgroup_iter",))}),
)


def blame(kind: str, process: str = "solver", **subject: str | int) -> Finding:
    return findings.make_finding(kind, process=process, **subject)


@pytest.mark.parametrize(
    ("root", "causes", "is_right"),
    [
        pytest.param(blame("cpu.culprit", core=findings.CORE), CULPRIT, True, id="the process"),
        pytest.param(blame("cpu.culprit", "other", core=findings.CORE), CULPRIT, False, id="another"),
        pytest.param(blame("cpu.culprit", core=1), CULPRIT, False, id="its name on another core"),
        pytest.param(
            blame("cpu.culprit", core=findings.CORE, unit="a.service"), CULPRIT, True, id="its unit"
        ),
        pytest.param(
            blame("cpu.culprit", core=findings.CORE, unit="b.service"), CULPRIT, False, id="a namesake"
        ),
        pytest.param(blame("stack.lift"), CULPRIT, True, id="lifted on any core"),
        pytest.param(blame("mechanism.timers", core=findings.CORE), CULPRIT, True, id="what it does"),
        pytest.param(blame("cpu.culprit", core=5), RECLAIM, True, id="who, but not why"),
        pytest.param(blame("mechanism.shrinkers"), RECLAIM, True, id="the same mechanism"),
        pytest.param(blame("mechanism.timers"), RECLAIM, False, id="a wrong mechanism"),
        pytest.param(blame("cpu.rt_hog", core=findings.CORE), CULPRIT, False, id="a wrong cause"),
        pytest.param(blame("cpu.stall", core=findings.CORE), CULPRIT, True, id="also true"),
        pytest.param(blame("unit.crash_loop", "", unit="scout.service"), LOOP, True, id="the loop"),
        pytest.param(blame("unit.crash_loop", "", unit="other.service"), LOOP, False, id="a decoy"),
        pytest.param(blame("cpu.culprit", "kubelet"), LOOP, True, id="a later step"),
        pytest.param(
            blame("memory.cgroup_walk", "kubelet", function="vfs_read"), LOOP, False, id="elsewhere"
        ),
        pytest.param(blame("cpu.culprit", core=findings.CORE), (), False, id="there is no cause"),
    ],
)  # fmt: skip
def test_a_lucky_name_is_not_a_right_cause(
    root: Finding, causes: tuple[Expected, ...], is_right: bool
) -> None:
    chain = Chain((root, findings.reset()), (), 0.5)
    absent = forbidden(causes) - {"cpu.stall"}
    assert corpus.is_cause(chain, causes, absent, "a.service") is is_right


def test_every_hard_night_has_its_event_and_is_in_the_corpus(tmp_path: pathlib.Path) -> None:
    assert set(scenarios.HARD) <= set(corpus.FAMILIES)
    for name in scenarios.HARD:
        night = scenarios.build(name, tmp_path / name, 1, minutes=5.0, cores=4, profiles=False)
        assert night.event is not None
        assert night.event.kind == night.chain[-1][0], name


def test_nothing_is_sampled_on_a_core_that_the_hypervisor_takes(tmp_path: pathlib.Path) -> None:
    """Seed 2 steals, visibly."""
    night = scenarios.build("below", tmp_path, 2, minutes=5.0, cores=4)
    opened = case.Case(night.home, night.event)
    core = int(str(night.facts["core"]))
    cores = opened.cores(opened.window)
    steal = cores.values["steal"][:, cores.cores.index(core)]
    assert np.nanmax(steal) == 100
    busy, idle = opened.ran((opened.window,), Selection(cores=(core,)))
    capacity, _ = opened.capacity(opened.window, Selection(cores=(core,)))
    assert sum(consumer.samples for consumer in busy) + idle < capacity - 4 * 97


def test_a_launcher_has_children_that_live_shortly(tmp_path: pathlib.Path) -> None:
    night = scenarios.build("launcher", tmp_path, 1, minutes=5.0, cores=4)
    spawns = case.Case(night.home, night.event).spawns(case.Case(night.home, night.event).window)
    (launcher,) = spawns.launchers
    assert launcher.actor.process.endswith(".sh (bash)")
    assert [child.name for child in launcher.children] == ["gzip"]
    assert launcher.child_samples > 0


def test_rows_of_all_sources_become_one_sorted_file(tmp_path: pathlib.Path) -> None:
    scene = {
        "mechanism": "timers", "lookalike": False, "seed": 0, "status": "cause-found", "score": 0.61, "confidence": 0.8,
        "actor": "x", "actor_right": True, "mechanism_found": "timers", "mechanism_right": True,
        "event": True, "why": "",
    }  # fmt: skip
    night = {"source": "made-up", "family": "random", "seed": 1, "status": "no-cause"}
    rows = [
        scene,
        scene | {"mechanism_found": "signals", "mechanism_right": False},
        scene | {"mechanism_found": "", "mechanism_right": True, "lookalike": True},
        scene | {"confidence": 0.0, "status": "no-cause"},
        scene | {"event": False, "why": "no event"},
        night | {"score": None, "right": None},
        night | {"impossible": "ValueError()"},
        night | {"seed": 0, "status": "inconclusive", "score": 0.31, "right": False},
    ]
    (tmp_path / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert corpus.write_csv([tmp_path / "rows"], tmp_path / "data.csv") == 6
    with (tmp_path / "data.csv").open() as file:
        read = [tuple(row.values()) for row in csv.DictReader(file)]
    assert read == [
        ("made-up", "random", "0", "inconclusive", "0.3100", "0"),
        ("made-up", "random", "1", "no-cause", "", ""),
        ("scene", "timers", "0", "cause-found", "0.6100", "0"),
        ("scene", "timers", "0", "cause-found", "0.6100", "1"),
        ("scene", "timers", "0", "no-cause", "", ""),
        ("scene", "timers-lookalike", "0", "cause-found", "0.6100", "1"),
    ]


def test_a_killed_run_loses_one_row(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "rows.jsonl"
    corpus.append(file, [{"seed": 0}, {"seed": 1}])
    file.write_bytes(file.read_bytes()[:-3])
    corpus.append(file, [{"seed": 2}])
    assert corpus.read(file) == [{"seed": 0}, {"seed": 2}]
