"""A sorted table of functions: finds the function that contains an address, and its name.

The rules are those of perf (tools/perf/util/symbol.c), so that both print the same name. Names stay
compressed until they are needed.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

import numpy as np
import zstandard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    Addresses = npt.NDArray[np.uint64]
    Integers = npt.NDArray[np.int64]

LOCAL, GLOBAL, WEAK = 0, 1, 2  # ELF's numbers for a symbol's binding

PAGE = 4096
LAST = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
NOWHERE = np.zeros(1, np.uint64)

# Limits that no real file reaches, so that a hostile one costs no more than its size.
MAX_NAME = 8192
MAX_ALIASES = 256
MAX_UNEQUAL = 4096
PIECE = 1 << 13  # bytes of names that are compressed together
# Bytes for cached names, besides half of the table's own; Python's overhead for one name.
ROOM, NAME_COST = 4096, 160


@dataclasses.dataclass(frozen=True)
class Symbols:
    """Symbols in the order of the file; a name extends from `name_at` to the next NUL."""

    start: Addresses
    size: Addresses  # 0 if unknown
    binding: npt.NDArray[np.uint8]
    name_at: Integers
    names: bytes

    def __len__(self) -> int:
        return len(self.start)


def join(parts: list[Symbols]) -> Symbols:
    if len(parts) == 1:
        return parts[0]
    base = 0
    name_at = []
    for part in parts:
        name_at.append(part.name_at + base)
        base += len(part.names) + 1
    return Symbols(
        start=np.concatenate([part.start for part in parts]),
        size=np.concatenate([part.size for part in parts]),
        binding=np.concatenate([part.binding for part in parts]),
        name_at=np.concatenate(name_at),
        names=b"\0".join(part.names for part in parts),
    )


class _Zstd(threading.local):
    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=1).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_zstd = _Zstd()  # of this thread: creating one takes longer than a piece


class _Names:
    """Names in compressed pieces: those of a C++ program take 13 MB, compressed a fifth of it."""

    def __init__(
        self, at: Integers, block: bytes, readable: Callable[[str], str] | None = None
    ) -> None:
        self.readable = readable
        self._at = at.astype(np.uint32) if len(block) < 1 << 32 else at
        pieces = range(0, len(block), PIECE)
        self._pieces = [_zstd.compress(block[begin : begin + PIECE]) for begin in pieces]
        self._last = (-1, b"")  # number and text of the piece that was used last
        self._announced: dict[int, str] = {}  # read by `announce`, and soon again

    @property
    def nbytes(self) -> int:
        return int(self._at.nbytes) + sum(map(len, self._pieces))

    def announce(self, i: int) -> str:
        """Return a linker's name that will be needed once more."""
        text = self._announced[i] = self.linked(i)
        return text

    def linked(self, i: int) -> str:
        if (announced := self._announced.pop(i, None)) is not None:
            return announced
        number, begin = divmod(int(self._at[i]), PIECE)
        text = self._piece(number)[begin : begin + MAX_NAME]
        if b"\0" not in text and len(text) < MAX_NAME and number + 1 < len(self._pieces):
            text += self._piece(number + 1)[: MAX_NAME - len(text)]
        return text.partition(b"\0")[0].decode("utf-8", "replace")

    def _piece(self, number: int) -> bytes:
        if self._last[0] != number:
            self._last = number, _zstd.decompress(self._pieces[number])
        return self._last[1]

    def name(self, i: int) -> str:
        text = self.linked(i)
        return self.readable(text) if self.readable else text

    def choose(self, first: int, count: int) -> tuple[int, str]:
        """Choose among aliases: fewest leading underscores, then longest, then first in the file."""
        if count == 1:
            return first, self.name(first)
        listed = [(i, self.name(i)) for i in range(first, first + count)]
        return min(listed, key=lambda entry: (_underscores(entry[1]), -len(entry[1])))


