"""Running processes as records, equal to those the kernel would write."""

from __future__ import annotations

import os
import pathlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from overnight.sources.perf import decode, processes, segmentfile

MAPS = b"""\
55d0c0000000-55d0c0001000 r--p 00000000 fe:01 99  /opt/my app/bin\\012x
55d0c0001000-55d0c0003000 r-xp 00001000 fe:01 99  /opt/my app/bin\\012x
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00000000 00:00 0
7ffe00000000-7ffe00002000 r-xp 00000000 00:00 0                  [vdso]
not a mapping
"""


def decode_mapping(record: bytes) -> tuple[tuple[int, ...], bytes]:
    fields = struct.unpack_from("<iiQQQIIQQII", record, 8)
    return fields, record[72:-24].rstrip(b"\0")


def test_only_executable_mappings_with_their_names():
    mappings = [decode_mapping(record) for record in processes.map_records(7, MAPS)]
    assert [name for _, name in mappings] == [b"/opt/my app/bin\nx", b"//anon", b"[vdso]"]
    expected = (7, 7, 0x55D0C0001000, 0x2000, 0x1000, 0xFE, 1, 99, 0, 5, 2)
    assert mappings[0][0] == expected


def test_the_executable_comes_first():
    archive = b"800000000-800001000 r-xp 00000000 fe:01 5  /usr/lib/jvm/lib/server/classes.jsa\n"
    names = [
        decode_mapping(record)[1]
        for record in processes.map_records(7, archive + MAPS, b"/opt/my app/bin\nx")
    ]
    assert names[:2] == [b"/opt/my app/bin\nx", b"/usr/lib/jvm/lib/server/classes.jsa"]


def test_a_process_with_an_odd_name_and_threads(tmp_path):
    folder = tmp_path / "proc/40"
    for tid, name in ((40, "a) S (b"), (41, "worker")):
        (folder / f"task/{tid}").mkdir(parents=True)
        (folder / f"task/{tid}/comm").write_text(name + "\n")
    tail = "0 20 0 2 0 123" + " 0" * 30
    (folder / "stat").write_text(f"40 (a) S (b) S 9 40 40 0 -1 0 0 0 0 0 1 2 0 {tail}")
    (folder / "maps").write_bytes(MAPS)
    (folder / "exe").symlink_to("[vdso]")
    (tmp_path / "proc/41").mkdir()
    (tmp_path / "proc/self").mkdir()
    stream = memoryview(b"".join(processes.process_records(tmp_path)))
    records = [bytes(stream[b:e]) for _, b, e in segmentfile.walk(stream)]
    assert sum(map(len, records)) == len(stream)
    assert struct.unpack_from("<iiii", records[0], 8) == (40, 9, 40, 9)
    names = {
        struct.unpack_from("<ii", r, 8): r[16:-24].rstrip(b"\0")
        for r in records
        if r[0] == decode.COMM
    }
    assert names == {(40, 40): b"a) S (b", (40, 41): b"worker"}
    mapped = [decode_mapping(record)[1] for record in records if record[0] == decode.MMAP2]
    assert mapped == [b"[vdso]", b"/opt/my app/bin\nx", b"//anon"]


def test_a_process_of_another_user_has_a_name_without_its_maps(tmp_path, monkeypatch):
    (tmp_path / "proc/40").mkdir(parents=True)
    (tmp_path / "proc/40/stat").write_text("40 (db) S 9" + " 0" * 50)
    read = pathlib.Path.read_bytes

    def refuse_maps(path):
        if path.name == "maps":
            raise PermissionError
        return read(path)

    monkeypatch.setattr(pathlib.Path, "read_bytes", refuse_maps)
    fork, comm = processes.process_records(tmp_path)
    assert (fork[0], comm[0], comm[16:18]) == (decode.FORK, decode.COMM, b"db")


def test_this_process_is_listed():
    stream = memoryview(b"".join(processes.process_records()))
    own = os.getpid()
    comm = pathlib.Path("/proc/self/comm").read_bytes().strip()
    names = [
        bytes(stream[b + 16 : e - 24]).rstrip(b"\0")
        for kind, b, e in segmentfile.walk(stream)
        if kind == decode.COMM and struct.unpack_from("<ii", stream, b + 8) == (own, own)
    ]
    assert names == [comm]


def test_the_kernel_and_its_modules(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/kallsyms").write_text("ffffffff81000000 T _text\nffffffff82000000 T _etext\n")
    (tmp_path / "proc/modules").write_text(
        "nvme 49152 1 - Live 0xffffffffc0100000\nhidden 4096 0 - Live 0x0000000000000000\ntorn\n"
    )
    kernel, module = processes.kernel_records(tmp_path)
    assert struct.unpack_from("<iIQQQ", kernel, 8) == (
        -1, 0, 0xFFFFFFFF81000000, 0x1000000, 0xFFFFFFFF81000000,
    )  # fmt: skip
    assert b"[kernel.kallsyms]_text\0" in kernel
    assert struct.unpack_from("<iIQQ", module, 8) == (-1, 0, 0xFFFFFFFFC0100000, 49152)
    assert b"[nvme]\0" in module


def test_hidden_addresses_give_no_kernel(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/kallsyms").write_text("0000000000000000 T _text\n0000000000000000 T _etext\n")
    assert processes.kernel_records(tmp_path) == []


@given(st.binary(max_size=300))
def test_any_maps_text_gives_whole_records(text):
    for record in processes.map_records(1, text):
        assert struct.unpack_from("<IHH", record)[2] == len(record)
        assert len(record) % 8 == 0
