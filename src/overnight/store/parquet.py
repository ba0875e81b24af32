"""Parquet through DuckDB: columns to files, and windows of files back. All of the store's SQL."""

from __future__ import annotations

import pathlib
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
import numpy as np

from overnight import errors

if TYPE_CHECKING:
    import numpy.typing as npt

Columns: TypeAlias = "dict[str, npt.NDArray[Any]]"

# zstd 3 and DELTA-encoded integers (Parquet v2) make 4.4 bytes a real sample; row groups of this
# size let a 5 s window of 96 cores read one or two of them.
WRITE = (
    "COPY (SELECT {names} FROM {tables}) TO {path} (FORMAT parquet, CODEC zstd, COMPRESSION_LEVEL 3, "
    "ROW_GROUP_SIZE 122880, PARQUET_VERSION v2)"
)

_local = threading.local()


def _connection() -> duckdb.DuckDBPyConnection:
    """Return this thread's connection: connections must not be shared. It has no network access."""
    found: duckdb.DuckDBPyConnection | None = getattr(_local, "connection", None)
    if found is None:
        found = _local.connection = _connect(threads=2)
        found.execute("SET parquet_metadata_cache = true")
    return found


def _writer() -> duckdb.DuckDBPyConnection:
    """Another one: a single thread writes at three quarters of the CPU time of two (measured)."""
    found: duckdb.DuckDBPyConnection | None = getattr(_local, "writer", None)
    if found is None:
        found = _local.writer = _connect(threads=1)
    return found


def _connect(threads: int) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "temp_directory": "",
            "threads": str(threads),
        },
    )


def _quoted(path: pathlib.Path | str) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def write(path: pathlib.Path, columns: Columns) -> None:
    """Write a Parquet file; the caller syncs it. Raise OSError if the disk is full."""
    plain = dict(columns)
    tables = []
    connection = _writer()
    try:
        for name, column in columns.items():
            joint = _joint(column) if column.dtype == object else None
            if joint is None:
                continue
            del plain[name]
            connection.register(f"long_{name}", {"text": np.array([joint.join(column)], object)})
            tables.append(
                f"(SELECT unnest(string_split(text, chr({ord(joint)}))) AS {name} FROM long_{name})"  # noqa: S608 - names are ours
            )
        if plain:
            connection.register("columns", plain)
            tables.append("columns")
        connection.execute(
            WRITE.format(
                names=", ".join(columns),
                tables=" POSITIONAL JOIN ".join(tables),
                path=_quoted(path),
            )
        )
    except duckdb.IOException as error:
        raise OSError(f"{path} cannot be written: {error}") from error
    finally:
        connection.unregister("columns")
        for name in columns:
            connection.unregister(f"long_{name}")


def _joint(texts: npt.NDArray[np.object_]) -> str | None:
    """Return a character that none of the texts contains."""
    everything = "".join(texts)
    return next((c for c in map(chr, range(1, 32)) if c not in everything), None)


def read(path: pathlib.Path, names: tuple[str, ...]) -> Columns:
    """Read whole columns of one file."""
    return query(f"SELECT {', '.join(names)} FROM {table(path)}")  # noqa: S608 - names are ours


def texts(values: list[str]) -> npt.NDArray[Any]:
    """Strings as a column. DuckDB tries to import pandas once for each Python object (measured: 20
    µs each), and takes arrays of fixed width apart letter by letter, so `write` hands them over as
    one text. Half a surrogate pair becomes `?`: one alone invalidates DuckDB's whole database.
    """
    plain = [value.encode("utf-8", "replace").decode() for value in values]
    return np.array(plain, object) if plain else np.array(plain, "U1")


def table(*paths: pathlib.Path) -> str:
    """Return files as a table expression."""
    return f"read_parquet([{', '.join(map(_quoted, paths))}])"


def query(
    sql: str, parameters: list[object] | None = None, *, nodes: npt.NDArray[np.int64] | None = None
) -> Columns:
    """Run a query; return the result's columns as plain arrays.

    `nodes` are a table of that name in the query, with one column, `node`.
    """
    connection = _connection()
    if nodes is not None:
        connection.register("nodes", {"node": nodes})
    try:
        found = connection.execute(sql, parameters or []).fetchnumpy()
    except duckdb.Error as error:
        raise errors.CannotError(
            "stored samples cannot be read",
            why=str(error).partition("\n")[0],
            todo="overnight store check reports what is damaged; try again if a segment was just removed",
        ) from error
    finally:
        if nodes is not None:
            connection.unregister("nodes")
    return {
        name: column.filled() if isinstance(column, np.ma.MaskedArray) else column
        for name, column in found.items()
    }
