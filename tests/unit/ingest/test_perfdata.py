"""perf.data files as captures: clocks, cores and notes; impossible values are refused."""

from __future__ import annotations

import os
import pathlib
import struct

import perfrecords as make
import pytest

from overnight import errors
from overnight.ingest import perfdata
from overnight.ingest.symbols import files
from overnight.model.unknown import Why

LAYOUT = make.Layout()
WALL, SAMPLES = 1_700_000_000_000_000_000, 5_000
SAVED = 1_600_000_000_000_000_000


def clock(wall: int = WALL, samples: int = SAMPLES) -> dict[int, bytes]:
    return {make.CLOCK_DATA: struct.pack("<IIQQ", 1, 1, wall, samples)}


def read(
    folder: pathlib.Path, *records: bytes, features=None, finished: bool = True, wall=None,
    layout: make.Layout = LAYOUT,
):  # fmt: skip
    path = folder / "perf.data"
    path.write_bytes(make.file([layout.attr()], records, features=features, finished=finished))
    os.utime(path, ns=(SAVED, SAVED))
    return perfdata.read(path, perfdata.foreign_symbols(None, folder), wall=wall)


def test_times_are_on_the_wall_clock(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, LAYOUT.sample(6_000), LAYOUT.sample(7_000), features=clock())
    assert parsed.time.tolist() == [WALL + 1_000, WALL + 2_000]
    assert (parsed.begin, parsed.end) == (WALL + 1_000, WALL + 2_000 + 10**9 // 499 + 1)


def test_without_a_clock_the_last_sample_is_at_the_file_time(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, LAYOUT.sample(6_000), LAYOUT.sample(7_000))
    assert parsed.time.tolist() == [SAVED - 1_000, SAVED]
    assert any("no wall clock" in note for note in parsed.notes)


def test_a_file_without_samples_is_read(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path)
    assert (len(parsed.time), parsed.begin, parsed.end) == (0, SAVED, SAVED + 10**9 // 499 + 1)


@pytest.mark.parametrize(
    ("records", "features"),
    [
        ([LAYOUT.sample(2**64 - 1)], clock()),
        ([LAYOUT.sample(2**62)], clock()),
        ([LAYOUT.sample(1)], clock(wall=0, samples=2**62 - 1)),
        ([LAYOUT.sample(0), LAYOUT.sample(2**64 - 1)], None),
        ([make.lost(2**64 - 1)], clock()),
    ],
)
def test_impossible_times_are_refused(
    tmp_path: pathlib.Path, records: list[bytes], features: dict[int, bytes] | None
) -> None:
    with pytest.raises(errors.DamagedFileError, match="cannot be"):
        read(tmp_path, *records, features=features)


@pytest.mark.parametrize(
    ("online", "seen", "wanted"), [(4, [0, 1], (0, 1, 2, 3)), (2, [0, 9], (0, 9)), (0, [3], (3,))]
)
def test_cores_are_those_online_or_those_with_samples(
    tmp_path: pathlib.Path, online: int, seen: list[int], wanted: tuple[int, ...]
) -> None:
    features = clock() | {make.NRCPUS: struct.pack("<II", 128, online)}
    records = [LAYOUT.sample(5_000, cpu=cpu) for cpu in seen]
    assert read(tmp_path, *records, features=features).cores == wanted


def test_an_unfinished_file_has_a_note(tmp_path: pathlib.Path) -> None:
    parsed = read(tmp_path, LAYOUT.sample(5), finished=False)
    assert any("was killed" in note for note in parsed.notes)


def test_frames_without_symbols_keep_their_kind_and_the_reason(tmp_path: pathlib.Path) -> None:
    chain = [make.IN_KERNEL, 2**64 - 2**30, make.IN_USER, 0x1000, 0x2000]
    mapping = LAYOUT.mmap2(1, 0x2000, 0x1000, b"/srv/gone")
    parsed = read(tmp_path, mapping, LAYOUT.sample(5_000, chain), features=clock())
    assert parsed.frames.kind[parsed.stacks.frame].tolist() == [0, 0, 1]
    assert parsed.unknown == {
        "[kernel]": Why.NO_KALLSYMS, "[unknown]": Why.NO_MAPPING, "/srv/gone": Why.FILE_GONE,
    }  # fmt: skip
    assert any("kernel functions have no names" in note for note in parsed.notes)


@pytest.mark.parametrize(("build_ids", "compared"), [(True, "05" * 20), (False, "")])
def test_the_build_id_is_compared_where_an_event_asks_for_it(
    tmp_path: pathlib.Path, monkeypatch, build_ids: bool, compared: str
) -> None:
    requests = []
    monkeypatch.setattr(
        files.LiveFiles,
        "find",
        lambda _, module, pid, build_id: requests.append((module, build_id)),
    )
    chain = [make.IN_USER, 0x1000]
    mapping = LAYOUT.mmap2(1, 0x1000, 0x1000, b"/srv/app", build_id=b"\x05" * 20)
    layout = make.Layout(build_ids=build_ids)
    sample = LAYOUT.sample(5_000, chain)
    parsed = read(tmp_path, mapping, sample, features=clock(), layout=layout)
    assert parsed.frames.module == ["/srv/app"]
    assert requests == [("/srv/app", compared)]


def test_the_time_is_given_or_of_the_clock_or_of_the_name(tmp_path: pathlib.Path) -> None:
    at = 1_772_334_000_000_000_000
    records = (LAYOUT.sample(6_000), LAYOUT.sample(7_000))
    given, named = perfdata.Wall(at, is_given=True), perfdata.Wall(at)
    for wall, features, first in (
        (given, clock(), at),
        (named, clock(), WALL - SAMPLES + 6_000),
        (named, {}, at),
        (perfdata.Wall(at, is_end=True), {}, at - 1_000),
    ):
        parsed = read(tmp_path, *records, features=features, wall=wall)
        assert parsed.time.tolist() == [first, first + 1_000]
        assert any("that of its name" in note for note in parsed.notes) == (features == {})
