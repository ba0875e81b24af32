"""Which mappings a process has after a fork, in both decoders."""

from __future__ import annotations

import struct

import pytest

from overnight.sources.perf import decode, perfdata, processes

IP, TID, TIME, CPU = 1 << 0, 1 << 1, 1 << 2, 1 << 7
FORK, SAMPLE = 7, 9
PARENT, CHILD = 10, 11


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def mapped(pid: int, start: int, name: bytes) -> bytes:
    padded = name + bytes(8 - len(name) % 8)
    place = struct.pack("<IIQQ", 8, 1, 99, 0)
    body = struct.pack("<iiQQQ", pid, pid, start, 0x1000, 0) + place
    return record(10, body + struct.pack("<II", 5, 2) + padded, 2)


def sample(pid: int, ip: int) -> bytes:
    return record(SAMPLE, struct.pack("<QiiQII", ip, pid, pid, 1000, 0, 0), 2)


def really_forked(pid: int, parent: int) -> bytes:
    return record(FORK, struct.pack("<iiiiQ", pid, parent, pid, parent, 0))


def module_of_only_sample(decoder: object, stream: bytes) -> bytes:
    assert callable(decoder)
    found = decoder(memoryview(stream), IP | TID | TIME | CPU, 0, False, b"", b"")
    _, _, _, frames, strings, modules, _ = found
    (module,) = struct.unpack("<I", frames[0])
    return bytes(strings[modules[module][0]])


@pytest.mark.parametrize("decoder", [perfdata.decode_stream, decode.decode])
def test_a_fork_that_the_recorder_made_up_inherits_no_mappings(decoder: object) -> None:
    before = mapped(PARENT, 0x4000, b"/bin/parent")
    after = sample(CHILD, 0x4100)
    forked = before + really_forked(CHILD, PARENT) + after
    assert module_of_only_sample(decoder, forked) == b"/bin/parent"
    found = before + processes.fork_record(CHILD, PARENT) + after
    assert module_of_only_sample(decoder, found) != b"/bin/parent"


@pytest.mark.parametrize("decoder", [perfdata.decode_stream, decode.decode])
def test_a_made_up_fork_forgets_what_an_earlier_process_of_that_number_had(decoder: object) -> None:
    stream = (
        mapped(PARENT, 0x4000, b"/bin/parent")
        + really_forked(CHILD, PARENT)
        + processes.fork_record(CHILD, PARENT)
        + mapped(CHILD, 0x8000, b"/bin/child")
        + sample(CHILD, 0x4100)
    )
    assert module_of_only_sample(decoder, stream) != b"/bin/parent"
