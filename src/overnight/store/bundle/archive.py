"""Strict zip files: every byte is determined, so nothing can hide between members.

Members follow each other from the first byte; each is a regular file of mode 0600 and of one fixed
date, stored or deflated; there are no extra fields, comments, descriptors, encryption or zip64. The
reader rebuilds the directory from its fields and refuses any difference, so overlapping members, links,
devices and second directories never reach the disk.
"""

from __future__ import annotations

import re
import stat
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
LOCAL_MAGIC, CENTRAL_MAGIC, END_MAGIC = b"PK\3\4", b"PK\1\2", b"PK\5\6"
STORED, DEFLATED = 0, 8
NEEDS, MADE_BY = 20, 3 << 8 | 20  # zip 2.0; on Unix
DATE = 1 << 5 | 1  # 1980-01-01, the first that zip knows
MODE = stat.S_IFREG | 0o600
PIECE = 1 << 18
MAX_BYTES = (1 << 32) - 1  # the limit of zip without its 64-bit extension
MAX_MEMBERS = 50_000  # 50 recurrences have about 5000; the limit of zip is 65,535
MAX_NAME = 1024
MAX_DEPTH = 8
WORD = re.compile(r"[A-Za-z0-9_%~-][A-Za-z0-9_.%~-]{0,254}", re.ASCII)


class BadArchiveError(Exception):
    """Not a strict zip file; the message says why."""


class Member(NamedTuple):
    """A file in the archive, as listed in its directory."""

    name: str
    method: int
    checksum: int  # CRC-32
    packed_bytes: int
    size: int
    offset: int  # of its own head

    def local(self) -> bytes:
        """Return the head before its data."""
        fields = (NEEDS, 0, self.method, 0, DATE, *self[2:5], len(self.name), 0)
        return LOCAL.pack(LOCAL_MAGIC, *fields) + self.name.encode("ascii")

    def central(self) -> bytes:
        """Return its entry in the directory."""
        fields = (NEEDS, 0, self.method, 0, DATE, *self[2:5], len(self.name), 0)
        more = (0, 0, 0, MODE << 16, self.offset)
        return CENTRAL.pack(CENTRAL_MAGIC, MADE_BY, *fields, *more) + self.name.encode("ascii")

    @property
    def end(self) -> int:
        return self.offset + LOCAL.size + len(self.name) + self.packed_bytes


