"""Processes and cores of each workload, and refusals, without starting anything."""

from __future__ import annotations

import array
import os
import pathlib

import pytest

from overnight import errors, load
from overnight.load import profile, runner, workloads
from overnight.undo import journal

ALL = workloads.discover()


KNOWN = "overnight.load.workloads.stress_ng._known"


@pytest.fixture
def run_journal(tmp_path: pathlib.Path):
    with journal.Journal("a test", tmp_path / "undo") as opened:
        yield opened


def plan(
    workload: str, run_journal: journal.Journal, cores=(1, 2, 3), **options
) -> tuple[load.Job, ...]:
    requested = load.Options(cores, **options)
    runner.check_options(ALL[workload], requested)
    return ALL[workload].prepare(requested, run_journal)


def test_all_workloads_are_found() -> None:
    assert set(ALL) >= {"cpu", "memory", "network", "replay", "stress-ng", "trials"}
    known = set(load.Options.__dataclass_fields__)
    for workload in ALL.values():
        assert set(workload.takes) <= known
        assert any(metric.gated for metric in workload.metrics(load.Options((1,))))


@pytest.mark.parametrize("name", ["cpu", "memory", "stress-ng", "trials"])
def test_each_workload_has_one_process_per_core(
    name: str, run_journal: journal.Journal, monkeypatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda word: f"/usr/bin/{word}")
    monkeypatch.setattr(KNOWN, lambda: ["cpu", "vm"])
    jobs = plan(name, run_journal, name="mine")
    assert [job.cores for job in jobs] == [(1,), (2,), (3,)]
    assert [job.name for job in jobs] == ["mine-1", "mine-2", "mine-3"]


def test_cpu_periods_are_staggered(run_journal: journal.Journal) -> None:
    assert [job.settings["phase"] for job in plan("cpu", run_journal)] == [0, 1 / 3, 2 / 3]
    assert {job.settings["duty"] for job in plan("cpu", run_journal, duty=0.25)} == {0.25}


def test_trials_are_equal_and_split_between_processes(run_journal: journal.Journal) -> None:
    jobs = plan("trials", run_journal, trials=7, seed=4)
    assert [job.settings["trials"] for job in jobs] == [3, 2, 2]
    assert len({(job.settings["seed"], job.settings["steps"]) for job in jobs}) == 1
    assert {job.environment["OPENBLAS_NUM_THREADS"] for job in jobs} == {"1"}
    assert [job.wait for job in jobs] == sorted({job.wait for job in jobs})
    assert len(plan("trials", run_journal, trials=2)) == 2


