"""What is left of a boot that ended badly: pstore, kdump, and the shutdown records of wtmp.

A panic in pstore, from ramoops or EFI variables; systemd moves it to /var/lib/systemd/pstore:

    Panic#1 Part1
    <0>[ 4071.250311] Kernel panic - not syncing: softlockup: hung tasks
    <4>[ 4071.250317] CPU: 3 PID: 4711 Comm: kworker/3:1 Tainted: G             L     6.1.0-18-amd64 #1

kdump writes `vmcore-dmesg.txt` or `dmesg.TIME` beside the dump, without the priorities in front.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
import pathlib
import platform
import re
import stat
import struct

from overnight import errors, sources
from overnight.model.text import printable
from overnight.model.times import SECOND_US

PSTORE = "sys/fs/pstore"
PSTORE_FILES = (f"{PSTORE}/dmesg*", *(f"var/lib/systemd/pstore/{depth}dmesg*" for depth in ("", "*/", "*/*/")))  # fmt: skip
KDUMP_FILES = ("var/crash/*/dmesg*", "var/crash/*/dump.*", "var/crash/*/vmcore*")
WTMP = "var/log/wtmp"
MAX_FILES = 200
MAX_BYTES = 256 << 10  # of one file, from its end
MAX_LINES = 2000
MAX_TEXT = 1024
SAME_US = 60 * SECOND_US  # files of one crash are written within this time
# pstore also has the log of an oops, an emergency restart or a shutdown.
PANIC = re.compile(r"^Panic#\d+(?: Part\d+)?$", re.MULTILINE)
LINE = re.compile(
    r"^(?:<(\d{1,3})>)?\[ *(\d{1,10})\.(\d{6})\](?:\[ *[TC]\d+\])? ?(.*)", re.MULTILINE
)
RECORDS = 4096
RUN_LEVEL, BOOT_TIME = 1, 2
# struct utmp: the 64-bit architectures that never ran 32-bit programs have 64-bit times.
UTMP = struct.Struct("<hxxi32s4s32s256shhiii4i20x")
UTMP_64 = struct.Struct("<hxxi32s4s32s256shhqqq4i24x")
TIME64 = ("aarch64", "riscv64", "loongarch64")


@dataclasses.dataclass(frozen=True, order=True)
class Line:
    monotonic_us: int
    level: int  # facility * 8 + priority
    text: str

    @property
    def from_user(self) -> bool:
        """Whether a process wrote it into /dev/kmsg."""
        return self.level > 7

    @property
    def mark(self) -> str:
        """What identifies a crash, whose last line this is, after systemd moved its files."""
        text = f"{self.monotonic_us} {self.text}".encode("utf-8", "replace")
        return hashlib.blake2b(text, digest_size=4).hexdigest()


@dataclasses.dataclass(frozen=True)
class Leftover:
    """The files of one crash; `time_us` is the wall clock at which the first was written."""

    time_us: int
    is_panic: bool
    paths: tuple[str, ...]
    lines: tuple[Line, ...] = ()
    marks: tuple[str, ...] = ()  # of each file with lines

    def merge(self, other: Leftover) -> Leftover:
        return Leftover(
            self.time_us,
            self.is_panic or other.is_panic,
            self.paths + other.paths,
            tuple(sorted({*self.lines, *other.lines})[-MAX_LINES:]),
            self.marks + other.marks,
        )


def parse_log(text: str) -> tuple[Line, ...]:
    """Parse kernel log lines with time stamps; others are left out.

    >>> parse_log("Panic#1 Part1\\n<0>[ 4071.250311][ T4711] Kernel panic - not syncing: x\\n[    1.000000] b\\n")
    (Line(monotonic_us=1000000, level=6, text='b'), Line(monotonic_us=4071250311, level=0, text='Kernel panic - not syncing: x'))
    """
    lines = {
        Line(int(seconds) * SECOND_US + int(rest), int(level or 6), printable(words[:MAX_TEXT]))
        for level, seconds, rest, words in LINE.findall(text)
    }
    return tuple(sorted(lines)[-MAX_LINES:])


def read_leftovers(root: pathlib.Path = sources.ROOT) -> tuple[Leftover, ...]:
    """Read what earlier crashes left, oldest first; none where this process may not."""
    found = (
        _read_file(root, name, is_dump=pattern in KDUMP_FILES)
        for pattern in PSTORE_FILES + KDUMP_FILES
        for name in sorted(glob.glob(pattern, root_dir=root))[-MAX_FILES:]  # noqa: PTH207 - no error ends it
    )
    merged: list[Leftover] = []
    for leftover in sorted(filter(None, found), key=lambda leftover: leftover.time_us):
        if merged and leftover.time_us - merged[-1].time_us <= SAME_US:
            merged[-1] = merged[-1].merge(leftover)
        else:
            merged.append(leftover)
    return tuple(merged)


def _read_file(root: pathlib.Path, name: str, *, is_dump: bool) -> Leftover | None:
    try:
        status = (root / name).lstat()
        # On some distributions every user may write to /var/crash.
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()):
            return None
        text = ""
        if "dmesg" in name and not name.endswith(".enc.z"):  # others are dumps, or compressed
            with (root / name).open("rb") as file:
                file.seek(max(0, status.st_size - MAX_BYTES))
                text = file.read(MAX_BYTES).decode("utf-8", "backslashreplace")
    except OSError as error:
        errors.raise_own(error)
        return None
    lines = parse_log(text)
    return Leftover(
        status.st_mtime_ns // 1000,
        is_dump or bool(PANIC.search(text)),
        (f"/{name}",),
        lines,
        tuple(line.mark for line in lines[-1:]),
    )


def parse_wtmp(data: bytes, after_us: int, *, time64: bool = False) -> bool | None:
    """Return whether the boot before the last one ended with a shutdown; None: not known.

    wtmp(5) has a record of each boot, and of each shutdown before it. Their order counts: the clock of a host
    that boots may be wrong. A last boot before `after_us` means that this host no longer writes wtmp.
    """
    layout = UTMP_64 if time64 else UTMP
    booted = False
    for at in range(len(data) - layout.size, -1, -layout.size):
        kind, _, _, _, user, _, _, _, _, seconds, *_ = layout.unpack_from(data, at)
        if kind == BOOT_TIME and not booted:
            if seconds * SECOND_US < after_us:
                return None
            booted = True
        elif kind == BOOT_TIME:
            return False
        elif booted and kind == RUN_LEVEL and user.rstrip(b"\0") == b"shutdown":
            return True
    return None


def read_shutdown(after_us: int, root: pathlib.Path = sources.ROOT) -> bool | None:
    """Return whether the boot before this one, still running at `after_us`, ended with a shutdown."""
    time64 = platform.machine() in TIME64
    size = (UTMP_64 if time64 else UTMP).size
    try:
        with (root / WTMP).open("rb") as file:
            whole = os.fstat(file.fileno()).st_size // size
            file.seek(max(0, whole - RECORDS) * size)
            data = file.read(min(whole, RECORDS) * size)
    except OSError as error:
        errors.raise_own(error)
        return None
    return parse_wtmp(data, after_us, time64=time64)


def read_pstore_backend(root: pathlib.Path = sources.ROOT) -> str | None:
    """Return where the kernel keeps the log of a panic, such as `efi_pstore`; None: nowhere."""
    raw = sources.read_once(root / "sys/module/pstore/parameters/backend") or b""
    name = raw.decode("ascii", "replace").strip()
    return None if name in ("", "(null)") else name


def is_crash_kernel_loaded(root: pathlib.Path = sources.ROOT) -> bool:
    return (sources.read_once(root / "sys/kernel/kexec_crash_loaded") or b"").strip() == b"1"
