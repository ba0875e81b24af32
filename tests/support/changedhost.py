"""A machine in which built-in changes are made, with this checkout's overnight in it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping

import machines

import overnight
from overnight.machines import container

SOURCE = pathlib.Path(overnight.__file__).parents[1]
PYTHON = "/opt/overnight/bin/python"
HOME, UNDO = "/srv/home", "/srv/undo"
CONFIG = """
[tasks]
allow = ["change", "undo"]
[changes.mask-ember]
builtin = "mask-unit"
targets = ["ember-*.service"]
[changes.cap]
builtin = "cap-cpu"
targets = ["ember-*.service"]
[changes.reboot]
builtin = "reboot"
"""
# Gives the tasks of a file to a task runner, and prints how they ended; SIGTERM closes it, as it does the agent.
# `kill` ends it with kill -9, in seconds after the first one was begun.
AGENT = """
import json, os, pathlib, signal, sys, time
from overnight.agent import task_runner
from overnight.agent.uplink import tasks
home = pathlib.Path(sys.argv[1])
runner = task_runner.TaskRunner(home, "box")
runner._inventory_at = float("inf")
signal.signal(signal.SIGTERM, lambda *_: (runner.close(), sys.exit()))
given = json.loads((home / "given.json").read_text())
for count, (kind, arguments) in enumerate(given["tasks"]):
    task = {"id": given["ids"][count], "kind": kind, "arguments": arguments, "expires_us": 1 << 60}
    tasks.Tasks(home / "uplink/tasks").accept(task)
states = {}
while any(state.get("state") not in tasks.FINAL for state in states.values()) or not states:
    runner.step()
    states = {name: tasks.read_json(home / "uplink/tasks" / name / "state.json") or {} for name in given["ids"]}
    if given["kill"] and "pid" in states[given["ids"][0]]:
        time.sleep(given["kill"])
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
print(json.dumps(states))
"""
# Makes a change, and ends itself with kill -9 before the step of that number.
KILLED = """
import os, pathlib, signal, sys
from overnight.app import changes
from overnight.app.changes import __main__
from overnight.undo import journal, settings
left = int(sys.argv[1])
def counted(function):
    def run(*words, **named):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*words, **named)
    return run
for owner, name in ((settings, "systemctl"), (journal.Journal, "_append"), (pathlib.Path, "symlink_to"), (pathlib.Path, "write_text"), (os, "replace")):
    setattr(owner, name, counted(getattr(owner, name)))
sys.exit(__main__.main(sys.argv[2:]))
"""


ENVIRONMENT = {"PYTHONPATH": "/opt/source", "OVERNIGHT_UNDO": UNDO, "PYTHONDONTWRITEBYTECODE": "1"}


@dataclasses.dataclass(frozen=True)
class Host:
    """The machine; its data home and undo journal are folders of this host, as a disk that survives a reboot."""

    machine: machines.Machine
    folder: pathlib.Path

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["nsenter", "--target", str(self.machine.leader), "--all", "--", "/usr/bin/env"]
        command += [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        return subprocess.run(
            [*command, PYTHON, *words], capture_output=True, text=True, timeout=90, check=False
        )

    def change(self, *words: str) -> str:
        """Make or undo a change, and return what it printed."""
        return self.python("-m", "overnight.app.changes", HOME, *words).stdout.strip()

    def ask(self, *tasks: tuple[str, Mapping[str, str]], ids: tuple[str, ...], kill: float = 0) -> dict[str, dict[str, object]]:  # fmt: skip
        self.give(*tasks, ids=ids, kill=kill)
        done = self.python("-c", AGENT, HOME)
        return json.loads(done.stdout) if done.stdout else {}

    def reboot(self, task: str) -> int:
        """Ask for a reboot, and return the exit code of nspawn; as a service, because nsenter stops with its child."""
        self.give(("change", {"name": "reboot"}), ids=(task,))
        self.machine.run("systemctl", "start", "--no-block", "agent.service")
        return self.machine.nspawn.wait(60)

    def give(self, *tasks: tuple[str, Mapping[str, str]], ids: tuple[str, ...], kill: float = 0) -> None:  # fmt: skip
        given = json.dumps({"tasks": tasks, "ids": ids, "kill": kill})
        (self.folder / "home" / "given.json").write_text(given)

    def unit(self, name: str) -> dict[str, str]:
        text = self.machine.run("systemctl", "show", "-p", "LoadState,ActiveState", name)
        return dict(line.split("=", 1) for line in text.splitlines())


def service(command: str, *lines: str) -> str:
    """Return a unit that runs a command with this checkout's overnight, once it is started."""
    given = (f"Environment={name}={value}" for name, value in ENVIRONMENT.items())
    return machines.unit(command, service="\n".join((*lines, *given)), wanted=False)


@contextlib.contextmanager
def booted(folder: pathlib.Path, units: Mapping[str, str]) -> Iterator[Host]:
    """Boot it; a second one with the same folder is the same host after a reboot."""
    for name in ("home", "undo"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    _, base = container.interpreter()
    binds = {sys.prefix: "/opt/overnight", str(SOURCE): "/opt/source", str(folder / "home"): HOME, str(folder / "undo"): UNDO}  # fmt: skip
    files = {"/etc/overnight/agent.toml": CONFIG, "/etc/overnight/agent.py": AGENT}
    units = {**units, "agent.service": service(f"exec {PYTHON} /etc/overnight/agent.py {HOME}")}
    links = {"/etc/systemd/system/ember-alias.service": "ember-scout.service"}
    with machines.machine(units, files, links=links, binds=binds, read_only=base) as machine:
        yield Host(machine, folder)
