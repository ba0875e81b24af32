"""Dentries in a folder of the run, and refusals."""

from __future__ import annotations

import pathlib
import threading

import pytest

from overnight import errors
from overnight.load import host_state
from overnight.load.host_state import dentries
from overnight.model import meminfo
from overnight.undo import journal


@pytest.fixture
def undo(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "undo"


def test_files_are_created_reported_and_removed(tmp_path: pathlib.Path, undo: pathlib.Path) -> None:
    progress: list[int] = []
    request = host_state.Request(
        6_500, tmp_path, {"positive": "yes"}, on_progress=lambda done, _: progress.append(done)
    )
    with journal.Journal("a test", undo) as run_journal:
        aged = dentries.age(request, run_journal)
        folder = pathlib.Path(aged.where)
        assert folder.name.startswith(run_journal.run)
        assert len(list(folder.iterdir())) == 6_500
    assert (aged.made, aged.counts, progress) == (6_500, "dentries", [1_000, 6_000, 6_500])
    assert not folder.exists()


def test_a_file_system_that_forgets_missing_names_is_an_error(
    tmp_path: pathlib.Path, undo: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dentries, "count", lambda: {"dentries": 5})
    with (
        pytest.raises(errors.CannotError, match="does not cache missing names") as raised,
        journal.Journal("a test", undo) as run_journal,
    ):
        dentries.age(host_state.Request(2_000, tmp_path), run_journal)
    assert "--folder" in raised.value.todo
    assert [path.name for path in tmp_path.iterdir()] == ["undo"]


def test_it_stops_on_request(tmp_path: pathlib.Path, undo: pathlib.Path) -> None:
    stop = threading.Event()
    request = host_state.Request(
        1 << 20, tmp_path, {"positive": "yes"}, on_progress=lambda *_: stop.set(), stop=stop
    )
    with journal.Journal("a test", undo) as run_journal:
        assert dentries.age(request, run_journal).made == dentries.TRIED


def test_it_stops_before_memory_is_short(
    tmp_path: pathlib.Path, undo: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([1 << 30, 1 << 20])
    monkeypatch.setattr(meminfo, "read_available", lambda: next(left))
    with (
        pytest.raises(errors.CannotError, match="memory ran short after 1,000"),
        journal.Journal("a test", undo) as run_journal,
    ):
        dentries.age(host_state.Request(5_000, tmp_path, {"positive": "yes"}), run_journal)


def test_more_than_memory_or_inodes_is_refused_before_any_change(
    tmp_path: pathlib.Path, undo: pathlib.Path
) -> None:
    with journal.Journal("a test", undo) as run_journal:
        with pytest.raises(errors.CannotError, match="would take about"):
            dentries.age(host_state.Request(1 << 40, tmp_path), run_journal)
        with pytest.raises(errors.CannotError, match="more files"):
            dentries._need_inodes(tmp_path, 1 << 40)
    assert [path.name for path in tmp_path.iterdir()] == ["undo"]


def test_a_folder_that_cannot_be_created_is_an_error(
    tmp_path: pathlib.Path, undo: pathlib.Path
) -> None:
    (tmp_path / "file").touch()
    request = host_state.Request(10, tmp_path, {"folder": str(tmp_path / "file")})
    with (
        pytest.raises(errors.CannotError, match="cannot create"),
        journal.Journal("a test", undo) as run_journal,
    ):
        dentries.age(request, run_journal)


def test_slab_counts_are_reported(tmp_path: pathlib.Path) -> None:
    assert "only root" in dentries.remains(tmp_path)
    (tmp_path / "proc").mkdir()
    line = "dentry  60000  63000  192  21  1 : tunables 0 0 0 : slabdata 3000 3000 0\n"
    (tmp_path / "proc/slabinfo").write_text("slabinfo - version: 2.1\n" + line)
    assert "12.1 MB, 11.5 MB of it in use" in dentries.remains(tmp_path)


def test_a_kernel_that_does_not_count_negative_dentries(tmp_path: pathlib.Path) -> None:
    assert dentries.count(tmp_path) == {}
    assert dentries.parse_dentry_state("9 8 45 0 0 0") == {"dentries": 9}
    assert dentries.parse_dentry_state("") == {}
