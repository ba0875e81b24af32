"""Writers get their turn in order of arrival, even when one of them is killed."""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import signal
import threading
import time

import pytest

from overnight.database import engine, write_queue


def test_only_one_writer_has_the_turn(tmp_path: pathlib.Path) -> None:
    queue = write_queue.WriteQueue(tmp_path / "q")
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            with queue.turn():
                inside.append(number)
                time.sleep(0.0001)  # lets the others run
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 300
    assert max(most) == 1


def test_turns_are_in_order_of_arrival(tmp_path: pathlib.Path) -> None:
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
            _until(lambda n=number: _tickets(tmp_path / "q") == n + 2)
        assert order == []
    for thread in threads:
        thread.join()
    assert order == list(range(8))


def _tickets(path: pathlib.Path) -> int:
    return int.from_bytes(path.read_bytes()[:8], "little")


def _until(true: object) -> None:
    deadline = time.monotonic() + 8
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_killed_process_gives_up_its_turn(tmp_path: pathlib.Path) -> None:
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
    _until(lambda: _tickets(path) == 2)
    assert not got.is_set()
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert got.wait(8)
    thread.join()
    os.close(read)
    os.close(write)


def test_a_writer_gives_up_and_leaves_the_queue_to_others(tmp_path: pathlib.Path) -> None:
    """The process that has the turn is stopped; when it goes on, nobody waits for those who gave up."""
    path = tmp_path / "q"
    read, write = os.pipe()
    holder = os.fork()
    if holder == 0:
        with write_queue.WriteQueue(path).turn():
            os.write(write, b"x")
            signal.pause()
        os._exit(0)
    assert os.read(read, 1) == b"x"
    os.kill(holder, signal.SIGSTOP)
    queue = write_queue.WriteQueue(path)
    began = time.monotonic()
    with pytest.raises(write_queue.TurnError), queue.turn(0.2):
        pass
    assert 0.2 <= time.monotonic() - began < 5
    assert len(write_queue._File.stuck) == 1
    with queue.turn(0.2):  # the chain is broken: SQLite's own lock keeps them apart
        pass
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    _until(lambda: not write_queue._File.stuck)
    with queue.turn(8):
        pass
    os.close(read)
    os.close(write)


def test_threads_that_wait_in_vain_are_limited(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "MOST_STUCK", 0)
    first, second = (write_queue.WriteQueue(tmp_path / "q") for _ in range(2))
    began = time.monotonic()
    with first.turn(), pytest.raises(write_queue.TurnError, match="too many"), second.turn(8):
        pass
    assert time.monotonic() - began < 5
    with second.turn(8):
        pass


def test_a_thread_that_waited_uses_its_file_and_its_second_thread_again(
    tmp_path: pathlib.Path,
) -> None:
    first, second = (write_queue.WriteQueue(tmp_path / "q") for _ in range(2))
    done = threading.Semaphore(0)
    go = threading.Semaphore(0)

    def work() -> None:
        for _ in range(3):
            go.acquire()
            with second.turn(8):
                pass
            done.release()  # the first never waits, and needs no second thread
        go.acquire()

    before = set(threading.enumerate())
    waiting = threading.Thread(target=work, daemon=True)
    waiting.start()
    for number in range(3):
        with first.turn():
            go.release()
            _until(lambda n=number: _tickets(tmp_path / "q") == 2 * n + 2)
        assert done.acquire(timeout=8)
    helpers = {thread for thread in threading.enumerate() if thread.name == "write queue"} - before
    assert len(helpers) == 1
    go.release()
    waiting.join()


def test_a_writer_waits_longer_for_its_turn_than_for_a_lock(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others of overnight are expected to write, one after the other; another program is not."""
    monkeypatch.setattr(engine.sqlite_files, "BUSY_SECONDS", 0.05)
    where = engine.Database(f"sqlite:///{tmp_path / 'pools.db'}")
    _write(where)
    waiting = threading.Thread(target=_write, args=(where,), daemon=True)
    with write_queue.WriteQueue(tmp_path / "pools.db-writers").turn():
        waiting.start()
        waiting.join(0.4)
        assert waiting.is_alive()
    waiting.join()
    where.close()


def _write(where: engine.Database) -> None:
    with where.write("two"):
        pass


def test_the_database_uses_the_queue_and_a_write_ahead_log(tmp_path: pathlib.Path) -> None:
    where = engine.Database(f"sqlite:///{tmp_path / 'pools.db'}")
    with where.write("one") as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        before = _tickets(tmp_path / "pools.db-writers")
        second = engine.Database(f"sqlite:///{tmp_path / 'pools.db'}")
        with second.read():  # readers do not queue
            assert _tickets(tmp_path / "pools.db-writers") == before
        waiting = threading.Thread(target=_write, args=(second,))
        waiting.start()
        _until(lambda: _tickets(tmp_path / "pools.db-writers") == before + 1)
    waiting.join()
    second.close()
    where.close()
    full = engine.Database(f"sqlite:///{tmp_path / 'pools.db'}?synchronous=full")
    with full.read() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    full.close()


def test_a_forked_child_waits_for_the_turn_of_its_parent(tmp_path: pathlib.Path) -> None:
    """It has the parent's object, and must not take the parent's open file, whose locks it would share."""
    queue = write_queue.WriteQueue(tmp_path / "q")
    with queue.turn():
        child = os.fork()
        if child == 0:
            try:
                with queue.turn(0.2):
                    os._exit(1)
            except write_queue.TurnError:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_an_unused_queue_leaves_no_open_file(tmp_path: pathlib.Path) -> None:
    def list_open() -> list[str]:
        files = []
        for link in pathlib.Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # another thread closed it
                files.append(str(link.readlink()))
        return [file for file in files if file.startswith(str(tmp_path))]

    for _ in range(5):
        with write_queue.WriteQueue(tmp_path / "q").turn():
            is_open = bool(list_open())
        assert is_open
    gc.collect()
    assert list_open() == []
