"""Functions of the kernel, of its modules and of its BPF programs, from /proc/kallsyms.

A line of a 64-bit kernel: 16 digits, a type, a name, and after a tab the module it belongs to::

    ffffffff81000000 T _stext
    ffffffffc0201000 t nf_ct_get_tuple	[nf_conntrack]
    ffffffffc0345678 t bpf_prog_6deef7357e7b4530_sd_fw_egress	[bpf]
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

import numpy as np

from overnight import errors
from overnight.ingest.symbols import table

if TYPE_CHECKING:
    import numpy.typing as npt

KERNEL = "[kernel]"

DIGITS = 16
TYPE_AT, NAME_AT = 17, 19
# The types that perf uses: text, weak, data, bss; local or global.
WANTED = np.isin(np.arange(256), np.frombuffer(b"TtWwDdBb", np.uint8))
UPPER = np.isin(np.arange(256), np.frombuffer(b"TWDB", np.uint8))
VALUE = np.full(256, 255, np.uint8)
VALUE[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
ENDS = bytes.maketrans(b"\n\t", b"\0\0")


@dataclasses.dataclass(frozen=True)
class KernelSymbols:
    """The symbols of a running kernel."""

    functions: table.SymbolTable
    module_of: npt.NDArray[np.uint16]  # of each symbol, an index into `modules`
    modules: tuple[
        str, ...
    ]  # `[kernel]`, then those like `[nf_conntrack]`; `[bpf]` has all BPF programs


def read_kallsyms(root: pathlib.Path = pathlib.Path("/")) -> bytes | None:
    """Read the kernel's list; None where it has none. Without permission every address in it is zero."""
    try:
        return (root / "proc/kallsyms").read_bytes()
    except OSError as error:
        errors.raise_own(error)
        return None


def parse_kallsyms(text: bytes) -> KernelSymbols:
    """Build the same table as perf: the last symbol of an address counts, and extends to the next one."""
    block = np.frombuffer(text, np.uint8)
    breaks = np.flatnonzero(block == ord("\n"))
    begins = np.concatenate(([0], breaks + 1))
    ends = np.append(breaks, len(block))
    enough = ends - begins > NAME_AT
    begins, ends = begins[enough], ends[enough]
    if len(begins):
        spaced = (block[begins + DIGITS] == ord(" ")) & (block[begins + NAME_AT - 1] == ord(" "))
        kept = spaced & WANTED[block[begins + TYPE_AT]] & (block[begins + NAME_AT] > ord("$"))
        begins, ends = begins[kept], ends[kept]
    address, sound = _hex(block, begins)
    sound &= address != 0  # all are zero without permission
    begins, ends, address = begins[sound], ends[sound], address[sound]
    if not len(begins):
        return KernelSymbols(table.EMPTY, np.zeros(0, np.uint16), (KERNEL,))
    module_of, modules = _modules(text, block, begins, ends)

    order = np.argsort(address, kind="stable")
    start, module_of = address[order], module_of[order]
    last = np.append(start[1:] != start[:-1], True)
    order, start, module_of = order[last], start[last], module_of[last]
    end = table.fill_ends(start, start)
    # The gap after the last symbol of the kernel or of a module has no code.
    edge = np.flatnonzero(module_of[1:] != module_of[:-1])
    end[edge] = np.minimum(end[edge], table.page_after(start[edge] + np.uint64(1)))
    upper = UPPER[block[begins[order] + TYPE_AT]]
    symbols = table.Symbols(
        start=start,
        size=end - start,
        binding=np.where(upper, table.GLOBAL, table.LOCAL).astype(np.uint8),
        name_at=begins[order] + NAME_AT,
        names=text.translate(ENDS),
    )
    return KernelSymbols(table.make_table(symbols), module_of, modules)


def _hex(
    block: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    value = np.zeros(len(begins), np.uint64)
    sound = np.ones(len(begins), np.bool_)
    for place in range(DIGITS):
        digit = VALUE[block[begins + place]]
        sound &= digit < 16
        value = (value << np.uint64(4)) | digit
    return value, sound


def _modules(
    text: bytes,
    block: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.uint16], tuple[str, ...]]:
    """Find the module of each line; the kernel's own lines have none."""
    known = {b"": 0}
    module_of = np.zeros(len(begins), np.uint16)
    tabs = np.flatnonzero(block == ord("\t"))
    lines = np.searchsorted(begins, tabs, "right") - 1
    inside = (lines >= 0) & (tabs < ends[lines])
    for tab, line in zip(tabs[inside].tolist(), lines[inside].tolist(), strict=True):
        name = text[tab + 1 : ends[line]]
        if name.startswith(b"[") and len(known) < 0xFFFF:
            module_of[line] = known.setdefault(name, len(known))
    names = [name.decode("utf-8", "replace") for name in known]
    return module_of, (KERNEL, *names[1:])
