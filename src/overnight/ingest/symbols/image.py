"""Parses ELF files: sections, segments, build id. Every claim of the file is checked.

The file is read in pieces, not mapped: a process in a container may truncate its own library meanwhile, and
a mapping would kill this process with SIGBUS.
"""

from __future__ import annotations

import io
import os
import pathlib
import stat
import struct
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from overnight import errors

if TYPE_CHECKING:
    import numpy.typing as npt

MACHINE_X86_64, MACHINE_AARCH64 = 62, 183
RELOCATABLE = 1
LOAD, NOTE = 1, 4  # segments
NOTES, NOBITS = 7, 8  # sections
BUILD_ID = 3

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
NOTE_HEADER = struct.Struct("<III")
SECTION = np.dtype([
    ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"),
    ("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8"),
])  # fmt: skip
SEGMENT = np.dtype([
    ("type", "<u4"), ("flags", "<u4"), ("offset", "<u8"), ("address", "<u8"),
    ("physical", "<u8"), ("file_size", "<u8"), ("memory_size", "<u8"), ("align", "<u8"),
])  # fmt: skip

# A sparse file may have any size. The largest real symbol tables (browsers) are a tenth of this.
MAX_BYTES = 256 << 20
MAX_NOTES = 64 << 10
MAX_SEGMENTS = 4096
MAX_SECTIONS = 1 << 16
MAX_SECTION_NAME = 64


class Section(NamedTuple):
    """One section's header; the fields of SECTION as plain numbers."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class Image:
    """A 64-bit little-endian ELF file; `known` is False, and all else empty, for any other ELF."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.path = name
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        self.known = False
        self.machine = 0
        self.sections = np.zeros(0, SECTION)
        self.segments = np.zeros(0, SEGMENT)
        self.section_names: list[bytes] = []
        ident = self._read_at(0, min(self._size, 16))
        if ident[:4] != b"\x7fELF":
            raise errors.DamagedFileError(self.path, 0, "not an ELF file")
        if ident[4:6] == b"\x02\x01":
            self._read_headers()

    def __enter__(self) -> Image:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read_at(self, offset: int, size: int) -> bytes:
        if offset > self._size or size > self._size - offset:
            why = f"{size} bytes past the end of the file"
            raise errors.DamagedFileError(self.path, offset, why)
        if size > MAX_BYTES:
            raise errors.DamagedFileError(self.path, offset, f"a part of {size} bytes is too large")
        try:
            self._file.seek(offset)
            data = self._file.read(size)
        except OSError as error:
            errors.raise_own(error)
            raise errors.DamagedFileError(self.path, offset, str(error)) from error
        if len(data) < size:
            at = offset + len(data)
            raise errors.DamagedFileError(self.path, at, "the file was truncated meanwhile")
        return data

    def _read_headers(self) -> None:
        fields = HEADER.unpack(self._read_at(0, HEADER.size))
        _, kind, self.machine, _, _, segments_at, sections_at = fields[:7]
        _, _, segment_size, segments, section_size, sections, names_index = fields[7:]
        self.known = kind != RELOCATABLE
        if segments and segment_size == SEGMENT.itemsize:
            raw = self._read_at(segments_at, min(segments, MAX_SEGMENTS) * segment_size)
            self.segments = np.frombuffer(raw, SEGMENT)
        if sections_at and section_size == SECTION.itemsize:
            if not sections:  # too many for the header: section 0 has the count
                raw = self._read_at(sections_at, section_size)
                sections = int(np.frombuffer(raw, SECTION)[0]["size"])
            sections = min(sections, MAX_SECTIONS)
            raw = self._read_at(sections_at, sections * section_size)
            self.sections = np.frombuffer(raw, SECTION)
            if names_index == 0xFFFF and sections:
                names_index = int(self.sections[0]["link"])
            self.section_names = self._read_section_names(names_index)

    def _read_section_names(self, index: int) -> list[bytes]:
        if index >= len(self.sections):
            return []
        block = self.read(self._section_at(index))
        names = []
        for begin in self.sections["name"].tolist():
            end = block.find(b"\0", begin, begin + MAX_SECTION_NAME)
            names.append(block[begin : end if end >= 0 else begin + MAX_SECTION_NAME])
        return names

    def section(self, name: bytes) -> Section | None:
        """Return the first section with this name that has bytes in the file."""
        for index, candidate in enumerate(self.section_names):
            if candidate == name and int(self.sections[index]["type"]) != NOBITS:
                return self._section_at(index)
        return None

    def _section_at(self, index: int) -> Section:
        return Section(*self.sections[index].tolist())

    def holds(self, section: Section) -> bool:
        return section.offset + section.size <= self._size

    def linked(self, section: Section) -> Section | None:
        """Return the section that another one refers to."""
        return self._section_at(section.link) if section.link < len(self.sections) else None

    def read(self, section: Section) -> bytes:
        if section.type == NOBITS:
            return b""
        return self._read_at(section.offset, section.size)

    def file_offsets(
        self, addresses: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
        """Return each address's offset in the file, and whether a loaded segment contains it."""
        offsets = addresses.copy()
        mapped = np.zeros(len(addresses), np.bool_)
        for segment in self.segments[self.segments["type"] == LOAD]:
            begin = segment["address"]
            held = np.maximum(segment["memory_size"], segment["file_size"])
            inside = ~mapped & (addresses >= begin) & (addresses - begin < held)
            offsets[inside] = addresses[inside] - begin + segment["offset"]
            mapped |= inside
        return offsets, mapped

    def build_id(self) -> str | None:
        segments = self.segments[self.segments["type"] == NOTE]
        sections = self.sections[self.sections["type"] == NOTES][:MAX_SEGMENTS]
        notes = segments[["offset", "file_size"]].tolist() + sections[["offset", "size"]].tolist()
        for offset, size in notes:
            if size <= MAX_NOTES:
                build_id = _build_id_of(self._read_at(offset, size))
                if build_id:
                    return build_id
        return None


def _build_id_of(notes: bytes) -> str | None:
    at = 0
    while at + NOTE_HEADER.size <= len(notes):
        name_size, size, kind = NOTE_HEADER.unpack_from(notes, at)
        name = at + NOTE_HEADER.size
        begin = name + (name_size + 3 & ~3)
        if kind == BUILD_ID and notes[name : name + name_size] == b"GNU\0":
            build_id = notes[begin : begin + size]
            return build_id.hex() if 2 <= len(build_id) <= 64 else None
        at = begin + (size + 3 & ~3)
    return None


def open_image(source: pathlib.Path | bytes, name: str = "memory") -> Image:
    """Open an ELF file, or an image in memory; raise DamagedFileError where it is not ELF."""
    if isinstance(source, bytes):
        return Image(name, io.BytesIO(source))
    file = _open_regular(source)
    try:
        return Image(str(source), file)
    except BaseException:
        file.close()
        raise


def _open_regular(path: pathlib.Path) -> BinaryIO:
    """Open without blocking: a pipe or a device in place of a library must not hang this process."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        errors.raise_own(error)
        raise errors.DamagedFileError(str(path), 0, str(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise errors.DamagedFileError(str(path), 0, "not a regular file")
    return os.fdopen(descriptor, "rb")
