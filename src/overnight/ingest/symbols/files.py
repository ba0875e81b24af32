"""Finds the file that a process has mapped, also in containers, and reads the vdso."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import stat

from overnight import errors
from overnight.ingest.symbols import elf, image

MAX_PERF_MAP = 64 << 20
MAX_VDSO = 1 << 20
VDSO = "[vdso]"
VDSO_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) r.*\[vdso\]$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class LiveFiles:
    """Files of this host's processes, while they run and afterwards."""

    root: pathlib.Path = pathlib.Path("/")

    def find(self, module: str, pid: int, build_id: str = "") -> pathlib.Path | None:
        """Find the file of a mapping: in the process's root, else in this host's.

        A file with another build id (hex) was replaced since and is ignored: its names would be wrong.
        """
        for path in self._candidates(module, pid):
            # perf records at most 20 bytes of it.
            if _is_file(path) and (
                not build_id or (elf.read_build_id(path) or "").startswith(build_id)
            ):
                return path
        return None

    def perf_map(self, pid: int) -> bytes | None:
        """Read the map of a JIT compiler, which is named by its pid inside its container."""
        for inside in dict.fromkeys((self._own_pid(pid), pid)):
            for path in self._candidates(f"/tmp/perf-{inside}.map", pid):  # noqa: S108 - where JIT compilers put it
                if _is_file(path):
                    try:
                        return image.read_whole(path, MAX_PERF_MAP)
                    except errors.DamagedFileError:
                        continue
        return None

    def _candidates(self, module: str, pid: int) -> list[pathlib.Path]:
        relative = module.lstrip("/")
        if not module.startswith("/") or "\0" in module:
            return []
        seen = [self.root / "proc" / str(pid) / "root" / relative] if pid > 0 else []
        return [*seen, self.root / relative]

    def _own_pid(self, pid: int) -> int:
        try:
            status = (self.root / "proc" / str(pid) / "status").read_text(errors="replace")
        except OSError:
            return pid
        for line in status.splitlines():
            if line.startswith("NSpid:"):
                last = line.split()[-1]
                return int(last) if last.isdecimal() else pid
        return pid


def _is_file(path: pathlib.Path) -> bool:
    """Like `Path.is_file`, but False without permission, as for other users' roots."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def read_vdso(proc: pathlib.Path = pathlib.Path("/proc/self")) -> bytes | None:
    """Read the vdso, the library that the kernel maps into every process (`clock_gettime`), from memory.

    All 64-bit processes of one boot share it. None where it is missing or not readable.
    """
    try:
        mapping = VDSO_MAPPING.search((proc / "maps").read_bytes())
        if mapping is None:
            return None
        begin, end = int(mapping[1], 16), int(mapping[2], 16)
        with (proc / "mem").open("rb") as memory:
            memory.seek(begin)
            return memory.read(min(end - begin, MAX_VDSO))
    except OSError:
        return None
