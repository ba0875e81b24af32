from __future__ import annotations

import gzip
import json
import pathlib
import time
from typing import Any

import pytest

from overnight.agent.uplink import reports
from overnight.model import uplink

SPELL = {"boot": "ab", "begin_us": 5, "end_us": 9, "uptime_us": 1}
NEXT = {**SPELL, "begin_us": 9, "end_us": 12}


def decode(batch: reports.Batch, folder: pathlib.Path) -> uplink.Report:
    return uplink.Report.from_json(json.loads(gzip.decompress(reports.encode(batch, "ab", folder))))


def test_bodies_are_compressed_piece_by_piece() -> None:
    pieces = [b'{"a":', b" " * 100_000, b"1}"]
    assert gzip.decompress(reports.compress(pieces)) == b"".join(pieces)


def test_an_empty_report_is_valid(tmp_path: pathlib.Path) -> None:
    batch = reports.Batch({}, (0, 0))
    assert batch.is_bare
    before = (time.time_ns() // 1000, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)
    report = decode(batch, tmp_path)
    assert (report.boot, report.labels, report.snapshot) == ("ab", None, None)
    for sent, given in zip((report.sent_us, report.uptime_us), before, strict=True):
        assert 0 <= sent - given < 60_000_000


@pytest.mark.parametrize(
    "held",
    [
        {"events": [{"id": "e-1"}]},
        {"lines": [b"{}"]},
        {"offers": [{"event": "e-1"}]},
        {"inventory": {"labels": "1"}},
        {"history": [SPELL]},
    ],
)
def test_a_report_with_anything_in_it_is_not_bare(held: dict[str, Any]) -> None:
    assert not reports.Batch({}, (0, 0), **held).is_bare


def test_spells_that_continue_are_joined_and_broken_lines_are_skipped(
    tmp_path: pathlib.Path,
) -> None:
    rollup = {"begin_us": 5, "seconds": 1, **{name: [0] for name in ("cores", "mean", "max", "kernel_max", "worst_ms")}}  # fmt: skip
    lines = [
        b'{"spells": [{"bo',
        json.dumps({"spells": [NEXT], "rollup": rollup}).encode(),
        b"[]",
    ]
    (tmp_path / "labels.json").write_text('{"zone": "a"}')
    batch = reports.Batch({}, (0, 0), lines=lines, history=[SPELL], inventory={"labels": "1"})
    report = decode(batch, tmp_path)
    assert report.spells == (uplink.Observed("ab", 5, 12, 1),)
    assert [each.begin_us for each in report.rollups] == [5]
    assert report.labels == {"zone": "a"}
