"""perf_event_open(2) through ctypes: needs neither a perf binary nor compiled code."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import itertools
import os
import platform
import struct

from overnight.sources.perf import decode

# include/uapi/asm-generic/unistd.h (241) and the tables of the older architectures.
SYSCALL = {
    "x86_64": 298,
    "aarch64": 241,
    "riscv64": 241,
    "loongarch64": 241,
    "ppc64le": 319,
    "s390x": 331,
}

TYPE_HARDWARE, TYPE_SOFTWARE = 0, 1
HW_CPU_CYCLES, SW_CPU_CLOCK = 0, 0
FLAG_FD_CLOEXEC = 8
CLOCK_MONOTONIC = 1

DISABLED, EXCLUDE_KERNEL, FREQ = 1 << 0, 1 << 5, 1 << 10
SAMPLE_ID_ALL, USE_CLOCKID = 1 << 18, 1 << 25
MMAP, COMM, TASK, WATERMARK = 1 << 8, 1 << 9, 1 << 13, 1 << 14
MMAP2, COMM_EXEC = 1 << 23, 1 << 24
KSYMBOL, BPF_EVENT = 1 << 29, 1 << 30  # Linux 5.1
SIDE_BAND = MMAP | MMAP2 | COMM | COMM_EXEC | TASK | KSYMBOL | BPF_EVENT

FORMAT_TOTAL_TIME_ENABLED = 1 << 0
FORMAT_LOST = 1 << 4  # Linux 6.0

IOC_ENABLE, IOC_ID = 0x2400, 0x80082407

# PERF_ATTR_SIZE_VER5 (Linux 4.1), 112 bytes: holds clockid, and every kernel since accepts it.
ATTR = struct.Struct("<IIQQQQQI40xi16x")


@dataclasses.dataclass(frozen=True)
class EventAttr:
    """The part of struct perf_event_attr that sampling needs."""

    type: int = TYPE_SOFTWARE
    config: int = SW_CPU_CLOCK
    frequency: int = 97
    sample_type: int = decode.IP | decode.TID | decode.TIME | decode.CALLCHAIN | decode.CPU
    flags: int = DISABLED | FREQ | SAMPLE_ID_ALL | USE_CLOCKID
    wakeup: int = 0  # samples, or bytes with the flag WATERMARK
    read_format: int = 0

    def pack(self) -> bytes:
        event = (self.type, ATTR.size, self.config, self.frequency)
        content = (self.sample_type, self.read_format, self.flags, self.wakeup)
        return ATTR.pack(*event, *content, CLOCK_MONOTONIC)


def open_event(attr: EventAttr, *, pid: int, cpu: int) -> int:
    """Open a perf event and return its descriptor; raise OSError with the kernel's reason."""
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open is unknown on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    packed = attr.pack()
    buffer = ctypes.create_string_buffer(packed, len(packed))
    descriptor: int = libc.syscall(number, buffer, pid, cpu, -1, FLAG_FD_CLOEXEC)
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return descriptor


@dataclasses.dataclass(frozen=True)
class Probe:
    """The result of opening a perf event on every core."""

    cores: tuple[int, ...]  # where whole-core sampling opened
    refused: dict[int, str]  # core -> the kernel's reason
    kernel_stacks: bool
    hardware_cycles: bool
    own_process: bool

    @property
    def everywhere(self) -> bool:
        return bool(self.cores) and not self.refused


def _opens(attr: EventAttr, *, pid: int, cpu: int) -> str:
    """Return "" when the event opens, else the kernel's reason."""
    try:
        os.close(open_event(attr, pid=pid, cpu=cpu))
    except OSError as error:
        return f"{errno.errorcode.get(error.errno or 0, error.errno)}: {error.strerror}"
    return ""


def best_attr(attr: EventAttr, core: int) -> EventAttr:
    """Find the best event that the kernel allows on a core; raise OSError with its reason for refusing.

    Prefers hardware cycles to the CPU clock, and kernel stacks to none. Leaves out BPF symbols and the
    count of lost samples where the kernel is too old for them.
    """
    cycles = dataclasses.replace(attr, type=TYPE_HARDWARE, config=HW_CPU_CYCLES)
    clock = dataclasses.replace(attr, type=TYPE_SOFTWARE, config=SW_CPU_CLOCK)
    too_new = ((0, 0), (0, FORMAT_LOST), (KSYMBOL | BPF_EVENT, FORMAT_LOST))
    refusal = OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    for privacy, base, (flags, form) in itertools.product(
        (0, EXCLUDE_KERNEL), (cycles, clock), too_new
    ):
        candidate = dataclasses.replace(
            base, flags=base.flags & ~flags | privacy, read_format=base.read_format & ~form
        )
        try:
            os.close(open_event(candidate, pid=-1, cpu=core))
        except OSError as error:
            refusal = error
        else:
            return candidate
    raise refusal


def probe(cores: tuple[int, ...]) -> Probe:
    """Open and close one sampling event on each core, with kernel stacks first."""
    attr = EventAttr()
    user_only = dataclasses.replace(attr, flags=attr.flags | EXCLUDE_KERNEL)
    opened, refused = [], {}
    kernel_stacks = True
    for core in cores:
        reason = _opens(attr, pid=-1, cpu=core)
        if reason:
            kernel_stacks = False
            reason = _opens(user_only, pid=-1, cpu=core) and reason
        if reason:
            refused[core] = reason
        else:
            opened.append(core)
    cycles = dataclasses.replace(attr, type=TYPE_HARDWARE, config=HW_CPU_CYCLES)
    return Probe(
        cores=tuple(opened),
        refused=refused,
        kernel_stacks=kernel_stacks and bool(opened),
        hardware_cycles=bool(opened) and not _opens(cycles, pid=-1, cpu=opened[0]),
        own_process=not _opens(user_only, pid=0, cpu=-1),
    )
