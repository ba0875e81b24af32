"""Losses have times if the records state them and their sum is right; otherwise there are none."""

from __future__ import annotations

import pathlib
import struct
from typing import TYPE_CHECKING

import perfrecords as make
import pytest

from overnight.ingest import perfdata

if TYPE_CHECKING:
    from overnight.store import capture

LAYOUT = make.Layout()
SECOND = 1_000_000_000
WALL = 1_700_000_000 * SECOND
CLOCK = {make.CLOCK_DATA: struct.pack("<IIQQ", 1, 1, WALL, 0)}


def lost(time: int, count: int, cpu: int = 0) -> bytes:
    """A loss record as the kernel writes it, with the sample_id fields."""
    values = {make.TID: struct.pack("<ii", 1, 1), make.TIME: struct.pack("<Q", time),
              make.ID: bytes(8), make.STREAM_ID: bytes(8), make.CPU: struct.pack("<iI", cpu, 0),
              make.IDENTIFIER: bytes(8)}  # fmt: skip
    tail = b"".join(value for field, value in values.items() if LAYOUT.type & field)
    return make.record(make.LOST, struct.pack("<QQ", 0, count) + tail)


def read(folder: pathlib.Path, *records: bytes) -> capture.Capture:
    path = folder / "perf.data"
    path.write_bytes(make.file([LAYOUT.attr()], records, features=CLOCK))
    return perfdata.read(path, perfdata.foreign_symbols(None, folder))


def seconds(parsed: capture.Capture) -> list[tuple[float, float, int]]:
    return [
        ((loss.begin - WALL) / SECOND, (loss.end - 1 - WALL) / SECOND, loss.count)
        for loss in parsed.losses
    ]


def test_a_loss_spans_from_the_last_sample_of_its_core_to_its_record(
    tmp_path: pathlib.Path,
) -> None:
    parsed = read(
        tmp_path,
        LAYOUT.sample(1 * SECOND, cpu=0),
        LAYOUT.sample(2 * SECOND, cpu=1),
        lost(3 * SECOND, 5, cpu=0),
        lost(3 * SECOND + 7, 2, cpu=1),
        LAYOUT.sample(4 * SECOND, cpu=0),
        lost(6 * SECOND, 1, cpu=0),
        lost(7 * SECOND, 4, cpu=9),
    )
    assert parsed.lost == 12
    assert seconds(parsed) == [(1, 3 + 7e-9, 7), (4, 6, 1), (1, 7, 4)]


def test_bytes_like_a_loss_record_in_a_stack_give_no_losses(tmp_path: pathlib.Path) -> None:
    words = struct.unpack("<6Q", lost(3 * SECOND, 5).ljust(48, b"\0")[:48])
    parsed = read(tmp_path, LAYOUT.sample(SECOND, [make.IN_USER, *words]), lost(2 * SECOND, 3))
    assert parsed.lost == 3
    assert parsed.losses == ()  # rather than wrong ones


@pytest.mark.parametrize(
    "records",
    [
        [make.lost_samples(4)],
        [make.lost(4)],  # without a time field
        [lost(SECOND, 3), make.lost_samples(4)],
        [lost(2**63, 4)],
        [],
    ],
)
def test_a_file_without_times_has_no_losses(tmp_path: pathlib.Path, records: list[bytes]) -> None:
    parsed = read(tmp_path, LAYOUT.sample(SECOND), *records)
    assert parsed.lost == (4 if records else 0)
    assert parsed.losses == ()
