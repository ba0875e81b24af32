"""Parquet files from elsewhere are checked before they are read."""

from __future__ import annotations

import pathlib

import duckdb
import numpy as np
import pytest

from overnight import errors
from overnight.store import parquet, parquet_writer


def test_missing_values_are_an_error(tmp_path: pathlib.Path) -> None:
    """A placeholder would be an index into other tables."""
    path = tmp_path / "nodes.parquet"
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"COPY (SELECT NULL::UINTEGER AS frame) TO '{path}' (FORMAT parquet)")
    with pytest.raises(errors.CannotError, match="cannot be read") as caught:
        parquet.read(path, ("frame",))
    assert caught.value.why == "values of frame are missing"


def test_columns_are_found_and_checked_whatever_their_case(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "nodes.parquet"
    with duckdb.connect(":memory:") as connection:
        for rows, kind in ((5, "UINTEGER"), (0, "UINTEGER"), (5, "DOUBLE")):
            connection.execute(
                f"COPY (SELECT 7::{kind} AS fraMe FROM range({rows})) TO '{path}' (FORMAT parquet)"
            )
            assert parquet.read(path, ("frame",))["frame"].tolist() == [7] * rows
            excess = "a column of type DOUBLE" if kind == "DOUBLE" else ""
            assert parquet.find_excess(path, 1000) == excess


class _Broken:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def execute(self, *_: object) -> None:
        raise self.error


def test_a_message_that_is_not_utf_8_is_an_error_of_the_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Python 3.12 DuckDB fails to decode its own message about a column named `threa\\xa4`."""
    monkeypatch.setattr(parquet, "_connections", connections := parquet._Connections())
    error = UnicodeDecodeError("utf-8", b"threa\xa4", 5, 6, "invalid start byte")
    connections.checker = connections.reader = _Broken(error)
    assert parquet.find_excess(tmp_path / "tasks.parquet", 1000) == ""
    with pytest.raises(errors.CannotError, match="cannot be read"):
        parquet.read(tmp_path / "tasks.parquet", ("thread",))


def test_an_internal_error_of_duckdb_ends_with_its_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB refuses everything afterwards: without new connections every file would pass as harmless."""
    monkeypatch.setattr(parquet, "_connections", connections := parquet._Connections())
    broken = _Broken(duckdb.InternalException("INTERNAL Error: out of bounds"))
    connections.checker = connections.reader = broken
    path = tmp_path / "frames.parquet"
    parquet_writer.write(path, {"name": np.zeros(4, np.uint8)})
    assert parquet.find_excess(path, 1000) == ""
    assert parquet.find_excess(path, 1000) == "a column of type UTINYINT"
    with pytest.raises(errors.CannotError, match="cannot be read"):
        parquet.read(path, ("name",))
    assert parquet.read(path, ("name",))["name"].tolist() == [0] * 4


def test_queries_have_a_memory_limit() -> None:
    rows = parquet.query("SELECT current_setting('memory_limit') AS most")
    assert rows["most"].tolist() == ["2.0 GiB"]


def test_a_page_that_needs_too_much_memory_is_an_excess(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "page.parquet"
    parquet_writer.write(path, {"text": ["x" * (64 << 20)]})
    assert parquet.find_excess(path, 1 << 30) == ""
    parquet._connections.checker.execute("SET memory_limit = '16MiB'")
    try:
        assert "page" in parquet.find_excess(path, 1 << 30)
    finally:
        del parquet._connections.checker


def test_a_damaged_file_has_no_excess(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "damaged.parquet"
    path.write_bytes(b"PAR1 damaged PAR1")
    assert parquet.find_excess(path, 17) == ""
