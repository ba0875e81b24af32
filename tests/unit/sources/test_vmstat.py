from __future__ import annotations

import pathlib

import fakehost

from overnight.sources import vmstat

NAMES = list(vmstat.COLUMNS)


def test_a_real_text(captured: pathlib.Path) -> None:
    row = dict(zip(NAMES, vmstat.open_vmstat(captured)()[""], strict=True))
    counters = dict(line.split() for line in (captured / "proc/vmstat").read_text().splitlines())
    for name in set(NAMES) & set(counters):
        assert row[name] == int(counters[name])
    assert row["thp_fault_alloc"] > 0
    assert {name for name in NAMES if name not in counters} == {"allocstall"}


def test_zones_are_summed_and_old_names_known() -> None:
    text = b"allocstall_dma 1\nallocstall_normal 20\npgscan_direct_throttle 7\nworkingset_refault 5\nthp_split 3\n"
    row = dict(zip(NAMES, vmstat.parse_vmstat(text), strict=True))
    assert row["allocstall"] == 21
    assert row["pgscan_direct"] == 0
    assert row["pgscan_direct_throttle"] == 7
    assert row["workingset_refault_file"] == 5
    assert row["thp_split_page"] == 3
    assert row["oom_kill"] == 0


def test_zones_before_linux_4_8() -> None:
    text = b"pgscan_direct_dma 1\npgscan_direct_normal 2\npgscan_direct_movable 4\nallocstall 9\n"
    row = dict(zip(NAMES, vmstat.parse_vmstat(text), strict=True))
    assert (row["pgscan_direct"], row["allocstall"]) == (7, 9)


def test_added_counters_do_not_shift_the_columns(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 2)
    read = vmstat.open_vmstat(tmp_path)
    assert read() == {"": vmstat.parse_vmstat((tmp_path / "proc/vmstat").read_bytes())}
    host.put("proc/vmstat", "new_one 1\noom_kill 17\n")
    assert dict(zip(NAMES, read()[""], strict=True))["oom_kill"] == 17
