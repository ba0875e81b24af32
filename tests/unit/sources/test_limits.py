from __future__ import annotations

import pathlib

import fakehost
import pytest

from overnight import sources
from overnight.sources import limits


def test_a_real_host(captured: pathlib.Path) -> None:
    rows = limits.open_limits(captured)()
    assert list(rows) == ["pids", "threads", "files", "conntrack"]
    assert rows["pids"][1] == 32768
    assert rows["threads"][0] == rows["pids"][0] > 1
    assert rows["conntrack"][1] == 262144


def test_connections_that_are_not_tracked_have_no_row(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 2)
    read = limits.open_limits(tmp_path)
    assert "conntrack" in read()
    (tmp_path / "proc/sys/net/netfilter/nf_conntrack_count").rename(tmp_path / "away")
    assert list(limits.open_limits(tmp_path)()) == ["pids", "threads", "files"]
    host.write()
    assert "conntrack" in read()


def test_an_unlimited_file_limit_fits_into_63_bits(large: fakehost.FakeHost) -> None:
    used, most = limits.open_limits(large.root)()["files"]
    assert used < most == 2**63 - 1


def test_a_host_without_the_files_has_no_data(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.NoDataError):
        limits.open_limits(tmp_path)()
