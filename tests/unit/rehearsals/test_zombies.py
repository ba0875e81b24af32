"""What the seed chooses for the reference incident and the decoy, and what a right verdict says."""

from __future__ import annotations

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
    with journal.Journal("a test", tmp_path / "undo") as one:
        yield one


def stage(run_journal: journal.Journal, seed: int, folder: pathlib.Path) -> rehearsals.Stage:
    return rehearsals.Stage(
        seed=seed, core=1, spare=0, home=folder, folder=folder, journal=run_journal,
        chance=random.Random(seed), stop=threading.Event(), brief=True, interface="ens5", queue=3,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_names_are_a_process_s_and_no_two_alike(seed: int) -> None:
    drawn = random_names.draw(random.Random(seed), 4)
    assert len(set(drawn)) == 4
    assert all(len(name) <= random_names.MAX_LENGTH for name in drawn)
    assert drawn == random_names.draw(random.Random(seed), 4)


def test_the_seed_changes_who_is_who(run_journal: journal.Journal, tmp_path: pathlib.Path) -> None:
    cast = [zombies._draw(stage(run_journal, seed, tmp_path)) for seed in range(12)]
    assert len({one.unit for one in cast}) > 6
    assert len({one.collector for one in cast}) > 6
    assert all(len({one.supervisor, one.task, one.collector}) == 3 for one in cast)
    assert all(
        len(name) <= random_names.MAX_LENGTH for one in cast for name in (one.supervisor, one.task)
    )


def test_the_truth_names_the_unit_and_who_walks(
    run_journal: journal.Journal, tmp_path: pathlib.Path
) -> None:
    made = stage(run_journal, 3, tmp_path)
    cast = zombies._draw(made)
    told = zombies.Zombies().truth(made)
    assert [kind for kind, _ in told.chain] == [
        "unit.hidden_crash_loop", "memory.zombie_cgroups", "memory.cgroup_walk", "cpu.core_saturated",
        "net.driver_reset",
    ]  # fmt: skip
    assert told.chain[0][1] == {"unit": cast.unit}
    assert told.chain[2][1] == {"core": 1, "process": cast.collector}
    assert "cpu.rt_hog" in told.absent


def test_units_run_what_was_planted(
    run_journal: journal.Journal, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(run_journal, 3, tmp_path)
    cast = zombies._draw(made)
    booted: dict[str, object] = {}

    class Machine:
        def path(self, inside: str) -> pathlib.Path:
            return tmp_path / inside.lstrip("/")

    def boot(_: journal.Journal, units: dict[str, str], files: dict[str, str], **more: object):
        booted.update(units=units, files=files, **more)
        return Machine()

    monkeypatch.setattr("overnight.machines.nspawn.boot", boot)
    found = zombie_agent.InMachine(
        made, cast, cgroups.Groups(tmp_path / "groups", 1), tmp_path / "data"
    )
    units = booted["units"]
    assert isinstance(units, dict)
    agent, collector = units[cast.unit], units[cast.collector_unit]
    assert f"exec /opt/{cast.supervisor} -I -S /opt/supervisor.py" in agent
    assert f"{cgroups.INSIDE}/system.slice/{cast.unit} {cgroups.INSIDE}/init.scope" in agent
    assert "WantedBy=multi-user.target" in agent
    assert "CPUAffinity=1" in collector
    assert collector.count("/data/data-") == cast.workers
    assert "WantedBy=multi-user.target" not in collector
    assert set(booted["files"]) == {"opt/collector.py", "opt/supervisor.py"}
    assert found.ready == tmp_path / "dev/shm/state/ready"


def test_the_decoy_is_in_no_truth(run_journal: journal.Journal, tmp_path: pathlib.Path) -> None:
    made = stage(run_journal, 3, tmp_path)
    made.facts.update(process="flint-sync")
    told = crash_loop_decoy.CrashLoopDecoy().truth(made)
    assert told.chain[0][1]["process"] == "flint-sync"
    assert {"unit.crash_loop", "unit.hidden_crash_loop", "memory.zombie_cgroups"} <= told.absent


@pytest.mark.parametrize(
    ("version", "usage", "limit", "none"),
    [
        (1, "memory.usage_in_bytes", "memory.limit_in_bytes", "-1"),
        (2, "memory.current", "memory.max", "max"),
    ],
)
def test_the_limit_is_what_is_used_and_some_more(
    tmp_path: pathlib.Path, version: int, usage: str, limit: str, none: str
) -> None:
    made = cgroups.Groups(tmp_path, version)
    folder = tmp_path / cgroups.SLICE
    folder.mkdir()
    (folder / usage).write_text("1000\n")
    made.limit(24)
    assert (folder / limit).read_text() == "1024"
    made.remove_limit()
    assert (folder / limit).read_text() == none


def test_workers_weigh_as_much_as_so_many_others(tmp_path: pathlib.Path) -> None:
    made = cgroups.Groups(tmp_path, 2)
    made.weigh(3)
    assert not (
        tmp_path / "cpu.weight"
    ).exists()  # the controller is not there: nobody shares by cgroups
    (tmp_path / "cpu.weight").write_text("100")
    made.weigh(3)
    assert (tmp_path / "cpu.weight").read_text() == "300"


def test_the_memory_controller_is_handed_on_where_that_is_asked_for(tmp_path: pathlib.Path) -> None:
    for version in (1, 2):
        top = tmp_path / str(version)
        (top / cgroups.SLICE).mkdir(parents=True)
        made = cgroups.Groups(top, version)
        made.add("flint.service", parent=True)
        told = top / cgroups.SLICE / "flint.service/cgroup.subtree_control"
        assert told.exists() == (version == 2)
        made.add("reader.service")  # it has a process of its own: v2 lets it hand nothing on
        assert not (top / cgroups.SLICE / "reader.service/cgroup.subtree_control").exists()


def test_zombies_take_no_more_than_a_quarter_of_the_free_memory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cgroups.Groups(tmp_path, 1)
    monkeypatch.setattr(meminfo, "read_available", lambda: 1 << 40)
    made.require(15_000)
    monkeypatch.setattr(meminfo, "read_available", lambda: 100 << 20)
    with pytest.raises(errors.CannotError, match="15,000 zombies"):
        made.require(15_000)


def test_what_is_read_lies_on_no_memory_file_system(
    run_journal: journal.Journal, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(run_journal, 1, tmp_path)
    monkeypatch.setattr(cgroups, "_filesystem", lambda _: "ext4")
    assert cgroups.disk_folder(made) == tmp_path / "data"
    monkeypatch.setattr(
        cgroups, "_filesystem", lambda path: "tmpfs" if path == tmp_path else "ext4"
    )
    elsewhere = cgroups.disk_folder(made)
    assert elsewhere.is_dir()
    assert str(elsewhere) in run_journal.targets()
    monkeypatch.setattr(cgroups, "_filesystem", lambda _: "tmpfs")
    with pytest.raises(errors.CannotError, match="no folder on a disk"):
        cgroups.disk_folder(made)


def test_the_file_system_is_that_of_the_innermost_mount() -> None:
    assert cgroups._filesystem(pathlib.Path("/proc/sys")) == "proc"
    assert cgroups._filesystem(pathlib.Path("/")) not in ("proc", "")
