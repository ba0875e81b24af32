"""The vdso: the small library that the kernel maps into every process (`clock_gettime`).

It is not a file. All 64-bit processes of one boot share it, so this process's own copy is used.
"""

from __future__ import annotations

import pathlib
import re

VDSO = "[vdso]"

MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) r.*\[vdso\]$", re.MULTILINE)
MAX_BYTES = 1 << 20


def read_vdso(proc: pathlib.Path = pathlib.Path("/proc/self")) -> bytes | None:
    """Read the image from this process's memory; None where it is missing or not readable."""
    try:
        mapping = MAPPING.search((proc / "maps").read_bytes())
        if mapping is None:
            return None
        begin, end = int(mapping[1], 16), int(mapping[2], 16)
        with (proc / "mem").open("rb") as memory:
            memory.seek(begin)
            return memory.read(min(end - begin, MAX_BYTES))
    except OSError:
        return None
