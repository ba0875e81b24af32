from __future__ import annotations

import pathlib

from overnight.sources import load, memory


def test_a_real_text(captured: pathlib.Path) -> None:
    row = dict(zip(memory.FIELDS, memory.open_memory(captured)()[""], strict=True))
    meminfo = dict(line.split(":") for line in (captured / "proc/meminfo").read_text().splitlines())
    for column, field in memory.FIELDS.items():
        assert row[column] == int(meminfo[field].split()[0])
    assert row["total"] == 24684100


def test_fields_missing_in_the_kernel_are_zero() -> None:
    assert sum(memory.parse_memory(b"MemTotal: 5 kB\nHugePages_Total:       0\n\n")) == 5
    assert memory.parse_memory(b"Slab:\n") == (0,) * len(memory.FIELDS)


def test_load(captured: pathlib.Path) -> None:
    one_minute, five_minutes, fifteen_minutes, threads, _ = (
        (captured / "proc/loadavg").read_text().split()
    )
    row = load.open_load(captured)()[""]
    assert [f"{n / 100:.2f}" for n in row[:3]] == [one_minute, five_minutes, fifteen_minutes]
    assert f"{row[3]}/{row[4]}" == threads
