"""Refusals before any change, and the preparation of a parent, on trees of files."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, cast

import pytest

from overnight import errors, sources
from overnight.load import host_state
from overnight.load.host_state import memory_cgroups
from overnight.model import cgroups

if TYPE_CHECKING:
    from overnight.undo import journal

V1 = cgroups.Layout("v1", pathlib.PurePosixPath("/cg"), None, memory_version=1)
V2 = cgroups.Layout("v2", pathlib.PurePosixPath("/cg"), pathlib.PurePosixPath("/cg"), memory_version=2)  # fmt: skip


class FakeJournal:
    """Records each change, and whether its target existed by then."""

    run = "overnight-0"

    def __init__(self) -> None:
        self.written: list[tuple[str, pathlib.Path, bool]] = []

    def write(self, kind: str, target: pathlib.Path) -> None:
        self.written.append((kind, target, target.exists()))


def own(parent: pathlib.Path, layout: cgroups.Layout, run_journal: FakeJournal) -> None:
    memory_cgroups._own(parent, layout, cast("journal.Ledger", run_journal))


def as_v2(folder: pathlib.Path, controllers: str) -> pathlib.Path:
    folder.mkdir()
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text("")
    return folder


def test_a_parent_is_journaled_before_it_is_created(tmp_path: pathlib.Path) -> None:
    run_journal = FakeJournal()
    own(tmp_path / "mine", V1, run_journal)
    assert run_journal.written == [("cgroup", tmp_path / "mine", False)]
    assert (tmp_path / "mine").is_dir()


def test_on_v2_our_parent_enables_the_controller_for_children(tmp_path: pathlib.Path) -> None:
    parent = as_v2(tmp_path / "mine", "cpu memory pids\n")
    own(parent, V2, FakeJournal())
    assert (parent / "cgroup.subtree_control").read_text() == "+memory"


def test_on_v2_the_controller_is_never_switched_on_for_others(tmp_path: pathlib.Path) -> None:
    parent = as_v2(tmp_path / "mine", "cpu pids\n")
    with pytest.raises(errors.CannotError, match="is off below") as raised:
        own(parent, V2, FakeJournal())
    assert f"{tmp_path}/cgroup.subtree_control" in raised.value.todo
    assert (parent / "cgroup.subtree_control").read_text() == ""


def test_on_v2_a_parent_with_processes_is_refused(tmp_path: pathlib.Path) -> None:
    parent = as_v2(tmp_path / "mine", "memory\n")
    (parent / "cgroup.subtree_control").unlink()
    (parent / "cgroup.subtree_control").mkdir()  # cannot be written to, like that of a busy cgroup
    with pytest.raises(errors.CannotError, match="cannot enable the memory controller"):
        own(parent, V2, FakeJournal())


@pytest.mark.parametrize("under", ["../../etc", "/a/../../etc", "nobody"])
def test_under_must_be_an_existing_cgroup(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, under: str
) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    (tmp_path / "cg/a").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    assert memory_cgroups.parent_of(V1, "r", "a") == tmp_path / "cg/a/r"
    assert memory_cgroups.parent_of(V1, "r", "/") == tmp_path / "cg/r"
    with pytest.raises(errors.UsageError, match="there is no memory cgroup"):
        memory_cgroups.parent_of(V1, "r", under)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        (("memory.usage_in_bytes", "memory.limit_in_bytes"), "memory.limit_in_bytes"),
        (("memory.current", "memory.max"), "memory.max"),
    ],
    ids=["v1", "v2"],
)
def test_the_limit_is_above_the_memory_held(
    tmp_path: pathlib.Path, files: tuple[str, ...], limit: str
) -> None:
    for name in files:
        (tmp_path / name).write_text("1000\n")
    assert memory_cgroups.set_limit(tmp_path, 24) == 1024
    assert (tmp_path / limit).read_text() == "1024"


def test_without_root_the_error_has_a_next_step(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(errors.MissingPermissionError) as raised:
        memory_cgroups.make(
            tmp_path / "p", host_state.Request(1, tmp_path), cast("journal.Ledger", FakeJournal())
        )
    assert "sudo" in raised.value.todo
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    "mountinfo",
    ["", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw", "30 23 0:26 /docker/1 /cg rw - cgroup2 cgroup2 rw"],
    ids=["no cgroups", "v2 without the controller", "a part of it"],
)  # fmt: skip
def test_without_a_memory_controller_the_error_has_a_next_step(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, mountinfo: str
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(mountinfo)
    (tmp_path / "cg").mkdir()
    (tmp_path / "cg/cgroup.controllers").write_text("cpu pids\n")
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    with pytest.raises(errors.CannotError, match="cannot create memory cgroups") as raised:
        memory_cgroups._layout()
    assert raised.value.todo


def test_without_a_census_there_is_no_count(tmp_path: pathlib.Path) -> None:
    assert memory_cgroups.count(tmp_path) == {}


def test_too_much_memory_is_refused_with_the_number_that_fits() -> None:
    host_state.check_cost("memory-cgroups", 10, 100, 1_000)
    with pytest.raises(errors.CannotError, match=r"would take about 1\.1 kB") as raised:
        host_state.check_cost("memory-cgroups", 11, 100, 1_000)
    assert "create 10 or fewer" in raised.value.todo
