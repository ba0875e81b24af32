"""Reclaim: its draw from the seed and its truth; the limit is journaled before it is created."""

from __future__ import annotations

import mmap
import pathlib

import pytest
import stages

from overnight import errors
from overnight.model import cgroups as layouts
from overnight.rehearsals import cgroups as rehearsal_cgroups
from overnight.rehearsals import reclaim

FAULT = reclaim.Reclaim()


@pytest.fixture
def hierarchy(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder like the memory controller: a group has its files as soon as it is created."""
    top = tmp_path / "memory"
    top.mkdir()
    make = pathlib.Path.mkdir

    def with_files(path: pathlib.Path, *args: object, **more: object) -> None:
        make(path, *args, **more)  # type: ignore[arg-type]
        if path.parent == top:
            (path / "memory.limit_in_bytes").touch()

    monkeypatch.setattr(pathlib.Path, "mkdir", with_files)
    layout = layouts.Layout("v1", pathlib.PurePosixPath(top), None, memory_version=1)
    monkeypatch.setattr(layouts, "read_layout", lambda: layout)
    monkeypatch.setattr(rehearsal_cgroups, "_filesystem", lambda _: "ext4")
    return top


class FakeJournal:
    """Records changes in memory."""

    run = "overnight-test"

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def write(self, kind: str, target: object) -> None:
        assert not pathlib.Path(str(target)).exists(), "it is journaled before it is created"
        self.lines.append((kind, str(target)))


def test_the_limit_and_the_file_are_journaled_before_they_are_created(
    tmp_path: pathlib.Path, hierarchy: pathlib.Path
) -> None:
    with stages.make_stage(tmp_path) as stage:
        kept, stage.journal = stage.journal, FakeJournal()  # type: ignore[assignment]
        FAULT.prepare(stage)
        run_journal, stage.journal = stage.journal, kept
    assert [kind for kind, _ in run_journal.lines] == ["cgroup", "folder"]  # type: ignore[attr-defined]
    (group,) = hierarchy.iterdir()
    assert not group.name.startswith("overnight")  # that would be the recorder's own
    limit = int((group / "memory.limit_in_bytes").read_text())
    file = pathlib.Path(str(stage.facts["file"]))
    assert limit <= 64 << 20
    assert file.stat().st_size == reclaim.FILE_TIMES * limit
    assert file.stat().st_blocks == 0  # holes: no disk
    truth = FAULT.truth(stage)
    assert truth.chain[0] == ("memory.reclaim", {"core": 0, "process": stage.facts["process"]})
    assert {"memory.zombie_cgroups", "memory.cgroup_walk", "unit.crash_loop"} <= truth.absent


def test_a_memory_file_system_is_refused(
    tmp_path: pathlib.Path, hierarchy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal_cgroups, "_filesystem", lambda _: "tmpfs")
    with stages.make_stage(tmp_path) as stage:
        stage.journal = FakeJournal()  # type: ignore[assignment]
        with pytest.raises(errors.CannotError, match="no folder on a disk"):
            FAULT.prepare(stage)


def test_a_host_without_memory_cgroups_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "read_layout", lambda: layouts.Layout("none", None, None))
    with (
        stages.make_stage(tmp_path) as stage,
        pytest.raises(errors.CannotError, match="cannot set a memory limit"),
    ):
        FAULT.prepare(stage)


def test_the_filesystem_of_a_folder_is_known() -> None:
    assert rehearsal_cgroups._filesystem(pathlib.Path("/proc")) == "proc"


def test_pages_are_touched_on_old_kernels_too(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * reclaim.MIB)
    monkeypatch.setattr(reclaim, "MADV_POPULATE_READ", 9999)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        reclaim._touch(mapped, 0)
