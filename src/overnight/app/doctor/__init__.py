"""`overnight doctor`: what can be recorded on this host, what is missing, how to get it.

Each module of this package looks at one side of the host. `checks(host)` answers its questions,
`GROUP` is its heading and `ORDER` its place.
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

__all__ = ["CheckModule", "Surroundings", "examine", "modules"]


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """The host as the checks see it; tests put a fake tree and environment here."""

    home: pathlib.Path
    root: pathlib.Path = sources.ROOT
    environ: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ)

    @functools.cached_property
    def cores(self) -> tuple[int, ...]:
        """Online cores; none where /proc and /sys do not say."""
        try:
            return cpu.online(self.root)
        except (OSError, ValueError):
            return ()

    @functools.cached_property
    def events(self) -> events.Probe:
        """What perf_event_open lets us do, tried once."""
        return events.probe(self.cores)

    @property
    def is_root(self) -> bool:
        """Whether we are the superuser."""
        return os.geteuid() == 0


class CheckModule(Protocol):
    """What a module of this package offers."""

    GROUP: str
    ORDER: int

    def checks(self, host: Surroundings) -> tuple[Check, ...]:
        """Look at this side of the host."""


def modules() -> tuple[CheckModule, ...]:
    """The sides of a host, in the order a reader wants them."""
    found = cast("tuple[CheckModule, ...]", app.discover(sys.modules[__name__]))
    return tuple(sorted(found, key=lambda module: module.ORDER))


def examine(host: Surroundings) -> Checkup:
    """Ask everything."""
    groups: dict[str, tuple[Check, ...]] = {}
    for module in modules():
        groups[module.GROUP] = groups.get(module.GROUP, ()) + module.checks(host)
    there = {
        check.id: check.status is not Status.MISSING for group in groups.values() for check in group
    }
    return Checkup(
        host=platform.node(),
        groups=groups,
        profiles=there["perf_event_open"],
        signals=there["cores"] or there["kmsg"],
    )
