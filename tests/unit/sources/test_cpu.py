from __future__ import annotations

import pathlib

import pytest

from overnight.sources import cpu

STAT = """cpu  1393280 32966 572056 13343292 6130 0 17875 0 23933 0
cpu0 200 10 300 400 50 60 70 80 999 999
cpu39 5 0 0 5
intr 1462898 0 0
ctxt 115315
"""


def test_each_core_by_mode_in_seconds() -> None:
    first, last = cpu.parse_cpu(STAT)
    assert first == cpu.CpuTimes(0, 2.1, 3.0, 0.6, 0.7, 4.0, 0.5, 0.8)
    assert first.kernel == pytest.approx(4.3)
    assert first.busy == pytest.approx(7.2)
    assert first.total == pytest.approx(11.7)
    assert (last.core, last.busy, last.steal) == (39, 0.05, 0.0)


def test_guest_time_is_not_counted_twice() -> None:
    """The kernel adds guest time to user: the two last columns must not enter the total."""
    (core,) = cpu.parse_cpu("cpu0 100 0 0 0 0 0 0 0 100 0\n")
    assert core.total == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "cores"), [("0-1\n", (0, 1)), ("0,3-5,7", (0, 3, 4, 5, 7)), ("", ()), ("191", (191,))]
)
def test_cpu_lists(text: str, cores: tuple[int, ...]) -> None:
    assert cpu.parse_cpu_list(text) == cores


def test_a_fake_tree_is_read_instead_of_this_host(tmp_path: pathlib.Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(STAT)
    assert [times.core for times in cpu.read_cpu(tmp_path)] == [0, 39]
    assert cpu.online(tmp_path) == (0, 39)


def test_this_very_host() -> None:
    assert {times.core for times in cpu.read_cpu()} == set(cpu.online())