@pytest.mark.parametrize(("option", "extra"), [("backend", "torch"), ("orchestrator", "ray")])
def test_a_missing_extra_is_an_error_with_the_install_command(
    option: str, extra: str, run_journal: journal.Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(errors.CannotError, match="not installed") as caught:
        plan("trials", run_journal, **{option: extra})
    assert caught.value.todo == f"pip install 'overnight[{extra}]'"


def test_ray_is_driven_by_one_process_off_the_cores_of_the_load(
    run_journal: journal.Journal, monkeypatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    (job,) = plan("trials", run_journal, orchestrator="ray")
    assert (job.cores, job.tree) == ((0,), True)
    assert (job.settings["cores"], job.settings["address"]) == ([1, 2, 3], "")
    folder = pathlib.Path(str(job.settings["folder"]))
    assert folder.is_dir()
    run_journal.undo()
    assert not folder.exists()


def test_hosts_of_a_cluster_choose_their_own_cores(
    run_journal: journal.Journal, monkeypatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    (job,) = plan(
        "trials", run_journal, (), orchestrator="ray", address="head:6379", hosts=("a", "b")
    )
    settings = job.settings
    assert (settings["cores"], settings["hosts"]) == ([], ["a", "b"])
    assert (settings["seed"], settings["address"]) == (1, "head:6379")


@pytest.mark.parametrize(
    "options",
    [{"address": "head:6379"}, {"hosts": ("a",)}, {"hosts": ("a",), "orchestrator": "ray"}],
)
def test_a_cluster_without_ray_or_address_is_refused(
    options: dict[str, object], run_journal: journal.Journal, monkeypatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    with pytest.raises(errors.UsageError, match="need"):
        plan("trials", run_journal, **options)


def test_a_gpu_has_one_process_on_one_core_and_gpu_time_is_judged(
    run_journal: journal.Journal, monkeypatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    (job,) = plan("trials", run_journal, backend="cuda", duty=0.5)
    assert job.cores == (1,)
    gpu, cpu, _ = ALL["trials"].metrics(load.Options((1, 2, 3), backend="cuda", duty=0.5))
    assert (gpu.name, gpu.target, gpu.gated) == ("gpu", 0.5, True)
    assert (cpu.name, cpu.target, cpu.gated) == ("cpu", None, True)


def test_a_replay_has_one_process_per_core_with_the_shares_of_its_own(
    run_journal: journal.Journal,
) -> None:
    recorded = profile.Profile("db1", {0: (0.1, 0.2), 1: (0.5, 1.0)})
    jobs = plan("replay", run_journal, cores=(0, 1), profile=recorded)
    try:
        assert [(job.name, job.cores) for job in jobs] == [("replay-0", (0,)), ("replay-1", (1,))]
        for job, shares in zip(jobs, recorded.shares.values(), strict=True):
            (file,) = job.files
            assert tuple(array.array("d", os.pread(file, 1024, 0))) == shares
            start = float(str(job.settings["start"]))
            assert job.wanted is not None
            assert job.wanted(start + 2) - job.wanted(start) == pytest.approx(sum(shares))
    finally:
        for number in (number for job in jobs for number in job.files):
            os.close(number)


def test_a_replay_needs_a_profile(run_journal: journal.Journal) -> None:
    with pytest.raises(errors.UsageError, match="needs --profile"):
        plan("replay", run_journal)
    with pytest.raises(errors.UsageError, match="does not take --profile"):
        plan("cpu", run_journal, profile=profile.Profile("db1", {0: (0.1,)}))


def test_missing_stress_ng_is_an_error_with_the_install_command(
    run_journal: journal.Journal, monkeypatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(errors.CannotError) as caught:
        plan("stress-ng", run_journal)
    assert "apt-get install stress-ng" in caught.value.todo


def test_memory_is_split_and_bounded(run_journal: journal.Journal) -> None:
    jobs = plan("memory", run_journal, size=96 << 20, rate=3e6)
    assert [(job.settings["size"], job.settings["rate"]) for job in jobs] == [(32 << 20, 1e6)] * 3
    with pytest.raises(errors.CannotError, match="too large for this host"):
        plan("memory", run_journal, size=1 << 50)


def test_network_pairs_have_two_cores_and_the_same_packets(run_journal: journal.Journal) -> None:
    jobs = plan("network", run_journal, cores=(0, 1, 2, 3), rate=100.0)
    assert [job.cores for job in jobs] == [(1,), (0,), (3,), (2,)]
    assert [job.settings["rate"] for job in jobs[1::2]] == [100.0, 100.0]
    targets = [
        metric.target for metric in ALL["network"].metrics(load.Options((0, 1, 2, 3), rate=100.0))
    ]
    assert targets[:2] == [200.0, 200.0 * 512]
    for number in (number for job in jobs for number in job.files):
        os.close(number)


def test_a_veth_pair_needs_root(
    run_journal: journal.Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(errors.CannotError, match="veth"):
        plan("network", run_journal, veth=True)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cpu", {"rate": 5.0}),
        ("cpu", {"duty": 1.5}),
        ("cpu", {"trials": 0}),
        ("memory", {"duty": 0.0}),
        ("memory", {"veth": True}),
        ("memory", {"size": 1}),
        ("network", {"size": 9000}),
        ("network", {"rate": 0.0}),
        ("trials", {"backend": "jax"}),
        ("trials", {"orchestrator": "slurm"}),
        ("trials", {"steps": 0}),
        ("trials", {"trials": 0}),
        ("stress-ng", {"stressor": "cpu --aggressive"}),
        ("stress-ng", {"stressor": "vm", "duty": 0.5}),
        ("stress-ng", {"stressor": "nosuch"}),
    ],
)
def test_invalid_options_are_refused(name: str, options, run_journal: journal.Journal, monkeypatch) -> None:  # fmt: skip
    monkeypatch.setattr("shutil.which", lambda word: f"/usr/bin/{word}")
    monkeypatch.setattr(KNOWN, lambda: ["cpu", "vm"])
    with pytest.raises(errors.UsageError):
        plan(name, run_journal, **options)


def test_an_unknown_workload_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="no workload 'gpu'"):
        workloads.find("gpu")


def test_the_first_core_is_left_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 4})
    assert runner.choose_cores() == (1, 4)
    assert runner.choose_cores("0-1") == (0, 1)
    for wrong in ("2", "x", "0-9", "-"):
        with pytest.raises(errors.UsageError):
            runner.choose_cores(wrong)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {7})
    assert runner.choose_cores() == (7,)


@pytest.mark.parametrize("text", ["1-", "-1", "1-0", "0,,1", "0-1-2", "x", "9"])
def test_invalid_core_lists_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    with pytest.raises(errors.UsageError, match="does not name cores"):
        runner.choose_cores(text)


def test_a_duration_of_zero_is_refused(run_journal: journal.Journal) -> None:
    with pytest.raises(errors.UsageError, match="greater than 0"):
        runner.run(runner.Plan("cpu", load.Options((0,)), seconds=0.0), run_journal)
