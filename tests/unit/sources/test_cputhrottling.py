from __future__ import annotations

import pathlib

import fakehost
import pytest

from overnight import sources
from overnight.sources import cputhrottling

V2 = b"""usage_usec 6823911
user_usec 5023911
system_usec 1800000
nr_periods 8412
nr_throttled 330
throttled_usec 19481222
nr_bursts 0
burst_usec 0
"""


def test_both_versions_give_microseconds() -> None:
    assert cputhrottling.parse_throttling(V2) == (8412, 330, 19481222)
    v1 = b"nr_periods 8412\nnr_throttled 330\nthrottled_time 19481222999\n"
    assert cputhrottling.parse_throttling(v1) == (8412, 330, 19481222)
    assert cputhrottling.parse_throttling(b"usage_usec 7\n") is None  # the root, or no controller


@pytest.mark.parametrize("version", ["v1", "v2", "hybrid"])
def test_only_cgroups_with_a_quota_have_a_row(tmp_path: pathlib.Path, version: str) -> None:
    fakehost.FakeHost(tmp_path, 1, cgroups=version)
    rows = cputhrottling.open_throttling(tmp_path)()
    assert rows == {f"/{fakehost.POD}": (90, 3, 4500)}


def test_quotas_are_searched_for_again_after_a_minute(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 1, cgroups="v2")
    now = [1000.0]
    read = cputhrottling.open_throttling(tmp_path, clock=lambda: now[0])
    host.put("sys/fs/cgroup/kubepods/cpu.max", "max 100000\n")
    (tmp_path / "sys/fs/cgroup" / fakehost.POD / "cpu.max").write_text("max 100000\n")
    assert list(read()) == []
    host.put("sys/fs/cgroup/system.slice/cpu.max", "50000 100000\n")
    now[0] += 59.0
    assert list(read()) == []
    now[0] += 1.0
    assert list(read()) == ["/system.slice"]
    (tmp_path / "sys/fs/cgroup/system.slice/cpu.stat").unlink()  # the cgroup is gone
    assert read() == {}


def test_a_slow_search_is_repeated_less_often(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 1, cgroups="v2")
    ticks = iter((1000.0, 1001.0, 1100.0, 5999.0, 6000.0, 6001.0))
    read = cputhrottling.open_throttling(tmp_path, clock=lambda: next(ticks))
    assert len(read()) == 1  # took a second: the next search is due 5,000 s later
    host.put("sys/fs/cgroup/system.slice/cpu.max", "50000 100000\n")
    assert [len(read()) for _ in range(3)] == [1, 1, 2]


def test_a_host_without_the_controller_has_no_data(tmp_path: pathlib.Path) -> None:
    fakehost.FakeHost(tmp_path, 1).put("proc/self/mountinfo", "")
    with pytest.raises(sources.NoDataError, match="CPU controller"):
        cputhrottling.open_throttling(tmp_path)
