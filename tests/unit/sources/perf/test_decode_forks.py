"""Mappings of a process after a fork, in both decoders."""

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


def kernel_fork(pid: int, parent: int) -> bytes:
    return record(FORK, struct.pack("<iiiiQ", pid, parent, pid, parent, 0))


def module_of_only_sample(decoder: object, stream: bytes) -> bytes:
    assert callable(decoder)
    result = decoder(memoryview(stream), IP | TID | TIME | CPU, 0, False, False, b"", b"")
    _, _, _, frames, strings, modules, *_ = result
    (module,) = struct.unpack("<I", frames[0])
    return bytes(strings[modules[module][0]])


@pytest.mark.parametrize("decoder", [perfdata.decode_stream, decode.decode])
def test_a_synthesized_fork_inherits_no_mappings(decoder: object) -> None:
    before = mapped(PARENT, 0x4000, b"/bin/parent")
    after = sample(CHILD, 0x4100)
    forked = before + kernel_fork(CHILD, PARENT) + after
    assert module_of_only_sample(decoder, forked) == b"/bin/parent"
    stream = before + processes.fork_record(CHILD, PARENT) + after
    assert module_of_only_sample(decoder, stream) != b"/bin/parent"


@pytest.mark.parametrize("decoder", [perfdata.decode_stream, decode.decode])
def test_a_synthesized_fork_forgets_the_earlier_process_with_that_pid(decoder: object) -> None:
    stream = (
        mapped(PARENT, 0x4000, b"/bin/parent")
        + kernel_fork(CHILD, PARENT)
        + processes.fork_record(CHILD, PARENT)
        + mapped(CHILD, 0x8000, b"/bin/child")
        + sample(CHILD, 0x4100)
    )
    assert module_of_only_sample(decoder, stream) != b"/bin/parent"
