"""Losses are found where the records say them, and nowhere where they do not add up."""

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
    """As the kernel writes it: with the fields that tell one event's records from another's."""
    values = {make.TID: struct.pack("<ii", 1, 1), make.TIME: struct.pack("<Q", time),
              make.ID: bytes(8), make.STREAM_ID: bytes(8), make.CPU: struct.pack("<iI", cpu, 0),
              make.IDENTIFIER: bytes(8)}  # fmt: skip
    tail = b"".join(value for field, value in values.items() if LAYOUT.type & field)
    return make.record(make.LOST, struct.pack("<QQ", 0, count) + tail)


def read(folder: pathlib.Path, *records: bytes) -> capture.Capture:
    path = folder / "perf.data"
    path.write_bytes(make.file([LAYOUT.attr()], records, features=CLOCK))
    return perfdata.read(path, perfdata.foreign_symbols(None, folder))


def seconds(made: capture.Capture) -> list[tuple[float, float, int]]:
    return [
        ((one.begin - WALL) / SECOND, (one.end - 1 - WALL) / SECOND, one.count)
        for one in made.losses
    ]


def test_each_loss_lies_between_its_cores_sample_before_and_the_record(
    tmp_path: pathlib.Path,
) -> None:
    made = read(
        tmp_path,
        LAYOUT.sample(1 * SECOND, cpu=0),
        LAYOUT.sample(2 * SECOND, cpu=1),
        lost(3 * SECOND, 5, cpu=0),
        lost(3 * SECOND + 7, 2, cpu=1),
        LAYOUT.sample(4 * SECOND, cpu=0),
        lost(6 * SECOND, 1, cpu=0),
        lost(7 * SECOND, 4, cpu=9),
    )
    assert made.lost == 12
    assert seconds(made) == [(1, 3 + 7e-9, 7), (4, 6, 1), (1, 7, 4)]


def test_one_inside_a_stack_spoils_the_sum(tmp_path: pathlib.Path) -> None:
    words = struct.unpack("<6Q", lost(3 * SECOND, 5).ljust(48, b"\0")[:48])
    made = read(tmp_path, LAYOUT.sample(SECOND, [make.IN_USER, *words]), lost(2 * SECOND, 3))
    assert made.lost == 3
    assert made.losses == ()  # rather than the wrong ones


@pytest.mark.parametrize(
    "records",
    [
        [make.lost_samples(4)],
        [make.lost(4)],  # without the fields that say when
        [lost(SECOND, 3), make.lost_samples(4)],
        [lost(2**63, 4)],
        [],
    ],
)
def test_a_file_without_times_has_no_losses(tmp_path: pathlib.Path, records: list[bytes]) -> None:
    made = read(tmp_path, LAYOUT.sample(SECOND), *records)
    assert made.lost == (4 if records else 0)
    assert made.losses == ()
