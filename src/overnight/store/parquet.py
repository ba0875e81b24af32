"""Reads Parquet files through DuckDB."""

from __future__ import annotations

import functools
import os
import pathlib
import threading
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
import numpy as np

from overnight import errors

if TYPE_CHECKING:
    import numpy.typing as npt

BROKEN = (duckdb.InternalException, duckdb.FatalException)  # the connection is unusable afterwards
FAILURES = (duckdb.Error, UnicodeDecodeError)  # DuckDB's message may repeat bytes of a damaged file

Columns: TypeAlias = "dict[str, npt.NDArray[Any]]"

# A column of one repeated text needs some bytes for any number of rows. Recorded segments have at most 0.1
# rows and 2 bytes of text per byte (measured).
FREE_ROWS, ROWS_PER_BYTE = 1 << 16, 1
FREE_TEXT, TEXT_PER_BYTE = 16 << 20, 64
# The columns that queries read, by file; all others are ignored.
TYPES = {
    "samples.parquet": "time_us BIGINT, cpu SMALLINT, task UINTEGER, node UINTEGER, event UTINYINT, "
    "count UINTEGER, period UBIGINT",
    "nodes.parquet": "frame UINTEGER, up UINTEGER, size UINTEGER, hash UBIGINT, flags UTINYINT, own UBIGINT",
    "frames.parquet": "name VARCHAR, module VARCHAR, kind UTINYINT, own UBIGINT, whole UBIGINT",
    "tasks.parquet": "pid INTEGER, tid INTEGER, thread VARCHAR, process VARCHAR, unit VARCHAR, busy UBIGINT, "
    "kernel UBIGINT, idle UBIGINT, row INTEGER, launcher VARCHAR",
    "processes.parquet": "pid INTEGER, parent INTEGER, started_us BIGINT, count UINTEGER, name VARCHAR, "
    "comm VARCHAR, executable VARCHAR, command VARCHAR, user VARCHAR, cgroup VARCHAR, unit VARCHAR, "
    "container VARCHAR, pod VARCHAR",
    "spawns.parquet": "launcher INTEGER, name VARCHAR, second BIGINT, count UINTEGER",
}


def _connect(threads: int, memory: str = "") -> duckdb.DuckDBPyConnection:
    limit = {"memory_limit": memory} if memory else {}  # DuckDB's default: 80 % of the host's
    return duckdb.connect(
        ":memory:",
        config={
            **limit,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "temp_directory": "",
            "threads": str(threads),
        },
    )


class _Connections(threading.local):
    """The connections of this thread, which must not be shared. Without extensions: no network access."""

    @functools.cached_property
    def reader(self) -> duckdb.DuckDBPyConnection:
        connection = _connect(threads=2, memory="2GiB")
        connection.execute("SET parquet_metadata_cache = true")
        return connection

    @functools.cached_property
    def checker(self) -> duckdb.DuckDBPyConnection:
        return _connect(threads=1, memory="512MiB")


_connections = _Connections()


def _quoted(path: pathlib.Path | str) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def read(path: pathlib.Path, names: tuple[str, ...]) -> Columns:
    return query(f"SELECT {', '.join(names)} FROM {table(path)}")  # noqa: S608 - names are ours


def columns(name: str) -> dict[str, str]:
    """Return the columns that a file of this name has, with their types."""
    return dict(column.split() for column in TYPES.get(name, "").split(", ") if column)


def find_excess(path: pathlib.Path, stored_bytes: int) -> str:
    """Return what a file from elsewhere has too much of, '' for nothing; reading it needs little memory.

    `stored_bytes` is the size of its segment: a table's rows may follow from another's. A damaged file has
    no excess: whoever reads it reports the damage.
    """
    connection = _connections.checker
    try:
        found = connection.execute(f"DESCRIBE SELECT * FROM {table(path)}").fetchall()  # noqa: S608 - a quoted path
        known = columns(path.name)
        # DuckDB finds columns whatever their case.
        if other := [kind for name, kind, *_ in found if kind != known.get(name.lower(), kind)]:
            return f"a column of type {other[0][:40]}"
        rows = connection.execute(f"SELECT count(*) FROM {table(path)}").fetchall()[0][0]  # noqa: S608 - a quoted path
        if rows > FREE_ROWS + ROWS_PER_BYTE * stored_bytes:
            return f"{rows} rows"
        names = [name.replace('"', '""') for name, kind, *_ in found if kind == "VARCHAR"]
        sizes = ", ".join(["sum(0)", *(f'sum(strlen("{name}"))' for name in names)])
        sums = connection.execute(f"SELECT {sizes} FROM {table(path)}").fetchall()[0]  # noqa: S608 - quoted names
        text = sum(filter(None, sums))
        return f"{text} bytes of text" if text > FREE_TEXT + TEXT_PER_BYTE * stored_bytes else ""
    except duckdb.OutOfMemoryException:
        return "a page that needs more than 512 MiB"
    except BROKEN:
        del _connections.checker  # the next file would pass unchecked
        return ""
    except FAILURES:
        return ""


def table(*paths: pathlib.Path) -> str:
    return f"read_parquet([{', '.join(map(_quoted, paths))}])"


def query(
    sql: str, parameters: list[object] | None = None, *, nodes: npt.NDArray[np.int64] | None = None
) -> Columns:
    """Run a query; `nodes` is a table of that name in it, with one column, `node`."""
    connection = _connections.reader
    if nodes is not None:
        connection.register("nodes", {"node": nodes})
    try:
        result = connection.execute(sql, parameters or []).fetchnumpy()
    except FAILURES as error:
        if isinstance(error, BROKEN):
            nodes = None
            del _connections.reader
        os.close(os.open(os.devnull, os.O_RDONLY))  # raises where this process lacks descriptors
        raise _unreadable(str(error).strip().partition("\n")[0] or type(error).__name__) from error
    finally:
        if nodes is not None:
            connection.unregister("nodes")
    if missing := [name for name, column in result.items() if np.ma.getmask(column).any()]:
        raise _unreadable(f"values of {missing[0]} are missing")
    return {name.lower(): np.ma.getdata(column) for name, column in result.items()}


def _unreadable(why: str) -> errors.CannotError:
    return errors.CannotError(
        "stored samples cannot be read",
        why=why,
        todo="`overnight store check` reports what is damaged; try again if a segment was just removed",
    )
