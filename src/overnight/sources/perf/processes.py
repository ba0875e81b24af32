"""Records of the processes that already ran when a segment began, in the kernel's own format.

One pass over /proc gives FORK, COMM and MMAP2 of every process, and MMAP of the kernel and its modules, all
with time zero, so that a segment is self-contained. The kernel's side-band records add later changes.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import struct

from overnight import errors, sources
from overnight.sources.perf import decode

PROT_READ_EXEC, MAP_PRIVATE = 5, 2
NAME_LIMIT = 4096

# sample_id_all appends this to each record for TID | TIME | CPU: pid, tid, time, cpu, reserved.
TRAILER = bytes(24)
# pid, tid, address, length, file offset, major, minor, inode, generation, protection, flags
MMAP2_FIELDS = struct.Struct("<iiQQQIIQQII")
MAPS_LINE = re.compile(
    rb"([0-9a-f]+)-([0-9a-f]+) ..(.). ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)"
)
OCTAL = re.compile(rb"\\([0-7]{3})")


def _record(kind: int, misc: int, fields: bytes, name: bytes = b"") -> bytes:
    if name:
        name = name[: NAME_LIMIT - 1] + b"\0"
        name += b"\0" * (-len(name) % 8)
    body = fields + name + TRAILER
    return decode.RECORD.pack(kind, misc, decode.RECORD.size + len(body)) + body


def fork_record(pid: int, parent: int) -> bytes:
    # FORK_EXEC: mappings follow as separate records, none are inherited.
    fields = struct.pack("<iiiiQ", pid, parent, pid, parent, 0)
    return _record(decode.FORK, decode.MISC_FORK_EXEC, fields)


def comm_record(pid: int, tid: int, name: bytes) -> bytes:
    return _record(decode.COMM, decode.MODE_USER, struct.pack("<ii", pid, tid), name or b"\0")


def map_records(pid: int, maps: bytes, executable: bytes = b"") -> list[bytes]:
    """Create a record for each executable mapping in the text of /proc/PID/maps.

    Those of the executable come first, as after an exec: a JVM maps its class archive below it.

    >>> len(map_records(7, b"400000-401000 r-xp 00000000 fe:00 12  /bin/true\\n"))
    1
    """
    first: list[bytes] = []
    records: list[bytes] = []
    for line in maps.split(b"\n"):
        match = MAPS_LINE.fullmatch(line)
        if match is None or match[3] != b"x":
            continue
        begin, end = int(match[1], 16), int(match[2], 16)
        # The kernel writes a newline in a path as \012 (fs/seq_file.c, seq_path).
        path = OCTAL.sub(lambda octal: bytes([int(octal[1], 8) & 255]), match[8]) or b"//anon"
        place = (*(int(match[i], 16) for i in (4, 5, 6)), int(match[7]), 0)
        fields = MMAP2_FIELDS.pack(
            pid, pid, begin, end - begin, *place, PROT_READ_EXEC, MAP_PRIVATE
        )
        record = _record(decode.MMAP2, decode.MODE_USER, fields, path)
        (first if path == executable else records).append(record)
    return first + records


def process_records(root: pathlib.Path = sources.ROOT) -> list[bytes]:
    """Create the records of every process in /proc, skipping those that exit meanwhile."""
    records: list[bytes] = []
    for entry in (root / "proc").iterdir():
        if entry.name.isdigit():
            try:
                records += _process(entry, int(entry.name))
            except (OSError, ValueError, IndexError) as error:
                errors.raise_own(error)
    return records


def _process(folder: pathlib.Path, pid: int) -> list[bytes]:
    stat = (folder / "stat").read_bytes()
    # The name may contain spaces and brackets: it ends at the last bracket (proc(5)).
    name = stat[stat.index(b"(") + 1 : stat.rindex(b")")]
    rest = stat[stat.rindex(b")") + 1 :].split()
    parent, threads = int(rest[1]), int(rest[17])
    records = [fork_record(pid, parent), comm_record(pid, pid, name)]
    if threads > 1:
        for task in (folder / "task").iterdir():
            if task.name != folder.name:
                with contextlib.suppress(OSError):
                    name = (task / "comm").read_bytes().rstrip(b"\n")
                    records.append(comm_record(pid, int(task.name), name))
    with contextlib.suppress(PermissionError):  # without CAP_SYS_PTRACE: its name is still known
        maps = (folder / "maps").read_bytes()
        records += map_records(pid, maps, _executable(folder) if maps else b"")
    return records


def _executable(folder: pathlib.Path) -> bytes:
    with contextlib.suppress(OSError):
        return bytes((folder / "exe").readlink())
    return b""


def kernel_records(root: pathlib.Path = sources.ROOT) -> list[bytes]:
    """Create the records of the kernel and its modules; none where addresses are hidden.

    `[kernel.kallsyms]_text` is perf's name for the kernel's own mapping.
    """
    records = []
    begin = end = 0
    try:
        with (root / "proc/kallsyms").open("rb") as file:
            for line in file:
                if line.endswith(b" _text\n"):
                    begin = int(line.split()[0], 16)
                elif line.endswith(b" _etext\n"):
                    end = int(line.split()[0], 16)
                if begin and end:
                    break
        if begin and end > begin:
            records.append(_kernel_record(begin, end - begin, begin, b"[kernel.kallsyms]_text"))
        modules = (root / "proc/modules").read_bytes()
    except (OSError, ValueError, IndexError) as error:
        errors.raise_own(error)
        return records
    for line in modules.splitlines():
        with contextlib.suppress(ValueError, struct.error):
            name, size, _, _, _, address, *_ = line.split()
            if int(address, 16):
                records.append(_kernel_record(int(address, 16), int(size), 0, b"[" + name + b"]"))
    return records


def _kernel_record(begin: int, size: int, page_offset: int, name: bytes) -> bytes:
    fields = struct.pack("<iIQQQ", -1, 0, begin, size, page_offset)
    return _record(decode.MMAP, decode.MODE_KERNEL, fields, name)
