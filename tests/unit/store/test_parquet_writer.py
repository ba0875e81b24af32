"""DuckDB reads back what the writer wrote: the same values, of the same types, in row groups it can skip."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import duckdb
import numpy as np
import pytest

from overnight.store import parquet, parquet_writer

RANDOM = np.random.default_rng(7)
LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
NUMBERS = {
    "none": np.zeros(0, np.uint32),
    "one": np.array([5], np.int64),
    "constant": np.full(1000, 300, np.uint16),
    "few": np.arange(1000, dtype=np.uint8) % 3,
    "negative": np.arange(-300, 300, dtype=np.int16),
    "dictionary of 16 bits": np.arange(5000, dtype=np.uint32)[::-1] * 7,
    "dictionary of 32 bits": RANDOM.permutation(100_000).astype(np.uint32),
    "spread 32 bits": RANDOM.integers(0, 2**32, 999, np.uint32),
    "spread signed": RANDOM.integers(-(2**31), 2**31, 129, np.int32),
    "spread 64 bits": RANDOM.integers(0, 2**64, 1025, np.uint64),
    "wraps around": np.array([LEAST, GREATEST, LEAST, 0, -1], np.int64),
    "far apart": np.array([0, 2**64 - 1], np.uint64),
    "times": 1_794_839_126_890_091 + np.cumsum(RANDOM.integers(0, 10_000, 300_000)),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_come_back(tmp_path: pathlib.Path, kind: str) -> None:
    path, numbers = tmp_path / "numbers.parquet", NUMBERS[kind]
    row = np.arange(len(numbers), dtype=np.uint32)
    parquet_writer.write(path, {"number": numbers, "row": row})
    columns = parquet.read(path, ("number", "row"))
    assert columns["number"].dtype == numbers.dtype
    assert np.array_equal(columns["number"], numbers)
    assert np.array_equal(columns["row"], row)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["", ""],
        ["main", "", "std::map<int, char>::find", "naïve 名 🌙", "x" * 100_000],
        ["ends in a zero\0", "\0", "a\0b"],
        ["\x01", "\x02\x01", "a\x1fb", "\n\t"],
        ["few", "of", "", "few"] * 50_000,
        [str(number) for number in range(200_000)],
    ],
)
def test_texts_come_back(tmp_path: pathlib.Path, texts: list[str]) -> None:
    path = tmp_path / "texts.parquet"
    number = np.arange(len(texts), dtype=np.uint32)
    as_read = np.array(texts, object)
    parquet_writer.write(path, {"number": number, "text": texts, "again": as_read})
    columns = parquet.read(path, ("number", "text", "again"))
    assert columns["number"].tolist() == number.tolist()
    assert columns["text"].tolist() == columns["again"].tolist() == texts


def test_half_a_surrogate_pair_becomes_a_question_mark(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "texts.parquet"
    parquet_writer.write(path, {"text": ["a\ud800b"]})
    assert parquet.read(path, ("text",))["text"].tolist() == ["a?b"]


def test_readers_skip_row_groups_by_the_least_and_the_greatest_number(
    tmp_path: pathlib.Path,
) -> None:
    path, times = tmp_path / "samples.parquet", NUMBERS["times"]
    small = RANDOM.integers(0, 200, len(times), np.uint8)
    parquet_writer.write(path, {"time_us": times, "cpu": small})
    with duckdb.connect(":memory:") as connection:
        rows = connection.execute(
            "SELECT path_in_schema, stats_min_value::HUGEINT, stats_max_value::HUGEINT, row_group_num_rows "
            "FROM parquet_metadata(?) ORDER BY row_group_id, column_id",
            [str(path)],
        ).fetchall()
    expected = []
    for begin in range(0, len(times), parquet_writer.ROWS):
        part = slice(begin, begin + parquet_writer.ROWS)
        for name, column in (("time_us", times[part]), ("cpu", small[part])):
            expected.append((name, column.min(), column.max(), len(column)))
    assert rows == expected


def test_ingest_runs_without_duckdb() -> None:
    """It takes 50 MB, all night."""
    program = "import sys, overnight.app.spool_ingest; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
