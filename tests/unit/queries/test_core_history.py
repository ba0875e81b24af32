"""What each core did between two readings: mpstat's columns, own intervals, nothing invented for missing ones."""

from __future__ import annotations

import pathlib

import cpurings
import pytest
import rings
from cpurings import PINNED, us

from overnight import errors
from overnight.model.selection import Window
from overnight.queries import core_history

GUESTS = (60, 20, 5, 0, 5, 2, 3, 5, 50, 20)  # user and nice include the guests
HALF = (10, 0, 30, 60, 0, 0, 0, 0, 0, 0)


def read(source, begin: float, end: float, **options: object) -> core_history.History:
    window = Window(us(begin), us(end))
    return core_history.read_history(source, rings.HOST, window, **options)


def spans(history: core_history.History) -> list[tuple[int, int, int]]:
    return [(each.begin_us, each.end_us, each.readings) for each in history.intervals]


def worst(history: core_history.History) -> list[tuple[int, int | None, float]]:
    return [(each.end_us, *((row.core, row.used) for row in each.cores)) for each in history.intervals]  # fmt: skip


def test_the_columns_are_those_of_mpstat(tmp_path: pathlib.Path) -> None:
    corrected = (10, 0, 5, 85, -40, 0, 0, 0, 0, 0)  # the kernel corrects iowait downwards
    source = cpurings.record(tmp_path, 2, range(9), {(5, 1): GUESTS, (6, 1): corrected})
    history = read(source, 4, 6)
    assert spans(history) == [(us(4), us(5), 1), (us(5), us(6), 1)]
    first, second = history.intervals
    assert [row.core for row in first.cores] == [0, 1]
    usr, nice, system, iowait, irq, soft, steal, guest, gnice, idle = first.cores[1].values.values()
    assert (usr, nice, guest, gnice) == (10, 0, 50, 20)
    assert (system, iowait, irq, soft, steal, idle) == (5, 5, 2, 3, 5, 0)
    assert first.cores[1].used == 95
    assert first.all.values == pytest.approx(
        {"usr": 10, "nice": 0, "sys": 5, "iowait": 2.5, "irq": 1, "soft": 1.5, "steal": 2.5, "guest": 25, "gnice": 10, "idle": 42.5}
    )  # fmt: skip
    assert second.cores[1].values["iowait"] == 0
    assert second.cores[1].values["idle"] == 85


def test_columns_that_were_not_recorded_are_left_out(tmp_path: pathlib.Path) -> None:
    source = cpurings.record(tmp_path, 1, range(4), modes=("user", "system", "idle"))
    (interval,) = read(source, 1, 2).intervals
    assert interval.cores[0].values == {"usr": 10, "sys": 5, "idle": 85}
    assert interval.cores[0].used == 15


def test_a_reading_has_its_own_interval(tmp_path: pathlib.Path) -> None:
    """A window selects the readings that touch it; a lost one makes a longer interval, a gap makes none."""
    seconds = [*range(20), *range(21, 40), *range(50, 60)]
    source = cpurings.record(tmp_path, 1, seconds, {(20, 0): PINNED})
    touching = {
        (4.2, 4.4): [(us(4), us(5), 1)],
        (4, 5): [(us(4), us(5), 1)],
        (4.5, 5.5): [(us(4), us(5), 1), (us(5), us(6), 1)],
        (19.5, 20.5): [(us(19), us(21), 1)],
        (42, 48): [],
    }
    found = {window: spans(read(source, *window)) for window in touching}
    assert found == touching
    (interval,) = read(source, 19.5, 20.5).intervals
    assert interval.seconds == 2
    assert interval.cores[0].values["sys"] == 51.5
    assert [(h.readings, h.lost) for h in (read(source, 4, 9), read(source, 19.5, 20.5), read(source, 0, 59))] == [(5, 0), (1, 1), (47, 12)]  # fmt: skip
    whole = read(source, 0, 59)
    assert whole.step_seconds == 1
    assert whole.gaps == ((us(39), us(50), "no reason is known"),)


def test_every_sums_the_readings_whose_middle_is_in_it(tmp_path: pathlib.Path) -> None:
    source = cpurings.record(tmp_path, 1, range(30), {(n, 0): HALF for n in range(13, 18)})
    history = read(source, 5, 25, every_us=10_000_000)
    assert spans(history) == [(us(5), us(15), 10), (us(15), us(25), 10)]
    assert [each.cores[0].values["sys"] for each in history.intervals] == [12.5, 10]
    shifted = read(source, 4.6, 24.6, every_us=10_000_000)
    assert spans(shifted) == [(us(4), us(15), 11), (us(15), us(25), 10)]
    fine = read(source, 5, 8, every_us=1000)
    assert spans(fine) == [(us(n), us(n + 1), 1) for n in (5, 6, 7)]


