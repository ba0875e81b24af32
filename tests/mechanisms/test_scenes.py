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

import evidence
import findings
import noise
import pytest
import rings
from tests import mechanisms
from tests.mechanisms import __main__, programs, recording, results

from overnight.model.selection import Window
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
    elsewhere = dataclasses.replace(first, cores=16)
    results.append(file, elsewhere)
    assert results.read(file) == [first, second, elsewhere]
    third = dataclasses.replace(first, event=True, why="")
    results.append(file, third)
    assert results.read(file) == [third, second, elsewhere]
    assert results.read(tmp_path / "none") == []


def test_runs_that_are_missing_share_recordings_new_programs_first() -> None:
    done = results.Row("bpf", False, 0, 0, event=True)
    failed = results.Row("signals", False, 0, 0, why="no event")
    words = ["--share", "2", "--load", "0", "--load", "30", "--programs", "scene"]

    def divide(*more: str) -> list[list[str]]:
        options = __main__.parse([*words, *more])
        rows = {row.key: row for row in (done, failed)}
        keys = __main__.divide(options, ["bpf", "signals", "timers"], rows)
        return [[key.label for key in each] for each in keys]

    loaded = [["signals-0-30", "timers-0-30"], ["bpf-0-30"]]
    assert divide() == [["timers-0-0"], *loaded]
    assert divide("--retry") == [["signals-0-0", "timers-0-0"], *loaded]
    now = time.monotonic()
    assert recording.Options(until=now + 600).has_time()
    assert not recording.Options(until=now + 40, baseline=20, lasting=20).has_time()


def test_table_has_a_column_per_host_and_load() -> None:
    row = results.Row("bpf", False, 0, 0, cores=2, event=True, actor_right=True, confidence=0.5)
    right = dataclasses.replace(row, mechanism_found="bpf", mechanism_right=True)
    rows = (
        row,
        dataclasses.replace(right, seed=1, confidence=0.7),
        dataclasses.replace(right, lookalike=True),
        dataclasses.replace(right, cores=16, load=30),
        dataclasses.replace(right, cores=16, load=30, seed=1, actor="x", actor_right=False),
        results.Row("audit", False, 0, 0, cores=2, why="needs a reboot"),
    )
    assert results.format_table(rows).splitlines() == [
        "| mechanism | 2 cores | 16 cores, 30 % load |",
        "|---|---|---|",
        "| `audit` | not run | not run |",
        "| `bpf` | 1/2 at 0.60; 1/1 | 1/2 at 0.50 |",
        "| all | 1/2 at 0.60; 1/1 | 1/2 at 0.50 |",
        "",
        "- `audit`: no verdict: needs a reboot (2 cores)",
        "- `bpf`: bpf found, blamed on `x` (16 cores, 30 % load)",
        "- `bpf`: no mechanism found (2 cores)",
    ]


def test_docs_have_the_table_of_the_results() -> None:
    rows = results.read(results.COMMITTED)
    assert {row.mechanism for row in rows} <= SCENES.keys()
    assert all(row.cores and row.commit and not row.functions for row in rows)
    table = results.BEGIN + results.format_table(rows) + results.END
    assert table in results.DOCUMENT.read_text(), table


def test_published_rows_replace_those_of_the_same_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, document = tmp_path / "results.jsonl", tmp_path / "page.md"
    monkeypatch.setattr(results, "COMMITTED", file)
    monkeypatch.setattr(results, "DOCUMENT", document)
    document.write_text(f"above\n{results.BEGIN}old{results.END}\nbelow\n")
    here = results.Row("bpf", False, 0, 0, cores=2, event=True, functions={"bpf_prog": 1.0})
    there = dataclasses.replace(here, cores=16)
    results.publish([here, there])
    again = dataclasses.replace(here, confidence=0.5, actor_right=True, mechanism_right=True)
    disturbed = results.Row("signals", False, 0, 0, cores=2, why="no event", problems=["noise"])
    results.publish([again, disturbed])
    kept = [dataclasses.replace(row, functions={}) for row in (again, there)]
    assert results.read(file) == kept
    block = results.BEGIN + results.format_table(kept) + results.END
    assert document.read_text() == f"above\n{block}\nbelow\n"


def test_a_run_is_diagnosed_as_if_it_had_a_recording_of_its_own(tmp_path: pathlib.Path) -> None:
    """An earlier run of another program on the core is neither baseline nor recurrence."""
    row = results.Row("directory-scan", False, 0, 0, expected="basalt-scan")
    end, active = rings.us(70), Window(rings.us(50), rings.us(62))
    rows: list[results.Row] = []
    # The second part of the shared recording begins within a segment, which ends at second 31.
    for begin, visible in (
        (1, Window(rings.us(28), end)),
        (31, Window(0, end)),
        (1, Window(0, end)),
    ):
        home = evidence.Home(tmp_path / str(len(rows)), 70, begin=begin, segment_seconds=5)
        home.signal("cpu", 1, _read_busy)
        home.facts = {"host": {"": {"memory_total": 1 << 34}}}
        for start, program in ((10, "cedar-scan"), (50, "basalt-scan")):
            if start >= begin:
                last = rings.us(start + 12)
                event = home.add_event(start, "cpu.core_pinned", until_us=last, core=1)
                home.add_samples(start, 12, ("iterate_dir",), core=1, process=program)
        home.idle()
        home.case(event)
        recorded = recording.Recorded(row, event, visible, active)
        rows.append(recording.judge(home.path, recorded, None))
    shared, own, whole = rows
    assert own.is_right, own
    assert shared == own
    assert whole.gaps != own.gaps


def _read_busy(second: int) -> dict[str, list[int]]:
    """Return the ticks of four cores; core 1 is busy in both runs."""
    busy = min(max(second - 10, 0), 12) + min(max(second - 50, 0), 12)
    ticks = {core: [0, 0, 0, 100 * (second + 1), *[0] * 6] for core in "0123"}
    ticks["1"] = [0, 0, 100 * busy, 100 * (second + 1 - busy), *[0] * 6]
    return ticks


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
