"""A host in a folder that came back after a crash: its boot id, uptime, pstore, kdump and wtmp."""

from __future__ import annotations

import os
import pathlib
import platform

from overnight.sources import crashes

TYPES = {"boot": crashes.BOOT_TIME, "shutdown": crashes.RUN_LEVEL, "login": 7}
USERS = {"boot": b"reboot", "shutdown": b"shutdown", "login": b"anna"}


def wtmp(*records: tuple[str, float], time64: bool | None = None) -> bytes:
    """Return the records of `boot`, `shutdown` and `login` at those seconds, as this machine writes them."""
    wide = platform.machine() in crashes.TIME64 if time64 is None else time64
    layout = crashes.UTMP_64 if wide else crashes.UTMP
    return b"".join(
        layout.pack(TYPES[kind], 0, b"~", b"~~", USERS[kind], b"6.1.0", 0, 0, 0, int(seconds), 0, 0, 0, 0, 0)
        for kind, seconds in records
    )  # fmt: skip


class CrashedHost:
    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def put(self, path: str, text: str | bytes, seconds: float | None = None) -> None:
        """Write a file, as of that time."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        if seconds is not None:
            os.utime(file, (seconds, seconds))

    def reboot(self, boot: str, uptime: float) -> None:
        self.put("proc/sys/kernel/random/boot_id", f"{boot}\n")
        self.put("proc/uptime", f"{uptime:.2f} 1.00\n")