def test_chunks_neither_lose_nor_repeat_a_reading(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = cpurings.record(tmp_path, 2, range(100), {(n, 1): PINNED for n in range(40, 46)})
    for options in ({}, {"every_us": 7_000_000}, {"every_us": 7_000_000, "worst": True}):
        whole = read(source, 0.3, 98.8, **options)
        for chunk_us in (7_000_000, 10_300_000, 33_000_000):
            monkeypatch.setattr(core_history, "CHUNK_US", chunk_us)
            assert read(source, 0.3, 98.8, **options) == whole
        monkeypatch.undo()
    assert whole.readings == 99


def test_the_worst_core_of_each_interval_in_its_worst_reading(tmp_path: pathlib.Path) -> None:
    user = (100, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    waits = (0, 0, 0, 0, 100, 0, 0, 0, 0, 0)
    stolen = (0, 0, 0, 10, 0, 0, 0, 90, 0, 0)
    busy = {(3, 2): PINNED, (3, 0): user, (4, 1): waits, (4, 0): HALF, (5, 1): stolen, (6, 2): HALF}
    source = cpurings.record(tmp_path, 3, range(12), busy)
    history = read(source, 2, 6, worst=True)
    assert worst(history) == [
        (us(3), (2, 100)),  # as busy as core 0, but in the kernel
        (us(4), (0, 40)),  # iowait is idle time
        (us(5), (1, 90)),  # what the hypervisor took is not
        (us(6), (2, 40)),
    ]
    assert worst(read(source, 2, 6, worst=True, every_us=2_000_000)) == [
        (us(3), (2, 100)),
        (us(5), (1, 90)),
    ]
    assert worst(read(source, 2, 6, worst=True, every_us=4_000_000, sort="iowait")) == [(us(4), (1, 0))]  # fmt: skip
    assert worst(read(source, 2, 3, worst=True, cores=(0, 1))) == [(us(3), (0, 100))]


def test_cores_are_chosen_and_sorted(tmp_path: pathlib.Path) -> None:
    source = cpurings.record(tmp_path, 4, range(9), {(5, 2): PINNED, (5, 1): HALF})
    orders = {
        (): [0, 1, 2, 3],
        (("sort", "sys"),): [2, 1, 0, 3],
        (("sort", "idle"),): [0, 3, 1, 2],
        (("cores", (3, 1)),): [1, 3],
        (("cores", (7,)),): [],
    }
    for options, order in orders.items():
        history = read(source, 4, 5, **dict(options))
        assert [row.core for each in history.intervals for row in each.cores] == order
        assert history.cores == (0, 1, 2, 3)
    assert read(source, 4, 5, cores=(7,), worst=True).intervals == ()
    (chosen,) = read(source, 4, 5, cores=(3,)).intervals
    assert chosen.all.values["sys"] == pytest.approx((5 + 30 + 98 + 5) / 4)


def test_an_offline_core_has_no_row(tmp_path: pathlib.Path) -> None:
    absent = [(5, 1), (6, 1)]
    source = cpurings.record(tmp_path, 2, range(12), absent=absent)
    history = read(source, 3, 9)
    assert [[row.core for row in each.cores] for each in history.intervals] == [[0, 1], [0], [0], [0], [0, 1], [0, 1]]  # fmt: skip
    assert history.absent == {1: 3}
    assert read(source, 3, 9, cores=(0,)).absent == {}
    (summed,) = read(source, 3, 9, every_us=6_000_000).intervals
    assert summed.cores[1].values == summed.cores[0].values


def test_a_reboot_is_a_gap(tmp_path: pathlib.Path) -> None:
    cpurings.record(tmp_path, 1, range(10))
    source = cpurings.record(tmp_path, 1, range(14, 25), boot="f" * 36)
    history = read(source, 0, 24)
    assert (history.readings, history.lost) == (19, 5)
    assert all(each.seconds == 1 for each in history.intervals)


def test_readings_of_sar_are_found_from_far_away(tmp_path: pathlib.Path) -> None:
    source = cpurings.record(tmp_path, 1, range(0, 7200, 600))
    assert spans(read(source, 700, 701)) == [(us(600), us(1200), 1)]
    assert len(read(source, 0, 6600).intervals) == 11


def test_what_cannot_be_shown_is_refused(tmp_path: pathlib.Path, monkeypatch) -> None:
    source = cpurings.record(tmp_path, 2, range(12))
    for every_us in (0, -1, 3_600_000_001):
        with pytest.raises(errors.UsageError, match="--every must be"):
            read(source, 0, 9, every_us=every_us)
    monkeypatch.setattr(core_history, "MAX_ROWS", 17)
    with pytest.raises(errors.UsageError, match="about 18 lines, and at most 17"):
        read(source, 0, 9)
    assert len(read(source, 0, 8).intervals) == 8
    # An answer that is certainly too long is refused before any of it is made.
    monkeypatch.setattr(core_history, "_make_intervals", lambda *_, **__: pytest.fail("made"))
    monkeypatch.setattr(core_history, "MAX_ROWS", 14)
    for options in ({}, {"every_us": 1_000_000}):
        with pytest.raises(errors.UsageError, match="too long"):
            read(source, 0, 9, **options)
