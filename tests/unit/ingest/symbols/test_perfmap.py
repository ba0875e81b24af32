from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overnight.ingest.symbols import perfmap

SAMPLE = b"""\
7f3a2c001000 1c0 LazyCompile:*main /srv/app.js:12
0x7f3a2c002000 0x10 Interpreter
not a line
7f3a2c003000 0 nothing
7f3a2c001000 40 py::recompiled:/srv/app.py
7f3a2c004000 zz broken
7f3a2c005000 10"""


def name(text: bytes, address: int) -> str | None:
    table = perfmap.parse_perf_map(text)
    index = int(table.find(np.array([address], np.uint64))[0])
    return table.name(index) if index >= 0 else None


def test_names_may_hold_spaces() -> None:
    assert name(SAMPLE.split(b"\n")[0], 0x7F3A2C0011BF) == "LazyCompile:*main /srv/app.js:12"


def test_the_later_line_counts_where_memory_was_reused() -> None:
    assert name(SAMPLE, 0x7F3A2C001000) == "py::recompiled:/srv/app.py"
    assert name(SAMPLE, 0x7F3A2C001100) is None


def test_invalid_lines_are_skipped() -> None:
    assert name(SAMPLE, 0x7F3A2C00200F) == "Interpreter"
    for address in (0x7F3A2C003000, 0x7F3A2C004000, 0x7F3A2C005000):
        assert name(SAMPLE, address) is None


def test_the_pid_is_read_from_the_file_name() -> None:
    assert perfmap.perf_map_pid("/tmp/perf-123.map") == 123
    assert perfmap.perf_map_pid("/tmp/perf-x.map") is None
    assert perfmap.perf_map_pid("/srv/tmp/perf-1.map") is None


@given(st.binary(max_size=400))
def test_any_bytes_can_be_read(noise: bytes) -> None:
    table = perfmap.parse_perf_map(noise + b"\n" + SAMPLE)
    assert all(isinstance(table.name(i), str) for i in range(len(table)))
