from __future__ import annotations

import lzma
import os
import pathlib
import random
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight import errors
from overnight.ingest.symbols import elf, table

AT = 0x1000


def listed(symbols: table.SymbolTable) -> dict[int, str]:
    return {start: symbols.name(i) for i, start in enumerate(symbols.start.tolist())}


def at(symbols: table.SymbolTable, offset: int) -> str | None:
    index = int(symbols.find(np.array([offset], np.uint64))[0])
    return symbols.name(index) if index >= 0 else None


def test_functions_are_at_their_offsets_in_the_file(elf_maker, symbol) -> None:
    symbols = elf.read_elf_symbols(elf_maker([symbol("b", AT + 64), symbol("a", AT)]))
    assert listed(symbols) == {AT: "a", AT + 64: "b"}


def test_only_the_symbols_that_perf_uses_are_read(elf_maker, symbol) -> None:
    symbols = elf.read_elf_symbols(
        elf_maker(
            [
                symbol("function", AT),
                symbol("object", AT + 32, kind=1),
                symbol("indirect", AT + 64, kind=10),
                symbol("label", AT + 96, kind=0),
                symbol("hidden_label", AT + 128, kind=0, other=2),
                symbol("thread_local", AT + 160, kind=6),
                symbol("undefined", AT + 192, section=0),
                symbol("absolute", AT + 224, section=0xFFF1),
                symbol("no_memory", AT + 256, section=3),
                symbol("no_such_section", AT + 288, section=77),
                symbol("elsewhere", 0x900000),
                symbol("", AT + 320),
            ]
        )
    )
    assert list(listed(symbols).values()) == ["function", "object", "indirect", "label"]


def test_arm_mapping_symbols_are_not_functions(elf_maker, symbol) -> None:
    rows = [symbol("$x", AT), symbol("$d.7", AT + 32), symbol("$dollar", AT + 64)]
    assert list(listed(elf.read_elf_symbols(elf_maker(rows, machine=183))).values()) == ["$dollar"]
    assert len(elf.read_elf_symbols(elf_maker(rows, machine=62))) == 3


def test_elf_of_another_kind_is_empty(elf_maker, symbol) -> None:
    assert len(elf.read_elf_symbols(elf_maker([symbol("a", AT)], bits=1))) == 0


