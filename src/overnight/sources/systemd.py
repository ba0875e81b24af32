"""Whether a systemd runs this host, and what state it says it is in."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

from overnight import sources

__all__ = ["booted", "manager_state"]


def booted(root: pathlib.Path = sources.ROOT) -> bool:
    """Whether systemd is PID 1: sd_booted(3) defines it by this folder."""
    return (root / "run/systemd/system").is_dir()


def manager_state() -> str | None:
    """`running`, `degraded`, `offline` …; None when systemctl is missing or does not answer."""
    if shutil.which("systemctl") is None:
        return None
    try:
        done = subprocess.run(
            ["systemctl", "is-system-running"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return None
    return done.stdout.strip() or None
