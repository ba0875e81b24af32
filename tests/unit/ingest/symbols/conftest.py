"""ELF files to read: one built byte by byte, and real ones from the compiler."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import struct
import subprocess

import pytest

TEXT_AT = 0x1000
BASE = 0x400000  # where the text of the built file is loaded, minus TEXT_AT
FUNCTION, OBJECT, LABEL = 2, 1, 0
LOCAL, GLOBAL, WEAK = 0, 1, 2


@dataclasses.dataclass
class Symbol:
    """One symbol; `at` is an offset in the file."""

    name: str
    at: int
    size: int = 16
    kind: int = FUNCTION
    binding: int = GLOBAL
    other: int = 0
    section: int = 1


def make_elf(
    symbols: list[Symbol],
    *,
    machine: int = 62,
    bits: int = 2,
    table: bytes = b".symtab",
    build_id: bytes = b"",
    extra: dict[bytes, bytes] | None = None,
) -> bytes:
    """A 64-bit ELF file with one loaded segment of 8 KiB text at 0x1000, and these symbols."""
    strings = b"\0"
    entries = bytes(24)
    for symbol in symbols:
        entries += struct.pack(
            "<IBBHQQ",
            len(strings) if symbol.name else 0,
            symbol.binding << 4 | symbol.kind,
            symbol.other,
            symbol.section,
            BASE + symbol.at,
            symbol.size,
        )
        strings += symbol.name.encode("utf-8", "surrogateescape") + b"\0"
    note = struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id if build_id else b""
    sections = [
        (b"", 0, 0, b"", 0),
        (b".text", 1, 6, bytes(0x2000), 0),
        (table, 2 if table == b".symtab" else 11, 0, entries, 3),
        (b".strtab", 3, 0, strings, 0),
        (b".note.gnu.build-id", 7, 2, note, 0),
        *[(name, 1, 0, data, 0) for name, data in (extra or {}).items()],
    ]
    names = b"".join(name + b"\0" for name, *_ in sections) + b".shstrtab\0"
    sections.append((b".shstrtab", 3, 0, names, 0))
    body = bytearray(TEXT_AT)
    headers = b""
    for name, kind, flags, data, link in sections:
        at = len(body)
        body += data
        where = 0 if not name else names.index(name + b"\0")
        address = BASE + at if flags & 2 else 0
        headers += struct.pack(
            "<IIQQQQIIQQ", where, kind, flags, address, at, len(data), link, 0, 1, 24
        )
    sections_at = len(body)
    body += headers
    ident = b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(ident, 3, machine, 1, 0, 64, sections_at, 0, 64, 56, 1, 64),
        *(len(sections), len(sections) - 1),
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, TEXT_AT, BASE + TEXT_AT, 0, 0x2000, 0x2000, 4096)
    body[: len(header)] = header
    body[64 : 64 + len(segment)] = segment
    return bytes(body)


@pytest.fixture(scope="session")
def elf_maker():
    return make_elf


@pytest.fixture(scope="session")
def symbol():
    return Symbol


SOURCE = r"""
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) static long inner(const char *text) { return (long)strlen(text); }
long outer(const char *text) { return inner(text) + strtol(text, 0, 10); }
int main(int count, char **words) { return (int)outer(words[count - 1]); }
"""


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """A function that compiles the small program above with these options."""
    folder = tmp_path_factory.mktemp("compiled")
    source = folder / "small.c"
    source.write_text(SOURCE)
    compiler = shutil.which("gcc") or pytest.fail("the tests need gcc")
    binaries: dict[tuple[str, ...], pathlib.Path] = {}

    def compile_(*options: str) -> pathlib.Path:
        if options not in binaries:
            target = folder / f"small{len(binaries)}"
            command = [compiler, "-O1", "-fno-builtin", *options, "-o", target, source]
            subprocess.run(command, check=True, capture_output=True)
            binaries[options] = target
        return binaries[options]

    compile_()
    compile_("-Wl,-z,ibtplt", "-Wl,-z,lazy")
    return compile_
