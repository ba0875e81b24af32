from __future__ import annotations

import pathlib

import fakehost
import pytest

from overnight import sources
from overnight.sources import frequency


def test_frequency_and_throttles_of_every_core(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 4, offline=(1,))
    host.put("sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq", "1200000\n")
    host.put("sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "90\n")
    rows = frequency.open_frequency(tmp_path)()
    assert rows == {"0": (2900, 3, 5, -1), "2": (1200, 90, 5, -1), "3": (2900, 3, 5, -1)}


def test_a_host_without_throttle_counters_has_the_frequency(tmp_path: pathlib.Path) -> None:
    host = fakehost.FakeHost(tmp_path, 1)
    (tmp_path / "sys/devices/system/cpu/cpu0/thermal_throttle").rename(tmp_path / "away")
    read = frequency.open_frequency(tmp_path)
    assert read() == {"0": (2900, -1, -1, -1)}
    host.put("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "<unknown>\n")
    with pytest.raises(sources.NoDataError, match="virtual machines"):
        read()


def test_a_frequency_that_is_slow_to_read_is_read_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels before 5.18 sleep in this read; the counters are still polled."""
    fakehost.FakeHost(tmp_path, 4)
    reads: list[str] = []
    read_once = sources.read_once

    def slow(path: str, room: int) -> bytes | None:
        if path.endswith("scaling_cur_freq"):
            reads.append(path)
            now[0] += 0.01
        return read_once(path, room)

    now = [100.0]
    monkeypatch.setattr(frequency.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sources, "read_once", slow)
    read = frequency.open_frequency(tmp_path)
    assert [row[:2] for row in read().values()] == [(2900, 3), (-1, 3), (-1, 3), (-1, 3)]
    assert read()["0"] == (-1, 3, 5, -1)
    assert len(reads) == 1
