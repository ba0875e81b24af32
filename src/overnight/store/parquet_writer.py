"""Writes Parquet files with numpy and zstd.

DuckDB, which reads them, takes 50 MB of memory: too much for a process that runs all night beside the host's
work. A file has one page per column and row group, and no missing values. Integers are packed with 8, 16, 32
or 64 bits each, so that packing is a copy, and zstd removes what that wastes.

The format: https://parquet.apache.org/docs/file-format/, with the numbers of its parquet.thrift.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import zstandard

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[Any]

MAGIC = b"PAR1"
ROWS = 122_880  # of a row group: a 5 s window of 96 cores reads one or two
LEVEL = 3
# Physical types, and the meaning of each column type.
INT32, INT64, BYTE_ARRAY = 1, 2, 6
MEANINGS = {
    "uint8": 11, "uint16": 12, "uint32": 13, "uint64": 14,
    "int8": 15, "int16": 16, "int32": 17, "int64": 18, "text": 0,
}  # fmt: skip
PLAIN, RLE, DELTA, DELTA_LENGTH, RLE_DICTIONARY = 0, 3, 5, 6, 8
ZSTD = 6
DATA_PAGE, DICTIONARY_PAGE = 0, 2
# Types of Thrift's compact protocol.
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
# Numbers that spread over more than this, and over four times the rows, get no dictionary.
MAX_SPREAD = 1 << 20

Field: TypeAlias = tuple[int, int, Any]  # number, type and value


@dataclasses.dataclass(frozen=True)
class _Page:
    kind: int
    encoding: int
    values: int
    content: bytes

    def header(self, packed: int) -> bytes:
        about: list[Field] = [(1, I32, self.values), (2, I32, self.encoding)]
        if self.kind == DICTIONARY_PAGE:
            own = (7, STRUCT, about)
        else:
            own = (5, STRUCT, [*about, (3, I32, RLE), (4, I32, RLE)])
        return _struct(
            [(1, I32, self.kind), (2, I32, len(self.content)), (3, I32, packed), own]
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column of numbers, or of texts as UTF-8."""

    name: str
    type: str
    values: Numbers | list[bytes]

    @property
    def physical(self) -> int:
        if isinstance(self.values, list):
            return BYTE_ARRAY
        return INT64 if self.values.dtype.itemsize == 8 else INT32

    def part(self, begin: int) -> _Column:
        return dataclasses.replace(self, values=self.values[begin : begin + ROWS])

    def pages(self) -> list[_Page]:
        return _text_pages(self.values) if isinstance(self.values, list) else _pages(self.values)

    def statistics(self) -> list[Field]:
        """Return the least and the greatest number: readers skip row groups by them."""
        if isinstance(self.values, list):
            return []
        size = 8 if self.physical == INT64 else 4
        greatest, least = (
            (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            for value in (self.values.max(), self.values.min())
        )
        return [(3, I64, 0), (5, BINARY, greatest), (6, BINARY, least)]


def write(path: pathlib.Path, columns: dict[str, Numbers | list[str]]) -> None:
    """Write columns of one length; the caller syncs the file.

    Half a surrogate pair becomes `?`, as it has no UTF-8.
    """
    whole = [_column(name, values) for name, values in columns.items()]
    rows = len(whole[0].values)
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    groups: list[list[Field]] = []
    with path.open("wb") as file:
        file.write(MAGIC)
        for begin in range(0, rows, ROWS):
            chunks, group_size = [], 0
            for column in whole:
                part = column.part(begin)
                pages, starts, size = part.pages(), [], 0
                for page in pages:
                    packed = compressor.compress(page.content)
                    head = page.header(len(packed))
                    starts.append(file.tell())
                    file.write(head)
                    file.write(packed)
                    size += len(head) + len(page.content)
                chunks.append(_chunk(part, pages, starts, size, file.tell() - starts[0]))
                group_size += size
            count = min(ROWS, rows - begin)
            groups.append([(1, LIST, chunks), (2, I64, group_size), (3, I64, count)])
        footer = _footer(whole, rows, groups)
        file.write(footer + len(footer).to_bytes(4, "little") + MAGIC)


def _column(name: str, values: Numbers | list[str]) -> _Column:
    if not isinstance(values, list) and values.dtype.kind in "iu":
        return _Column(name, values.dtype.name, values)
    return _Column(name, "text", [text.encode("utf-8", "replace") for text in values])


def _chunk(
    column: _Column, pages: list[_Page], starts: list[int], size: int, stored: int
) -> list[Field]:
    meta: list[Field] = [
        (1, I32, column.physical),
        (2, LIST, sorted({page.encoding for page in pages})),
        (3, LIST, [column.name.encode()]),
        (4, I32, ZSTD),
        (5, I64, pages[-1].values),
        (6, I64, size),
        (7, I64, stored),
        (9, I64, starts[-1]),
        *([(11, I64, starts[0])] if len(starts) > 1 else []),
        *([(12, STRUCT, statistics)] if (statistics := column.statistics()) else []),
    ]
    return [(2, I64, starts[0]), (3, STRUCT, meta)]


def _footer(columns: list[_Column], rows: int, groups: list[list[Field]]) -> bytes:
    root: list[Field] = [(4, BINARY, b"schema"), (5, I32, len(columns))]
    schema: list[list[Field]] = [
        [
            (1, I32, column.physical),
            (3, I32, 0),  # every row has a value
            (4, BINARY, column.name.encode()),
            (6, I32, MEANINGS[column.type]),
        ]
        for column in columns
    ]
    by_type: list[Field] = [(1, STRUCT, [])]  # how the least and the greatest value are ordered
    return _struct(
        [
            (1, I32, 2),
            (2, LIST, [root, *schema]),
            (3, I64, rows),
            (4, LIST, groups),
            (6, BINARY, b"overnight"),
            (7, LIST, [by_type] * len(columns)),
        ]
    )


def _pages(values: Numbers) -> list[_Page]:
    """Encode numbers with a dictionary where they are close together, else by their differences."""
    least, size = int(values.min()), 8 if values.dtype.itemsize == 8 else 4
    spread = int(values.max()) - least + 1
    if spread > max(MAX_SPREAD, 4 * len(values)):
        return [_Page(DATA_PAGE, DELTA, len(values), _differences(values.astype(f"<i{size}")))]
    place = (values - values.dtype.type(least)).astype(np.uint32)
    used = np.zeros(spread, np.bool_)
    used[place] = True
    entries = np.flatnonzero(used)
    number = (np.cumsum(used, dtype=np.uint32) - np.uint32(1))[place]
    plain = (entries.astype(np.uint64) + np.uint64(least % (1 << 64))).astype(f"<u{size}")
    return [
        _Page(DICTIONARY_PAGE, PLAIN, len(entries), plain.tobytes()),
        _Page(DATA_PAGE, RLE_DICTIONARY, len(values), _numbers(number, len(entries))),
    ]


def _text_pages(texts: list[bytes]) -> list[_Page]:
    """Encode texts with a dictionary where half of them repeat others."""
    entries: dict[bytes, int] = {}
    number = np.array([entries.setdefault(text, len(entries)) for text in texts], np.uint32)
    if 2 * len(entries) > len(texts):
        lengths = _differences(np.array([len(text) for text in texts], "<i4"))
        return [_Page(DATA_PAGE, DELTA_LENGTH, len(texts), lengths + b"".join(texts))]
    plain = b"".join(len(text).to_bytes(4, "little") + text for text in entries)
    return [
        _Page(DICTIONARY_PAGE, PLAIN, len(entries), plain),
        _Page(DATA_PAGE, RLE_DICTIONARY, len(texts), _numbers(number, len(entries))),
    ]


def _numbers(number: npt.NDArray[np.uint32], entries: int) -> bytes:
    """Pack numbers of dictionary entries as one run: of one value, or of groups of eight."""
    if entries == 1:
        return b"\x08" + _varint(len(number) << 1) + b"\0"
    bits = _width(entries - 1)
    groups = -(-len(number) // 8)
    packed = np.zeros(8 * groups, f"<u{bits // 8}")
    packed[: len(number)] = number
    return bytes([bits]) + _varint(groups << 1 | 1) + packed.tobytes()


def _differences(values: Numbers) -> bytes:
    """Pack signed numbers as the first one and one block of differences, less the smallest of them."""
    first = int(values[0])
    differences = np.diff(values)  # wraps around, as the format demands
    if not len(differences):
        return _varint(128) + _varint(1) + _varint(len(values)) + _varint(_zigzag(first))
    least = differences.min()
    unsigned = (differences - least).view(f"<u{values.dtype.itemsize}")
    bits = _width(int(unsigned.max()))
    room = -(-len(unsigned) // 128) * 128
    packed = np.zeros(room, f"<u{bits // 8}")
    packed[: len(unsigned)] = unsigned
    head = (room, 1, len(values), _zigzag(first), _zigzag(int(least)))
    return b"".join(map(_varint, head)) + bytes([bits]) + packed.tobytes()


def _width(greatest: int) -> int:
    return next(bits for bits in (8, 16, 32, 64) if greatest < 1 << bits)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _struct(fields: list[Field]) -> bytes:
    parts, last = [], 0
    for number, kind, value in fields:
        parts += [bytes([(number - last) << 4 | kind]), _value(kind, value)]
        last = number
    return b"".join(parts) + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in (I32, I64):
        return _varint(_zigzag(value))
    if kind == BINARY:
        return _varint(len(value)) + bytes(value)
    if kind == STRUCT:
        return _struct(value)
    # A list of integers, texts or structs.
    element = {int: I32, bytes: BINARY, list: STRUCT}[type(value[0])] if value else STRUCT
    head = bytes([len(value) << 4 | element]) if len(value) < 15 else bytes([0xF0 | element])
    size = b"" if len(value) < 15 else _varint(len(value))
    return head + size + b"".join(_value(element, item) for item in value)
