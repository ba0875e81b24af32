"""Unpacks the records of `perf record -z` into one plain stream.

A file has one zstd stream, in pieces, each in a record of its own::

    COMPRESSED   {u32 type, u16 misc, u16 size}, a piece
    COMPRESSED2  {u32 type, u16 misc, u16 size}, u64 length, a piece, zeros   (since perf 6.16)

A record may be split by the end of a piece, and there may be plain records in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from overnight.sources.perf import decode

if TYPE_CHECKING:
    from overnight import errors

# Takes more of the compressed stream, returns what it adds to the plain one; one instance per file.
Decompress: TypeAlias = Callable[[bytes], bytes]

COMPRESSED, COMPRESSED2 = 81, 83
# `-z` reaches 8 to 1 on real captures (measured); 100 to 1 is a bomb.
EXPANSION, EXPANSION_FLOOR = 100, 64 << 20
# A zstd run-length block turns 4 bytes into 128 KiB: one feed expands to 16 MiB at most.
FEED = 512


def unpack(
    view: memoryview,
    start: int,
    create_decompressor: Callable[[], Decompress] | None,
    damaged: Callable[[int, str], errors.DamagedFileError],
) -> memoryview | None:
    """Unpack the records in `view`, which begins at byte `start`; None where none is compressed.

    `damaged` creates the exception to raise from an offset and a problem.
    """
    first = _find_compressed(view)
    if first is None:
        return None
    if create_decompressor is None:
        raise damaged(start + first, "compressed records, but zstd is not installed")
    decompress = create_decompressor()
    limit = EXPANSION_FLOOR + EXPANSION * len(view)
    plain_stream, partial, offset = bytearray(view[:first]), b"", first
    while offset + decode.RECORD.size <= len(view):
        kind, _, size = decode.RECORD.unpack_from(view, offset)
        if size < decode.RECORD.size:
            raise damaged(start + offset, f"a record of {size} bytes")
        if offset + size > len(view):
            break  # a killed recorder leaves half a record
        if kind not in (COMPRESSED, COMPRESSED2):
            plain_stream += view[offset : offset + size]
            offset += size
            continue
        piece = bytes(view[offset + 8 : offset + size])
        if kind == COMPRESSED2:
            piece = piece[8 : 8 + int.from_bytes(piece[:8], "little")]
        for at in range(0, len(piece), FEED):
            try:
                plain = partial + decompress(piece[at : at + FEED])
            except Exception as error:
                raise damaged(start + offset, f"compressed records: {error}") from error
            whole = _whole_records(plain)
            if whole is None:
                raise damaged(start + offset, "compressed data that is not records")
            plain_stream += plain[:whole]
            partial = plain[whole:]
            if len(plain_stream) > limit:
                raise damaged(start + offset, f"records that unpack to over {limit >> 20} MiB")
        offset += size
    return memoryview(plain_stream).toreadonly()


def _find_compressed(view: memoryview) -> int | None:
    """Find the first compressed record. They come before any plain sample, or not at all."""
    offset = 0
    while offset + decode.RECORD.size <= len(view):
        kind, _, size = decode.RECORD.unpack_from(view, offset)
        if kind in (COMPRESSED, COMPRESSED2):
            return offset
        if kind == decode.SAMPLE or size < decode.RECORD.size:
            return None
        offset += size
    return None


def _whole_records(plain: bytes) -> int | None:
    """Count the bytes of whole records; None where one is smaller than its header."""
    offset = 0
    while offset + decode.RECORD.size <= len(plain):
        size = int.from_bytes(plain[offset + 6 : offset + 8], "little")
        if size < decode.RECORD.size:
            return None
        if offset + size > len(plain):
            break
        offset += size
    return offset
