"""A plan that a real server carries out on hosts with real agents, followed by the real command line."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

import impatient
import serverprocesses


class Night:
    """A server, its data home, and the commands that ask it; `environment` is that of the server."""

    def __init__(self, folder: pathlib.Path, **environment: str) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(mode=0o700)
        self._environment = environment
        self.database = f"sqlite:///{self.home / 'pools' / 'pools.db'}"
        self.server = self._serve("127.0.0.1:0")
        self.token = self.server.create_token("admin", name="ana")

    def _serve(self, listen: str) -> serverprocesses.Server:
        command = ["env", *(f"{name}={value}" for name, value in self._environment.items()), *impatient.COMMAND]  # fmt: skip
        return serverprocesses.Server(
            self.home, "--interval", "500ms", "--listen", listen,
            database=self.database, command=command,
        )  # fmt: skip

    def replace_server(self) -> None:
        """Kill the server, and start another one at the same address."""
        self.server.stop(9)
        self.server = self._serve(urllib.parse.urlsplit(self.server.url).netloc)

    def start(self, *words: str) -> subprocess.Popen[str]:
        env = {**os.environ, "OVERNIGHT_TOKEN": self.token, "OVERNIGHT_HOME": str(self.folder / "no")}  # fmt: skip
        return subprocess.Popen(
            [*serverprocesses.OVERNIGHT, "--server", self.server.url, *words],
            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask_first(self, *words: str) -> str:
        """Start a command that follows an investigation, leave it, and return the id of the investigation."""
        with self.start(*words) as command:
            assert command.stderr is not None
            line = next(line for line in command.stderr if not line.startswith("note: "))
            command.kill()
        return line.split()[0]

    def show(self, investigation_id: str) -> Any:
        with self.start("run", "status", investigation_id, "-O", "json") as command:
            output, notes = command.communicate(timeout=60)
        return json.loads(output) if output else {"arms": [], "phase": "", "notes": notes}

    def wait_for(
        self, investigation_id: str, holds: Callable[[Any], bool], seconds: float = 120
    ) -> Any:
        deadline = time.monotonic() + seconds
        while not holds(now := self.show(investigation_id)):
            assert time.monotonic() < deadline, now
            time.sleep(2)
        return now

    def write_plan(self, text: str) -> str:
        path = self.folder / "plan.yaml"
        path.write_text(text)
        return str(path)

    def read(self, path: str) -> Any:
        """Return what the server has at a path."""
        status, content = serverprocesses.Client(self.server.url, self.token).ask("GET", path)
        assert status == 200, content
        return content

    def close(self) -> None:
        if self.server.process.poll() is None:
            self.server.stop()
        serverprocesses.Client.close_all()


def list_processes(of: str) -> list[str]:
    """Return the command lines that name a text, besides those of this process."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if re.search(re.escape(of), words) and folder.name != str(os.getpid()):
            found.append(words)
    return found
