"""Instruments: tools that trace the kernel for a while, where their cost does not matter.

One module per instrument, which exports INSTRUMENT; `runner` starts its processes and reads what they print. Whether
the kernel has what an instrument needs is probed, never concluded from the kernel's version.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import os
import pathlib
import pkgutil
import re
import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from overnight import errors

if TYPE_CHECKING:
    from overnight.model.instrument import Reading

ROOT = pathlib.Path("/")
CLONE_NEWNS, MS_REC, MS_SLAVE = 0x20000, 0x4000, 0x80000
TRACEFS = ("sys/kernel/tracing", "sys/kernel/debug/tracing")
HELPERS = ("runner",)  # modules of this package that are not instruments
PACKAGES = {"bpftrace": "bpftrace", "perf": "linux-perf (Ubuntu: linux-tools-generic)"}

# A tracepoint such as `sched:sched_switch`, and the fields that it must have.
Tracepoints: TypeAlias = Mapping[str, tuple[str, ...]]


def own_environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Processes to start, the output of each the input of the next, and what reads the last one's lines."""

    commands: tuple[tuple[str, ...], ...]
    reader: Reader
    environment: Mapping[str, str] = dataclasses.field(default_factory=own_environment)
    is_endless: bool = True  # False: a command that may end before its time
    announces: bool = False  # it prints something once it traces


class Reader(Protocol):
    """Turns lines into readings, whose times are those of the kernel's clock in nanoseconds."""

    lost: int  # events that the tool reported as lost

    def feed(self, line: bytes) -> Iterable[tuple[int, Reading]]:
        """Return each reading with its time: nanoseconds since boot, or 0 for now. Never raises."""


class Instrument(Protocol):
    name: str
    about: str  # one sentence: the question it answers
    tool: str = "bpftrace"  # program it needs; empty: none
    target: str = ""  # what its TARGET is: `process`, `function`; empty: takes none
    needs_target: bool = False

    def prepare(self, target: str, root: pathlib.Path = ROOT) -> Pipeline:
        """Return what to run. Raise CannotError where this host lacks something, UsageError for a wrong target."""


def discover() -> dict[str, Instrument]:
    known: dict[str, Instrument] = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_") and module.name not in HELPERS:
            instrument = importlib.import_module(f"{__name__}.{module.name}").INSTRUMENT
            known[instrument.name] = instrument
    return dict(sorted(known.items()))


def find_tool(name: str) -> str:
    """Return the path of a tool that only root can use; raise CannotError without it."""
    path = shutil.which(name)
    if path is None:
        raise errors.MissingToolError(
            f"{name} is not on PATH",
            why="this instrument runs it",
            todo=f"install the package {PACKAGES[name]}; `overnight instrument list` shows the others",
        )
    if os.geteuid() != 0:
        raise errors.MissingPermissionError(
            f"{name} must run as root",
            why="it traces all processes of the host",
            todo="retry with sudo",
        )
    return path


def need_tracepoints(fields: Tracepoints, root: pathlib.Path = ROOT) -> None:
    """Raise CannotError unless the kernel has these tracepoints with these fields."""
    events = _find_events(root)
    if events is None and root == ROOT:
        _mount_tracefs()
        events = _find_events(root)
    if events is None:
        raise errors.CannotError(
            "tracepoints are not available",
            why="tracefs is not mounted, and this process may not mount it",
            todo="mount -t tracefs tracefs /sys/kernel/tracing   as root, then retry",
        )
    for name, wanted in fields.items():
        try:
            text = (events / name.replace(":", "/") / "format").read_text()
        except OSError as error:
            raise _without(f"tracepoint {name}", str(error)) from error
        present = set(re.findall(r"field:[^;]*?(\w+)(?:\[\w*\])?;", text))
        if missing := [field for field in wanted if field not in present]:
            raise _without(f"field {missing[0]} of tracepoint {name}", f"it has {sorted(present)}")


def _find_events(root: pathlib.Path) -> pathlib.Path | None:
    return next(filter(pathlib.Path.is_dir, (root / path / "events" for path in TRACEFS)), None)


def _mount_tracefs() -> None:
    """Try to mount tracefs for this thread and its children only: containers and small images do not have it.

    The mount is in a namespace of its own and ends with them, also after kill -9.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(CLONE_NEWNS) == 0
        and libc.mount(None, b"/", None, MS_REC | MS_SLAVE, None) == 0
    ):
        libc.mount(b"tracefs", f"/{TRACEFS[0]}".encode(), b"tracefs", 0, None)


def _without(what: str, why: str) -> errors.CannotError:
    todo = "choose another instrument: `overnight instrument list`"
    return errors.CannotError(f"this kernel has no {what}", why=why, todo=todo)
