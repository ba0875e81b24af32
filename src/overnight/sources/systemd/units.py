"""The states of a systemd's services, over D-Bus.

One call lists all services. Their properties are read only for services that are new or have changed, and the
restart counter for those with Restart=: a service that failed and came back between two polls shows no other
change.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable

from overnight import errors, sources
from overnight.model import times
from overnight.sources.systemd import dbus, manager

MANAGER = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
PROPERTIES = "org.freedesktop.DBus.Properties"
UNIT = "org.freedesktop.systemd1.Unit"
SERVICE = "org.freedesktop.systemd1.Service"
FIELDS = {
    "StateChangeTimestamp": "since_us",
    "UnitFileState": "file",
    "UnitFilePreset": "preset",
    "Restart": "restart",
    "Result": "result",
    "NRestarts": "restarts",
}
ALL = tuple(
    (SERVICE if name in ("Restart", "Result", "NRestarts") else UNIT, name) for name in FIELDS
)
OFTEN = ((UNIT, "StateChangeTimestamp"), (SERVICE, "NRestarts"))

MAX_UNITS = 1000
SAME_POLL_S = 5.0
MACHINES_EVERY_S = 300.0
FILES_EVERY = 20  # polls: `systemctl disable` does not change the unit's state
MAX_TEXT = 200


@dataclasses.dataclass
class Unit:
    """One service. `since_us` is the wall clock at its last change of state."""

    load: str
    active: str
    sub: str
    path: str
    since_us: int = 0
    file: str = ""
    preset: str = ""
    restart: str = "no"
    result: str = ""
    restarts: int = 0

    def fact(self) -> dict[str, str | int | float | bool]:
        names = ("active", "sub", "result", "file", "preset", "restart")
        return {name: getattr(self, name) for name in names} | {"since": self.since}

    def learn(self, name: str, value: object) -> None:
        """Store a property; a value of the wrong type changes nothing."""
        field = FIELDS.get(name)
        if field and isinstance(value, type(getattr(self, field))):
            setattr(self, field, value[:MAX_TEXT] if isinstance(value, str) else value)

    @property
    def since(self) -> int:
        return self.since_us // times.SECOND_US


class Manager:
    """One systemd: the host's, or a machine's where `leader` is its PID 1."""

    def __init__(self, address: str, leader: int = 0) -> None:
        self.address = address
        self.leader = leader
        self._known: dict[str, Unit] = {}
        self._polls = 0

    def read(self) -> dict[str, Unit]:
        """Return its services by name; raise OSError when it does not answer.

        Each poll opens a connection: systemd sends every change to connected clients, and unread messages
        would pile up in PID 1.
        """
        connection = dbus.Connection(self.address, leader=self.leader)
        try:
            return self._query(connection)
        finally:
            connection.close()

    def _query(self, connection: dbus.Connection) -> dict[str, Unit]:
        (listed,) = connection.ask([(*MANAGER, "ListUnitsByPatterns", ([], ["*.service"]))])
        if listed is None:  # systemd before 230
            (listed,) = connection.ask([(*MANAGER, "ListUnits", ())])
        known: dict[str, Unit] = {}
        questions: list[tuple[Unit, str, str]] = []
        again = self._polls % FILES_EVERY == 0
        self._polls += 1
        for name, load, active, sub, path in _services(listed)[:MAX_UNITS]:
            unit = self._known.get(name)
            fresh = again or unit is None or (unit.active, unit.sub) != (active, sub)
            if unit is None:
                unit = Unit(load, active, sub, path)
            unit.load, unit.active, unit.sub = load, active, sub
            known[name] = unit
            if fresh:
                questions.extend((unit, *prop) for prop in ALL)
            elif unit.restart != "no":
                questions.extend((unit, *prop) for prop in OFTEN)
        answers = connection.ask(
            (unit.path, PROPERTIES, "Get", (interface, name)) for unit, interface, name in questions
        )
        for (unit, _, name), answer in zip(questions, answers, strict=True):
            if answer:
                unit.learn(name, answer[0])
        self._known = known
        return known


def _services(listed: list[object] | None) -> list[tuple[str, str, str, str, str]]:
    """List name, load, active, sub and path of each service that has a unit file or is active."""
    services = []
    rows = listed[0] if listed else []
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, tuple) and len(row) >= 7:
            name, _, load, active, sub, _, path = (str(word) for word in row[:7])
            if name.endswith(".service") and (load != "not-found" or active != "inactive"):
                services.append((name[:MAX_TEXT], load, active, sub, path))
    return sorted(services)


class Fleet:
    """Every systemd of this host: its own, and those of machines inside, searched every 5 minutes."""

    def __init__(
        self, root: pathlib.Path = sources.ROOT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = root
        self._clock = clock
        self._managers: dict[str, Manager] = {}
        self._searched = -MACHINES_EVERY_S
        self._polled = -SAME_POLL_S
        self._units: dict[str, Unit] = {}

    def read(self) -> dict[str, Unit]:
        """Return services by name, a machine's as `machine:unit`; raise NoDataError without any reply."""
        now = self._clock()
        if now - self._polled < SAME_POLL_S:
            return self._units
        if now - self._searched >= MACHINES_EVERY_S:
            self._searched = now
            self._search()
        units: dict[str, Unit] = {}
        answered = False
        for machine, known in self._managers.items():
            try:
                services = known.read()
            except OSError as error:
                errors.raise_own(error)
                # Search again soon: the machine may be gone, and another may have its name.
                self._searched = min(self._searched, now - MACHINES_EVERY_S + 30)
                continue
            answered = True
            prefix = f"{machine}:" if machine else ""
            units.update({prefix + name: unit for name, unit in services.items()})
        if not answered:
            raise sources.NoDataError("no systemd answers")
        self._units, self._polled = units, now
        return units

    def _search(self) -> None:
        present: dict[str, tuple[str, int]] = {}
        if manager.booted(self._root):
            private = self._root / "run/systemd/private"
            bus = self._root / "run/dbus/system_bus_socket"
            # systemd's private socket is for root only.
            present[""] = (str(private if os.access(private, os.W_OK) else bus), 0)
        for name, leader in manager.machines(self._root).items():
            present[name[:MAX_TEXT]] = ("/run/systemd/private", leader)
        managers = {}
        for name, (address, leader) in present.items():
            known = self._managers.get(name)
            same = known is not None and (known.address, known.leader) == (address, leader)
            managers[name] = known if known and same else Manager(address, leader)
        self._managers = managers