class SymbolTable:
    """Functions by address. `start` is strictly ascending; an index identifies a function."""

    def __init__(
        self, start: Addresses, end: Addresses, first: Integers, aliases: Integers, names: _Names
    ) -> None:
        self.start = start
        self.end = end
        self._first = first.astype(np.uint32)
        self._aliases = aliases.astype(np.uint16)
        self._names = names
        self._widest: npt.NDArray[np.uint32] | None = None
        if bool((end[:-1] > start[1:]).any()):
            reach = np.maximum.accumulate(end)
            grows = np.concatenate(([True], reach[1:] > reach[:-1]))
            widest = np.maximum.accumulate(np.where(grows, np.arange(len(start)), 0))
            self._widest = widest.astype(np.uint32)
        self._known: dict[int, str] = {}
        self._room = ROOM + self.nbytes // 2

    def __len__(self) -> int:
        return len(self.start)

    @property
    def nbytes(self) -> int:
        """Return the approximate memory of the table."""
        widest = self._widest.nbytes if self._widest is not None else 0
        own = self.start.nbytes + self.end.nbytes + self._first.nbytes + self._aliases.nbytes
        return own + widest + self._names.nbytes

    def find(self, addresses: Addresses) -> Integers:
        """Return the index of the innermost function that contains each address; -1 where none does."""
        if not len(self):
            return np.full(len(addresses), -1, np.int64)
        at = np.searchsorted(self.start, addresses, "right").astype(np.int64) - 1
        inside = (at >= 0) & (addresses < self.end[at])
        if self._widest is not None:
            # Past the end of the nearest symbol, but maybe inside one that encloses it.
            outer = self._widest[at]
            enclosed = ~inside & (at >= 0) & (addresses < self.end[outer])
            at = np.where(enclosed, outer, at)
            inside |= enclosed
        return np.where(inside, at, -1)

    def linked_names(self, indices: list[int], prefix: str) -> Iterator[str]:
        """Yield the linker's names of functions that are not cached yet."""
        names = self._names
        if names.readable is None:
            return
        for index in indices:
            if index >= 0 and index not in self._known:
                first = int(self._first[index])
                for i in range(first, first + int(self._aliases[index])):
                    if (name := names.announce(i)).startswith(prefix):
                        yield name

    def name(self, index: int) -> str:
        known = self._known.get(index)
        if known is None:
            known = self._names.choose(int(self._first[index]), int(self._aliases[index]))[1]
            # The next segment has the same functions.
            self._room -= len(known) + NAME_COST
            if self._room > 0:
                self._known[index] = known
        return known


def make_table(symbols: Symbols, readable: Callable[[str], str] | None = None) -> SymbolTable:
    """Build the same table as perf; `readable` demangles a linker's name.

    Symbols that begin at the same byte are aliases. A sized one wins over an unsized one, then a strong one
    over a weak one, a global one over a local one; then the names decide.
    """
    if not len(symbols):
        return EMPTY
    order = np.argsort(symbols.start, kind="stable")
    start, size = symbols.start[order], symbols.size[order]
    labels = size == 0
    if labels.any() and not labels.all():
        # A label inside a sized function is not a function.
        reach = np.maximum.accumulate(_ends(start, size))
        kept = ~(labels & (np.concatenate((NOWHERE, reach[:-1])) > start))
        order, start, size = order[kept], start[kept], size[kept]
    end = fill_ends(start, _ends(start, size))
    binding = symbols.binding[order]

    new = np.concatenate(([True], start[1:] != start[:-1]))
    first = np.flatnonzero(new)
    group = np.cumsum(new) - 1
    rank = ((end == start) * 4 + (binding == WEAK) * 2 + (binding != GLOBAL)).astype(np.int64)
    if len(first) < len(start):
        again = np.argsort(group * 8 + rank, kind="stable")
        order, end, rank = order[again], end[again], rank[again]
    aliases = np.add.reduceat((rank == rank[first][group]).astype(np.int64), first)
    aliases = np.minimum(aliases, MAX_ALIASES)
    names = _Names(symbols.name_at[order], symbols.names, readable)
    ends = _chosen_ends(end, first, aliases, names)
    return SymbolTable(start[first], ends, first, aliases, names)


def _ends(start: Addresses, size: Addresses) -> Addresses:
    return np.where(size > LAST - start, LAST, start + size)


def fill_ends(start: Addresses, end: Addresses) -> Addresses:
    """Extend a symbol without a size to the next one, and the last one to the end of a page after it."""
    after = np.append(start[1:], page_after(start[-1:]))
    return np.where(end == start, after, end)


def page_after(address: Addresses) -> Addresses:
    """Return the end of the page that begins at or after each address."""
    page = np.uint64(PAGE)
    begin = np.minimum(address, LAST - page - page) + page - np.uint64(1)
    end: Addresses = np.maximum((begin & ~(page - np.uint64(1))) + page, address)
    return end


def _chosen_ends(end: Addresses, first: Integers, aliases: Integers, names: _Names) -> Addresses:
    """Return the ends: where aliases differ in size, the one whose name is chosen decides."""
    ends = end[first]
    other = first[aliases > 1]
    if not len(other):
        return ends
    # Almost all aliases agree, and their names are not needed yet.
    member = np.repeat(np.arange(len(first)), aliases)
    position = np.arange(len(member)) - np.repeat(np.cumsum(aliases) - aliases, aliases)
    differs = end[first[member] + position] != ends[member]
    for index in np.unique(member[differs])[:MAX_UNEQUAL].tolist():
        chosen, _ = names.choose(int(first[index]), int(aliases[index]))
        ends[index] = end[chosen]
    return ends


def _underscores(name: str) -> int:
    return len(name) - len(name.lstrip("_"))


INDEX = np.zeros(0, np.int64)
EMPTY = SymbolTable(NOWHERE[:0], NOWHERE[:0], INDEX, INDEX, _Names(INDEX, b""))
