"""Run the user data of an instance unchanged, in its own root folder.

Only systemd is simulated: `start` runs the command of the unit.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
from typing import Protocol

SYSTEMCTL = '#!/bin/sh\necho "$@" >> "$OVERNIGHT_ROOT/systemctl"\n'


class Booted:
    """One machine; its agent runs until `switch_off`."""

    def __init__(self, root: pathlib.Path, user_data: str) -> None:
        self.root = root
        tools = root / "tools"
        tools.mkdir(parents=True)
        (tools / "systemctl").write_text(SYSTEMCTL)
        (tools / "systemctl").chmod(0o755)
        instance_folder = root / "var/lib/cloud/instance"
        instance_folder.mkdir(parents=True)
        (instance_folder / "user-data.txt").write_text(user_data)
        self.script = root / "user-data"
        self.script.write_text(user_data)
        self.environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "OVERNIGHT_ROOT": str(root),
        }
        self.agent: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> pathlib.Path:
        return self.root / "var/lib/overnight-member"

    @property
    def unit(self) -> str:
        return (self.root / "etc/systemd/system/overnight-member.service").read_text()

    def run_script(self) -> None:
        result = subprocess.run(
            ["sh", str(self.script)], env=self.environment, check=True, capture_output=True
        )
        assert (result.stdout, result.stderr) == (b"", b"")

    def start(self, **environment: str) -> subprocess.Popen[bytes]:
        """Start the unit's command, as systemd does."""
        [command] = re.findall(r"^ExecStart=(.+)$", self.unit, re.MULTILINE)
        with (self.root / "log").open("ab") as log:
            self.agent = subprocess.Popen(
                shlex.split(command), stdout=log, stderr=log,
                env={**self.environment, **environment},
            )  # fmt: skip
        return self.agent

    def boot(self) -> Booted:
        self.run_script()
        self.start()
        return self

    def switch_off(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.kill()
            self.agent.wait(10)


class Cloud(Protocol):
    """A cloud account with its instances and their user data."""

    def instances(self) -> dict[str, object]:
        """Return the running instances by name."""

    def user_data(self, instance: str) -> str:
        """Return the user data of an instance."""


class Fleet:
    """The simulated machines of an account's instances."""

    def __init__(self, account: Cloud, folder: pathlib.Path) -> None:
        self._account, self._folder = account, folder
        self.machines: dict[str, Booted] = {}

    def boot(self) -> None:
        """Run the user data of new instances; switch off the machines of ended ones."""
        running = self._account.instances()
        for instance in running:
            if instance not in self.machines:
                text = self._account.user_data(instance)
                self.machines[instance] = Booted(self._folder / instance, text).boot()
        for instance, machine in self.machines.items():
            if instance not in running:
                machine.switch_off()

    def switch_off(self) -> None:
        for machine in self.machines.values():
            machine.switch_off()
