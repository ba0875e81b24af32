"""What is left of a boot that ended badly: pstore, kdump, and the shutdown records of wtmp.

A panic in pstore, from ramoops or EFI variables; systemd moves it to /var/lib/systemd/pstore:

    Panic#1 Part1
    <0>[ 4071.250311] Kernel panic - not syncing: softlockup: hung tasks
    <4>[ 4071.250317] CPU: 3 PID: 4711 Comm: kworker/3:1 Tainted: G             L     6.1.0-18-amd64 #1

kdump writes `vmcore-dmesg.txt` or `dmesg.TIME` beside the dump, without the priorities in front.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import pathlib
import platform
import re
import stat
import struct
from collections.abc import Iterator

from overnight import errors, sources
from overnight.model.text import printable
from overnight.model.times import SECOND_US

PSTORE = ("sys/fs/pstore", "var/lib/systemd/pstore")
KDUMP = "var/crash"
WTMP = "var/log/wtmp"
MAX_FILES = 200
MAX_BYTES = 256 << 10  # of one file, from its end
MAX_LINES = 2000
MAX_TEXT = 1024
SAME_US = 60 * SECOND_US  # files of one crash are written within this time
HEADER = re.compile(r"^(Panic|Oops|Emergency)#\d+(?: Part\d+)?$", re.MULTILINE)
LINE = re.compile(r"(?:<(\d{1,3})>)?\[ *(\d{1,10})\.(\d{6})\](?:\[ *[TC]\d+\])? ?(.*)")
RECORDS = 4096
RUN_LEVEL, BOOT_TIME = 1, 2
# struct utmp: the 64-bit architectures that never ran 32-bit programs have 64-bit times.
UTMP = struct.Struct("<hxxi32s4s32s256shhiii4i20x")
UTMP_64 = struct.Struct("<hxxi32s4s32s256shhqqq4i24x")
TIME64 = ("aarch64", "riscv64", "loongarch64")


class Reason(enum.StrEnum):
    """Why the kernel wrote its log, the worst first."""

    PANIC = "panic"
    OOPS = "oops"
    EMERGENCY = "emergency"
    UNKNOWN = "unknown"  # it is compressed, or empty


@dataclasses.dataclass(frozen=True, order=True)
class Line:
    monotonic_us: int
    level: int  # facility * 8 + priority
    text: str

    @property
    def from_user(self) -> bool:
        """Whether a process wrote it into /dev/kmsg."""
        return self.level > 7


@dataclasses.dataclass(frozen=True)
class Leftover:
    """The files of one crash; `time_us` is the wall clock at which the first was written."""

    time_us: int
    reason: Reason
    paths: tuple[str, ...]
    lines: tuple[Line, ...] = ()


class Ending(enum.Enum):
    """How the boot before this one ended."""

    SHUTDOWN = enum.auto()
    NO_SHUTDOWN = enum.auto()
    UNKNOWN = enum.auto()


def parse_log(text: str) -> tuple[Line, ...]:
    """Parse kernel log lines with time stamps; others are left out.

    >>> parse_log("Panic#1 Part1\\n<0>[ 4071.250311][ T4711] Kernel panic - not syncing: x\\n[    1.000000] b\\n")
    (Line(monotonic_us=1000000, level=6, text='b'), Line(monotonic_us=4071250311, level=0, text='Kernel panic - not syncing: x'))
    """
    matches = filter(None, map(LINE.match, text.splitlines()))
    lines = {
        Line(
            int(match[2]) * SECOND_US + int(match[3]),
            int(match[1] or 6),
            printable(match[4][:MAX_TEXT]),
        )
        for match in matches
    }
    return tuple(sorted(lines)[-MAX_LINES:])


def parse_reason(text: str) -> Reason:
    reasons = {match[1].lower() for match in HEADER.finditer(text)}
    return next((reason for reason in Reason if reason in reasons), Reason.UNKNOWN)


def read_leftovers(root: pathlib.Path = sources.ROOT) -> tuple[Leftover, ...]:
    """Read what earlier crashes left, oldest first; none where this process may not."""
    single = [
        _leftover(root, path, status, None)
        for folder in PSTORE
        for path, status in _files(root / folder, depth=3)
        if path.name.startswith("dmesg")
    ]
    for crash in sources.list_folder(str(root / KDUMP))[-MAX_FILES:]:
        files = [
            (path, status)
            for path, status in _files(root / KDUMP / crash, depth=1)
            if path.name.startswith(("vmcore", "dump.", "dmesg"))
        ]
        single += [_leftover(root, path, status, Reason.PANIC) for path, status in files]
    merged: list[Leftover] = []
    for leftover in sorted(single, key=lambda leftover: leftover.time_us):
        if merged and leftover.time_us - merged[-1].time_us <= SAME_US:
            merged[-1] = _merge(merged[-1], leftover)
        else:
            merged.append(leftover)
    return tuple(merged)


def _files(folder: pathlib.Path, depth: int) -> Iterator[tuple[pathlib.Path, os.stat_result]]:
    for name in sources.list_folder(str(folder))[-MAX_FILES:]:
        path = folder / name
        try:
            status = path.lstat()
        except OSError as error:
            errors.raise_own(error)
            continue
        if stat.S_ISREG(status.st_mode):
            yield path, status
        elif stat.S_ISDIR(status.st_mode) and depth > 1:
            yield from _files(path, depth - 1)


def _leftover(
    root: pathlib.Path, path: pathlib.Path, status: os.stat_result, reason: Reason | None
) -> Leftover:
    is_dump = "dmesg" not in path.name or path.name.endswith(".enc.z")
    text = "" if is_dump else _tail(path)
    return Leftover(
        status.st_mtime_ns // 1000,
        reason or parse_reason(text),
        ("/" + str(path.relative_to(root)),),
        parse_log(text),
    )


def _tail(path: pathlib.Path) -> str:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - MAX_BYTES))
            return file.read(MAX_BYTES).decode("utf-8", "backslashreplace")
    except OSError as error:
        errors.raise_own(error)
        return ""


def _merge(first: Leftover, second: Leftover) -> Leftover:
    reasons = (first.reason, second.reason)
    return Leftover(
        first.time_us,
        next(reason for reason in Reason if reason in reasons),
        first.paths + second.paths,
        tuple(sorted({*first.lines, *second.lines})[-MAX_LINES:]),
    )


def parse_wtmp(data: bytes, after_us: int, *, time64: bool = False) -> Ending:
    """Return how the boot before the last one ended; UNKNOWN if the last one began before `after_us`.

    wtmp(5) has a record of each boot, and of each shutdown before it. Their order counts: the clock of a host
    that boots may be wrong.
    """
    layout = UTMP_64 if time64 else UTMP
    booted = False
    for at in range(len(data) - layout.size, -1, -layout.size):
        kind, _, _, _, user, _, _, _, _, seconds, *_ = layout.unpack_from(data, at)
        if kind == BOOT_TIME and not booted:
            if seconds * SECOND_US < after_us:
                return Ending.UNKNOWN  # this host no longer writes wtmp
            booted = True
        elif kind == BOOT_TIME:
            return Ending.NO_SHUTDOWN
        elif booted and kind == RUN_LEVEL and user.rstrip(b"\0") == b"shutdown":
            return Ending.SHUTDOWN
    return Ending.UNKNOWN


def read_ending(after_us: int, root: pathlib.Path = sources.ROOT) -> Ending:
    """Read how the boot before this one ended, which was still running at `after_us`."""
    time64 = platform.machine() in TIME64
    size = (UTMP_64 if time64 else UTMP).size
    try:
        with (root / WTMP).open("rb") as file:
            whole = os.fstat(file.fileno()).st_size // size
            file.seek(max(0, whole - RECORDS) * size)
            data = file.read(min(whole, RECORDS) * size)
    except OSError as error:
        errors.raise_own(error)
        return Ending.UNKNOWN
    return parse_wtmp(data, after_us, time64=time64)


def read_pstore_backend(root: pathlib.Path = sources.ROOT) -> str | None:
    """Return where the kernel keeps the log of a panic, such as `efi_pstore`; None: nowhere."""
    raw = sources.read_once(root / "sys/module/pstore/parameters/backend") or b""
    name = raw.decode("ascii", "replace").strip()
    return None if name in ("", "(null)") else name


def is_crash_kernel_loaded(root: pathlib.Path = sources.ROOT) -> bool:
    return (sources.read_once(root / "sys/kernel/kexec_crash_loaded") or b"").strip() == b"1"
