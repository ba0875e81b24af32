"""Every workload runs on its cores and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import jsonschema
import pytest

from overnight import errors, load, sources
from overnight.interfaces import cli
from overnight.load import constancy, measurement, runner, workloads
from overnight.store import loads
from overnight.undo import journal

REPOSITORY = pathlib.Path(__file__).parents[3]
DEADLINE = 30.0
CORES = tuple(sorted(os.sched_getaffinity(0)))
LAST = CORES[-1:]


@pytest.fixture
def run_journal(tmp_path: pathlib.Path) -> Iterator[journal.Journal]:
    with journal.Journal("a test", tmp_path / "undo") as opened:
        yield opened
    assert opened.problems == []


def own_cores(pid: int) -> tuple[int, ...]:
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("Cpus_allowed_list"))
    return sources.parse_cpu_list(line.partition(":")[2])


def name_of(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


class Watch:
    """Record the processes of a run, and stop it after some seconds."""

    def __init__(self, run_journal: journal.Journal, seconds: int = 2) -> None:
        self.journal, self.wanted = run_journal, seconds
        self.stop = threading.Event()
        self.cores: set[tuple[int, ...]] = set()
        self.names: set[str] = set()
        self.seconds: list[measurement.Second] = []

    def __call__(self, second: measurement.Second, verdict: constancy.Verdict) -> None:
        self.seconds.append(second)
        for pid in journal.processes_of(self.journal.run):
            self.cores.add(own_cores(pid))
            self.names.add(name_of(pid))
        if len(self.seconds) >= self.wanted:
            self.stop.set()


def run(workload: str, run_journal: journal.Journal, watch: Watch, **options) -> runner.Outcome:
    plan = runner.Plan(workload, load.Options(LAST, **options), seconds=None, warm_up=0.0)
    outcome = runner.run(plan, run_journal, stop=watch.stop, on_second=watch)
    assert journal.processes_of(run_journal.run) == ()
    assert {core for cores in watch.cores for core in cores} == set(LAST)
    return outcome


def test_cpu_is_pinned_named_and_used(run_journal: journal.Journal) -> None:
    watch = Watch(run_journal)
    outcome = run("cpu", run_journal, watch, duty=0.3, name="ingest")
    assert watch.names == {f"ingest-{LAST[0]}"}
    assert outcome.ended_by == "stop"
    assert all(0 < second.values["cpu"] < 0.6 for second in watch.seconds)
    assert set(watch.seconds[0].sys) == set(LAST)


def test_memory_is_held_and_written(run_journal: journal.Journal) -> None:
    watch = Watch(run_journal)
    run("memory", run_journal, watch, size=64 << 20, rate=8e6)
    assert len({second.values["resident"] for second in watch.seconds}) == 1
    assert 64 << 20 < watch.seconds[0].values["resident"] < 128 << 20
    assert sum(second.values["written"] for second in watch.seconds) > 8e6


def test_packets_arrive_over_loopback(run_journal: journal.Journal) -> None:
    watch = Watch(run_journal)
    run("network", run_journal, watch, rate=500.0, size=100)
    packets = sum(second.values["packets"] for second in watch.seconds)
    assert packets > 500
    assert sum(second.values["bytes"] for second in watch.seconds) == pytest.approx(100 * packets)


@pytest.mark.needs_root
def test_packets_arrive_over_a_veth_pair_that_ends_with_the_run(tmp_path: pathlib.Path) -> None:
    folder = pathlib.Path("/run/netns")
    before = sorted(folder.glob("*")) if folder.is_dir() else []
    with journal.Journal("a test", tmp_path / "undo") as run_journal:
        watch = Watch(run_journal)
        namespaces = []

        def record_namespaces(second: measurement.Second, verdict: constancy.Verdict) -> None:
            watch(second, verdict)
            namespaces.extend(path for path in folder.glob(f"{run_journal.run}-*"))

        plan = runner.Plan("network", load.Options(LAST, rate=500.0, veth=True), None, 0.0)
        runner.run(plan, run_journal, stop=watch.stop, on_second=record_namespaces)
        assert len(set(namespaces)) == 2
        assert sum(second.values["packets"] for second in watch.seconds) > 500
    assert run_journal.problems == []
    assert (sorted(folder.glob("*")) if folder.is_dir() else []) == before


def test_stress_ng_is_pinned_and_measured_with_its_children(run_journal: journal.Journal) -> None:
    watch = Watch(run_journal)
    run("stress-ng", run_journal, watch, duty=0.3)
    assert sum(second.values["cpu"] for second in watch.seconds) > 0.05
    assert any(name.startswith("stress-ng") for name in watch.names)


def test_trials_end_with_the_same_loss(run_journal: journal.Journal) -> None:
    seconds = []
    plan = runner.Plan(
        "trials", load.Options(CORES, trials=6, steps=500, duty=0.9), None, warm_up=0.0
    )
    outcome = runner.run(plan, run_journal, on_second=lambda second, _: seconds.append(second))
    assert (outcome.ended_by, outcome.trials) == ("work", 6)
    assert outcome.loss is not None
    assert outcome.verdict.seconds == len(seconds)
    assert journal.processes_of(run_journal.run) == ()


def test_a_worker_that_dies_ends_the_load_and_is_reported(run_journal: journal.Journal) -> None:
    def kill(_: measurement.Second, __: constancy.Verdict) -> None:
        for pid in journal.processes_of(run_journal.run):
            os.kill(pid, signal.SIGKILL)

    plan = runner.Plan("cpu", load.Options(LAST, duty=0.1), 60.0, warm_up=0.0)
    outcome = runner.run(plan, run_journal, on_second=kill)
    assert outcome.ended_by == "death"
    assert outcome.verdict.status == "not constant"
    assert f"load-cpu-{LAST[0]} ended with -9" in outcome.verdict.says


def test_a_worker_that_cannot_start_is_reported(
    run_journal: journal.Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = (load.Job("broken", LAST, command=("/nonexistent/program",)),)
    monkeypatch.setattr(type(workloads.find("cpu")), "prepare", lambda *_: wanted)
    # On a busy machine the worker is seen running before it fails, and counts as one that died.
    message = ""
    try:
        message = runner.run(runner.Plan("cpu", load.Options(LAST), 5.0), run_journal).verdict.says
    except errors.CannotError as error:
        message = f"{error.what} {error.why}"
    assert "broken ended with" in message
    assert journal.processes_of(run_journal.run) == ()


def test_a_neighbour_on_the_same_core_closes_the_gate(
    run_journal: journal.Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control cannot replace reservation: two loads of nine tenths of a core get half of it each."""
    monkeypatch.setattr(constancy, "MIN_SECONDS", 5)  # half of a core is far from nine tenths
    neighbour = subprocess.Popen(
        [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {set(LAST)})\nwhile True: pass"]
    )
    try:
        plan = runner.Plan("cpu", load.Options(LAST, duty=0.9), 6.4, warm_up=0.5)
        outcome = runner.run(plan, run_journal)
    finally:
        neighbour.kill()
        neighbour.wait()
    assert outcome.ended_by == "time"
    assert outcome.verdict.status == "not constant"
    assert "cpu as asked" in {check.name for check in outcome.verdict.crossed}


