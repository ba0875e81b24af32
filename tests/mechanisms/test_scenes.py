"""The scenes themselves, their results file, and the comparison of a verdict with a scene."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import findings
import noise
import pytest
from tests import mechanisms
from tests.mechanisms import programs, recording, results

from overnight.model.verdict import Chain, Verdict, VerdictStatus
from overnight.undo import journal

SCENES = mechanisms.discover()
REPOSITORY = pathlib.Path(__file__).parents[2]
START = """
import os, pathlib, sys
from tests import mechanisms
from tests.mechanisms import programs
folder = pathlib.Path(sys.argv[1])
program = mechanisms.discover()["pipe-ping-pong"].program
built = programs.build(program, folder, "cedar-relay", 1)
core = max(os.sched_getaffinity(0))
programs.start(built, (str(folder), str(core), ""), core=core, seconds=60, environment=dict(os.environ), nice=19)
print("started", flush=True)
sys.stdin.read()
"""


def test_every_scene_has_a_program_and_a_lookalike_or_an_obstacle(tmp_path: pathlib.Path) -> None:
    for name, scene in SCENES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        if scene.program is None:
            assert scene.obstacle()
            continue
        assert scene.lookalike is not None
        assert scene.resembles
        limits = scene.limit_mib, scene.lookalike_limit_mib
        assert scene.program != scene.lookalike or limits[0] != limits[1]
        for program in (scene.program, scene.lookalike):
            if program.language == "python":
                compile(program.text, name, "exec")
            elif program.language == "c":
                (tmp_path / f"{name}-{program is scene.program}.c").write_text(program.text)
    header = shutil.copy(programs.HERE / "scene.h", tmp_path)
    subprocess.run(
        ["cc", "-DSEED=3", header], check=True
    )  # precompiled: it is most of each program
    sources = sorted(map(str, tmp_path.glob("*.c")))
    command = ["cc", "-fsyntax-only", "-DSEED=3", "-include", header, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_programs_end_when_their_runner_is_killed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = "overnight-0123abcd"
    monkeypatch.setenv(journal.MARK, run)
    with subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "started\n"
        _wait_for(run, 3)  # the runner, the program and its child
        runner.send_signal(signal.SIGKILL)
    _wait_for(run, 0)


def _wait_for(run: str, count: int) -> None:
    deadline = time.monotonic() + noise.HANG_SECONDS
    while len(journal.processes_of(run)) != count:
        assert time.monotonic() < deadline, journal.processes_of(run)
        time.sleep(0.05)


def test_results_continue_after_a_kill(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "results.jsonl"
    first = results.Row("bpf", False, 0, 0, why="no event")
    results.append(file, first)
    with file.open("a") as cut_off:
        cut_off.write('{"mechanism": "bpf", "look')
    second = dataclasses.replace(first, seed=1, event=True, gaps={"stacks": 0.9})
    results.append(file, second)
    assert results.read(file) == {first.key: first, second.key: second}
    third = dataclasses.replace(first, event=True, why="")
    results.append(file, third)
    assert results.read(file)[first.key].event
    assert results.read(tmp_path / "none") == {}


def test_table_counts_right_actors_and_mechanisms() -> None:
    row = results.Row("bpf", False, 0, 0, event=True, actor_right=True, confidence=0.5)
    rows = (
        row,
        dataclasses.replace(row, seed=1, mechanism_right=True, confidence=0.7),
        dataclasses.replace(row, lookalike=True, mechanism_right=True),
        results.Row("audit", False, 0, 0, why="needs a reboot"),
    )
    assert results.format_table(rows).splitlines()[2:] == [
        "| audit | 0 | 0 | 0 |  |  | needs a reboot |",
        "| bpf | 2 | 2 | 1 | 0.60 | 1 of 1 |  |",
    ]


def _claim(*steps: tuple[str, str]) -> Verdict:
    found = [findings.make_finding(kind, process=process) for kind, process in steps]
    chain = Chain((*found, findings.reset()), (), 0.4)
    return Verdict(findings.RESET, VerdictStatus.CAUSE_FOUND, 0.8, chain, score=0.4)


# Mechanism and actor of the verdict; whether both are right for the scene, and for its look-alike.
@pytest.mark.parametrize(
    ("steps", "actor", "mechanism", "of_lookalike"),
    [
        ([("mechanism.bpf", "ab.py (python3)"), ("cpu.culprit", "ab.py (python3)")], True, True, False),
        ([("cpu.culprit", "ab.py (python3.12)")], True, False, True),
        ([("mechanism.signals", "ab.py (python3)")], True, False, True),
        ([("mechanism.bpf", "python3")], False, True, False),
        ([("mechanism.bpf", "ab.py (python3)"), ("cpu.culprit", "other")], False, True, False),
        ([("cpu.core_saturated", "")], False, False, True),
        ([], False, False, True),
    ],
)  # fmt: skip
def test_a_verdict_is_compared_with_its_scene(
    steps: list[tuple[str, str]], actor: bool, mechanism: bool, of_lookalike: bool
) -> None:
    row = results.Row("bpf", False, 0, 0, expected=r"ab\.py \(python[\d.]*\)")
    compared = recording.compare(row, SCENES["bpf"], _claim(*steps), {})
    assert (compared.actor_right, compared.mechanism_right) == (actor, mechanism)
    assert (compared.score, compared.confidence) == (0.4, 0.8)
    resembling = dataclasses.replace(row, lookalike=True)
    assert recording.compare(resembling, SCENES["bpf"], _claim(*steps), {}).mechanism_right is of_lookalike  # fmt: skip


def test_a_suspicion_is_compared_as_a_claim_is() -> None:
    row = results.Row("bpf", False, 0, 0, expected="ab")
    claim = _claim(("mechanism.bpf", "ab"), ("cpu.core_saturated", ""))
    assert claim.chain is not None
    effects = Chain(claim.chain.steps[1:], (), 0.3)
    suspicion = dataclasses.replace(
        claim, status=VerdictStatus.INCONCLUSIVE, chain=effects, alternatives=(claim.chain,)
    )
    compared = recording.compare(row, SCENES["bpf"], suspicion, {})
    assert (compared.actor, compared.actor_right, compared.mechanism_right) == ("ab", True, True)
    nobody = dataclasses.replace(suspicion, confidence=0.0)
    assert recording.compare(row, SCENES["bpf"], nobody, {}).actor == ""


def test_other_findings_may_state_the_mechanism() -> None:
    row = results.Row("receive-softirq", False, 0, 0, expected="(ksoftirqd/0)?")
    scene = SCENES["receive-softirq"]
    compared = recording.compare(row, scene, _claim(("net.softirq_storm", "")), {})
    assert (compared.actor_right, compared.mechanism_right) == (True, True)
    assert compared.mechanism_found == "net.softirq_storm"
