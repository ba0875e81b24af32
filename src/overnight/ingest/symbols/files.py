"""Finds the file that a process has mapped, also in containers."""

from __future__ import annotations

import dataclasses
import pathlib
import stat

from overnight import errors
from overnight.ingest.symbols import elf, image

MAX_PERF_MAP = 64 << 20


@dataclasses.dataclass(frozen=True)
class LiveFiles:
    """Files of this host's processes, while they run and afterwards.

    `build_ids` are those recorded in the capture, by module and pid, or pid -1 for all processes. A file
    with another id was replaced since and is ignored: it would give wrong names.
    """

    root: pathlib.Path = pathlib.Path("/")
    build_ids: dict[tuple[str, int], str] = dataclasses.field(default_factory=dict)

    def find(self, module: str, pid: int) -> pathlib.Path | None:
        """Find the file of a mapping: in the process's root, else in this host's."""
        wanted = self.build_ids.get((module, pid)) or self.build_ids.get((module, -1))
        for path in self._candidates(module, pid):
            if _is_file(path) and (wanted is None or elf.read_build_id(path) == wanted):
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
