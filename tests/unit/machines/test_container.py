"""The tree of a machine, the arguments of nspawn, and the search for its processes."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

from overnight.machines import container


def test_the_machine_runs_the_python_of_this_process() -> None:
    program, bound = container.interpreter()
    assert program.samefile(pathlib.Path(sys.executable))
    assert not program.is_symlink()
    seen = ("/usr", *bound)
    assert any(program.is_relative_to(folder) for folder in seen)


def test_a_tree_has_its_units_and_enables_the_wanted_ones(tmp_path: pathlib.Path) -> None:
    units = {
        "a.service": "[Install]\nWantedBy=multi-user.target\n",
        "b.service": "[Install]\nWantedBy=\n",
    }
    container.plant(tmp_path, units)
    folder = tmp_path / "etc/systemd/system"
    assert (folder / "multi-user.target.wants/a.service").read_text() == units["a.service"]
    assert (folder / "b.service").read_text() == units["b.service"]
    assert [p.name for p in (folder / "multi-user.target.wants").iterdir()] == ["a.service"]
    assert (folder / "getty.target").readlink() == pathlib.Path("/dev/null")
    assert list((tmp_path / "usr").iterdir()) == []  # the host's is mounted there
    assert (tmp_path / "etc/machine-id").read_text() == ""  # every machine gets its own


def test_a_path_inside_is_mapped_into_the_tree(tmp_path: pathlib.Path) -> None:
    assert container.place(tmp_path, "/etc/x/y") == tmp_path / "etc/x/y"
    assert (tmp_path / "etc/x").is_dir()


def test_the_arguments_end_with_those_of_the_machine(tmp_path: pathlib.Path) -> None:
    words = container.nspawn_arguments(
        "overnight-1", tmp_path, "--private-network", read_only=["/opt/python"]
    )
    assert words[-1] == "systemd.unit=multi-user.target"
    assert {"--boot", "--machine=overnight-1", f"--directory={tmp_path}", "--private-network"} < {
        *words
    }
    assert [w for w in words if "bind" in w] == ["--bind-ro=/usr", "--bind-ro=/opt/python"]


MOUNTS = {
    "v2": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "hybrid": "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    "v1": "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd",
}


@pytest.mark.parametrize(
    ("layout", "without", "with_memory"),
    [
        ("v2", ["cgroup"], ["cgroup"]),
        ("hybrid", ["systemd", "unified"], ["systemd", "unified", "memory"]),
        ("v1", ["systemd"], ["systemd", "memory"]),
    ],
)
def test_a_machine_has_cgroups_wherever_the_host_keeps_them(
    monkeypatch: pytest.MonkeyPatch, layout: str, without: list[str], with_memory: list[str]
) -> None:
    from overnight.model import cgroups

    parsed = cgroups.parse_layout(MOUNTS[layout])
    monkeypatch.setattr(container.cgroups, "read_layout", lambda: parsed)
    assert [top.name for top in container.tops()] == without
    assert [top.name for top in container.tops(memory=True)] == with_memory
    # On v2 nspawn must not guess.
    hierarchy = container.environment().get("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY")
    assert hierarchy == ("1" if layout == "v2" else None)


def test_processes_are_those_in_the_cgroups_and_below(tmp_path: pathlib.Path) -> None:
    for name, pids in (("a", "12\n7\n"), ("a/b/c", "9\n"), ("d", "12\n0\n")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "cgroup.procs").write_text(pids)
    assert container.processes([tmp_path / "a", tmp_path / "d", tmp_path / "gone"]) == (7, 9, 12)
    assert container.processes([]) == ()


def test_the_leader_is_pid_1_of_the_outermost_machine(tmp_path: pathlib.Path) -> None:
    for pid, numbers in ((5, "5"), (8, "8\t40\t1"), (11, "11\t1"), (12, "12\t31")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/status").write_text(f"Name:\tx\nNSpid:\t{numbers}\nUid:\t0\n")
    assert container.leader([5, 8, 11, 12, 99], tmp_path) == 11
    assert container.leader([5, 12], tmp_path) == 0
    # Neither PID 1 of this host nor this process belongs to a machine.
    assert container.leader([1, os.getpid()]) == 0
