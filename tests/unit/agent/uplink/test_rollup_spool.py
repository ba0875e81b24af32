from __future__ import annotations

import errno
import os
import pathlib

import faults
import pytest

from overnight.agent.uplink import rollup_spool
from overnight.model import files


def take_all(spool: rollup_spool.RollupSpool, max_bytes: int = 1000) -> list[bytes]:
    found = []
    while True:
        lines, place = spool.read(max_bytes)
        if not lines:
            return found
        found += lines
        spool.commit(place)


def test_lines_come_in_order_and_survive_a_restart(tmp_path: pathlib.Path) -> None:
    spool = rollup_spool.RollupSpool(tmp_path, 1 << 30)
    lines = [b"%06d" % n * 500 for n in range(300)]  # several files
    for line in lines[:200]:
        spool.add(line)
    first, place = spool.read(10_000)
    spool.commit(place)
    again = rollup_spool.RollupSpool(tmp_path, 1 << 30, spool.place)
    for line in lines[200:]:
        again.add(line)
    assert first + take_all(again) == lines
    assert again.lost == 0
    assert len(list(tmp_path.iterdir())) == 1  # what the server has is removed


def test_one_byte_is_enough_for_one_line(tmp_path: pathlib.Path) -> None:
    spool = rollup_spool.RollupSpool(tmp_path, 1 << 30)
    spool.add(b"a" * 5000)
    spool.add(b"b")
    assert spool.read(1)[0] == [b"a" * 5000]
    assert take_all(spool, 1) == [b"a" * 5000, b"b"]


def test_above_the_budget_the_oldest_lines_are_dropped_and_counted(tmp_path: pathlib.Path) -> None:
    spool = rollup_spool.RollupSpool(tmp_path, 1 << 20)
    lines = [b"%06d" % n * 500 for n in range(1000)]  # 3 MB
    for line in lines[:10]:
        spool.add(line)
    spool.commit(spool.read(9100)[1])  # the server has the first three
    for line in lines[10:]:
        spool.add(line)
        sizes = [path.stat().st_size for path in tmp_path.iterdir()]
        assert sum(sizes) <= 1 << 20
        assert max(sizes) < rollup_spool.FILE_BYTES + len(line) + 1
    left = take_all(spool)
    assert left == lines[-len(left) :]
    assert spool.lost == len(lines) - len(left) - 3
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1 << 20


def test_a_line_cut_off_by_a_crash_does_not_hold_up_others(tmp_path: pathlib.Path) -> None:
    spool = rollup_spool.RollupSpool(tmp_path, 1 << 20)
    spool.add(b"one")
    with (tmp_path / "rollups-0.jsonl").open("ab") as file:
        file.write(b'{"cut')
    assert take_all(spool) == [b"one"]
    assert spool.read_last() == b"one"
    spool.add(b"two")
    assert take_all(spool)[-1] == b"two"
    assert spool.read_last() == b"two"


def test_the_newest_line_stays_where_no_other_file_can_be_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rollup_spool, "FILE_BYTES", 1)
    spool = rollup_spool.RollupSpool(tmp_path, 1 << 20)
    assert spool.read_last() == b""
    spool.add(b"one")
    with monkeypatch.context() as full:
        full.setattr(files, "append_lines", fail)
        spool.add(b"two")
    assert take_all(spool) == [b"one"]
    assert rollup_spool.RollupSpool(tmp_path, 1 << 20).read_last() == b"one"
    spool.add(b"three")
    assert take_all(spool) == [b"two", b"three"]


def test_without_any_budget_the_newest_lines_are_kept(tmp_path: pathlib.Path) -> None:
    spool = rollup_spool.RollupSpool(tmp_path, 0)
    spool.add(b"one")
    spool.add(b"two")
    assert (take_all(spool), spool.lost) == ([b"one", b"two"], 0)


def test_the_oldest_of_too_many_lines_in_memory_are_dropped(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    spool = rollup_spool.RollupSpool(tmp_path, 1 << 20)
    lines = [b"%d" % n for n in range(rollup_spool.MAX_WAITING + 5)]
    with monkeypatch.context() as full:
        full.setattr(files, "append_lines", fail)
        for line in lines[:-1]:
            spool.add(line)
    spool.add(lines[-1])
    assert (take_all(spool), spool.lost) == (lines[5:], 5)


def test_the_newest_line_is_in_the_newest_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup_spool, "FILE_BYTES", 1)
    spool = rollup_spool.RollupSpool(tmp_path, 1 << 20)
    for n in range(12):
        spool.add(b"%d" % n)
    assert len(list(tmp_path.iterdir())) == 12
    assert spool.read_last() == b"11"


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.mark.needs_root
@faults.on_small_disk
def test_on_a_full_disk_lines_wait_in_memory(disk: pathlib.Path) -> None:
    spool = rollup_spool.RollupSpool(disk, 1 << 20)
    spool.add(b"before")
    with faults.full_disk(disk):
        for n in range(rollup_spool.MAX_WAITING + 5):
            spool.add(b"%06d" % n * 1000)
        assert take_all(spool, 1 << 20) == [b"before"]
    spool.add(b"after")
    assert len(take_all(spool, 1 << 20)) == rollup_spool.MAX_WAITING
    assert spool.lost == 6


def test_a_line_is_written_behind_the_place_of_the_server_also_where_the_files_are_gone(
    tmp_path: pathlib.Path,
) -> None:
    spool = rollup_spool.RollupSpool(tmp_path, 1 << 20, (5, 0))
    spool.add(b"one")
    assert take_all(spool) == [b"one"]


def test_a_file_that_cannot_be_read_now_is_not_skipped(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup_spool, "FILE_BYTES", 1)
    spool = rollup_spool.RollupSpool(tmp_path, 1 << 20)
    for line in (b"one", b"two"):
        spool.add(line)

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as full:
        full.setattr(pathlib.Path, "open", fail)
        assert spool.read(100) == ([], (0, 0))
    assert take_all(spool) == [b"one", b"two"]
