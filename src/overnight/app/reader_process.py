"""Limits for readers of files from elsewhere: of memory, and in a child process also of CPU time.

A file that exceeds them or crashes its reader ends the child, and the command reports it. The child answers in
JSON: whatever a hostile file makes of it, the answer is data.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from overnight import errors

# For a file of any size, and more per byte of it.
FREE_MEMORY, MEMORY_PER_BYTE = 4 << 30, 64
FREE_CPU_S, BYTES_PER_CPU_S = 60, 64 << 10
PR_SET_PDEATHSIG = 1

Reader = Callable[[pathlib.Path], Any]


@contextlib.contextmanager
def limit_memory(path: pathlib.Path) -> Iterator[None]:
    """Raise CannotError where reading a file takes this process too much memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, used + FREE_MEMORY + MEMORY_PER_BYTE * _size(path))
    try:
        yield
    except MemoryError as error:
        raise _exceeded(path, "too much memory") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def read(paths: list[pathlib.Path], reader: Reader) -> Iterator[Any]:
    """Yield what the reader returns for each file, in a child process: values that JSON has."""
    seconds = FREE_CPU_S + sum(map(_size, paths)) // BYTES_PER_CPU_S
    source, target = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns where there are threads; the child does not need theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        code = 1
        try:
            os.close(source)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            _limit(resource.RLIMIT_CORE, 0)
            _limit(resource.RLIMIT_CPU, seconds)
            _answer(target, paths, reader)
            code = 0
        finally:
            os._exit(code)
    os.close(target)
    unread, status = list(paths), None
    try:
        with os.fdopen(source, "rb") as answers:
            for document in map(json.loads, answers):
                if "error" in document:
                    raise errors.from_json(document)
                if "bug" in document:
                    raise RuntimeError(document["bug"])
                yield document["value"]
                del unread[0]
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        if status is None:  # the caller stopped, or the child reported an error
            os.kill(child, signal.SIGINT)
            os.waitpid(child, 0)
    if status:
        how = f"by {signal.Signals(-status).name}" if status < 0 else "early"
        raise _exceeded(unread[0], f"its reader ended {how}; it may use {seconds} s of CPU time")


def _answer(target: int, paths: list[pathlib.Path], reader: Reader) -> None:
    with os.fdopen(target, "w") as answers:
        try:
            for path in paths:
                with limit_memory(path):
                    value = reader(path)
                print(json.dumps({"value": value}), file=answers, flush=True)
        except Exception as error:
            known = errors.own_error(error) if errors.is_own(error) else error
            document: dict[str, object] = {"bug": traceback.format_exc()}
            if isinstance(known, errors.OvernightError):
                document = known.as_json()
            print(json.dumps(document), file=answers)


def _exceeded(path: pathlib.Path, how: str) -> errors.CannotError:
    return errors.CannotError(
        f"{path} cannot be read: {how}",
        why="the file is damaged or hostile, or too large for this host",
        todo="check it with the tool that wrote it, or record a shorter capture",
    )


def _limit(kind: int, soft: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _size(path: pathlib.Path) -> int:
    return path.stat().st_size if path.is_file() else 0
