"""Shared by every source: files that stay open and names with arbitrary bytes."""

from __future__ import annotations

import os
import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight import sources


def descriptors() -> set[str]:
    return {path.name for path in pathlib.Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 100, 4096])
def test_a_file_is_read_completely_with_any_buffer_size(tmp_path: pathlib.Path, size: int) -> None:
    text = bytes(i % 251 for i in range(size))
    (tmp_path / "file").write_bytes(text)
    assert sources.KeptFile(tmp_path / "file", room=10).read() == text


def test_each_read_is_current_and_opens_no_descriptor(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    file = sources.KeptFile(path)
    assert file.read() == b"one"
    before = descriptors()
    path.write_text("three")
    assert file.read() == b"three"
    assert descriptors() == before


def test_a_missing_file_raises_no_data_until_it_exists(tmp_path: pathlib.Path) -> None:
    file = sources.KeptFile(tmp_path / "late")
    with pytest.raises(sources.NoDataError, match="late: No such file"):
        file.read()
    (tmp_path / "late").write_text("here")
    assert file.read() == b"here"


def test_a_file_whose_device_went_away_is_reopened(tmp_path: pathlib.Path) -> None:
    """The descriptor becomes invalid, as an interface's does when its driver is unloaded."""
    path = tmp_path / "file"
    path.write_text("one")
    file = sources.KeptFile(path)
    file.read()
    stale = os.open(tmp_path, os.O_RDONLY)  # reading a folder fails
    os.dup2(stale, file._descriptor)
    os.close(stale)
    path.write_text("two")
    assert file.read() == b"two"


def test_a_forbidden_file_is_an_error_not_missing_data(tmp_path: pathlib.Path) -> None:
    with pytest.raises(IsADirectoryError):
        sources.KeptFile(tmp_path).read()


def test_a_dropped_reader_leaves_no_descriptor(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    before = descriptors()
    file = sources.KeptFile(tmp_path / "file")
    file.read()
    assert len(descriptors()) == len(before) + 1
    del file
    assert descriptors() == before


def test_small_files_that_appear_and_disappear(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    before = descriptors()
    assert sources.read_once(tmp_path / "file") == b"x"
    assert sources.read_once(tmp_path / "none") is None
    assert sources.read_once(tmp_path) is None
    assert descriptors() == before


@hypothesis.given(st.binary(max_size=300))
def test_a_clean_name_can_be_stored_and_shown(name: bytes) -> None:
    key = sources.clean(name)
    assert key.isprintable()
    assert len(key.encode()) <= 255 * 4
    assert sources.clean(os.fsdecode(name)) == key


def test_names_that_are_fine_stay_as_they_are() -> None:
    assert sources.clean("enp0s31f6.100") == "enp0s31f6.100"
    assert sources.clean(b"\x1b[2J\n\xff") == "\\x1b[2J\\x0a\\xff"
    assert len(sources.clean(b"a" * 9000)) == 255


def test_only_interfaces_with_a_device_are_hardware(tmp_path: pathlib.Path) -> None:
    assert sources.hardware_interfaces(tmp_path) == []
    for name in ("veth1", "eth1", "eth0"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0/device").mkdir()
    (tmp_path / "sys/class/net/eth1/device").mkdir()
    assert sources.hardware_interfaces(tmp_path) == ["eth0", "eth1"]
