"""perf.data records and whole files, byte by byte, for tests of readers."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence

MMAP, LOST, COMM, EXIT, FORK, SAMPLE, MMAP2, LOST_SAMPLES = 1, 2, 3, 4, 7, 9, 10, 13
HEADER_ATTR, TRACING_DATA, FINISHED_ROUND, FEATURE, COMPRESSED, COMPRESSED2 = 64, 66, 68, 80, 81, 83
KERNEL, USER, HYPERVISOR = 1, 2, 3
MISC_DATA = MISC_COMM_EXEC = MISC_FORK_EXEC = 1 << 13
MISC_BUILD_ID = 1 << 14
IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD, STREAM_ID = (1 << bit for bit in range(10))
IDENTIFIER = 1 << 16
ENABLED, RUNNING, READ_ID, GROUP, READ_LOST = (1 << bit for bit in range(5))
EXECUTABLE = 4
IN_KERNEL, IN_USER, IN_GUEST = 2**64 - 128, 2**64 - 512, 2**64 - 2048
HOSTNAME, NRCPUS, EVENT_DESC, CLOCK_DATA = 3, 7, 12, 29


def record(kind: int, body: bytes = b"", misc: int = 0, size: int | None = None) -> bytes:
    """Build one record; `size` overrides the size in its header."""
    return struct.pack("<IHH", kind, misc, len(body) + 8 if size is None else size) + body


def text(name: bytes) -> bytes:
    """Format a name as the kernel does: zero-terminated, padded to eight bytes."""
    return name + bytes(8 - len(name) % 8)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The sample type of a file; builds its records."""

    type: int = IP | TID | TIME | CALLCHAIN | CPU | PERIOD
    read_format: int = 0
    id_all: bool = True
    build_ids: bool = False

    def tail(self, time: int, pid: int = 0, tid: int = 0, cpu: int = 0, event: int = 0) -> bytes:
        """Return the sample id at the end of records that are not samples."""
        fields = (
            (TID, struct.pack("<ii", pid, tid)),
            (TIME, struct.pack("<Q", time)),
            (ID, struct.pack("<Q", event)),
            (STREAM_ID, struct.pack("<Q", event)),
            (CPU, struct.pack("<iI", cpu, 0)),
            (IDENTIFIER, struct.pack("<Q", event)),
        )
        return b"".join(b for bit, b in fields if self.type & bit) if self.id_all else b""

    def sample(
        self,
        time: int = 0,
        chain: Sequence[int] = (),
        *,
        pid: int = 10,
        tid: int | None = None,
        cpu: int = 0,
        ip: int = 0,
        period: int = 1,
        event: int = 0,
        mode: int = USER,
        read: Sequence[int] = (),
    ) -> bytes:
        fields = (
            (IDENTIFIER, struct.pack("<Q", event)),
            (IP, struct.pack("<Q", ip)),
            (TID, struct.pack("<ii", pid, pid if tid is None else tid)),
            (TIME, struct.pack("<Q", time)),
            (ADDR, struct.pack("<Q", 0xADD4)),
            (ID, struct.pack("<Q", event)),
            (STREAM_ID, struct.pack("<Q", 0x57AE)),
            (CPU, struct.pack("<iI", cpu, 0)),
            (PERIOD, struct.pack("<Q", period)),
            (READ, struct.pack(f"<{len(read)}Q", *read)),
            (CALLCHAIN, struct.pack(f"<Q{len(chain)}Q", len(chain), *chain)),
        )
        return record(SAMPLE, b"".join(b for bit, b in fields if self.type & bit), mode)

    def comm(
        self, time: int, tid: int, name: bytes, pid: int | None = None, misc: int = 0
    ) -> bytes:
        owner = tid if pid is None else pid
        return record(COMM, struct.pack("<ii", owner, tid) + text(name) + self.tail(time), misc)

    def fork(
        self, time: int, pid: int, parent: int, tid: int = -1, parent_tid: int = -1, misc: int = 0
    ) -> bytes:
        tids = (pid if tid < 0 else tid, parent if parent_tid < 0 else parent_tid)
        body = struct.pack("<iiiiQ", pid, parent, *tids, time)
        return record(FORK, body + self.tail(time), misc)

    def exit(self, time: int, pid: int, tid: int | None = None) -> bytes:
        body = struct.pack("<iiiiQ", pid, pid, pid if tid is None else tid, pid, time)
        return record(EXIT, body + self.tail(time))

    def mmap(
        self,
        time: int,
        start: int,
        length: int,
        name: bytes,
        *,
        pid: int = 10,
        offset: int = 0,
        misc: int = USER,
    ) -> bytes:
        body = struct.pack("<iiQQQ", pid, pid, start, length, offset)
        return record(MMAP, body + text(name) + self.tail(time), misc)

    def mmap2(
        self,
        time: int,
        start: int,
        length: int,
        name: bytes,
        *,
        pid: int = 10,
        offset: int = 0,
        inode: int = 0,
        build_id: bytes | None = None,
        protection: int = EXECUTABLE,
        misc: int = USER,
    ) -> bytes:
        body = struct.pack("<iiQQQ", pid, pid, start, length, offset)
        if build_id is None:
            body += struct.pack("<IIQQ", 8, 1, inode, 0)
        else:
            misc |= MISC_BUILD_ID
            body += struct.pack("<B3x20s", len(build_id), build_id)
        body += struct.pack("<II", protection, 2)
        return record(MMAP2, body + text(name) + self.tail(time), misc)

    def attr(self, config: int = 0, frequency: int = 499, size: int = 128) -> bytes:
        """Struct perf_event_attr of a software event."""
        flags = 1 << 10 | self.id_all << 18 | self.build_ids << 34
        head = struct.pack(
            "<IIQQQQQ", 1, size, config, frequency, self.type, self.read_format, flags
        )
        return head.ljust(size, b"\0")


