"""What a server may ask of this host: /etc/overnight/agent.toml, which only root can write.

    [tasks]
    allow = ["snapshot", "upload-window", "record", "instrument", "change", "undo", "stop"]
    max_seconds = 3600
    instruments = ["runqueue-latency", "cgroup-churn"]

    [labels]
    rack = "b12"

    [instruments.softnet]
    argv = ["/usr/bin/cat", "/proc/net/softnet_stat"]

    [changes.mask-scout]
    argv = ["/usr/bin/systemctl", "mask", "--now", "ember-scout.service"]
    undo = ["/usr/bin/systemctl", "unmask", "ember-scout.service"]

    [changes.mask-ember]
    builtin = "mask-unit"
    targets = ["ember-*.service"]

Commands are run as they are written here: without a shell, and without arguments from the server. A built-in change
takes a target from the server, if a pattern of `targets` matches it.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import pathlib
import stat
import tomllib
from collections.abc import Mapping
from typing import Any

from overnight import errors
from overnight.model import host_changes, protocol

PATH = pathlib.Path("/etc/overnight/agent.toml")
DEFAULT = frozenset({"snapshot", "upload-window"})
MAX_BYTES = 1 << 20
KINDS = tuple(protocol.TaskKind)
SECTIONS = ("tasks", "labels", "instruments", "changes")


@dataclasses.dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    seconds: float
    undo: tuple[str, ...] = ()
    is_builtin: bool = False  # of overnight itself, not of the administrator
    is_reboot: bool = False


@dataclasses.dataclass(frozen=True)
class BuiltinChange:
    """A change that overnight itself makes; the first word of its target must match one of `targets`."""

    builtin: host_changes.Builtin
    targets: tuple[str, ...] = ()
    seconds: float = 300.0

    def check(self, target: str) -> host_changes.Change:
        """Return the change; raise ValueError with the reason."""
        change = host_changes.parse(self.builtin, target)
        if change.words and not any(fnmatch.fnmatchcase(change.words[0], each) for each in self.targets):  # fmt: skip
            raise ValueError(f"no pattern of targets allows {change.words[0]!r}")
        return change


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """`allow` are kinds of tasks; `max_seconds` limits record, load and instruments."""

    allow: frozenset[str] = DEFAULT
    max_seconds: int = 3600
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    builtin: frozenset[str] = frozenset()  # instruments of overnight that may run
    instruments: Mapping[str, Command] = dataclasses.field(default_factory=dict)
    changes: Mapping[str, Command | BuiltinChange] = dataclasses.field(default_factory=dict)


def read(path: pathlib.Path = PATH) -> TaskConfig:
    """Read the file, or return the default without one; raise CannotError for one that is not valid or safe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return TaskConfig()
    except OSError as error:
        raise errors.unreadable(path, error, "make it a file that the agent may read") from error
    with os.fdopen(descriptor, "rb") as file:
        for checked, status in ((path, os.fstat(descriptor)), (path.parent, path.parent.stat())):
            if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise errors.CannotError(
                    f"refusing {path}: {checked} can be changed by others than root",
                    why="whoever can change it could run commands as the agent's user",
                    todo=f"chown root:root {checked} && chmod go-w {checked}",
                )
        text = file.read(MAX_BYTES)
    try:
        return parse(tomllib.loads(text.decode()))
    except ValueError as error:
        raise errors.CannotError(
            f"{path} is not valid",
            why=str(error),
            todo="correct it; docs/agent.md describes its tables",
        ) from error


def parse(document: dict[str, Any]) -> TaskConfig:
    """Parse the file's tables; raise ValueError with the reason."""
    for name, table in document.items():
        if name not in SECTIONS or not isinstance(table, dict):
            raise ValueError(f"[{name}] is not one of [{'], ['.join(SECTIONS)}]")
    given = document.get("tasks", {})
    if unknown := sorted(given.keys() - {"allow", "max_seconds", "instruments"}):
        raise ValueError(f"[tasks] has an unknown key {unknown[0]!r}")
    allow = given.get("allow", sorted(DEFAULT))
    if not isinstance(allow, list):
        raise ValueError("allow is not a list")
    if wrong := [kind for kind in allow if kind not in KINDS]:
        raise ValueError(f"allow has {wrong[0]!r}; kinds are {', '.join(KINDS)}")
    seconds = given.get("max_seconds", 3600)
    if type(seconds) is not int or not 1 <= seconds <= 86_400:
        raise ValueError("max_seconds is not a number from 1 to 86400")
    builtin = given.get("instruments", [])
    if not isinstance(builtin, list) or not all(isinstance(name, str) for name in builtin):
        raise ValueError("instruments of [tasks] is not a list of names")
    labels = document.get("labels", {})
    for name, value in labels.items():
        if not isinstance(value, str):
            raise ValueError(f"label {name} is not a text")
    instruments, changes = document.get("instruments", {}), document.get("changes", {})
    return TaskConfig(
        frozenset(allow),
        seconds,
        labels,
        frozenset(builtin),
        {name: _command(f"instruments.{name}", instruments[name], 60) for name in instruments},
        {name: _change(f"changes.{name}", changes[name]) for name in changes},
    )


def _change(where: str, table: Any) -> Command | BuiltinChange:
    if not isinstance(table, dict) or "builtin" not in table:
        return _command(where, table, 300, "undo")
    if not table.keys() <= {"builtin", "targets", "seconds"}:
        raise ValueError(f"[{where}] has other keys than builtin, targets and seconds")
    builtin, targets = table["builtin"], table.get("targets", [])
    if builtin not in list(host_changes.Builtin):
        raise ValueError(f"builtin of [{where}] is {builtin!r}; use {', '.join(host_changes.Builtin)}")  # fmt: skip
    if not isinstance(targets, list) or not all(isinstance(each, str) and each for each in targets):
        raise ValueError(f"targets of [{where}] is not a list of patterns")
    if targets and not host_changes.WORDS[builtin]:
        raise ValueError(f"[{where}] has targets, but {builtin} takes none")
    return BuiltinChange(host_changes.Builtin(builtin), tuple(targets), _seconds(where, table, 300))


def _seconds(where: str, table: dict[str, Any], default: float) -> float:
    limit = table.get("seconds", default)
    if type(limit) not in (int, float) or not 0 < limit <= 86_400:
        raise ValueError(f"seconds of [{where}] is not a number above 0, and at most 86400")
    return float(limit)


def _command(where: str, table: Any, seconds: float, *more: str) -> Command:
    """Parse a command; `more` are commands of the table besides argv."""
    keys = ("argv", *more)
    if not isinstance(table, dict) or not table.keys() <= {*keys, "seconds"}:
        raise ValueError(f"[{where}] has other keys than {', '.join(keys)} and seconds")
    limit = _seconds(where, table, seconds)
    words = {key: _words(f"{key} of [{where}]", table.get(key)) for key in keys}
    return Command(words["argv"], limit, words.get("undo", ()))


def _words(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{where} is missing, or not a list of texts")
    if not value[0].startswith("/"):
        raise ValueError(f"{where} begins with {value[0]!r}, which is not an absolute path")
    return tuple(value)
