"""The bounded spool: removal, pins, gaps, and a full disk."""

from __future__ import annotations

import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.agent import spool
from overnight.model.pins import Pin
from overnight.sources import perf

SECOND = 1_000_000_000
T0 = 1_700_000_000 * SECOND
BOOT = "0123abcd" * 4


def segment(minute: int, size: int = 100) -> spool.Segment:
    begin = T0 + minute * 60 * SECOND
    return spool.Segment(pathlib.Path(f"{minute:05}"), begin, begin + 60 * SECOND, size)


def put(folder: pathlib.Path, minute: int, size: int = 100) -> pathlib.Path:
    begin = T0 + minute * 60 * SECOND
    path = folder / str(perf.SegmentName("web-1", begin, BOOT))
    path.write_bytes(bytes(size))
    os.utime(path, ns=(begin + 60 * SECOND, begin + 60 * SECOND))
    return path


def removals(segments, pins=(), now=1000, keep=0.0, surplus=0):
    keep_from = T0 + round((now * 60 - keep) * SECOND)
    chosen = spool.choose_removals(segments, pins, keep_from, surplus)
    return [int(candidate.path.name) for candidate in chosen]


def test_the_oldest_are_removed_first_and_no_more_than_needed():
    segments = [segment(m) for m in (3, 1, 2, 4)]
    assert removals(segments, surplus=150) == [1, 2]
    assert removals(segments, surplus=0) == []


def test_the_last_hours_stay():
    segments = [segment(m) for m in range(10)]
    assert removals(segments, now=10, keep=300, surplus=10_000) == [0, 1, 2, 3]


def test_segments_from_the_future_stay():
    assert removals([segment(50)], now=10, keep=0, surplus=100) == []


def test_pinned_windows_stay_also_where_they_only_touch():
    pin = Pin("e", T0 + 179 * SECOND, T0 + 240 * SECOND + 1, "reset")
    # Minute 2 ends at 180 s, minute 4 begins at 240 s: both may hold a sample of the window.
    assert removals([segment(m) for m in range(6)], [pin], surplus=10_000) == [0, 1, 5]


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 1000)), unique_by=lambda p: p[0]),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 50))),
    st.integers(0, 500),
    st.integers(0, 100_000),
)
def test_nothing_young_or_pinned_is_ever_removed(parts, windows, keep_minutes, surplus):
    segments = [segment(minute, size) for minute, size in parts]
    pins = [
        Pin(str(n), T0 + b * 60 * SECOND, T0 + (b + d) * 60 * SECOND, "")
        for n, (b, d) in enumerate(windows)
    ]
    keep_from = T0 + (500 - keep_minutes) * 60 * SECOND
    chosen = list(spool.choose_removals(segments, pins, keep_from, surplus))
    for candidate in chosen:
        assert candidate.end_ns < keep_from
        assert not any(
            p.begin_ns <= candidate.end_ns and candidate.begin_ns <= p.end_ns for p in pins
        )
    if chosen:
        assert sum(candidate.bytes for candidate in chosen[:-1]) < surplus
    free = {candidate.path for candidate in segments} - {candidate.path for candidate in chosen}
    if sum(candidate.bytes for candidate in chosen) < surplus:
        for candidate in segments:
            if candidate.path in free:
                young = candidate.end_ns >= keep_from
                assert young or any(candidate.overlaps(pin) for pin in pins)


def test_trim_keeps_the_budget_and_counts_but_leaves_other_files(tmp_path):
    store = spool.Spool(tmp_path, budget_bytes=250, keep_seconds=0)
    paths = [put(tmp_path, minute) for minute in range(5)]
    (tmp_path / "kallsyms-0123abcd.gz").write_bytes(bytes(60))
    (tmp_path / "x.writing").write_bytes(bytes(40))
    assert store.used_bytes() == 600
    removed = store.trim(T0 + 3600 * SECOND)
    assert [candidate.path for candidate in removed] == paths[:4]
    assert paths[4].exists()
    assert (tmp_path / "kallsyms-0123abcd.gz").exists()
    assert (tmp_path / "x.writing").exists()


def test_trim_frees_space_to_the_floor_from_removable_segments(tmp_path):
    store = spool.Spool(tmp_path, budget_bytes=1 << 60, keep_seconds=0)
    paths = [put(tmp_path, minute) for minute in range(3)]
    store.pins.pin(Pin("p", T0, T0 + SECOND, "kept"))
    removed = store.trim(T0 + 3600 * SECOND, floor_bytes=1 << 60)
    assert [candidate.path for candidate in removed] == paths[1:]
    assert paths[0].exists()


def test_pins_are_added_replaced_listed_and_removed(tmp_path):
    store = spool.Spool(tmp_path, 1, 0)
    store.pins.pin(Pin("a", 1, 2, "first"))
    store.pins.pin(Pin("a", 3, 4, "second"))
    assert spool.Spool(tmp_path, 1, 0).pins.pins() == (Pin("a", 3, 4, "second"),)
    assert store.pins.unpin("a")
    assert not store.pins.unpin("a")
    assert store.pins.pins() == ()


def test_a_damaged_pin_keeps_everything(tmp_path):
    store = spool.Spool(tmp_path, 0, 0)
    kept = put(tmp_path, 0)
    (tmp_path / "pins/torn.json").write_text('{"begin_ns": 1')
    assert store.trim(T0 + 10**6 * SECOND) == ()
    assert kept.exists()


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".", "x" * 101])
def test_a_pin_cannot_leave_its_folder(tmp_path, name):
    store = spool.Spool(tmp_path, 1, 0)
    with pytest.raises(errors.UsageError):
        store.pins.pin(Pin(name, 0, 1, ""))


def test_a_file_that_vanishes_is_not_an_error(tmp_path, monkeypatch):
    store = spool.Spool(tmp_path, 0, 0)
    put(tmp_path, 0)
    listed = store.segments()
    listed[0].path.unlink()
    monkeypatch.setattr(store, "segments", lambda: listed)
    assert store.trim(T0 + 10**6 * SECOND) == ()


def test_the_last_entry_of_each_gap_is_read_back(tmp_path):
    journal = spool.Journal(tmp_path / "gaps.jsonl")
    journal.add(perf.Gap(5, 5, "disk"))
    journal.add(perf.Gap(1, 2, "perf"))
    journal.add(perf.Gap(5, 9, "disk"))
    expected = (perf.Gap(1, 2, "perf"), perf.Gap(5, 9, "disk"))
    assert spool.Journal(tmp_path / "gaps.jsonl").read() == expected


def test_a_torn_line_loses_only_itself(tmp_path):
    path = tmp_path / "gaps.jsonl"
    path.write_text('{"begin_ns": 1, "end_ns": 2, "why": "a"}\n{"begin_ns": 3, "e')
    journal = spool.Journal(path)
    journal.add(perf.Gap(7, 8, "b"))
    assert journal.read() == (perf.Gap(1, 2, "a"), perf.Gap(7, 8, "b"))


def test_gaps_wait_in_memory_while_they_cannot_be_written(tmp_path):
    folder = tmp_path / "later"
    journal = spool.Journal(folder / "gaps.jsonl")
    journal.add(perf.Gap(1, 2, "no folder yet"))
    journal.flush()
    assert journal.read() == ()
    folder.mkdir()
    journal.flush()
    assert spool.Journal(folder / "gaps.jsonl").read() == (perf.Gap(1, 2, "no folder yet"),)


def test_a_spool_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.MissingPermissionError):
        spool.Spool(tmp_path / "file", 1, 0)
