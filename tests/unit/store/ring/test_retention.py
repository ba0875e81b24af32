"""A ring is limited by size and by age; pinned windows stay."""

from __future__ import annotations

import pathlib

import hypothesis
import pytest
import rings
from hypothesis import strategies as st

from overnight import errors
from overnight.model.pins import EVER_NS, Pin
from overnight.store.ring import layout, reader, retention, sealed_blocks

HOUR = 3600


def _files(*begins: int, size: int = 100) -> list[retention.Stored]:
    return [retention.Stored(b, b + 10, size, pathlib.Path(str(b))) for b in begins]


def test_the_oldest_go_first_and_no_more_than_needed() -> None:
    chosen = retention.choose_removals(
        _files(30, 10, 20, 40), (), now_us=50, age_seconds=1, surplus=150
    )
    assert [file.begin_us for file in chosen] == [10, 20]


def test_files_past_the_age_limit_go_even_within_the_budget() -> None:
    chosen = retention.choose_removals(
        _files(10, 20, 5_000_000), (), now_us=5_000_000, age_seconds=1, surplus=-1
    )
    assert [file.begin_us for file in chosen] == [10, 20]


@hypothesis.given(
    st.lists(st.integers(0, 1000), unique=True, max_size=20),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=4),
    st.integers(-500, 3000),
)
def test_pinned_windows_and_the_newest_file_are_never_removed(
    begins: list[int], windows: list[tuple[int, int]], surplus: int
) -> None:
    held = [Pin(str(n), min(w) * 1000, max(w) * 1000, "") for n, w in enumerate(windows)]
    files = _files(*begins)
    chosen = retention.choose_removals(files, held, now_us=2000, age_seconds=1, surplus=surplus)
    assert not {max(begins, default=-1)} & {file.begin_us for file in chosen}
    for file in chosen:
        assert not any(p.begin_us < file.end_us and file.begin_us < p.end_us for p in held)
    freed = sum(file.bytes for file in chosen)
    free = [f for f in sorted(files)[:-1] if not any(p.begin_us < f.end_us and f.begin_us < p.end_us for p in held)]  # fmt: skip
    assert freed >= min(surplus, sum(file.bytes for file in free))


def _record_hours(home: pathlib.Path, hours: int, **options: float) -> None:
    writer = rings.open_writer(home, block_seconds=1800, **options)
    for second in range(0, hours * HOUR, 120):
        rows = {str(n): tuple(hash((second, n, c)) % 10**9 for c in range(3)) for n in range(20)}
        writer.numbers("cpu", rings.COLUMNS, rings.at(second), rows)
        writer.tick(rings.at(second))
    writer.tick(rings.at(hours * HOUR))
    writer.close()


def test_rotation_by_size_keeps_pinned_windows(tmp_path: pathlib.Path) -> None:
    budget = 1 << 16
    kept = layout.ring_pins(tmp_path, rings.HOST)
    kept.pin(Pin("reset-0314", rings.us(HOUR) * 1000, rings.us(HOUR + 180) * 1000, "NIC reset"))
    _record_hours(tmp_path, 16, budget_bytes=budget)
    total = sum(path.stat().st_size for path in rings.ring_files(tmp_path))
    assert total <= budget + (1 << 15)
    source = reader.Reader(tmp_path)
    seconds = sorted({at for at, _, _ in rings.everything(source, keys=("0",), columns=("user",))})
    assert rings.us(HOUR) in seconds
    assert rings.us(HOUR + 120) in seconds
    assert rings.us(8 * HOUR) not in seconds
    assert seconds[-1] == rings.us(16 * HOUR - 120)
    assert [pin.why for pin in source.pins(rings.HOST)] == ["NIC reset"]
    assert kept.unpin("reset-0314")
    assert not kept.unpin("reset-0314")


def test_rotation_by_age(tmp_path: pathlib.Path) -> None:
    _record_hours(tmp_path, 12, age_seconds=3 * HOUR)
    seconds = sorted({at for at, _, _ in rings.everything(reader.Reader(tmp_path), keys=("0",))})
    assert rings.us(6 * HOUR) <= seconds[0] <= rings.us(9 * HOUR)


def test_pins_that_hold_more_than_the_budget_count_as_surplus(tmp_path: pathlib.Path) -> None:
    layout.ring_pins(tmp_path, rings.HOST).pin(Pin("all", 0, rings.EVER * 1000, ""))
    writer = rings.open_writer(tmp_path, budget_bytes=1000)
    rings.record(writer, range(3000))
    writer.tick(rings.at(3100))
    assert writer.surplus > 0
    assert rings.everything(reader.Reader(tmp_path)) == rings.expected_numbers(range(3000))
    writer.close()


def test_a_pin_that_cannot_be_read_pins_everything(tmp_path: pathlib.Path) -> None:
    held = layout.ring_pins(tmp_path, rings.HOST)
    held.pin(Pin("a", 1000, 2000, "why"))
    assert held.pins() == (Pin("a", 1000, 2000, "why"),)
    (held.folder / "a.json").write_text("{")
    assert held.pins()[0].end_ns == EVER_NS
    with pytest.raises(errors.UsageError):
        held.pin(Pin("../x", 1, 2, ""))


def test_the_gaps_file_stays_small(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path, age_seconds=1000)
    why = "x" * 20_000
    for second in range(100):
        writer.note_gap(rings.us(100 * second), rings.us(100 * second + 1), why)
    writer.tick(rings.at(10_000))
    assert (writer.folder / "gaps.jsonl").stat().st_size <= retention.MAX_GAPS_BYTES
    begins = [gap.begin_us for gap in reader.Reader(tmp_path).gaps(rings.HOST)]
    assert begins == [rings.us(100 * second) for second in range(90, 100)]
    writer.close()


def test_a_clock_that_is_set_forward_does_not_make_the_recording_older(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These ticks take no time, and only packed blocks are ever removed: wait for their sync.
    is_done = sealed_blocks._Sync.is_done
    monkeypatch.setattr(sealed_blocks._Sync, "is_done", lambda sync, _: is_done(sync, 10))
    ring = rings.open_writer(tmp_path, block_seconds=5, age_seconds=86400)
    rings.record(ring, range(20))
    stored = rings.expected_numbers(range(20))
    for second in range(20, 150):
        now = rings.at(second, step=400 * 86400.0)
        ring.numbers("cpu", rings.COLUMNS, now, rings.rows_of(second))
        ring.tick(now)
    ring.close()
    assert rings.everything(reader.Reader(tmp_path), end_us=rings.us(20)) == stored
