"""Small files that expand are refused with little memory, by the command itself.

The child has limits, so that a regression fails here without harm to the machine.
"""

from __future__ import annotations

import gzip
import json
import pathlib
import resource
import subprocess
import sys
from collections.abc import Callable

import pytest

MOST_MEMORY = 3 << 30  # of addresses: DuckDB and numpy reserve more than they use
MOST_CPU_S, MOST_FILE = 60, 64 << 20
MOST_BYTES = 512 << 10  # of a bomb


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def profile(body: bytes, *strings: bytes) -> bytes:
    """A pprof profile that counts samples; the caller's strings begin at number 3."""
    names = b"".join(block(6, text) for text in (b"", b"samples", b"count", *strings))
    return gzip.compress(block(1, number(1, 1) + number(2, 2)) + names + body)


def sample(locations: bytes, labels: bytes = b"") -> bytes:
    return block(2, block(1, locations) + block(2, b"\1") + labels)


def strings() -> bytes:
    return profile(block(4, number(1, 1)) + sample(b"\1") + block(6, b"") * 8_000_000)


def task_names() -> bytes:
    """Every thread has the same process name, of a megabyte."""

    def thread(tid: int) -> bytes:
        labels = block(3, number(1, 3) + number(2, 5)), block(3, number(1, 4) + number(3, tid))
        return sample(b"\1", b"".join(labels))

    threads = b"".join(thread(tid) for tid in range(1, 5000))
    return profile(block(4, number(1, 1)) + threads, b"comm", b"tid", b"a" * (1 << 20))


def inlined_frames() -> bytes:
    """One location stands for 60,000 functions, below a thousand different roots."""
    numbers = range(2, 1002)
    roots = b"".join(block(4, number(1, i) + block(4, number(1, i))) for i in numbers)
    functions = b"".join(block(5, number(1, i) + number(2, i + 1)) for i in (1, *numbers))
    location = block(4, number(1, 1) + block(4, number(1, 1)) * 60_000)
    stacks = b"".join(sample(b"\1" + varint(i)) for i in numbers)
    return profile(
        location + roots + functions + stacks, *(b"f%d" % i for i in range(len(numbers) + 1))
    )


def deep_stacks() -> bytes:
    lines = (b"root%d;" % i + b"a;" * 250_000 + b"leaf 1\n" for i in range(150))
    return gzip.compress(b"a;b 1\n" * 20_000 + b"".join(lines))


def long_text() -> bytes:
    """Three hundred megabytes of one line, in members that are compressed once."""
    return gzip.compress(b"a;b 1\n" * 1_000_000) * 50


def other_lines() -> bytes:
    """Samples with ten lines each that are nothing."""
    sample = b"a 1 [000] 1.000000: x:\n" + b"?\n" * 10
    return gzip.compress(sample * 200_000) * 15


@pytest.mark.parametrize(
    "make",
    [strings, task_names, inlined_frames, deep_stacks, long_text, other_lines],
    ids=lambda f: f.__name__,
)
def test_a_bomb_is_refused(make: Callable[[], bytes], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "bomb"
    file.write_bytes(make())
    assert file.stat().st_size < MOST_BYTES

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))

    command = [sys.executable, "-m", "overnight", "--home", str(tmp_path / "home")]
    done = subprocess.run(
        [*command, "import", "-O", "json", str(file)],
        preexec_fn=limit,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout or done.stderr)["error"]["kind"] == "damaged-file"
    assert not list((tmp_path / "home").rglob("*.parquet"))
