from __future__ import annotations

import pathlib

import fakehost
import pytest

from overnight import sources
from overnight.sources import disks

# vda and a loop device of a host with Linux 6.18; sda of one with 4.14, without discards and flushes.
TEXT = """   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 3237335 358423 74343346 19950100 10064502 4982357 287367848 5040896 2 1903520 26193369 5181565 734 160043984 919490 2906263 282882
   8       0 sda 11 2 88 40 7 3 56 50 1 60 90
"""


def test_columns_of_new_and_old_kernels() -> None:
    rows = disks.parse_disks(TEXT.encode())
    vda = dict(zip(disks.COLUMNS, rows[b"vda"], strict=True))
    assert vda == {
        "reads": 3237335, "read_ms": 19950100, "writes": 10064502, "write_ms": 5040896,
        "in_flight": 2, "busy_ms": 1903520, "weighted_ms": 26193369,
    }  # fmt: skip
    assert rows[b"sda"] == (11, 40, 7, 50, 1, 60, 90)


def test_only_disks_with_a_device_have_a_row(tmp_path: pathlib.Path) -> None:
    fakehost.FakeHost(tmp_path, 2)
    read = disks.open_disks(tmp_path)
    assert list(read()) == ["nvme0n1"]
    (tmp_path / "sys/block/nvme0n1/device").rmdir()
    with pytest.raises(sources.NoDataError, match="no disk"):
        read()
