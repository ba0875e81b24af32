"""Run the commands of a page of docs/ in one shell, in order."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def text(page: str) -> str:
    """Return the text of a page."""
    return (DOCS / page).read_text()


def blocks(written: str, language: str = "sh") -> list[str]:
    """Return the code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", written, re.MULTILINE | re.DOTALL)


class Shell:
    """A folder with its own data home and `overnight` on the path."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.home = folder / "home"
        self.overnight = folder / "bin/overnight"
        self.overnight.parent.mkdir()
        self.overnight.write_text(f'#!/bin/sh\nexec {sys.executable} -m overnight "$@"\n')
        self.overnight.chmod(0o755)

    def run(self, commands: list[str], *, seconds: float) -> tuple[int, str]:
        """Run commands until one fails, stop background processes, and return exit code and output."""
        script = "set -euo pipefail\n" + "".join(commands) + 'kill "$(jobs -p)"\nwait\n'
        path = f"{self.overnight.parent}:{os.environ['PATH']}"
        running = subprocess.Popen(
            ["bash", "-c", script],
            env={**os.environ, "PATH": path, "OVERNIGHT_HOME": str(self.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._kill_members()
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        return running.returncode, output

    def _kill_members(self) -> None:
        """Kill pool members, which outlive their control plane on purpose."""
        for agent in (self.home / "pools/machines").glob("*/agent"):
            pid = int(agent.read_text().split()[0])
            with contextlib.suppress(OSError):
                if str(self.home) in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)
