"""Which process wrote a file: a PID is reused, but not with the same start time and boot."""

from __future__ import annotations

import pathlib


def read_stat(pid: int) -> tuple[str, str]:
    """Return state and start time in ticks since boot; ("X", "") where the process is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # The name may hold any bytes, also brackets: it ends at the last bracket (proc(5)).
        fields = text.rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return "X", ""


def read_start(pid: int) -> str:
    return read_stat(pid)[1]


def read_boot() -> str:
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def read_identity(pid: int) -> dict[str, str]:
    """Return `started` and `boot`, as files store them."""
    return {"started": read_start(pid), "boot": read_boot()}


def is_running(pid: int, started: str, boot: str) -> bool:
    return bool(started) and boot == read_boot() and read_start(pid) == started
