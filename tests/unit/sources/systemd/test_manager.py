from __future__ import annotations

import pathlib

import pytest

from overnight import sources
from overnight.sources import systemd
from overnight.sources.systemd import manager, units


def process(root: pathlib.Path, pid: int, comm: str, nspid: str, cgroup: str) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(comm + "\n")
    (folder / "status").write_text(f"Name:\t{comm}\nNSpid:\t{nspid}\n")
    (folder / "cgroup").write_text(cgroup)


def test_machines_are_found_with_and_without_machined(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "run/systemd/machines"
    folder.mkdir(parents=True)
    (folder / "db").write_text("# private\nNAME=db\nLEADER=400\nCLASS=container\n")
    (folder / ".host").write_text("NAME=.host\nLEADER=1\n")
    (folder / "unit:machine-db.scope").symlink_to("db")
    (folder / "broken").write_text("LEADER=\n")
    process(tmp_path, 1, "systemd", "1", "0::/init.scope\n")
    process(tmp_path, 400, "systemd", "400\t1", "0::/machine.slice/machine-db.scope/init.scope\n")
    process(tmp_path, 500, "systemd", "500\t1", "0::/web/payload/init.scope\n")
    process(tmp_path, 501, "systemd", "501\t7", "0::/web/payload/user.slice\n")
    process(tmp_path, 600, "python3", "600\t1", "0::/docker/abc\n")
    assert manager.machines(tmp_path) == {"db": 400, "web": 500}


@pytest.mark.parametrize(
    ("cgroup", "name"),
    [
        ("9:name=systemd:/web/payload/init.scope\n4:memory:/other\n0::/web/payload\n", "web"),
        ("0::/machine.slice/machine-db.scope/payload/init.scope\n", "db"),
        ("0::/init.scope\n", ""),
        ("garbage", ""),
    ],
)
def test_a_machine_is_named_by_its_cgroup(cgroup: str, name: str) -> None:
    assert manager._name(cgroup) == name


def test_a_host_without_systemd_has_no_data(tmp_path: pathlib.Path) -> None:
    assert not systemd.booted(tmp_path)
    for signal in systemd.SIGNALS:
        with pytest.raises(sources.NoDataError):
            signal.open(tmp_path)()


def test_a_systemd_that_does_not_answer_is_queried_again_later(tmp_path: pathlib.Path) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    now = [1000.0]
    fleet = units.Fleet(tmp_path, clock=lambda: now[0])
    for _ in range(3):
        with pytest.raises(sources.NoDataError):
            fleet.read()
        now[0] += 30


ROW = ("a.service", "About", "loaded", "active", "running", "", "/path", 0, "", "/")


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ([[ROW]], ["a.service"]),
        ([[("x.mount", *ROW[1:])]], []),
        ([[("gone.service", "", "not-found", "inactive", *ROW[4:])]], []),
        ([[("still.service", "", "not-found", "active", *ROW[4:])]], ["still.service"]),
        ([[("n" * 300 + ".service", *ROW[1:])]], ["n" * 200]),
        ([["nonsense", ("too", "short"), 7]], []),
        (["nonsense"], []),
        ([], []),
        (None, []),
    ],
)
def test_only_loaded_or_active_services_are_listed(
    listed: list[object] | None, names: list[str]
) -> None:
    assert [row[0] for row in units._services(listed)] == names


def test_values_of_the_wrong_type_are_ignored() -> None:
    unit = units.Unit("loaded", "active", "running", "/path")
    for name, value in (("NRestarts", "many"), ("Result", 7), ("Nonsense", "x"), ("Restart", None)):
        unit.learn(name, value)
    assert unit == units.Unit("loaded", "active", "running", "/path")
    unit.learn("NRestarts", 12)
    unit.learn("UnitFilePreset", "enabled")
    assert (unit.restarts, unit.fact()["preset"]) == (12, "enabled")
