"""Damaged and hostile files: each reader answers or refuses with its own error.

`make fuzz` looks for such files with the same readers; what it found is listed here.
"""

from __future__ import annotations

import json
import pathlib
import random
import struct
import tempfile
from collections.abc import Callable

import foreignreaders
import foreignseeds
import pytest

from overnight.sources.kernelrules import matcher
from overnight.store import hours
from overnight.store.ring import open_block

# Queries of a whole segment take longer; the other readers get more.
CHANGES = {"parquet": 8, "segment": 40, "open-block": 80}
ROUNDS = 120
INSERTED = (b"Infinity", b"[", b"{", b"-", b'"', b"1e9", b"null", b"9" * 30, b"\\ud800", b"\xff")


def change(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0 if at < len(changed):
                changed[at] ^= 1 << chance.randrange(8)
            case 1:
                changed[at : at + 1] = chance.choice(INSERTED)
            case 2:
                del changed[at : at + chance.randrange(1, 9)]
            case 3:
                changed[at:at] = changed[at : at + chance.randrange(40)]
            case _:
                changed[at : at + 1] = chance.choice((b"\0", b"\1", b"\x7f", b"\x80"))
    return bytes(changed)


def read(name: str, folder: pathlib.Path, data: bytes) -> bool:
    try:
        return foreignreaders.read(name, folder / "file", data)
    except Exception as error:
        pytest.fail(f"{name} raises {error!r} for {data[:2000]!r}")


def test_changed_files_are_read_or_refused(tmp_path: pathlib.Path) -> None:
    """And the unchanged ones are read: the others are refused for their changes."""
    chance = random.Random(16)
    seeds = foreignseeds.seeds(tmp_path / "seeds")
    with foreignreaders.ignoring_checksums():
        for name, files in seeds.items():
            for data in files:
                assert read(name, tmp_path, data), name
            for _ in range(CHANGES.get(name, ROUNDS)):
                read(name, tmp_path, change(chance.choice(files), chance))


def head(**fields: object) -> bytes:
    """The first record of an open block, with other fields."""
    plain = {"version": 1, "host": "h", "boot": "b", "stamp_us": 1, "full": True}
    return open_block.record(open_block.HEAD, json.dumps({**plain, **fields}).encode())


def facts(wall: object) -> bytes:
    return open_block.record(open_block.FACTS, json.dumps([wall, 1, "host", True, {}, []]).encode())


def hour(index: object) -> bytes:
    text = json.dumps(index).encode()
    return hours.HEAD.pack(hours.MAGIC, len(text), bytes(16)) + text


def event(**fields: object) -> bytes:
    return json.dumps({"time_us": 1, "kind": "a.b", "id": "x", **fields}).encode() + b"\n"


def segment(**description: object) -> bytes:
    return json.dumps({**foreignreaders.VALID, "description": description}).encode()


def far_task() -> bytes:
    columns = foreignreaders.VALID["samples"]
    far = {**columns, "task": [(1 << 32) - 1, *columns["task"][1:]]}
    return json.dumps({**foreignreaders.VALID, "samples": far}).encode()


def root_inside_of_another() -> bytes:
    nodes = {**foreignreaders.VALID["nodes"], "up": [0, 1, 0, 0, 1]}
    return json.dumps({**foreignreaders.VALID, "nodes": nodes}).encode()


def rule(regex: str, **fields: object) -> bytes:
    plain = {"name": "a", "kind": "a.b", "severity": "info", "meaning": "x", "untested": "x"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**plain, **fields}.items()]
    return "\n".join(["[[rule]]", f"regex = {json.dumps(regex)}", *lines]).encode()


def npd(*patterns: str, reason: str = "Reason") -> bytes:
    rules = [{"reason": reason, "pattern": pattern} for pattern in patterns]
    return json.dumps({"rules": rules}).encode()


def lying_samples() -> bytes:
    """Samples of another time, in a file that states the usual one: filters by time are skipped."""
    columns = foreignreaders.VALID["samples"]
    late = {**columns, "time_us": [us + 10**9 for us in columns["time_us"]]}
    with tempfile.TemporaryDirectory() as folder:
        stored = {**foreignreaders.VALID, "samples": late}
        data = foreignreaders.encode_tables(pathlib.Path(folder), stored)["samples.parquet"]
    for us in (columns["time_us"][0], columns["time_us"][-1]):
        assert data.count(struct.pack("<q", us + 10**9))
        data = data.replace(struct.pack("<q", us + 10**9), struct.pack("<q", us))
    return b"\3" + data


SLOW = {"untested": "", "matches": ["disk xxy"], "misses": ["a"]}
# Name, reader, content, and whether it is read: the rest of a damaged store still is.
HOSTILE: dict[str, tuple[str, Callable[[], bytes], bool]] = {
    "an infinite time of a load": (
        "load", lambda: b'{"format":"overnight.load","version":1,"began_us":Infinity}', True,
    ),
    "an unknown list of cores": (
        "hour", lambda: hour({"cores": [], "segments": [["a", 1, {}]]}), True,
    ),
    "an infinite time of an hour": (
        "hour", lambda: hour({"cores": [[]], "segments": [["a", 0, {"begin_us": float("inf")}]]}), True,
    ),
    "an infinite loss": ("segment", lambda: segment(lost=float("inf")), True),
    "more samples than a float holds": ("segment", lambda: segment(samples=10**400, files={"nodes.parquet": [1, "x"]}), True),
    "a file name with NUL": ("segment", lambda: segment(files={"\0": [1, "x"]}), True),
    "a sample of the last task that fits": ("segment", far_task, False),
    "a root inside of another": ("segment", root_inside_of_another, False),
    "false statistics": ("parquet", lying_samples, False),
    "an infinite version": ("open-block", lambda: head(version=float("inf")), True),
    "a stamp beyond 64 bits": ("open-block", lambda: head(stamp_us=1 << 70) + facts(1), True),
    "facts beyond 64 bits": ("open-block", lambda: head() + facts(1 << 70), True),
    "an event before any calendar": ("events", lambda: event(time_us=-(10**400)), True),
    "rules as deep as a well": ("rules", lambda: b"rule = " + b"[" * 5000, False),
    "needles that share a long beginning": (
        "rules", lambda: rule("aaaa", needle=["a" * 2000 + "b", "a" * 2000 + "c"]), True,
    ),
    "an exponential rule": ("rules", lambda: rule("(a+)+$"), False),
    "a rule that is slow after its sample": ("rules", lambda: rule("disk (x+x+)+y", **SLOW), False),
    "a cubic rule": ("rules", lambda: rule("x*x*x*x*y"), False),
    "an endless repetition of nothing": ("rules", lambda: rule("(?:(?:a?){999}){999}b"), False),
    "half a character": ("npd", lambda: npd("\ud800 died", reason="Died\ud800"), True),
    "ten thousand rules": ("npd", lambda: npd(*["died"] * 10_000), False),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_read_or_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(matcher, "MAX_CPU_S", 0.05)
    reader, content, is_read = HOSTILE[name]
    with foreignreaders.ignoring_checksums():
        assert read(reader, tmp_path, content()) == is_read
