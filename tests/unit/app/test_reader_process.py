"""A reader of foreign files in a child: limits, crashes and errors become errors of the command."""

from __future__ import annotations

import faulthandler
import os
import pathlib
import resource
import signal
from collections.abc import Callable

import pytest

from overnight import errors
from overnight.app import imports, reader_process
from overnight.ingest.formats import collapsed


@pytest.fixture
def paths(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(bytes(128 << 10))
    return [tmp_path / "first", tmp_path / "second"]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The PIDs of the children that were forked; the test process may have others."""
    pids: list[int] = []
    fork = os.fork

    def record() -> int:
        pids.append(fork())
        return pids[-1]

    monkeypatch.setattr(os, "fork", record)
    return pids


def is_reaped(pid: int) -> bool:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def die(number: int) -> None:
    faulthandler.disable()  # pytest's would print this crash, which is meant
    os.kill(os.getpid(), number)


def fail(error: Exception) -> None:
    raise error


DAMAGED = errors.DamagedFileError("x", 7, "no head")
USAGE = errors.UsageError("no", why="because", todo="yes")
FAILURES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a crash": (lambda: die(signal.SIGSEGV), errors.CannotError, "second cannot be read: .*SIGSEGV"),
    "no CPU time left": (lambda: die(signal.SIGXCPU), errors.CannotError, "SIGXCPU.* 64 s of CPU"),
    "an early end": (lambda: os._exit(7), errors.CannotError, "second cannot be read: .* early"),
    "too much memory": (lambda: bytearray(1 << 30), errors.CannotError, "second .* too much memory"),
    "its own error": (lambda: fail(DAMAGED), errors.DamagedFileError, "x cannot be read: no head"),
    "no files left": (lambda: fail(OSError(24, "x")), errors.CannotError, "cannot use a file"),
    "a usage error": (lambda: fail(USAGE), errors.UsageError, "no"),
    "a bug": (lambda: fail(ZeroDivisionError("a bug")), RuntimeError, "ZeroDivisionError: a bug"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_the_child_is_an_error_after_the_files_before(
    paths: list[pathlib.Path], forked: list[int], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    failure, kind, words = FAILURES[name]
    monkeypatch.setattr(reader_process, "FREE_MEMORY", 256 << 20)

    def read(path: pathlib.Path) -> str:
        if path.name == "second":
            failure()
        return path.name

    answers = reader_process.read(paths, read)
    assert next(answers) == "first"
    with pytest.raises(kind, match=words) as caught:
        next(answers)
    if isinstance(caught.value, errors.OvernightError):
        assert caught.value.why
        assert caught.value.todo
    assert [is_reaped(pid) for pid in forked] == [True]


def test_the_limits_are_those_of_the_child(paths: list[pathlib.Path]) -> None:
    kinds = (resource.RLIMIT_CORE, resource.RLIMIT_CPU, resource.RLIMIT_AS)
    before = [resource.getrlimit(kind) for kind in kinds]
    (core, cpu, memory), _ = reader_process.read(
        paths, lambda _: [resource.getrlimit(kind)[0] for kind in kinds]
    )
    assert (core, cpu) == (0, 64)
    assert reader_process.FREE_MEMORY < memory < 1 << 40
    assert [resource.getrlimit(kind) for kind in kinds] == before


def test_a_caller_that_stops_ends_the_child(paths: list[pathlib.Path], forked: list[int]) -> None:
    answers = reader_process.read(
        paths, lambda path: path.name if path.name == "first" else signal.pause()
    )
    next(answers)
    answers.close()
    assert [is_reaped(pid) for pid in forked] == [True]


def test_memory_of_this_process_is_limited_meanwhile(
    paths: list[pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_process, "FREE_MEMORY", 256 << 20)
    before = resource.getrlimit(resource.RLIMIT_AS)
    with (
        pytest.raises(errors.CannotError, match="too much memory"),
        reader_process.limit_memory(paths[0]),
    ):
        bytearray(1 << 30)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_reader_that_crashes_does_not_end_the_import(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "stacks"
    file.write_text("app;main 4\n")
    monkeypatch.setattr(collapsed, "read", lambda *_: die(signal.SIGSEGV))
    with pytest.raises(errors.CannotError, match=r"stacks cannot be read: .*SIGSEGV"):
        list(imports.import_files(tmp_path / "home", [file], imports.Options(kind="collapsed")))
