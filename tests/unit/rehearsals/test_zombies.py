"""The seed's choices for the reference incident and the decoy, and the expected verdict."""

from __future__ import annotations

import dataclasses
import pathlib
import random
import threading
from collections.abc import Iterator

import pytest

from overnight import errors, rehearsals
from overnight.model import meminfo
from overnight.rehearsals import cgroups, crash_loop_decoy, random_names, zombie_agent, zombies
from overnight.undo import journal


@pytest.fixture
def run_journal(tmp_path: pathlib.Path) -> Iterator[journal.Journal]:
    with journal.Journal("a test", tmp_path / "undo") as opened:
        yield opened


def test_a_path_on_no_listed_mount_has_no_file_system(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cgroups._filesystem(tmp_path)
    monkeypatch.setattr(pathlib.Path, "read_bytes", lambda _: b"")  # mountinfo of a chroot
    assert cgroups._filesystem(tmp_path) == ""


def stage(run_journal: journal.Journal, seed: int, folder: pathlib.Path) -> rehearsals.Stage:
    return rehearsals.Stage(
        seed=seed, core=1, spare=0, home=folder, folder=folder, journal=run_journal,
        chance=random.Random(seed), stop=threading.Event(), brief=True, interface="ens5", queue=3,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_names_fit_a_process_and_are_unique(seed: int) -> None:
    drawn = random_names.draw(random.Random(seed), 4)
    assert len(set(drawn)) == 4
    assert all(len(name) <= random_names.MAX_LENGTH for name in drawn)
    assert drawn == random_names.draw(random.Random(seed), 4)


def test_the_seed_changes_the_names(run_journal: journal.Journal, tmp_path: pathlib.Path) -> None:
    drawn = [zombies._draw(stage(run_journal, seed, tmp_path)) for seed in range(12)]
    assert len({draw.unit for draw in drawn}) > 6
    assert len({draw.collector for draw in drawn}) > 6
    assert all(len({draw.supervisor, draw.task, draw.collector}) == 3 for draw in drawn)
    assert all(
        len(name) <= random_names.MAX_LENGTH
        for draw in drawn
        for name in (draw.supervisor, draw.task)
    )


def test_the_truth_names_the_unit_and_the_collector(
    run_journal: journal.Journal, tmp_path: pathlib.Path
) -> None:
    new_stage = stage(run_journal, 3, tmp_path)
    drawn = zombies._draw(new_stage)
    truth = zombies.Zombies().truth(new_stage)
    assert [kind for kind, _ in truth.chain] == [
        "unit.hidden_crash_loop", "memory.zombie_cgroups", "memory.cgroup_walk", "cpu.core_saturated",
        "net.driver_reset",
    ]  # fmt: skip
    assert truth.chain[0][1] == {"unit": drawn.unit}
    assert truth.chain[2][1] == {"core": 1, "process": drawn.collector}
    assert "cpu.rt_hog" in truth.absent


def test_units_run_the_installed_programs(
    run_journal: journal.Journal, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_stage = stage(run_journal, 3, tmp_path)
    drawn = zombies._draw(new_stage)
    booted: dict[str, object] = {}

    class Machine:
        def path(self, inside: str) -> pathlib.Path:
            return tmp_path / inside.lstrip("/")

    def boot(_: journal.Journal, units: dict[str, str], files: dict[str, str], **more: object):
        booted.update(units=units, files=files, **more)
        return Machine()

    monkeypatch.setattr("overnight.machines.nspawn.boot", boot)
    in_machine = zombie_agent.InMachine(
        new_stage, drawn, cgroups.Groups(tmp_path / "groups", 1), tmp_path / "data"
    )
    units = booted["units"]
    assert isinstance(units, dict)
    agent, collector = units[drawn.unit], units[drawn.collector_unit]
    assert f"exec /opt/{drawn.supervisor} -I -S /opt/supervisor.py" in agent
    assert f"{cgroups.INSIDE}/system.slice/{drawn.unit} {cgroups.INSIDE}/init.scope" in agent
    assert "WantedBy=multi-user.target" in agent
    assert "CPUAffinity=1" in collector
    assert collector.count("/data/data-") == drawn.workers
    assert "WantedBy=multi-user.target" not in collector
    assert set(booted["files"]) == {"opt/client.py", "opt/collector.py", "opt/supervisor.py"}
    assert in_machine.ready == tmp_path / "dev/shm/state/ready"


@pytest.mark.parametrize(
    ("layout", "runtime", "parent", "name"),
    [
        ("docker-cgroupfs", "docker.service", "docker", '"" ""'),
        ("docker-systemd", "docker.service", "system.slice", '"docker-" ".scope"'),
        ("containerd-systemd", "containerd.service", "system.slice", '"cri-containerd-" ".scope"'),
    ],
)
def test_a_runtime_creates_the_cgroups_in_a_unit_of_its_own(
    run_journal: journal.Journal,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    runtime: str,
    parent: str,
    name: str,
) -> None:
    new_stage = stage(run_journal, 3, tmp_path)
    drawn = dataclasses.replace(zombies._draw(new_stage), layout=layout, client="flint-wait")
    booted: dict[str, str] = {}
    monkeypatch.setattr(
        "overnight.machines.nspawn.boot",
        lambda _, units, *__, **___: booted.update(units) or pathlib.Path,  # type: ignore[func-returns-value]
    )
    monkeypatch.setattr(pathlib.Path, "path", lambda inside: tmp_path, raising=False)
    groups = cgroups.Groups(tmp_path / "groups", 1)
    zombie_agent.InMachine(new_stage, drawn, groups, tmp_path / "data")
    assert drawn.parent == parent
    assert set(booted) == {drawn.unit, runtime, drawn.collector_unit}
    assert f"/opt/supervisor.py {cgroups.INSIDE}/{parent} " in booted[runtime]
    assert f"{zombie_agent.PIPE} {name}" in booted[runtime]
    assert cgroups.INSIDE not in booted[drawn.unit]
    assert f"/opt/client.py {zombie_agent.PIPE} /opt/flint-wait" in booted[drawn.unit]


def test_the_full_form_has_all_layouts_and_the_brief_one_that_of_a_unit(
    run_journal: journal.Journal, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zombies.shutil, "which", lambda _: "/usr/bin/systemd-nspawn")
    stages = [stage(run_journal, seed, tmp_path) for seed in range(30)]
    assert {zombies._draw(each).layout for each in stages} == {"unit"}
    for each in stages:
        each.brief = False
    drawn = [zombies._draw(each) for each in stages]
    assert {each.layout for each in drawn} == set(zombie_agent.LAYOUTS)
    assert all((each.layout == "unit") == (each.client == "") for each in drawn)
    monkeypatch.setattr(zombies.shutil, "which", lambda _: None)
    assert {zombies._draw(each).layout for each in stages} == {"unit"}


def test_the_truth_excludes_the_decoy(run_journal: journal.Journal, tmp_path: pathlib.Path) -> None:
    new_stage = stage(run_journal, 3, tmp_path)
    new_stage.facts.update(process="flint-sync")
    truth = crash_loop_decoy.CrashLoopDecoy().truth(new_stage)
    assert truth.chain[0][1]["process"] == "flint-sync"
    assert {"unit.crash_loop", "unit.hidden_crash_loop", "memory.zombie_cgroups"} <= truth.absent


@pytest.mark.parametrize(
    ("version", "usage", "limit", "none"),
    [
        (1, "memory.usage_in_bytes", "memory.limit_in_bytes", "-1"),
        (2, "memory.current", "memory.max", "max"),
    ],
)
def test_the_limit_is_the_used_memory_plus_a_margin(
    tmp_path: pathlib.Path, version: int, usage: str, limit: str, none: str
) -> None:
    groups = cgroups.Groups(tmp_path, version)
    (tmp_path / usage).write_text("1000\n")
    groups.limit(24)
    assert (tmp_path / limit).read_text() == "1024"
    groups.remove_limit()
    assert (tmp_path / limit).read_text() == none


def test_workers_have_the_weight_of_several_others(tmp_path: pathlib.Path) -> None:
    groups = cgroups.Groups(tmp_path, 2)
    groups.weigh(3)
    assert not (tmp_path / "cpu.weight").exists()  # without the controller there are no weights
    (tmp_path / "cpu.weight").write_text("100")
    groups.weigh(3)
    assert (tmp_path / "cpu.weight").read_text() == "300"


def test_the_memory_controller_is_enabled_for_children_on_request(tmp_path: pathlib.Path) -> None:
    for version in (1, 2):
        top = tmp_path / str(version)
        (top / cgroups.SLICE).mkdir(parents=True)
        groups = cgroups.Groups(top, version)
        groups.add("system.slice/flint.service", parent=True)
        control = top / cgroups.SLICE / "flint.service/cgroup.subtree_control"
        assert control.exists() == (version == 2)
        groups.add(
            "system.slice/reader.service"
        )  # it has a process: v2 does not let it enable controllers
        assert not (top / cgroups.SLICE / "reader.service/cgroup.subtree_control").exists()


def test_zombies_take_no_more_than_a_quarter_of_the_free_memory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = cgroups.Groups(tmp_path, 1)
    monkeypatch.setattr(meminfo, "read_available", lambda: 1 << 40)
    groups.require(15_000)
    monkeypatch.setattr(meminfo, "read_available", lambda: 100 << 20)
    with pytest.raises(errors.CannotError, match="15,000 zombies"):
        groups.require(15_000)


def test_the_data_is_not_on_a_memory_file_system(
    run_journal: journal.Journal, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / run_journal.run
    folder.mkdir()
    new_stage = stage(run_journal, 1, folder)
    monkeypatch.setattr(cgroups, "_filesystem", lambda _: "ext4")
    assert cgroups.disk_folder(new_stage) == folder / "data"
    monkeypatch.setattr(cgroups, "_filesystem", lambda path: "tmpfs" if path == folder else "ext4")
    elsewhere = cgroups.disk_folder(new_stage)
    assert elsewhere.is_dir()
    assert str(elsewhere) in run_journal.targets()
    monkeypatch.setattr(cgroups, "_filesystem", lambda _: "tmpfs")
    with pytest.raises(errors.CannotError, match="no folder on a disk"):
        cgroups.disk_folder(new_stage)


def test_the_file_system_is_that_of_the_innermost_mount() -> None:
    assert cgroups._filesystem(pathlib.Path("/proc/sys")) == "proc"
    assert cgroups._filesystem(pathlib.Path("/")) not in ("proc", "")