def test_a_background_load_is_ready_and_ends_with_the_block(
    run_journal: journal.Journal, tmp_path: pathlib.Path
) -> None:
    plan = runner.Plan("cpu", load.Options(LAST, duty=0.2), None, warm_up=0.0)
    before = os.sched_getaffinity(0)
    with runner.background(plan, run_journal, home=tmp_path, host="here") as background:
        assert len(journal.processes_of(run_journal.run)) == 1
        until(lambda: background.latest is not None)
        (stored,) = loads.read_loads(tmp_path, "here")
        assert (stored.running, stored.ended) == (True, False)
    assert journal.processes_of(run_journal.run) == ()
    assert os.sched_getaffinity(0) == before
    assert background.outcome is not None
    (stored,) = loads.read_loads(tmp_path, "here")
    assert (stored.running, stored.ended) == (False, True)


def test_a_background_load_that_cannot_start_is_an_error(run_journal: journal.Journal) -> None:
    with (
        pytest.raises(errors.UsageError),
        runner.background(runner.Plan("cpu", load.Options(LAST, rate=1.0)), run_journal),
    ):
        pass


def until(done, what: str = "") -> None:
    deadline = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_kill_9_leaves_no_worker_and_a_readable_load(tmp_path: pathlib.Path) -> None:
    home, undo = tmp_path / "home", tmp_path / "undo"
    started = subprocess.Popen(
        [sys.executable, "-m", "overnight", "--home", str(home), "load", "cpu", "--for", "60s"],
        env={**os.environ, "OVERNIGHT_UNDO": str(undo)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def seconds() -> int:
            return sum(
                len(list(loads.read_seconds(home, stored))) for stored in loads.read_loads(home)
            )

        until(lambda: seconds() >= 2, "no second was written")
        (path,) = undo.glob("*.undo")
        assert journal.processes_of(path.stem)
    finally:
        started.kill()
        started.wait()
    until(lambda: journal.processes_of(path.stem) == (), "a worker is left")
    (stored,) = loads.read_loads(home)
    assert (stored.ended, stored.running, stored.workload) == (False, False, "cpu")
    assert journal.clean(undo)[1] == []


def check_schema(name: str, text: str) -> None:
    schema = json.loads((REPOSITORY / f"docs/schemas/{name}.json").read_text())
    jsonschema.validate(json.loads(text), schema)


def test_the_command_runs_stores_and_lists_a_load(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    home = ["--home", str(tmp_path / "home")]
    args = ["load", "trials", "--trials", "2", "--steps", "300", "--duty", "90%", "--warm-up", "0"]
    assert cli.main([*home, *args, "-O", "json"]) == 0
    output = capsys.readouterr()
    check_schema("load-1", output.out)
    assert json.loads(output.out)["trials"] == 2
    assert cli.main([*home, "load", "cpu", "--for", "2s", "--duty", "0.2", "--warm-up", "0"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("too short: cpu for 2 s")
    assert "PSI cpu" in output.err
    assert cli.main([*home, "load", "--list", "-O", "json"]) == 0
    listed = capsys.readouterr().out
    check_schema("loads-1", listed)
    assert [stored["workload"] for stored in json.loads(listed)["loads"]] == ["trials", "cpu"]
    assert cli.main([*home, "load", "--list"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "host workload for verdict measured" in shown
    assert "cpu 2 s too short" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no workload was given"),
        (["gpu"], "there is no workload 'gpu'"),
        (["cpu", "--duty", "x"], "is not a share"),
        (["cpu", "--rate", "5"], "does not take --rate"),
        (["cpu", "--cores", "900"], "does not name cores"),
    ],
)
def test_invalid_arguments_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["load", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_profile_is_replayed_and_its_error_measured(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    readings = [
        {"begin_us": n * 1_000_000, "end_us": (n + 1) * 1_000_000, "cores": [{"core": LAST[0], "used": used, "values": {}}]}
        for n, used in enumerate((10, 60, 0, 30))
    ]  # fmt: skip
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"schema": "overnight.cpu/1", "host": "db1", "intervals": readings}))
    home = ["--home", str(tmp_path / "home")]
    args = ["load", "replay", "--profile", str(path), "--for", "6s", "--warm-up", "0", "-O", "json"]
    # A neighbour on the core may keep it from its profile: how far it was is measured all the same.
    assert cli.main([*home, *args]) in (0, 1)
    output = capsys.readouterr().out
    check_schema("load-1", output)
    outcome = json.loads(output)
    assert outcome["cores"] == list(LAST)
    assert "profile of db1: 4 s of 1 core" in outcome["verdict"]["told"]
    assert "the profile begins again every 4 s" in outcome["verdict"]["told"]
    (stored,) = loads.read_loads(tmp_path / "home")
    seconds = [second["values"] for second in loads.read_seconds(tmp_path / "home", stored)]
    assert max(second["wanted"] for second in seconds) > 0.2
    assert all(
        second["error"] == pytest.approx(abs(second["cpu"] - second["wanted"]), abs=1e-4)
        for second in seconds
    )
