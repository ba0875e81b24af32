"""Rates and shares from a ring, and what they say about what is missing."""

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
    made = rings.open_writer(home, **options)
    for second in seconds:
        made.numbers("cpu", MODES, rings.at(second), _ticks(second))
        made.tick(rings.at(second))
    made.close()
    return reader.Reader(home)


def test_each_core_by_itself(tmp_path: pathlib.Path) -> None:
    source = _record(tmp_path, list(range(130)), block_seconds=50)
    found = signals.core_series(source, rings.HOST, _window(10, 120))
    assert found.cores == (0, 2, 10)
    assert found.end_us.tolist() == [rings.us(second) for second in range(11, 121)]
    shares = {mode: values[0].tolist() for mode, values in found.values.items()}
    assert shares == {
        "busy": [10.0, 90.0, 60.0],
        "kernel": [0.0, 90.0, 0.0],
        "softirq": [0.0, 50.0, 0.0],
        "iowait": [0.0, 10.0, 0.0],
        "steal": [0.0, 0.0, 10.0],
    }
    assert all((values == values[0]).all() for values in found.values.values())
    assert "ticks" in found.denominator
    assert (found.coverage.covered_seconds, found.coverage.missing) == (110, ())
    inside = signals.core_series(source, rings.HOST, _window(10.2, 10.4))
    assert (inside.begin_us.tolist(), inside.end_us.tolist()) == ([rings.us(10)], [rings.us(11)])
    assert inside.coverage.covered_seconds == pytest.approx(0.2)


def test_what_is_missing_is_said(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    made.note_gap(rings.us(20), rings.us(30), "the agent was stopped")
    made.close()
    source = _record(tmp_path, [*range(21), *range(30, 60)])
    found = signals.core_series(source, rings.HOST, _window(0, 59.5))
    assert rings.us(30) not in found.end_us.tolist()
    assert found.coverage.missing == (
        (rings.us(20), rings.us(30), "the agent was stopped"),
        (rings.us(59), rings.us(59.5), "not recorded"),
    )
    assert found.coverage.covered_seconds == 49


def test_nothing_recorded_is_no_zero(tmp_path: pathlib.Path) -> None:
    found = signals.core_series(reader.Reader(tmp_path), "nobody", _window(0, 10))
    assert found.cores == ()
    assert found.coverage.covered_seconds == 0
    assert found.coverage.missing == ((rings.us(0), rings.us(10), "not recorded"),)


def test_a_core_that_is_off_line_and_ticks_that_fall(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    for second in range(10):
        cores = ("0", "2") if second in (4, 5) else ("0", "2", "10")
        rows = _ticks(second, cores)
        if second == 7:
            rows["0"] = (*rows["0"][:4], -5, *rows["0"][5:])  # iowait corrected downwards
        made.numbers("cpu", MODES, rings.at(second), rows)
    made.close()
    found = signals.core_series(reader.Reader(tmp_path), rings.HOST, _window(0, 10))
    assert np.isnan(found.values["busy"][:, 2]).tolist() == [n in (3, 4, 5) for n in range(9)]
    assert found.values["iowait"][6, 0] == 0
    assert (found.values["busy"][:, 1] == 90).all()


def test_a_clock_that_is_set_makes_no_rate_wrong(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    for second in range(20):
        step = -7.0 if second >= 10 else 0.0
        made.numbers("net", ("bytes",), rings.at(second, step=step), {"eth0": (1000 * second,)})
    made.close()
    found = signals.counter_rate(reader.Reader(tmp_path), rings.HOST, "net", _window(0, 20))
    assert len(found.seconds) == 19
    assert (found.values["bytes"] == 1000).all()


def test_rates_of_large_counters_and_of_one_born_anew(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    for second, number in enumerate([1 << 60, (1 << 60) + 3, 5, 9]):
        made.numbers("ns", ("n",), rings.at(2 * second), {"a": (number,)})
    made.close()
    found = signals.counter_rate(reader.Reader(tmp_path), rings.HOST, "ns", _window(0, 10))
    rates = found.values["n"][:, 0]
    assert rates[0] == 1.5
    assert np.isnan(rates[1])
    assert rates[2] == 2.0
    assert "monotonic" in found.denominator


def test_columns_of_different_intervals_need_separate_calls(tmp_path: pathlib.Path) -> None:
    made = rings.open_writer(tmp_path)
    for second in range(40):
        rows = {"0": (second, 10 * second)}
        made.numbers("softirqs", ("net_rx", "timer"), rings.at(second), rows, every=(0, 10))
    made.close()
    source = reader.Reader(tmp_path)
    with pytest.raises(errors.UsageError, match="different intervals"):
        signals.counter_rate(source, rings.HOST, "softirqs", _window(0, 40))
    found = signals.counter_rate(source, rings.HOST, "softirqs", _window(0, 40), columns=["timer"])
    assert found.values["timer"].tolist() == [[10.0]] * 3
    assert found.seconds.tolist() == [10.0] * 3


def test_damage_is_noted_and_events_are_found(tmp_path: pathlib.Path) -> None:
    source = _record(tmp_path, list(range(100)), block_seconds=30)
    made = rings.open_writer(tmp_path)
    made.event(Event(rings.us(50), "cpu.core_pinned", id="x", core=2))
    made.close()
    (path,) = rings.ring_files(tmp_path)
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    found = signals.core_series(source, rings.HOST, _window(0, 100))
    assert len(found.coverage.notes) == 1
    assert found.coverage.covered_seconds == 89
    assert [
        one.core for one in source.events(_window(0, 100).begin_us, _window(0, 100).end_us)
    ] == [2]
    assert source.events(_window(0, 100).begin_us, _window(0, 100).end_us, None, ["net."]) == ()
