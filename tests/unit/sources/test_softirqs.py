from __future__ import annotations

import pathlib

import fakehost
import pytest

from overnight import sources
from overnight.sources import softirqs


def test_a_real_text(captured: pathlib.Path) -> None:
    rows = softirqs.open_softirqs(captured)()
    text = (captured / "proc/softirqs").read_text()
    for line in text.splitlines()[1:]:
        kind, first, second = line.replace(":", "").split()
        place = softirqs.KINDS.index(kind)
        assert (rows["0"][place], rows["1"][place]) == (int(first), int(second))


def test_offline_and_possible_cores_have_no_row(large: fakehost.FakeHost) -> None:
    rows = softirqs.open_softirqs(large.root)()
    assert list(rows) == [str(core) for core in large.online]
    assert rows["191"] == tuple(kind[191] for kind in large.softirqs)


def test_a_core_that_goes_offline_and_comes_back(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 4)
    read = softirqs.open_softirqs(tmp_path)
    assert list(read()) == ["0", "1", "2", "3"]
    host.switch(1, on=False)
    assert list(read()) == ["0", "2", "3"]
    host.switch(1, on=True)
    assert list(read()) == ["0", "1", "2", "3"]


def test_kinds_are_matched_by_name() -> None:
    text = b"   CPU0\n   BLOCK_IOPOLL: 5\n  NEW_KIND: 9\n   RCU: 7\n"
    assert softirqs.parse_softirqs(text) == {"0": (0, 0, 0, 0, 0, 5, 0, 0, 0, 7)}


def test_without_the_list_of_online_cores_all_have_rows(
    large: fakehost.FakeHost, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/softirqs").write_text(large.softirqs_text())
    assert len(softirqs.open_softirqs(tmp_path)()) == 256


def test_no_such_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.NoDataError):
        softirqs.open_softirqs(tmp_path)()
