"""Rates and shares from a ring, and their missing time."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
import rings

from overnight import errors
from overnight.model.event import Event
from overnight.model.selection import Window
from overnight.queries import signals
from overnight.store.ring import reader

MODES = (
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "irq",
    "softirq",
    "steal",
    "guest",
    "guest_nice",
)
STEP = {
    "0": (10, 0, 0, 90, 0, 0, 0, 0, 0, 0),
    "2": (0, 0, 40, 0, 10, 0, 50, 0, 0, 0),
    "10": (50, 10, 0, 30, 0, 0, 0, 10, 50, 0),
}


def _window(begin: float, end: float) -> Window:
    return Window(rings.us(begin), rings.us(end))


def _ticks(second: int, cores: tuple[str, ...] = ("0", "2", "10")) -> dict[str, tuple[int, ...]]:
    return {core: tuple(10**9 + second * n for n in STEP[core]) for core in cores}


def _record(home: pathlib.Path, seconds: list[int], **options: float) -> reader.Reader:
    ring_writer = rings.open_writer(home, **options)
    for second in seconds:
        ring_writer.numbers("cpu", MODES, rings.at(second), _ticks(second))
        ring_writer.tick(rings.at(second))
    ring_writer.close()
    return reader.Reader(home)


def test_each_core_has_its_own_shares(tmp_path: pathlib.Path) -> None:
    source = _record(tmp_path, list(range(130)), block_seconds=50)
    series = signals.core_series(source, rings.HOST, _window(10, 120))
    assert series.cores == (0, 2, 10)
    assert series.end_us.tolist() == [rings.us(second) for second in range(11, 121)]
    shares = {mode: values[0].tolist() for mode, values in series.values.items()}
    assert shares == {
        "busy": [10.0, 90.0, 60.0],
        "kernel": [0.0, 90.0, 0.0],
        "softirq": [0.0, 50.0, 0.0],
        "iowait": [0.0, 10.0, 0.0],
        "steal": [0.0, 0.0, 10.0],
        "idle": [90.0, 10.0, 30.0],
    }
    assert all((values == values[0]).all() for values in series.values.values())
    assert "ticks" in series.denominator
    assert (series.coverage.covered_seconds, series.coverage.missing) == (110, ())
    inside = signals.core_series(source, rings.HOST, _window(10.2, 10.4))
    assert (inside.begin_us.tolist(), inside.end_us.tolist()) == ([rings.us(10)], [rings.us(11)])
    assert inside.coverage.covered_seconds == pytest.approx(0.2)


def test_missing_time_is_reported(tmp_path: pathlib.Path) -> None:
    ring_writer = rings.open_writer(tmp_path)
    ring_writer.note_gap(rings.us(20), rings.us(30), "the agent was stopped")
    ring_writer.close()
    source = _record(tmp_path, [*range(21), *range(30, 60)])
    series = signals.core_series(source, rings.HOST, _window(0, 59.5))
    assert rings.us(30) not in series.end_us.tolist()
    assert series.coverage.missing == (
        (rings.us(20), rings.us(30), "the agent was stopped"),
        (rings.us(59), rings.us(59.5), "no reason is known"),
    )
    assert series.coverage.covered_seconds == 49


def test_missing_data_is_not_zero(tmp_path: pathlib.Path) -> None:
    series = signals.core_series(reader.Reader(tmp_path), "nobody", _window(0, 10))
    assert series.cores == ()
    assert series.coverage.covered_seconds == 0
    assert series.coverage.missing == ((rings.us(0), rings.us(10), "no reason is known"),)


def test_an_offline_core_and_decreasing_ticks(tmp_path: pathlib.Path) -> None:
    ring_writer = rings.open_writer(tmp_path)
    for second in range(10):
        cores = ("0", "2") if second in (4, 5) else ("0", "2", "10")
        rows = _ticks(second, cores)
        if second == 7:
            rows["0"] = (*rows["0"][:4], -5, *rows["0"][5:])  # iowait corrected downwards
        ring_writer.numbers("cpu", MODES, rings.at(second), rows)
    ring_writer.close()
    series = signals.core_series(reader.Reader(tmp_path), rings.HOST, _window(0, 10))
    assert np.isnan(series.values["busy"][:, 2]).tolist() == [n in (3, 4, 5) for n in range(9)]
    assert series.values["iowait"][6, 0] == 0
    assert (series.values["busy"][:, 1] == 90).all()


def test_rates_are_right_when_the_clock_is_set(tmp_path: pathlib.Path) -> None:
    ring_writer = rings.open_writer(tmp_path)
    for second in range(20):
        step = -7.0 if second >= 10 else 0.0
        ring_writer.numbers(
            "net", ("bytes",), rings.at(second, step=step), {"eth0": (1000 * second,)}
        )
    ring_writer.close()
    series = signals.counter_rate(reader.Reader(tmp_path), rings.HOST, "net", _window(0, 20))
    assert len(series.seconds) == 19
    assert (series.values["bytes"] == 1000).all()


def test_rates_of_large_counters_and_after_a_reset(tmp_path: pathlib.Path) -> None:
    ring_writer = rings.open_writer(tmp_path)
    for second, number in enumerate([1 << 60, (1 << 60) + 3, 5, 9]):
        ring_writer.numbers("ns", ("n",), rings.at(2 * second), {"a": (number,)})
    ring_writer.close()
    series = signals.counter_rate(reader.Reader(tmp_path), rings.HOST, "ns", _window(0, 10))
    rates = series.values["n"][:, 0]
    assert rates[0] == 1.5
    assert np.isnan(rates[1])
    assert rates[2] == 2.0


def test_columns_of_different_intervals_need_separate_calls(tmp_path: pathlib.Path) -> None:
    ring_writer = rings.open_writer(tmp_path)
    for second in range(40):
        rows = {"0": (second, 10 * second)}
        ring_writer.numbers("softirqs", ("net_rx", "timer"), rings.at(second), rows, every=(0, 10))
    ring_writer.close()
    source = reader.Reader(tmp_path)
    with pytest.raises(errors.UsageError, match="different intervals"):
        signals.counter_rate(source, rings.HOST, "softirqs", _window(0, 40))
    series = signals.counter_rate(source, rings.HOST, "softirqs", _window(0, 40), columns=["timer"])
    assert series.values["timer"].tolist() == [[10.0]] * 3
    assert series.seconds.tolist() == [10.0] * 3


def test_damage_is_noted_and_events_are_read(tmp_path: pathlib.Path) -> None:
    source = _record(tmp_path, list(range(100)), block_seconds=30)
    ring_writer = rings.open_writer(tmp_path)
    ring_writer.event(Event(rings.us(50), "cpu.core_pinned", id="x", core=2))
    ring_writer.close()
    (path,) = rings.ring_files(tmp_path)
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    series = signals.core_series(source, rings.HOST, _window(0, 100))
    assert len(series.coverage.notes) == 1
    assert series.coverage.covered_seconds == 89
    assert [
        event.core for event in source.events(_window(0, 100).begin_us, _window(0, 100).end_us)
    ] == [2]
    assert source.events(_window(0, 100).begin_us, _window(0, 100).end_us, None, ["net."]) == ()
