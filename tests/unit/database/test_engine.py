"""Several connections to one database file, in several processes."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from overnight.database import database_errors, engine
from overnight.pools.sql import shared_values

WRITER = """
import sys
from overnight.database import engine
from overnight.pools.sql import shared_values
where = engine.Database(sys.argv[1])
with where.write("told") as connection:
    shared_values.put(connection, "word", sys.argv[2])
print("written", flush=True)
sys.stdin.readline()
where.close()
"""


@contextlib.contextmanager
def another_process(url: str, word: str) -> Iterator[None]:
    """Run a process that writes a word, then stays until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, url, word],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout.readline() == "written\n"
        yield
        writer.communicate("\n")


def word(where: engine.Database) -> str:
    with where.read() as connection:
        return shared_values.get(connection, "word")


def test_a_second_database_in_a_process_does_not_disconnect_the_first(
    tmp_path: pathlib.Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'pools.db'}"
    with another_process(url, "first"):
        first = engine.Database(url)
        assert word(first) == "first"
        second = engine.Database(url)  # checks the journal mode
    # The process ended: it must not have treated itself as the last connection.
    with another_process(url, "second"):
        assert word(first) == "second"
        assert word(engine.Database(url)) == "second"
        with second.write("told") as connection:
            shared_values.put(connection, "word", "third")
    for connected in (first, second):
        assert word(connected) == "third"
        connected.close()
    assert word(engine.Database(url)) == "third"


def test_a_file_that_is_not_a_database_and_an_impossible_folder_are_errors(
    tmp_path: pathlib.Path,
) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("what to buy, and where: milk, bread, and so on\n" * 9)
    for path, why in ((other, "not a database"), (other / "pools.db", "File exists")):
        with pytest.raises(database_errors.DatabaseUnavailableError) as caught:
            engine.Database(f"sqlite:///{path}").revision()
        assert why in caught.value.why
    assert other.read_text().startswith("what to buy")
