"""Hour files give the sums of their segments, or nothing, and are removed with them."""

from __future__ import annotations

import pathlib
import random

import captures
import numpy as np
import pytest

from overnight.queries import heatmap, reader
from overnight.store import check, hours, segments, trim

SECOND = captures.SECOND
HOUR = 3600 * SECOND
BEGIN = captures.NIGHT // HOUR * HOUR


def piece(number: int, *, seed: int = 0, lost: int = 0) -> object:
    """A capture of ten minutes."""
    begin = BEGIN + number * 600 * SECOND
    cores = (0, 1) if number % 3 else (0, 1, 5)
    samples = captures.random_samples(
        seed or number, 30, begin=begin, end=begin + 600 * SECOND, cores=cores
    )
    return captures.build(
        samples,
        begin=begin,
        end=begin + 600 * SECOND,
        cores=cores,
        lost=lost,
        notes=(f"piece {number}",),
    )


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two past hours and the current one, written as a recorder does."""
    captures.store(tmp_path, *(piece(n) for n in range(13)), segment_seconds=600)
    return tmp_path


def files(home: pathlib.Path) -> list[pathlib.Path]:
    return sorted(home.rglob("*.hour"))


def answers(home: pathlib.Path) -> list[object]:
    source = reader.Reader(segments.Catalogue(home))
    window = source.extent()
    results = []
    for mode in segments.MODES:
        for step in (1_000_000, 7_000_000):
            grid = heatmap.by_core(source, window, mode=mode, step_us=step)
            results.append((grid.rows, grid.values.tolist(), grid.full, grid.coverage))
    return results


def without(home: pathlib.Path) -> list[object]:
    for path in files(home):
        path.unlink()
    return answers(home)


def problems(home: pathlib.Path) -> list[tuple[str, str]]:
    report = check.check(segments.Catalogue(home))
    return [(pathlib.Path(p.path).name, p.what) for p in report.problems]


def test_past_hours_have_a_file_that_gives_the_same_answers(home: pathlib.Path) -> None:
    number = BEGIN // HOUR
    assert [path.name for path in files(home)] == [f"{number}.hour", f"{number + 1}.hour"]
    planes = reader.Reader(segments.Catalogue(home)).planes(
        segments.Catalogue(home).segments("alpha"), "busy"
    )
    assert len(planes) == 12
    with_files = answers(home)
    assert problems(home) == []
    assert with_files == without(home)
    hours.write_past(segments.Catalogue(home).segments("alpha")[-1])
    assert [path.name for path in files(home)] == [f"{number}.hour", f"{number + 1}.hour"]
    assert with_files == answers(home)


def test_the_last_hour_of_a_day_has_a_file(tmp_path: pathlib.Path) -> None:
    midnight = -(-BEGIN // (24 * HOUR)) * 24 * HOUR
    first = (midnight - BEGIN) // (600 * SECOND)
    captures.store(tmp_path, piece(first - 1), piece(first), segment_seconds=600)
    assert [path.name for path in files(tmp_path)] == [f"{midnight // HOUR - 1}.hour"]
    assert len({path.parent for path in tmp_path.rglob("samples.parquet")}) == 2
    assert problems(tmp_path) == []


def test_the_last_hour_before_a_pause_across_midnight_has_a_file(tmp_path: pathlib.Path) -> None:
    a_day = 24 * HOUR // (600 * SECOND)
    captures.store(tmp_path, piece(0), piece(2 * a_day), segment_seconds=600)
    assert [path.name for path in files(tmp_path)] == [f"{BEGIN // HOUR}.hour"]
    assert problems(tmp_path) == []


def test_a_reader_uses_the_current_hour_files(home: pathlib.Path) -> None:
    source = reader.Reader(segments.Catalogue(home))
    window = source.extent()
    first = heatmap.by_core(source, window)
    for path in files(home):
        path.unlink()
    # A later hour: all files are written.
    captures.store(home, piece(19, seed=77), segment_seconds=600)
    assert len(files(home)) == 3
    assert heatmap.by_core(source, window).values.tolist() == first.values.tolist()


def test_a_late_segment_removes_the_file_of_its_hour(home: pathlib.Path) -> None:
    captures.store(home, piece(3, seed=99), segment_seconds=600)
    assert [path.name for path in files(home)] == [f"{BEGIN // HOUR + 1}.hour"]
    late = answers(home)
    assert late == without(home)


def test_a_segment_copied_in_by_hand_counts(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    captures.store(tmp_path / "other", piece(3, seed=99), segment_seconds=600)
    (fresh,) = segments.Catalogue(tmp_path / "other").segments("alpha")
    fresh.path.rename(files(home)[0].with_name(fresh.path.name))
    assert problems(home) == [(f"{BEGIN // HOUR}.hour", "is older than a segment of its hour")]
    assert answers(home) == without(home)


def test_damage_falls_back_to_the_segments(home: pathlib.Path) -> None:
    expected = answers(home)
    path = files(home)[0]
    good = path.read_bytes()
    chance = random.Random(5)
    index = hours.HEAD.size + int.from_bytes(good[16:24], "little")
    damaged = [b"", good[:20], good[:-1], good + b"x", good[: index + 7]]
    for _ in range(20):
        at = chance.randrange(index)
        damaged.append(good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) + good[at + 1 :])
    for bad in damaged:
        path.write_bytes(bad)
        assert hours.read(path, "idle") is None
    assert answers(home) == expected
    assert problems(home) == [(path.name, "is damaged")]


def test_changed_sums_are_reported_and_not_used(home: pathlib.Path) -> None:
    path = files(home)[1]
    expected = answers(home)
    good = bytearray(path.read_bytes())
    good[-3] ^= 1  # of the last mode, idle
    path.write_bytes(good)
    assert hours.read(path, "idle") is None
    assert problems(home) == [(path.name, "is damaged")]
    assert answers(home) == expected


def test_damaged_sums_of_a_segment_do_not_get_into_an_hour_file(home: pathlib.Path) -> None:
    for path in files(home):
        path.unlink()
    damaged = segments.Catalogue(home).segments("alpha")[0].path / "seconds.npy"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    captures.store(home, piece(13), segment_seconds=600)
    assert f"{BEGIN // HOUR}.hour" not in [path.name for path in files(home)]


def test_files_of_removed_segments_are_reported(home: pathlib.Path) -> None:
    first = files(home)[0]
    for segment in segments.Catalogue(home).segments("alpha"):
        if hours.hour_file(segment) == first:
            segment.path.rename(home / segment.path.name)
    assert problems(home) == [(first.name, "its segments are gone")]


def test_trimming_removes_the_hour_file(home: pathlib.Path) -> None:
    catalogue = segments.Catalogue(home)
    everything = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    limits = {"keep_seconds": 0.0, "now_us": BEGIN // 1000 + 10**12}
    assert trim.trim_store(catalogue, budget_bytes=everything, **limits) == ()
    (removed,) = trim.trim_store(catalogue, budget_bytes=everything - 1, **limits)
    assert removed.begin_us == BEGIN // 1000
    assert [path.name for path in files(home)] == [f"{BEGIN // HOUR + 1}.hour"]
    assert problems(home) == []


def test_the_leftover_of_a_killed_writer_is_removed(home: pathlib.Path) -> None:
    left = files(home)[0].with_name(".new-abc")
    left.write_bytes(b"half")
    report = check.check(segments.Catalogue(home))
    assert report.unfinished == (str(left),)
    check.remove_unfinished(report)
    assert not left.exists()
    assert problems(home) == []


def test_an_hour_file_that_cannot_be_written_is_not_an_error(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hours.os, "fsync", full)
    for path in files(home):
        path.unlink()
    segment = segments.Catalogue(home).segments("alpha")[-1]
    hours.write_past(segment)
    assert files(home) == []
    assert list(home.rglob(".new-*")) == []


def test_planes_equal_those_of_the_segments(home: pathlib.Path) -> None:
    for mode in segments.MODES:
        plane = hours.read(files(home)[0], mode)
        assert plane is not None
        for name, entry in plane.hour.entries.items():
            (segment,) = [
                s for s in segments.Catalogue(home).segments("alpha") if s.path.name == name
            ]
            assert np.array_equal(plane.of(name), segment.seconds(mode, entry.meta.shape))
            assert entry.meta.notes == segment.meta().notes