def test_a_file_that_is_not_elf_is_damaged(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(errors.DamagedFileError, match=r"notes\.txt"):
        elf.read_elf_symbols(path)
    assert elf.read_build_id(path) is None


@pytest.mark.timeout(5)
def test_a_pipe_in_place_of_a_library_does_not_block(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "lib.so")
    with pytest.raises(errors.DamagedFileError, match="not a regular file"):
        elf.read_elf_symbols(tmp_path / "lib.so")


def test_separate_debug_symbols_are_found_by_build_id(elf_maker, symbol, tmp_path) -> None:
    build_id = bytes.fromhex("abcdef0123")
    stripped = elf_maker([symbol("exported", AT)], table=b".dynsym", build_id=build_id)
    debug = tmp_path / ".build-id/ab/cdef0123.debug"
    debug.parent.mkdir(parents=True)
    debug.write_bytes(elf_maker([symbol("static_one", AT + 64)], build_id=build_id))
    assert elf.read_build_id(stripped) == build_id.hex()
    assert listed(elf.read_elf_symbols(stripped, debug_dirs=[tmp_path])) == {
        AT: "exported",
        AT + 64: "static_one",
    }
    debug.write_bytes(b"\x7fELF\x02\x01 cut short")
    assert listed(elf.read_elf_symbols(stripped, debug_dirs=[tmp_path])) == {AT: "exported"}


def test_the_compressed_table_of_fedora_is_unpacked(elf_maker, symbol) -> None:
    packed = lzma.compress(elf_maker([symbol("static_one", AT + 64)]))
    image = elf_maker([symbol("a", AT)], table=b".dynsym", extra={b".gnu_debugdata": packed})
    assert "static_one" in listed(elf.read_elf_symbols(image, debug_dirs=())).values()
    broken = elf_maker([symbol("a", AT)], table=b".dynsym", extra={b".gnu_debugdata": packed[9:]})
    assert listed(elf.read_elf_symbols(broken, debug_dirs=())) == {AT: "a"}


def test_a_section_larger_than_its_file_takes_no_memory(elf_maker, symbol) -> None:
    image = bytearray(elf_maker([symbol("a", AT)]))
    sections_at = struct.unpack_from("<Q", image, 40)[0]
    struct.pack_into("<Q", image, sections_at + 2 * 64 + 32, 10 << 30)
    with pytest.raises(errors.DamagedFileError, match="past the end of the file"):
        elf.read_elf_symbols(bytes(image))


def test_a_huge_section_of_a_sparse_file_is_refused(elf_maker, symbol, tmp_path) -> None:
    image = bytearray(elf_maker([symbol("a", AT)]))
    sections_at = struct.unpack_from("<Q", image, 40)[0]
    struct.pack_into("<Q", image, sections_at + 2 * 64 + 32, 9 << 30)
    path = tmp_path / "sparse"
    path.write_bytes(image)
    with path.open("r+b") as file:
        file.truncate(10 << 30)
    with pytest.raises(errors.DamagedFileError, match="too large"):
        elf.read_elf_symbols(path)


def disassembled(path: pathlib.Path) -> dict[int, str]:
    """The jump tables as objdump sees them, which decodes every entry."""
    text = subprocess.run(
        ["objdump", "-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got", path],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines = [line.split() for line in text.splitlines() if line.endswith("@plt>:")]
    return {int(address, 16): name.strip("<>:") for address, name in lines}


@pytest.mark.parametrize("options", [(), ("-Wl,-z,ibtplt", "-Wl,-z,lazy")])
def test_calls_into_libraries_are_named(compiled, options: tuple[str, ...]) -> None:
    path = compiled(*options)
    assert (b".plt.sec\0" in path.read_bytes()) == bool(options)
    symbols = elf.read_elf_symbols(path)
    expected = disassembled(path)
    assert {"strlen@plt", "strtol@plt"} <= set(expected.values())
    assert {address: at(symbols, address) for address in expected} == expected
    assert {"main", "outer", "inner"} <= set(listed(symbols).values())


def test_the_build_id_of_a_real_program(compiled) -> None:
    shown = subprocess.run(
        ["readelf", "-n", compiled()], check=True, capture_output=True, text=True
    ).stdout
    build_id = elf.read_build_id(compiled())
    assert build_id is None or build_id in shown


def test_the_python_interpreter_can_be_read() -> None:
    path = pathlib.Path(sys.executable).resolve()
    assert len(elf.read_elf_symbols(path)) > 10


def check_damaged(data: bytes) -> None:
    try:
        symbols = elf.read_elf_symbols(data, debug_dirs=())
    except errors.DamagedFileError:
        return
    indices = symbols.find(np.arange(0, 0x3000, 64, dtype=np.uint64))
    for index in np.unique(indices[indices >= 0])[:50].tolist():
        assert isinstance(symbols.name(index), str)


@settings(max_examples=60)
@given(st.data())
def test_flipped_bytes_give_a_table_or_a_damaged_file(compiled, data: st.DataObject) -> None:
    whole = bytearray(compiled().read_bytes())
    headers = struct.unpack_from("<Q", whole, 40)[0]
    places = (
        st.integers(0, 800) | st.integers(headers, len(whole) - 1) | st.integers(0, len(whole) - 1)
    )
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(places)] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    check_damaged(bytes(whole))


@settings(max_examples=60)
@given(st.data())
def test_a_file_cut_short_gives_a_table_or_a_damaged_file(compiled, data: st.DataObject) -> None:
    whole = compiled().read_bytes()
    check_damaged(whole[: data.draw(st.integers(0, len(whole)))])


def test_random_headers_give_a_table_or_a_damaged_file(elf_maker, symbol) -> None:
    chance = random.Random(7)
    whole = elf_maker([symbol(f"s{i}", AT + 16 * i) for i in range(20)], table=b".dynsym")
    sections_at = struct.unpack_from("<Q", whole, 40)[0]
    for _ in range(300):
        image = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            place = chance.choice(
                [chance.randrange(16, 120), chance.randrange(sections_at, len(image) - 8)]
            )
            struct.pack_into(
                "<Q", image, place, chance.choice([0, 1, 2**63, 2**64 - 1, chance.getrandbits(16)])
            )
        check_damaged(bytes(image))
