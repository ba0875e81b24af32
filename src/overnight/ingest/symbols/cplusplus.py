"""Demangles C++ names with the C++ library, in the form of `perf script`: no signature."""

from __future__ import annotations

import atexit
import functools
import os
import pathlib
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

from overnight.ingest.symbols import cxa_worker

SUFFIX = re.compile(r"[.@]")
QUALIFIERS = (" const", " volatile", " restrict", " noexcept", " &", " &&")
PARENTHESIS = re.compile(r"[()]")
# The parts of a name that show where its return type ends: brackets and spaces. False ones come first:
# `operator<< <int>`, and the qualifiers of an enclosing function, as in
# `f() const::{lambda()#1}::operator()`.
PART = re.compile(
    r"(?P<none>operator(?:<=>|<<=?|>>=?|<=?|>=?|->\*?|\(\)|\[\]) ?"
    r"|(?<=\))(?: (?:const|volatile|&&?))+(?=::))"
    r"|(?P<last>\boperator(?: |\"\"))"
    r"|(?P<open>[<({\[])|(?P<close>[>)}\]])|(?P<space> )"
)

PATIENCE = 1.0  # seconds for one name; a real one takes microseconds
# Bytes of names in one batch: less than a pipe holds, so that neither side blocks. The replies are 4 times
# as long (measured).
TOGETHER, MAX_ANSWERED = 32 << 10, 4 << 20
MAX_EXPECTED = 1 << 14
MAX_STARTS = 16  # of the worker; after that, names stay mangled


@functools.lru_cache(1 << 16)
def demangle(name: str) -> str | None:
    """Return the name without signature, clone (`.cold`) and version (`@@GLIBCXX_3.4`); None: not C++."""
    mangled = _mangled(name)
    if mangled is None:
        return None
    text = WORKER.ask(mangled)
    if text is None or mangled.startswith(("_ZT", "_ZG")):
        return text
    return _without_signature(text)


def expect(names: Iterable[str]) -> None:
    """Demangle the next names in a batch, which costs a tenth of demangling each alone."""
    WORKER.expect(filter(None, map(_mangled, dict.fromkeys(names))))


def _mangled(name: str) -> str | None:
    """Return the mangled part of a name; None if it cannot be C++."""
    mangled = SUFFIX.split(name, maxsplit=1)[0]
    return mangled if mangled.isascii() and mangled.isprintable() else None


def _without_signature(text: str) -> str:
    """Turn `void f<int>(int) const` into `f<int>`; enclosing functions keep their signature."""
    bare = text
    while bare.endswith(QUALIFIERS):
        bare = bare[: bare.rindex(" ")]
    if not bare.endswith(")"):
        return text
    depth = 0
    for bracket in reversed(list(PARENTHESIS.finditer(bare))):
        depth += 1 if bracket[0] == ")" else -1
        if not depth:
            name = bare[: bracket.start()]
            return name[_return_type(name) :] if name else text
    return text


def _return_type(name: str) -> int:
    """Return where the name begins after a return type, which only template instances have."""
    if " " not in name:
        return 0
    begin = depth = 0
    for part in PART.finditer(name):
        match part.lastgroup:
            case "open":
                depth += 1
            case "close":
                depth -= 1
            case "space" if depth == 0:
                begin = part.end()
            case "last" if depth == 0:  # `operator bool`, `operator new`: the name ends with it
                return begin
    return begin if depth == 0 else 0


class _Worker:
    """A client of `cxa_worker`, which starts at the first name, and again if a name was too much for it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._starts = 0
        self._lock = threading.Lock()
        self._expected: dict[str, str | None] = {}
        self._together = True

    def expect(self, mangled: Iterable[str]) -> None:
        """Demangle these names, as far as possible, and forget the previous ones."""
        with self._lock:
            self._expected = {}
            batch: list[str] = []
            size = 0
            for name in mangled:
                if not self._together or len(self._expected) >= MAX_EXPECTED:
                    return
                if size + len(name) >= TOGETHER and batch:
                    self._answer_batch(batch)
                    batch, size = [], 0
                if len(name) < TOGETHER:
                    batch.append(name)
                    size += len(name) + 1
            if batch and self._together:
                self._answer_batch(batch)

    def _answer_batch(self, names: list[str]) -> None:
        try:
            answers = self._exchange(names)
        except (OSError, TimeoutError):
            # One of them is too much, and it is unknown which: from now on, one at a time.
            self._together = False
            self._end()
            return
        self._expected.update(zip(names, answers, strict=True))

    def ask(self, mangled: str) -> str | None:
        with self._lock:
            if mangled in self._expected:
                return self._expected.pop(mangled)
            try:
                return self._exchange([mangled])[0]
            except (OSError, TimeoutError):
                self._end()
                return None

    def _running(self) -> subprocess.Popen[bytes] | None:
        if self._owner != os.getpid():  # a fork must not read its parent's replies
            self._process, self._owner = None, os.getpid()
        if self._process is None and self._starts < MAX_STARTS:
            self._starts += 1
            script = pathlib.Path(cxa_worker.__file__)
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(script)],
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError:
                self._starts = MAX_STARTS
            else:
                atexit.register(self.close)
        return self._process

    def _exchange(self, names: list[str]) -> list[str | None]:
        """Return the worker's answers; None where a name is not C++, or no worker can run."""
        process = self._running()
        if process is None or process.stdin is None or process.stdout is None:
            return [None] * len(names)
        process.stdin.write("".join(f"{name}\n" for name in names).encode("ascii"))
        descriptor = process.stdout.fileno()
        until = time.monotonic() + PATIENCE
        answers = b""
        ends = 0
        while ends < len(names):
            left = until - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise TimeoutError
            part = os.read(descriptor, 1 << 16)
            if not part:
                raise BrokenPipeError
            answers += part
            ends += part.count(b"\n")
            if len(answers) > MAX_ANSWERED:
                raise TimeoutError
        return [text or None for text in answers.decode("utf-8", "replace").split("\n")[:-1]]

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with process:
                pass

    def close(self) -> None:
        """End the worker; the next name starts it again."""
        if self._owner == os.getpid():
            with self._lock:
                self._end()


WORKER = _Worker()