def lost(count: int) -> bytes:
    return record(LOST, struct.pack("<QQ", 0, count))


def lost_samples(count: int) -> bytes:
    return record(LOST_SAMPLES, struct.pack("<Q", count))


def packed(piece: bytes) -> bytes:
    return record(COMPRESSED, piece)


def packed2(piece: bytes) -> bytes:
    """Build the record of perf 6.16 and later: the true length, and zeros up to eight bytes."""
    return record(
        COMPRESSED2, struct.pack("<Q", len(piece)) + piece.ljust(-(-len(piece) // 8) * 8, b"\0")
    )


def string_feature(name: bytes) -> bytes:
    return struct.pack("<I", 64) + name.ljust(64, b"\0")


def event_desc(names: Sequence[bytes], attr: bytes, ids: Sequence[Sequence[int]]) -> bytes:
    parts = [struct.pack("<II", len(names), len(attr))]
    for name, event_ids in zip(names, ids, strict=True):
        parts += [attr, struct.pack("<II", len(event_ids), 64), name.ljust(64, b"\0")]
        parts.append(struct.pack(f"<{len(event_ids)}Q", *event_ids))
    return b"".join(parts)


def file(
    attrs: Sequence[bytes],
    records: Iterable[bytes],
    *,
    ids: Sequence[Sequence[int]] = (),
    features: dict[int, bytes] | None = None,
    finished: bool = True,
) -> bytes:
    """A whole perf.data file as `perf record` writes it."""
    features = features or {} if finished else {}
    packed_ids = [
        struct.pack(f"<{len(few)}Q", *few) for few in (*ids, *[()] * (len(attrs) - len(ids)))
    ]
    ids_at = 104
    attrs_at = ids_at + sum(map(len, packed_ids))
    table = b""
    for attr, few in zip(attrs, packed_ids, strict=True):
        table += attr + struct.pack("<QQ", ids_at, len(few))
        ids_at += len(few)
    data = b"".join(records)
    data_at = attrs_at + len(table)
    head = struct.pack(
        "<8s8Q", b"PERFILE2", 104, len(attrs[0]) + 16, attrs_at, len(table), data_at,
        len(data) if finished else 0, 0, 0,
    )  # fmt: skip
    head += sum(1 << number for number in features).to_bytes(32, "little")
    sections, at = b"", data_at + len(data) + 16 * len(features)
    for _, content in sorted(features.items()):
        sections += struct.pack("<QQ", at, len(content))
        at += len(content)
    parts = [content for _, content in sorted(features.items())]
    return head + b"".join(packed_ids) + table + data + sections + b"".join(parts)


def pipe(
    attrs: Sequence[bytes],
    records: Iterable[bytes],
    *,
    ids: Sequence[Sequence[int]] = (),
    features: dict[int, bytes] | None = None,
) -> bytes:
    """What `perf record -o -` writes."""
    all_ids = (*ids, *[()] * (len(attrs) - len(ids)))
    head = [struct.pack("<8sQ", b"PERFILE2", 16)]
    for attr, few in zip(attrs, all_ids, strict=True):
        head.append(record(HEADER_ATTR, attr + struct.pack(f"<{len(few)}Q", *few)))
    for number, content in (features or {}).items():
        head.append(record(FEATURE, struct.pack("<Q", number) + content))
    return b"".join([*head, *records])
