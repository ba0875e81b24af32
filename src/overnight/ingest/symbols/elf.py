"""Functions of an ELF file, by offset in the file: address - start of the mapping + its offset.

Like perf (tools/perf/util/symbol-elf.c), reads .symtab, from the file or from the debug file with the same
build id, and .dynsym; then the jump tables through which a program calls its libraries (`strlen@plt`).
Fedora's small symbol tables (.gnu_debugdata) are read too.
"""

from __future__ import annotations

import contextlib
import lzma
import pathlib
from typing import TYPE_CHECKING

import numpy as np

from overnight import errors
from overnight.ingest.symbols import demangle, image, plt, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

DEBUG_DIRS = ("/usr/lib/debug",)

UNTYPED, OBJECT, FUNCTION, INDIRECT_FUNCTION = 0, 1, 2, 10
UNDEFINED, ABSOLUTE, RESERVED = 0, 0xFFF1, 0xFF00
IN_MEMORY = 2  # SHF_ALLOC
MAX_UNPACKED = 256 << 20

SYMBOL = np.dtype([
    ("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
    ("size", "<u8"),
])  # fmt: skip


def read_elf_symbols(
    source: pathlib.Path | bytes,
    *,
    name: str = "memory",
    debug_dirs: Sequence[str | pathlib.Path] = DEBUG_DIRS,
) -> table.SymbolTable:
    """Read the functions of an ELF file, or of an image in memory, called `name` in a DamagedFileError."""
    with image.open_image(source, name) as elf:
        if not elf.known:  # 32-bit, big-endian, an object file
            return table.EMPTY
        own = elf.section(b".symtab")
        parts = [_symbols(elf, elf, own)] if own else _separate_symbols(elf, debug_dirs)
        exported = elf.section(b".dynsym")
        if exported:
            parts.append(_symbols(elf, elf, exported))
        parts.extend(plt.read_jump_tables(elf))
    return table.make_table(table.join(parts), demangle.readable) if parts else table.EMPTY


def read_build_id(source: pathlib.Path | bytes) -> str | None:
    """Read the build id in hex; None where there is none, or the file is not ELF."""
    with contextlib.suppress(errors.DamagedFileError), image.open_image(source) as elf:
        return elf.build_id()
    return None


def _separate_symbols(
    elf: image.Image, debug_dirs: Sequence[str | pathlib.Path]
) -> list[table.Symbols]:
    """Find the symbols that were split off when the file was stripped."""
    for source in _separate_files(elf, debug_dirs):
        # A damaged one is skipped: the main file is valid.
        with contextlib.suppress(errors.DamagedFileError), image.open_image(source) as other:
            section = other.section(b".symtab")
            if section and len(symbols := _symbols(other, elf, section)):
                return [symbols]
    return []


def _separate_files(
    elf: image.Image, debug_dirs: Sequence[str | pathlib.Path]
) -> Iterator[pathlib.Path | bytes]:
    if build_id := elf.build_id():
        name = f".build-id/{build_id[:2]}/{build_id[2:]}.debug"
        yield from (pathlib.Path(folder, name) for folder in debug_dirs)
    if packed := elf.section(b".gnu_debugdata"):
        yield _unpack(elf, packed)


def _unpack(elf: image.Image, section: image.Section) -> bytes:
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_UNPACKED)
    try:
        return decoder.decompress(elf.read(section), MAX_UNPACKED)
    except (lzma.LZMAError, MemoryError):
        return b""


def _symbols(elf: image.Image, loaded: image.Image, section: image.Section) -> table.Symbols:
    """Read the functions and objects of a symbol table of `elf`, by offset in the file of `loaded`."""
    raw = elf.read(section)
    entries = np.frombuffer(raw, SYMBOL, len(raw) // SYMBOL.itemsize)
    strings = elf.linked(section)
    names = elf.read(strings) if strings else b""
    entries = entries[_wanted(elf, entries) & (entries["name"] < len(names))]
    if elf.machine == image.MACHINE_AARCH64:
        entries = entries[~_marks(entries["name"], names)]
    start, loaded_mask = loaded.file_offsets(entries["value"])
    entries = entries[loaded_mask]
    return table.Symbols(
        start=start[loaded_mask],
        size=entries["size"].astype(np.uint64),
        binding=(entries["info"] >> 4).astype(np.uint8),
        name_at=entries["name"].astype(np.int64),
        names=names,
    )


def _wanted(elf: image.Image, entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Select the symbols that perf uses: functions, objects, and visible labels in text or data."""
    kind = entries["info"] & 15
    section = entries["section"]
    label = (kind == UNTYPED) & ((entries["other"] & 3 == 0) | (entries["other"] & 3 == 3))
    typed = (kind == FUNCTION) | (kind == INDIRECT_FUNCTION) | (kind == OBJECT)
    wanted = (typed | label) & (entries["name"] != 0) & (section != UNDEFINED)

    sections = elf.sections[:RESERVED]
    loaded = np.zeros(RESERVED + 1, np.bool_)
    loaded[: len(sections)] = sections["flags"] & IN_MEMORY != 0
    labelled = np.zeros(RESERVED + 1, np.bool_)
    for index, name in enumerate(elf.section_names[:RESERVED]):
        labelled[index] = b".text" in name or b".data" in name
    at = np.minimum(section, RESERVED)
    # 0xffff means that the section's number is stored elsewhere: more than 65,279 sections.
    wanted &= (section != ABSOLUTE) & loaded[at] & (typed | labelled[at])
    return np.asarray(wanted, np.bool_)


def _marks(at: npt.NDArray[np.uint32], names: bytes) -> npt.NDArray[np.bool_]:
    """Find ARM's `$x` and `$d`, which mark where code and data begin, not functions."""
    block = np.frombuffer(names + b"\0\0\0", np.uint8)
    second, third = block[at + np.uint32(1)], block[at + np.uint32(2)]
    letter = np.isin(second, np.frombuffer(b"adtx", np.uint8))
    ended = (third == 0) | (third == ord("."))
    return np.asarray((block[at] == ord("$")) & letter & ended, np.bool_)
