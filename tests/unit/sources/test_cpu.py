from __future__ import annotations

import pathlib

import fakehost
import pytest

from overnight import sources
from overnight.model import cpu as modes
from overnight.sources import cpu

STAT = """cpu  1393280 32966 572056 13343292 6130 0 17875 0 23933 0
cpu0 200 10 300 400 50 60 70 80 999 999
cpu39 5 0 0 5
intr 1462898 0 0
ctxt 115315
"""


def test_busy_kernel_and_steal_share_of_each_core() -> None:
    rows = cpu.parse_ticks(STAT.encode())
    assert rows["0"] == (200, 10, 300, 400, 50, 60, 70, 80, 999, 999)
    first, last = (modes.tick_shares(row) for row in rows.values())
    assert first == modes.Shares(640 / 1170, 430 / 1170, 80 / 1170)  # steal is not busy
    assert last == modes.Shares(0.5, 0.0, 0.0)


def test_guest_time_is_not_counted_twice() -> None:
    """The kernel adds guest time to user: the two last columns must not enter the total."""
    (row,) = cpu.parse_ticks(b"cpu  1\ncpu0 100 0 0 0 0 0 0 0 100 0\nintr 1\n").values()
    assert modes.tick_shares(row) == modes.Shares(1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "cores"), [("0-1\n", (0, 1)), ("0,3-5,7", (0, 3, 4, 5, 7)), ("", ()), ("191", (191,))]
)
def test_cpu_lists(text: str, cores: tuple[int, ...]) -> None:
    assert sources.parse_cpu_list(text) == cores


def test_a_fake_tree_is_read_instead_of_this_host(tmp_path: pathlib.Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT)
    assert list(cpu.read_ticks(tmp_path)) == [0, 39]
    assert cpu.online(tmp_path) == (0, 39)


def test_cores_of_this_host() -> None:
    assert set(cpu.read_ticks()) == set(cpu.online())


def test_ticks_are_the_kernels_own_numbers(captured: pathlib.Path) -> None:
    rows = cpu.open_ticks(captured)()
    for line in (captured / "proc/stat").read_text().splitlines()[1:3]:
        name, *ticks = line.split()
        assert rows[name.removeprefix("cpu")] == tuple(map(int, ticks))
    assert list(rows) == ["0", "1"]
    assert len(rows["0"]) == len(cpu.SIGNALS[0].columns) == 10


def test_ticks_of_a_large_host_with_offline_cores(large: fakehost.FakeHost) -> None:
    rows = cpu.open_ticks(large.root)()
    assert rows == {str(core): tuple(large.ticks[core]) for core in large.online}
    assert "3" not in rows
    assert "97" not in rows


def test_modes_missing_in_an_old_kernel_are_zero() -> None:
    assert cpu.parse_ticks(STAT.encode())["39"] == (5, 0, 0, 5, 0, 0, 0, 0, 0, 0)


def test_a_core_that_goes_offline_and_comes_back(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 4)
    read = cpu.open_ticks(tmp_path)
    before = read()
    host.switch(2, on=False)
    assert list(read()) == ["0", "1", "3"]
    host.switch(2, on=True)
    host.advance(1)
    after = read()
    assert [sum(after[core]) - sum(before[core]) for core in "0123"] == [100] * 4


def test_columns_that_a_later_kernel_adds_are_left_out() -> None:
    assert cpu.parse_ticks(b"cpu  1\ncpu0 1 2 3 4 5 6 7 8 9 10 11 12\nintr 1\n") == {
        "0": tuple(range(1, 11))
    }