class Packer:
    """Writes members one after the other to a seekable file."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._at = 0
        self._members: list[Member] = []

    def add(self, name: str, data: Iterator[bytes], *, deflate: bool) -> None:
        """Add a member; the same bytes always become the same member. Raise BadArchiveError."""
        _check_name(name)
        empty = Member(name, DEFLATED if deflate else STORED, 0, 0, 0, self._at)
        self._write(empty.local())
        packer = zlib.compressobj(9, zlib.DEFLATED, -15) if deflate else None
        checksum = size = 0
        body = self._at
        for piece in data:
            checksum = zlib.crc32(piece, checksum)
            size += len(piece)
            self._write(packer.compress(piece) if packer else piece)
        if packer:
            self._write(packer.flush())
        member = empty._replace(checksum=checksum, packed_bytes=self._at - body, size=size)
        if size > MAX_BYTES:
            raise BadArchiveError(f"{name} is larger than 4 GiB")
        self._out.seek(member.offset)
        self._out.write(member.local())
        self._out.seek(self._at)
        self._members.append(member)

    def finish(self) -> None:
        check_names([member.name for member in self._members])
        directory = b"".join(member.central() for member in self._members)
        at, count = self._at, len(self._members)
        self._write(directory)
        self._write(END.pack(END_MAGIC, 0, 0, count, count, len(directory), at, 0))

    def _write(self, data: bytes) -> None:
        self._at += len(data)
        if self._at > MAX_BYTES:
            raise BadArchiveError("the file is larger than 4 GiB")
        self._out.write(data)


def first_member(file: BinaryIO, name: str, max_bytes: int) -> bytes | None:
    """Return the first member, stored plain in every version; None if the file does not begin with it."""
    file.seek(0)
    head = file.read(LOCAL.size)
    if len(head) < LOCAL.size or not head.startswith(LOCAL_MAGIC):
        return None
    _, _, flags, method, _, _, checksum, packed, size, length, extra = LOCAL.unpack(head)
    if length != len(name) or file.read(length) != name.encode("ascii"):
        return None
    if flags or method != STORED or extra or packed != size or size > max_bytes:
        raise BadArchiveError(f"its {name} was not written by overnight")
    data = file.read(size)
    if len(data) < size:
        raise BadArchiveError("the file is cut short")
    if zlib.crc32(data) != checksum:
        raise BadArchiveError(f"its {name} has changed since it was written")
    return data


def members(file: BinaryIO) -> list[Member]:
    """Return all members, after checking that the file has the strict form."""
    size = file.seek(0, 2)
    if size > MAX_BYTES:
        raise BadArchiveError("the file is larger than 4 GiB")
    file.seek(max(0, size - END.size))
    tail = file.read(END.size)
    if len(tail) < END.size or not tail.startswith(END_MAGIC):
        raise BadArchiveError("the file is cut short, or has data after its end")
    _, disk, begins_on, here, count, length, begin, comment = END.unpack(tail)
    if disk or begins_on or here != count or comment or begin + length + END.size != size:
        raise BadArchiveError("its directory is not at the stated place")
    if count > MAX_MEMBERS:
        raise BadArchiveError(f"it has {count} members, more than {MAX_MEMBERS}")
    if length > count * (CENTRAL.size + MAX_NAME):
        raise BadArchiveError("its directory is longer than its members need")
    file.seek(begin)
    listed = list(_parse_directory(file.read(length), count))
    check_names([member.name for member in listed])
    at = 0
    for member in listed:
        if member.offset != at or member.end > begin:
            raise BadArchiveError(
                f"{member.name!r} overlaps another member, or leaves unused bytes"
            )
        at = member.end
        file.seek(member.offset)
        if file.read(LOCAL.size + len(member.name)) != member.local():
            raise BadArchiveError(f"{member.name!r} has two different heads")
    if at != begin:
        raise BadArchiveError("it has unused bytes after its members")
    return listed


def _parse_directory(data: bytes, count: int) -> Iterator[Member]:
    at = 0
    for _ in range(count):
        if len(data) - at < CENTRAL.size:
            raise BadArchiveError("its directory is cut short")
        fields = CENTRAL.unpack_from(data, at)
        if fields[0] != CENTRAL_MAGIC:
            raise BadArchiveError("its directory is invalid")
        length, mode = fields[10], fields[15] >> 16
        raw = data[at + CENTRAL.size : at + CENTRAL.size + length]
        name = raw.decode("ascii", "backslashreplace")
        _check_name(name)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            kind = "a link" if stat.S_ISLNK(mode) else "not a regular file"
            raise BadArchiveError(f"{name!r} is {kind}")
        if fields[3]:
            raise BadArchiveError(f"{name!r} is encrypted or was not written by overnight")
        if fields[4] not in (STORED, DEFLATED):
            raise BadArchiveError(f"{name!r} has the unknown compression method {fields[4]}")
        member = Member(name, fields[4], fields[7], fields[8], fields[9], fields[16])
        entry = member.central()
        if data[at : at + len(entry)] != entry:
            raise BadArchiveError(f"{name!r} has properties that overnight does not write")
        if member.method == STORED and member.packed_bytes != member.size:
            raise BadArchiveError(f"{name!r} has two sizes")
        yield member
        at += len(entry)
    if at != len(data):
        raise BadArchiveError("its directory is longer than its members")


def read(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """Yield a member's data in pieces; raise BadArchiveError unless it has exactly the stated size."""
    file.seek(member.offset + LOCAL.size + len(member.name))
    pieces = _packed(file, member)
    if member.method == DEFLATED:
        pieces = _inflated(pieces, member)
    checksum, left = 0, member.size
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise BadArchiveError(f"{member.name!r} unpacks to more than its stated size")
        checksum = zlib.crc32(piece, checksum)
        yield piece
    if left:
        raise BadArchiveError(f"{member.name!r} unpacks to less than its stated size")
    if checksum != member.checksum:
        raise BadArchiveError(f"{member.name!r} has changed since it was written")


def _packed(file: BinaryIO, member: Member) -> Iterator[bytes]:
    left = member.packed_bytes
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise BadArchiveError(f"{member.name!r} is cut short")
        left -= len(piece)
        yield piece


def _inflated(pieces: Iterator[bytes], member: Member) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(-15)
    try:
        for packed in pieces:
            more = unpacker.decompress(packed, PIECE)
            while more:
                yield more
                # Also without input left: zlib may hold back the rest of a repetition.
                more = unpacker.decompress(unpacker.unconsumed_tail, PIECE)
    except zlib.error as error:
        raise BadArchiveError(f"{member.name!r} cannot be unpacked ({error})") from error
    if not unpacker.eof or unpacker.unused_data:
        raise BadArchiveError(f"{member.name!r} ends at another place than stated")


def check_names(names: list[str]) -> None:
    """Check that no two names are the same file on any file system; raise BadArchiveError."""
    if len(names) > MAX_MEMBERS:
        raise BadArchiveError(f"{len(names)} members are more than {MAX_MEMBERS}")
    known: dict[str, str] = {}
    for name in names:
        _check_name(name)
        other = known.get(name.lower())
        if other is not None:
            same = "is listed twice" if other == name else f"differs from {other!r} only in case"
            raise BadArchiveError(f"{name!r} {same}")
        known[name.lower()] = name
    for name in names:
        folder = name.lower()
        while folder := folder.rpartition("/")[0]:
            if folder in known:
                raise BadArchiveError(f"{known[folder]!r} is a file and a folder")


def _check_name(name: str) -> None:
    shown = repr(name if len(name) <= 80 else name[:80] + "…")
    words = name.split("/")
    if len(name) > MAX_NAME or len(words) > MAX_DEPTH:
        raise BadArchiveError(f"the name {shown} is too long or too deep")
    if name.startswith("/") or ".." in words or "." in words:
        raise BadArchiveError(f"the name {shown} leads out of the folder")
    if not all(WORD.fullmatch(word) for word in words):
        raise BadArchiveError(f"the name {shown} has characters that are not allowed")
