"""The jump tables through which a program calls its libraries, named as perf does: `strlen@plt`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from overnight.ingest.symbols import image, table

if TYPE_CHECKING:
    import numpy.typing as npt

RELOCATION = np.dtype([("slot", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
SYMBOL_SIZE = 24
ENTRY, SHORT_ENTRY = 16, 8
HEADERS = {image.MACHINE_X86_64: 16, image.MACHINE_AARCH64: 32}

# `jmp *slot(%rip)`, alone or after `bnd`, `endbr64`, or both.
JUMP = (0xFF, 0x25)
JUMP_AT = (0, 1, 4, 5)
JUMP_SIZE = 6

# The largest programs call a few thousand functions of libraries.
MAX_ENTRIES = 1 << 16
MAX_NAME_BYTES = 16 << 20
SUFFIX = b"@plt\0"


def read_jump_tables(elf: image.Image) -> list[table.Symbols]:
    """Name the entries of .plt, .plt.sec and .plt.got.

    Entries of .plt are in the order of its relocations. Those of the other two, which perf before 6.3 does
    not name, are identified by the slot that each jumps through.
    """
    header = HEADERS.get(elf.machine)
    if header is None:
        return []
    calls = _relocations(elf, b".rela.plt")
    parts = []
    section = elf.section(b".plt")
    if section and len(calls) and elf.holds(section):
        called = calls[: max(section.size - header, 0) // ENTRY]
        start = section.offset + header + ENTRY * np.arange(len(called), dtype=np.uint64)
        parts.append(_named(elf, start, called["symbol"], ENTRY))
    if elf.machine == image.MACHINE_X86_64:
        for name, relocations in ((b".plt.sec", b".rela.plt"), (b".plt.got", b".rela.dyn")):
            section = elf.section(name)
            if section:
                size = SHORT_ENTRY if section.entry == SHORT_ENTRY else ENTRY
                parts.append(_by_slot(elf, section, size, _relocations(elf, relocations)))
    return [part for part in parts if len(part)]


def _relocations(elf: image.Image, name: bytes) -> npt.NDArray[np.void]:
    section = elf.section(name)
    if not section:
        return np.zeros(0, RELOCATION)
    raw = elf.read(section)
    return np.frombuffer(raw, RELOCATION, len(raw) // RELOCATION.itemsize)


def _by_slot(
    elf: image.Image, section: image.Section, size: int, relocations: npt.NDArray[np.void]
) -> table.Symbols:
    """Name the entries of a table after the function whose address is in their slot."""
    code = np.frombuffer(elf.read(section)[: MAX_ENTRIES * size], np.uint8)
    entries = code[: len(code) // size * size].reshape(-1, size)
    relocations = relocations[relocations["symbol"] != 0]
    order = np.argsort(relocations["slot"], kind="stable")
    slots, symbols = relocations["slot"][order], relocations["symbol"][order]
    starts, called = [np.zeros(0, np.int64)], [np.zeros(0, np.uint32)]
    for at in JUMP_AT:
        if at + JUMP_SIZE > size or not len(slots):
            continue
        which = np.flatnonzero((entries[:, at] == JUMP[0]) & (entries[:, at + 1] == JUMP[1]))
        distance = np.ascontiguousarray(entries[which, at + 2 : at + JUMP_SIZE]).view("<i4").ravel()
        after = np.uint64(section.address) + (which * size + at + JUMP_SIZE).astype(np.uint64)
        slot = after + distance.astype(np.int64).view(np.uint64)
        place = np.minimum(np.searchsorted(slots, slot), len(slots) - 1)
        known = slots[place] == slot
        starts.append(which[known] * size)
        called.append(symbols[place[known]])
    start = np.uint64(section.offset) + np.concatenate(starts).astype(np.uint64)
    return _named(elf, start, np.concatenate(called), size)


def _named(
    elf: image.Image, start: npt.NDArray[np.uint64], symbols: npt.NDArray[np.uint32], size: int
) -> table.Symbols:
    """Create entries at `start`, named after the dynamic symbols with these numbers."""
    dynamic = elf.section(b".dynsym")
    strings = elf.linked(dynamic) if dynamic else None
    raw = elf.read(dynamic) if dynamic else b""
    block = elf.read(strings) if strings else b""
    name_at = np.frombuffer(raw, "<u4", len(raw) // SYMBOL_SIZE * 6 if raw else 0)[::6]
    wanted = symbols[:MAX_ENTRIES]
    # A number past the end of the table, or of the names, has no name.
    at = np.full(len(wanted), len(block), np.int64)
    listed = wanted < len(name_at)
    at[listed] = name_at[wanted[listed]]
    names, places, taken = [], [], 0
    for begin in at.tolist():
        if taken > MAX_NAME_BYTES:
            break
        end = block.find(b"\0", begin, begin + table.MAX_NAME)
        name = block[begin:end] if end > begin else b""
        names.append(name)
        places.append(taken)
        taken += len(name) + len(SUFFIX)
    count = len(places)
    return table.Symbols(
        start=start[:count],
        size=np.full(count, size, np.uint64),
        binding=np.full(count, table.GLOBAL, np.uint8),
        name_at=np.array(places, np.int64),
        names=SUFFIX.join([*names, b""]),
    )
