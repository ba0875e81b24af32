"""Resolves addresses to names in programs, libraries, the kernel, JIT code and the vdso."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from overnight import errors
from overnight.ingest.symbols import demangle, elf, files, kallsyms, perfmap, table
from overnight.model.flame import UNKNOWN
from overnight.model.unknown import Why

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    import numpy.typing as npt

    _Key = str | tuple[str, int] | tuple[int, int, int, int]

MAX_KEPT = 64 << 20
MAX_SEEN = 1 << 16
TABLE_COST = 4096  # bytes of a table besides its arrays, so that empty ones count too


@dataclasses.dataclass(frozen=True)
class Named:
    """Functions for a column of addresses: address i is in `names[which[i]]`."""

    names: list[str]  # `[unknown]` where no function contains the address
    modules: list[str]  # the module that each name belongs to
    which: npt.NDArray[np.uint32]


class Resolver:
    """Resolves names, with the tables used last in memory; `problems`: why modules have no names."""

    def __init__(
        self,
        kernel: bytes | None,
        find_file: Callable[[str, int, str], pathlib.Path | None],
        vdso_image: bytes | None = None,
        perf_map: Callable[[int], bytes | None] = lambda _: None,
    ) -> None:
        self.problems: dict[str, Why] = {}
        self._kallsyms = kernel
        self._kernel: kallsyms.KernelSymbols | None = None
        self._find_file = find_file
        self._vdso = vdso_image
        self._perf_map = perf_map
        self._kept = 0
        self._seen: dict[tuple[str, int, str], tuple[_Key, pathlib.Path | None]] = {}
        self._tables: collections.OrderedDict[_Key, table.SymbolTable] = collections.OrderedDict()

    def resolve(
        self, module: str, offsets: npt.NDArray[np.uint64], pid: int = -1, build_id: str = ""
    ) -> Named:
        """Find the functions at offsets in a module's file, as the process with this pid has it mapped.

        For `/tmp/perf-PID.map` (memory without a file) the offsets are addresses. A file with another
        build id than the recorded one was replaced, and has no names.
        """
        symbols = self._table(module, pid, build_id)
        return _named(symbols, offsets, lambda _: module, module)

    def resolve_kernel(self, addresses: npt.NDArray[np.uint64]) -> Named:
        """Find the kernel functions at addresses, with their kernel modules."""
        if self._kernel is None:
            self._kernel = kallsyms.parse_kallsyms(self._kallsyms or b"")
            self._kallsyms = None
            if not len(self._kernel.functions):
                self.problems[kallsyms.KERNEL] = Why.NO_KALLSYMS
        kernel = self._kernel
        return _named(
            kernel.functions,
            addresses,
            lambda index: kernel.modules[int(kernel.module_of[index])],
            kallsyms.KERNEL,
        )

    def _table(self, module: str, pid: int, build_id: str) -> table.SymbolTable:
        seen = self._seen.get((module, pid, build_id))
        if seen is None:
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            seen = self._seen[module, pid, build_id] = self._identify(module, pid, build_id)
        key, path = seen
        known = self._tables.get(key)
        if known is not None:
            self._tables.move_to_end(key)
            return known
        try:
            symbols = self._read(module, path)
        except errors.DamagedFileError as error:
            refused = isinstance(error.__cause__, PermissionError)
            self.problems[module] = Why.NO_PERMISSION if refused else Why.DAMAGED
            symbols = table.EMPTY
        self._tables[key] = symbols
        self._kept += symbols.nbytes + TABLE_COST
        while self._kept > MAX_KEPT and len(self._tables) > 1:
            _, dropped = self._tables.popitem(last=False)
            self._kept -= dropped.nbytes + TABLE_COST
        return symbols

    def _identify(self, module: str, pid: int, build_id: str) -> tuple[_Key, pathlib.Path | None]:
        """Identify the file of a module: containers have different files under the same path."""
        if not module.startswith("/") or perfmap.perf_map_pid(module) is not None:
            return module, None
        try:
            path = self._find_file(module, pid, build_id)
        except PermissionError:
            path = None
            self.problems[module] = Why.NO_PERMISSION
        if path is None:
            self.problems.setdefault(module, Why.FILE_GONE)
            return "", None
        try:
            status = path.stat()
        except OSError:
            return (module, pid), path
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns), path

    def _read(self, module: str, path: pathlib.Path | None) -> table.SymbolTable:
        if path is not None:
            return elf.read_elf_symbols(path)
        compiled_for = perfmap.perf_map_pid(module)
        if compiled_for is not None:
            text = self._perf_map(compiled_for)
            if text is not None:
                return perfmap.parse_perf_map(text)
            self.problems[module] = Why.NO_JIT_MAP
        if module == files.VDSO and self._vdso is not None:
            return elf.read_elf_symbols(self._vdso, name=module)
        return table.EMPTY


def _distinct(
    indices: npt.NDArray[np.int64], size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct indices into a table, including -1, and the position of each among them."""
    if size > 16 * len(indices):
        return np.unique(indices, return_inverse=True)
    present = np.zeros(size + 1, np.bool_)
    present[indices + 1] = True
    return np.flatnonzero(present) - 1, (np.cumsum(present) - 1)[indices + 1]


def _named(
    functions: table.SymbolTable,
    addresses: npt.NDArray[np.uint64],
    module_of: Callable[[int], str],
    nowhere: str,
) -> Named:
    indices, index_of = _distinct(functions.find(addresses), len(functions))
    demangle.expect(functions.linked_names(indices.tolist(), demangle.EXPECTED))
    distinct: dict[tuple[str, str], int] = {}
    name_index = np.zeros(len(indices), np.uint32)
    for i, index in enumerate(indices.tolist()):
        function = UNKNOWN, nowhere
        if index >= 0:
            function = functions.name(index) or UNKNOWN, module_of(index)
        name_index[i] = distinct.setdefault(function, len(distinct))
    return Named(
        names=[name for name, _ in distinct],
        modules=[module for _, module in distinct],
        which=name_index[index_of].astype(np.uint32),
    )
