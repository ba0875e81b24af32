"""System calls of one process that took long: what it waits for in the kernel."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from overnight.instruments import _bpftrace
from overnight.model.instrument import Reading, ReadingKind

SLOW_US = 10_000
# Tracepoints have numbers, and tracefs does not list them: those that can take long, on x86-64. Others keep the number.
NAMES = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 9: "mmap", 10:
    "mprotect", 11: "munmap", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23:
    "select", 26: "msync", 28: "madvise", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect", 43:
    "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 56: "clone", 57: "fork", 58: "vfork",
    59: "execve", 61: "wait4", 62: "kill", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 77:
    "ftruncate", 78: "getdents", 82: "rename", 83: "mkdir", 84: "rmdir", 87: "unlink", 101: "ptrace", 162:
    "sync", 165: "mount", 166: "umount2", 202: "futex", 217: "getdents64", 230: "clock_nanosleep", 231:
    "exit_group", 232: "epoll_wait", 247: "waitid", 257: "openat", 262: "newfstatat", 263: "unlinkat", 270:
    "pselect6", 271: "ppoll", 275: "splice", 281: "epoll_pwait", 285: "fallocate", 288: "accept4", 299:
    "recvmmsg", 306: "syncfs", 307: "sendmmsg", 322: "execveat", 324: "membarrier", 326: "copy_file_range", 327:
    "preadv2", 328: "pwritev2", 332: "statx", 426: "io_uring_enter", 435: "clone3", 437: "openat2",
}  # fmt: skip


def make_program(target: str) -> _bpftrace.Program:
    return _bpftrace.Program(
        {"raw_syscalls:sys_enter": ("id",), "raw_syscalls:sys_exit": ("id",)},
        f"""
tracepoint:raw_syscalls:sys_enter /{_bpftrace.match_process(target)}/ {{ @at[tid] = nsecs; }}
tracepoint:raw_syscalls:sys_exit /@at[tid]/ {{
  $ns = nsecs - @at[tid];
  delete(@at[tid]);
  if ($ns >= {SLOW_US}000) {{ @slow[args->id] = stats($ns); @slow_max[args->id] = max($ns); }}
}}
""",
        ("slow", "slow_max"),
        ("at",),
    )


def make_reader(target: str, machine: str = platform.machine()) -> _bpftrace.JsonReader:
    names = NAMES if machine == "x86_64" else {}

    def read_maps(maps: _bpftrace.Maps) -> Iterator[Reading]:
        for key, values in _bpftrace.read_sums(maps, "slow"):
            name = names.get(int(key), f"syscall {key}")
            yield Reading(0, ReadingKind.SYSCALL, subject=name, text=target, values=values)

    return _bpftrace.JsonReader(read_maps)


INSTRUMENT = _bpftrace.Instrument(
    "slow-syscalls",
    "system calls of a process that took 10 ms or longer",
    make_program,
    lambda target, _: make_reader(target),
    target="process",
    needs_target=True,
)
