"""The kernel's release, and what it shows this process: perf events, symbol addresses, processes."""

from __future__ import annotations

import os
import pathlib

from overnight import sources


def read_release(root: pathlib.Path = sources.ROOT) -> str:
    """Read the kernel's release, such as `6.1.0-18-amd64`."""
    return (root / "proc/sys/kernel/osrelease").read_text().strip()


def read_uptime() -> float:
    """Return the seconds since boot; 0 where they cannot be read."""
    return float((sources.read_once("/proc/uptime") or b"0").split()[0])


def read_paranoid(root: pathlib.Path = sources.ROOT) -> int | None:
    """Read kernel.perf_event_paranoid; None when the kernel has no perf events."""
    try:
        return int((root / "proc/sys/kernel/perf_event_paranoid").read_text())
    except (FileNotFoundError, ValueError):
        return None


def has_addresses(kallsyms: str) -> bool:
    """Return whether symbol addresses are real: without permission the kernel prints zeros.

    >>> has_addresses("0000000000000000 T _text\\n"), has_addresses("ffffffff81000000 T _text\\n")
    (False, True)
    """
    return any(line.split(" ", 1)[0].strip("0") for line in kallsyms.splitlines() if line)


def read_kallsyms_visible(root: pathlib.Path = sources.ROOT) -> bool:
    """Return whether this process may see kernel symbol addresses."""
    # The first page suffices: the file has 200,000 lines.
    page = sources.read_once(root / "proc/kallsyms") or b""
    return has_addresses(page.decode("ascii", "replace"))


def read_processes_visible(root: pathlib.Path = sources.ROOT) -> bool:
    """Return whether this process may see files of another user's process, or there is no such process."""
    refused = False
    for name in filter(str.isdigit, sources.list_folder(str(root / "proc"))):
        process = root / "proc" / name
        try:
            if process.stat().st_uid != os.geteuid():
                # Needs the permission to trace it, also where CAP_PERFMON opens its maps (measured on 6.18).
                (process / "root").readlink()
                return True
        except FileNotFoundError:
            continue  # it has ended
        except OSError:
            refused = True
    return not refused
