from __future__ import annotations

import pathlib
import threading

import pytest

from overnight import errors
from overnight.app import record
from overnight.sources import cpu
from overnight.sources.perf import perfdata


def times(core: int, busy: float, idle: float) -> cpu.CpuTimes:
    return cpu.CpuTimes(core, busy / 2, busy / 2, 0, 0, idle, 0, 0)


def test_one_pinned_core_is_not_averaged_away() -> None:
    ticks = [
        tuple(
            times(core, second, 0) if core == 39 else times(core, 0, second) for core in range(96)
        )
        for second in range(4)
    ]
    cores = record.summarise_cores(ticks)
    assert [core.core for core in cores if core.busy_peak >= 95] == [39]
    assert cores[39].busy == (100.0, 100.0, 100.0)
    assert cores[39].kernel_peak == 50.0


def test_a_core_that_went_off_line_is_left_out() -> None:
    ticks = [(times(0, 0, 0), times(1, 0, 0)), (times(0, 1, 0),)]
    assert [core.core for core in record.summarise_cores(ticks)] == [0]


def samples(pids: list[int], comms: dict[int, str]) -> perfdata.Samples:
    column = memoryview(b"".join(pid.to_bytes(4, "little") for pid in pids)).cast("i")
    zeros = memoryview(bytes(8 * len(pids)))
    return perfdata.Samples(
        time=zeros.cast("Q"),
        cpu=memoryview(bytes(4 * len(pids))).cast("I"),
        pid=column,
        tid=column,
        mode=memoryview(bytes(len(pids))),
        comms=comms,
        lost=3,
        finished=True,
    )


def test_three_denominators() -> None:
    """Two cores for 10 s at 10 Hz: 200 samples are all there can be; half a core is 50."""
    profile = record.summarise_samples(
        samples([0] * 130 + [5] * 50 + [6] * 20, {5: "kubelet"}), cores=2, seconds=10, frequency=10
    )
    first, second = profile.processes
    assert (first.process, first.samples) == ("kubelet", 50)
    assert first.share_of_samples == pytest.approx(50 / 70, abs=1e-4)
    assert first.share_of_capacity == 0.25
    assert first.cores == 0.5
    assert second.process == "pid 6"
    assert (profile.idle_samples, profile.lost) == (130, 3)


def test_a_home_that_cannot_be_written_is_said_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.MissingPermissionError, match="nothing can be written"):
        record.record(tmp_path / "file", seconds=1, frequency=97, stop=threading.Event())
