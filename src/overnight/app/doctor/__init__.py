"""`overnight doctor`: what can be recorded on this host, what is missing, and how to fix it.

Each module of this package checks one aspect of the host: `checks(host)` returns the results, `GROUP` is
the heading and `ORDER` the position.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import platform
import sys
from typing import TYPE_CHECKING, Protocol, cast

from overnight import app, sources
from overnight.model.checkup import Check, Checkup, Status
from overnight.sources import cpu
from overnight.sources.perf import events

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """The host as the checks see it; tests pass a fake tree and environment."""

    home: pathlib.Path
    root: pathlib.Path = sources.ROOT
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)

    @functools.cached_property
    def cores(self) -> tuple[int, ...]:
        """Online cores; empty where neither /proc nor /sys lists them."""
        try:
            return cpu.online(self.root)
        except (OSError, ValueError):
            return ()

    @functools.cached_property
    def events(self) -> events.Probe:
        """What perf_event_open allows, tried once."""
        return events.probe(self.cores)

    @property
    def is_root(self) -> bool:
        return os.geteuid() == 0


def grant(capability: str, settings: str = "") -> str:
    """Return the fix for a missing capability, and the settings of the kernel that replace it."""
    fix = f"run overnight with sudo, or grant {capability}, as the unit does: `overnight record --print-unit`"
    return f"{fix}; or until the next reboot: sudo sysctl {settings}" if settings else fix


class CheckModule(Protocol):
    GROUP: str
    ORDER: int

    def checks(self, host: Surroundings) -> tuple[Check, ...]:
        """Check one aspect of the host."""


def modules() -> tuple[CheckModule, ...]:
    """Return the check modules in the order of the report."""
    found = cast("tuple[CheckModule, ...]", app.discover(sys.modules[__name__]))
    return tuple(sorted(found, key=lambda module: module.ORDER))


def examine(host: Surroundings) -> Checkup:
    groups: dict[str, tuple[Check, ...]] = {}
    for module in modules():
        groups[module.GROUP] = groups.get(module.GROUP, ()) + module.checks(host)
    present = {
        check.id: check.status is not Status.MISSING for group in groups.values() for check in group
    }
    return Checkup(
        host=platform.node(),
        groups=groups,
        profiles=present["perf_event_open"],
        signals=present["cores"] or present["kmsg"],
    )
