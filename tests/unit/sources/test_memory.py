from __future__ import annotations

import pathlib

from overnight.sources import load, memory


def test_a_real_text(captured: pathlib.Path) -> None:
    row = dict(zip(memory.FIELDS, memory.open_memory(captured)()[""], strict=True))
    told = dict(line.split(":") for line in (captured / "proc/meminfo").read_text().splitlines())
    for column, field in memory.FIELDS.items():
        assert row[column] == int(told[field].split()[0])
    assert row["total"] == 24684100


def test_what_a_kernel_does_not_tell_is_zero() -> None:
    assert sum(memory.parse_memory(b"MemTotal: 5 kB\nHugePages_Total:       0\n\n")) == 5
    assert memory.parse_memory(b"Slab:\n") == (0,) * len(memory.FIELDS)


def test_load(captured: pathlib.Path) -> None:
    one, five, fifteen, threads, _ = (captured / "proc/loadavg").read_text().split()
    row = load.open_load(captured)()[""]
    assert [f"{n / 100:.2f}" for n in row[:3]] == [one, five, fifteen]
    assert f"{row[3]}/{row[4]}" == threads
