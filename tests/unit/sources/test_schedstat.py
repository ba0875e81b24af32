from __future__ import annotations

import pathlib

import fakehost
import pytest

from overnight import sources
from overnight.sources import schedstat


@pytest.mark.parametrize("version", [14, 15, 16, 17])
def test_every_layout(tmp_path: pathlib.Path, version: int) -> None:
    host = fakehost.FakeHost(tmp_path, 6, offline=(0, 4), schedstat=version)
    rows = schedstat.open_schedstat(tmp_path)()
    assert list(rows) == ["1", "2", "3", "5"]
    for core in host.online:
        run, waited, slices = host.sched[core]
        assert rows[str(core)] == (run // 1_000_000, waited // 1_000_000, slices)


def test_a_large_host(large: fakehost.FakeHost) -> None:
    assert list(schedstat.open_schedstat(large.root)()) == [str(core) for core in large.online]


def test_a_last_line_without_a_newline() -> None:
    text = b"version 15\ncpu7 0 0 0 0 0 0 1000000 2000000 3"
    assert schedstat.parse_schedstat(text) == {"7": (1, 2, 3)}
    assert schedstat.parse_schedstat(b"") == {}


def test_numbers_added_by_a_distribution_are_ignored() -> None:
    text = b"version 16\ncpu7 5 0 6 7 8 9 1000000 2000000 3 44 55 66 77\ndomain0 3 1\n"
    assert schedstat.parse_schedstat(text) == {"7": (1, 2, 3)}


def test_a_kernel_without_schedstat_has_no_data(captured: pathlib.Path) -> None:
    with pytest.raises(sources.NoDataError):
        schedstat.open_schedstat(captured)()
