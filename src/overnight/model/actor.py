"""Who did something on a host: the identity by which samples, findings and events are compared."""

from __future__ import annotations

from typing import NamedTuple


class Actor(NamedTuple):
    """A process of a unit. Restarts keep the identity: a pid is not part of it."""

    process: str
    unit: str = ""  # the systemd unit, else the cgroup; "": not known

    def __str__(self) -> str:
        """Name the process, with the unit where it is known.

        >>> str(Actor("redis", "redis.service")), str(Actor("kswapd0"))
        ('redis (redis.service)', 'kswapd0')
        >>> str(Actor("collect.py (python3)", "kube-system/node-agent"))
        'collect.py (python3, kube-system/node-agent)'
        """
        if not self.unit:
            return self.process
        if self.process.endswith(")"):  # the interpreter is in brackets already
            return f"{self.process[:-1]}, {self.unit})"
        return f"{self.process} ({self.unit})"

    def is_in(self, unit: str) -> bool:
        """Return whether the actor belongs to a unit; a unit that is a path holds all units below it."""
        return self.unit == unit or self.unit.startswith(f"{unit}/")
