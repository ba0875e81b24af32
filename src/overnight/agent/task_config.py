"""What a server may ask of this host: /etc/overnight/agent.toml, which only root can write.

    [tasks]
    allow = ["snapshot", "upload-window", "record", "instrument", "change", "undo", "stop"]
    max_seconds = 3600

    [labels]
    rack = "b12"

    [instruments.softnet]
    argv = ["/usr/bin/cat", "/proc/net/softnet_stat"]

    [changes.mask-scout]
    argv = ["/usr/bin/systemctl", "mask", "--now", "ember-scout.service"]
    undo = ["/usr/bin/systemctl", "unmask", "ember-scout.service"]

Commands are run as they are written here: without a shell, and without arguments from the server.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import stat
import tomllib
from collections.abc import Mapping
from typing import Any

from overnight import errors
from overnight.agent.uplink import tasks

PATH = pathlib.Path("/etc/overnight/agent.toml")
DEFAULT = frozenset({"snapshot", "upload-window"})
MAX_BYTES = 1 << 20
SECTIONS = {"tasks": {"allow", "max_seconds"}, "labels": None, "instruments": None, "changes": None}


@dataclasses.dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    seconds: float
    undo: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """`allow` are kinds of tasks; `max_seconds` limits record and load."""

    allow: frozenset[str] = DEFAULT
    max_seconds: int = 3600
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    instruments: Mapping[str, Command] = dataclasses.field(default_factory=dict)
    changes: Mapping[str, Command] = dataclasses.field(default_factory=dict)


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
            f"{path} is not valid", why=str(error), todo="docs/agent.md describes it"
        ) from error


def parse(document: dict[str, Any]) -> TaskConfig:
    """Parse the file's tables; raise ValueError with the reason."""
    for name, table in document.items():
        if name not in SECTIONS or not isinstance(table, dict):
            raise ValueError(f"[{name}] is not one of [{'], ['.join(SECTIONS)}]")
        known = SECTIONS[name]
        if known is not None and (unknown := sorted(table.keys() - known)):
            raise ValueError(f"[{name}] has an unknown key {unknown[0]!r}")
    given = document.get("tasks", {})
    allow = given.get("allow", sorted(DEFAULT))
    if not isinstance(allow, list) or (
        wrong := [kind for kind in allow if kind not in tasks.KINDS]
    ):
        raise ValueError(f"allow has {wrong[0]!r}; kinds are {', '.join(tasks.KINDS)}" if isinstance(allow, list) else "allow is not a list")  # fmt: skip
    seconds = given.get("max_seconds", 3600)
    if type(seconds) is not int or not 1 <= seconds <= 86_400:
        raise ValueError("max_seconds is not a number from 1 to 86400")
    labels = document.get("labels", {})
    for name, value in labels.items():
        if not isinstance(value, str):
            raise ValueError(f"label {name} is not a text")
    return TaskConfig(
        frozenset(allow),
        seconds,
        labels,
        {name: _command(f"instruments.{name}", table, 60) for name, table in document.get("instruments", {}).items()},
        {name: _command(f"changes.{name}", table, 300, undo=True) for name, table in document.get("changes", {}).items()},
    )  # fmt: skip


def _command(where: str, table: Any, seconds: float, *, undo: bool = False) -> Command:
    if not isinstance(table, dict) or not table.keys() <= {"argv", "seconds", *(["undo"] if undo else [])}:  # fmt: skip
        raise ValueError(f"[{where}] has other keys than argv, seconds{' and undo' * undo}")
    limit = table.get("seconds", seconds)
    if type(limit) not in (int, float) or not 0 < limit <= 86_400:
        raise ValueError(f"seconds of [{where}] is not a number from 1 to 86400")
    words = [_words(f"{name} of [{where}]", table.get(name)) for name in ("argv", *(["undo"] if undo else []))]  # fmt: skip
    return Command(words[0], float(limit), *words[1:])


def _words(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{where} is missing, or not a list of texts")
    if not value[0].startswith("/"):
        raise ValueError(f"{where} begins with {value[0]!r}, which is not an absolute path")
    return tuple(value)
