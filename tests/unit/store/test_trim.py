"""The oldest segments are removed first; recent and pinned ones stay."""

from __future__ import annotations

import pathlib

import captures
import pytest

from overnight.store import check, segments, trim

SECOND, NIGHT = captures.SECOND, captures.NIGHT
MINUTE_US = 60_000_000
BEGIN_US = NIGHT // 1000


@pytest.fixture
def catalogue(tmp_path: pathlib.Path) -> segments.Catalogue:
    """Ten segments of a minute each, alternating between two hosts."""
    profiles = [
        captures.build(
            [captures.Sample(NIGHT + i * 60 * SECOND)],
            host=("alpha", "beta")[i % 2],
            end=NIGHT + (i + 1) * 60 * SECOND,
        )
        for i in range(10)
    ]
    return captures.store(tmp_path, *profiles).catalogue


def stored_bytes(catalogue: segments.Catalogue) -> int:
    return sum(
        file.stat().st_size
        for host in catalogue.hosts()
        for segment in catalogue.segments(host)
        for file in segment.path.iterdir()
    )


def left(catalogue: segments.Catalogue) -> list[int]:
    return sorted(
        (segment.begin_us - BEGIN_US) // MINUTE_US
        for host in catalogue.hosts()
        for segment in catalogue.segments(host)
    )


def trimmed(catalogue: segments.Catalogue, budget: int, **more: object) -> list[int]:
    arguments = {"keep_seconds": 0.0, "now_us": BEGIN_US + 10**12, **more}
    removed = trim.trim_store(catalogue, budget_bytes=budget, **arguments)  # type: ignore[arg-type]
    return [(segment.begin_us - BEGIN_US) // MINUTE_US for segment in removed]


def test_a_store_within_its_budget_stays(catalogue: segments.Catalogue) -> None:
    assert trimmed(catalogue, stored_bytes(catalogue)) == []
    assert left(catalogue) == list(range(10))


def test_the_oldest_go_first_and_no_more_than_needed(catalogue: segments.Catalogue) -> None:
    total = stored_bytes(catalogue)
    files = [p for p in catalogue.home.rglob("*") if p.is_file()]
    assert total == sum(path.stat().st_size for path in files)
    assert trimmed(catalogue, total - 1) == [0]
    assert trimmed(catalogue, total * 6 // 10) == [1, 2, 3]
    assert stored_bytes(catalogue) <= total * 6 // 10
    report = check.check(catalogue)
    assert (report.problems, report.unfinished, report.segments) == ((), (), 6)


def test_the_last_hours_stay(catalogue: segments.Catalogue) -> None:
    removed = trimmed(catalogue, 0, keep_seconds=240.0, now_us=BEGIN_US + 10 * MINUTE_US)
    assert removed == [0, 1, 2, 3, 4]  # the sixth ends exactly 240 s ago
    assert left(catalogue) == [5, 6, 7, 8, 9]


def test_pinned_windows_stay(catalogue: segments.Catalogue) -> None:
    pins = [
        (BEGIN_US + 2 * MINUTE_US, BEGIN_US + 3 * MINUTE_US),  # one segment, to the µs
        (BEGIN_US + 7 * MINUTE_US - 1, BEGIN_US + 7 * MINUTE_US + 1),  # an edge: both sides
    ]
    assert trimmed(catalogue, 0, pins=iter(pins)) == [0, 1, 3, 4, 5, 8, 9]
    assert left(catalogue) == [2, 6, 7]


def test_a_segment_that_another_process_removed_is_not_an_error(
    catalogue: segments.Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pathlib.Path.rename

    def gone(path: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
        if (int(path.name.partition("-")[0]) - BEGIN_US) // MINUTE_US == 0:
            raise FileNotFoundError(2, "gone", str(path))
        return real(path, to)

    monkeypatch.setattr(pathlib.Path, "rename", gone)
    assert trimmed(catalogue, 0) == list(range(1, 10))


def test_an_empty_store(tmp_path: pathlib.Path) -> None:
    catalogue = segments.Catalogue(tmp_path)
    assert stored_bytes(catalogue) == 0
    assert trimmed(catalogue, 0) == []
