"""Writers come in the order in which they asked, also when one of them is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

from overnight.pools import database, write_queue

if TYPE_CHECKING:
    import pathlib


def test_everybody_gets_a_turn_alone(tmp_path: pathlib.Path) -> None:
    queue = write_queue.WriteQueue(tmp_path / "q")
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            with queue.turn():
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 300
    assert max(most) == 1


def test_in_the_order_in_which_they_came(tmp_path: pathlib.Path) -> None:
    queue = write_queue.WriteQueue(tmp_path / "q")
    order: list[int] = []

    def work(number: int) -> None:
        with queue.turn():
            order.append(number)

    threads = []
    with queue.turn():
        for number in range(8):
            thread = threading.Thread(target=work, args=(number,))
            thread.start()
            threads.append(thread)
            _until(lambda n=number: _drawn(tmp_path / "q") == n + 2)
    for thread in threads:
        thread.join()
    assert order == list(range(8))


def _drawn(path: pathlib.Path) -> int:
    return int.from_bytes(path.read_bytes()[:8], "little")


def _until(true: object) -> None:
    deadline = time.monotonic() + 8
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_between_processes_and_a_killed_one_holds_nobody_up(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "q"
    read, write = os.pipe()
    holder = os.fork()
    if holder == 0:
        with write_queue.WriteQueue(path).turn():
            os.write(write, b"x")
            signal.pause()
        os._exit(0)
    assert os.read(read, 1) == b"x"
    got = threading.Event()

    def work() -> None:
        with write_queue.WriteQueue(path).turn():
            got.set()

    thread = threading.Thread(target=work)
    thread.start()
    _until(lambda: _drawn(path) == 2)
    assert not got.is_set()
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert got.wait(8)
    thread.join()
    os.close(read)
    os.close(write)


def _write(where: database.Database) -> None:
    with where.write("two"):
        pass


def test_the_database_uses_it_and_writes_ahead(tmp_path: pathlib.Path) -> None:
    where = database.Database(f"sqlite:///{tmp_path / 'pools.db'}")
    with where.write("one") as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        before = _drawn(tmp_path / "pools.db-writers")
        beside = database.Database(f"sqlite:///{tmp_path / 'pools.db'}")
        with beside.read():  # whoever only looks does not stand in the queue
            assert _drawn(tmp_path / "pools.db-writers") == before
        waiting = threading.Thread(target=_write, args=(beside,))
        waiting.start()
        _until(lambda: _drawn(tmp_path / "pools.db-writers") == before + 1)
    waiting.join()
    beside.close()
    where.close()
    full = database.Database(f"sqlite:///{tmp_path / 'pools.db'}?synchronous=full")
    with full.read() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    full.close()
