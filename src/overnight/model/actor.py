"""Who did something on a host: the identity by which samples, findings and events are compared."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_PATH = 40  # of a cgroup, as shown
CONTAINER = re.compile(r"(?:^|(?<=[/-]))([0-9a-f]{12})[0-9a-f]{52}(?=[./]|$)")


def shorten(unit: str) -> str:
    """Shorten the path of a cgroup to its ends, and the ids of containers as their tools do."""
    unit = CONTAINER.sub(r"\1", unit)
    if unit.startswith("/") and len(unit) > MAX_PATH:
        return f"/{unit.split('/')[1]}/…/{unit.rpartition('/')[2]}"
    return unit


class Actor(NamedTuple):
    """A process of a unit. Restarts keep the identity: a pid is not part of it."""

    process: str
    # The pod (namespace/name), else the systemd unit, else the cgroup; "": not known.
    unit: str = ""

    @property
    def pod(self) -> tuple[str, str] | None:
        """The pod's namespace and name; None outside of pods."""
        namespace, slash, name = self.unit.partition("/")
        return (namespace, name) if namespace and slash else None

    @property
    def container(self) -> str | None:
        """The container's id as its tools show it, where the unit is its cgroup."""
        match = CONTAINER.search(self.unit) if self.unit.startswith("/") else None
        return match[1] if match else None

    def __str__(self) -> str:
        """Name the process, with the unit where it is known.

        >>> str(Actor("redis", "redis.service")), str(Actor("kswapd0"))
        ('redis (redis.service)', 'kswapd0')
        >>> str(Actor("collect.py (python3)", "kube-system/node-agent"))
        'collect.py (python3, kube-system/node-agent)'
        >>> str(Actor("etl", f"/kubepods/besteffort/pod0f3a1b2c-1111-2222-3333-444455556666/{'3fa9' * 16}"))
        'etl (/kubepods/…/3fa93fa93fa9)'
        """
        if not self.unit:
            return self.process
        unit = shorten(self.unit)
        if self.process.endswith(")"):  # the interpreter is in brackets already
            return f"{self.process[:-1]}, {unit})"
        return f"{self.process} ({unit})"

    def is_in(self, unit: str) -> bool:
        """Return whether the actor belongs to a unit; a unit that is a path holds all units below it."""
        return self.unit == unit or self.unit.startswith(f"{unit}/")
