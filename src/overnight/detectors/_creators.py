"""Who creates the cgroups that are born again and again: a unit, or a container and the unit that supervises it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.model import cgroups
from overnight.model.finding import Evidence
from overnight.model.selection import Window
from overnight.model.times import HOUR_US
from overnight.queries import trends
from overnight.sources import processes

if TYPE_CHECKING:
    from overnight.model.event import Value
    from overnight.queries import case as cases

SIGNAL = "cgroup-supervisors"
# A unit is the supervisor if it acted at most births, and chance would let it do so once in 100,000 loops.
COINCIDENT_SHARE = 0.7
MIN_BIRTHS = 6
CHANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Supervisor:
    """How often a unit acted when the containers were born."""

    unit: str
    births: int
    coincided: int
    looks: int
    acted: int
    led: int  # births with an action in the second before
    followed: int  # births with one in the second after

    @property
    def usual(self) -> float:
        """The share of all looks in which it acted."""
        return self.acted / max(1, self.looks)

    @property
    def chance(self) -> float:
        """A bound on the probability that a unit which acts at random does so at as many births (Chernoff)."""
        share, usual = self.coincided / self.births, min(1.0, self.usual)
        if share <= usual:
            return 1.0
        apart = share * math.log(share / usual)
        if share < 1:
            apart += (1 - share) * math.log((1 - share) / (1 - usual))
        return math.exp(-self.births * apart)

    @property
    def coincides(self) -> bool:
        enough = self.births >= MIN_BIRTHS and self.coincided >= COINCIDENT_SHARE * self.births
        return enough and self.chance <= CHANCE

    @property
    def leads(self) -> bool:
        """Whether it acts before the births. What reacts to a container coincides, too, but acts after them."""
        return self.led > self.followed

    def evidence(self) -> Evidence:
        by_chance = self.births * self.usual
        return Evidence(
            f"{self.coincided} of {self.births} births fell within 2 s after {self.unit} started a process or"
            f" connected to the runtime; by chance it would be {by_chance:.1f}. It did so in the second before"
            f" {self.led} of them, and in the second after {self.followed}",
            SIGNAL,
            {
                "unit": self.unit,
                "births": self.births,
                "coincided": self.coincided,
                "by_chance": round(by_chance, 2),
                "chance": self.chance,
                "led": self.led,
                "followed": self.followed,
            },
        )


@dataclasses.dataclass(frozen=True)
class Creator:
    """A row of `cgroup-births`: the cgroup below which they are born, and whose they are."""

    cgroup: str
    unit: str = ""  # that supervises them, or the pod
    container: str = ""  # the key of the row
    image: str = ""
    programs: str = ""
    restarted: int = 0  # by the runtime itself
    supervisors: tuple[Supervisor, ...] = ()  # that coincide; `unit` is the only one that leads
    watched: bool = False  # it is known which units acted

    @property
    def label(self) -> str:
        return self.unit or cgroups.describe(self.container) or self.cgroup

    @property
    def evidence(self) -> list[Evidence]:
        if not self.container:
            return []
        facts: dict[str, Value] = {
            "image": self.image,
            "programs": self.programs,
            "restarted": self.restarted,
        }
        known = {name: value for name, value in facts.items() if value}
        text = f"{self.container}: " + ", ".join(f"{name} {value}" for name, value in known.items())
        named = [Evidence(text, "cgroup-creators", known)] if known else []
        return named + [each.evidence() for each in self.supervisors]


def read(case: cases.Case) -> Mapping[str, Creator]:
    """Return the creators that were recorded, by their key.

    Who they are does not change like a level: it also counts where the recorder was starved before the event.
    """
    facts = case.ring.facts(case.host, "cgroup-creators", case.event.time_us).state or {}
    window = Window(case.event.time_us - HOUR_US, case.window.end_us)
    rows = trends.table(case.ring, case.host, SIGNAL, window, "births")
    watched = SIGNAL in case.recorded(window)
    creators = {}
    for key, fact in facts.items():
        possible = [
            Supervisor(row_key.removeprefix(f"{key} "), **row)
            for row_key, row in rows.items()
            if row_key.startswith(f"{key} ") and row["births"] > 0
        ]
        pod = str(fact.get("group", "")) if fact.get("runtime") == "kubernetes" else ""
        restarted = fact.get("restarted", 0)
        # Where kubelet or the runtime itself starts it again, who else acts then does not matter.
        likely = [each for each in possible if each.coincides and not (pod or restarted)]
        sure = [each for each in likely if each.leads]
        cgroup, image, programs = (str(fact.get(n, "")) for n in ("cgroup", "image", "programs"))
        creators[key] = Creator(
            cgroup,
            pod or (sure[0].unit if len(sure) == 1 else ""),
            key,
            image,
            programs,
            restarted if isinstance(restarted, int) else 0,
            tuple(sorted(likely, key=lambda each: each.chance)),
            watched,
        )
    return creators


def find(creators: Mapping[str, Creator], key: str) -> Creator:
    """Return the creator of a row; that of a cgroup is its own unit, where the path names one."""
    is_container = bool(cgroups.names_of(key))
    unknown = Creator("", container=key) if is_container else Creator(key, processes.unit_of(key))
    return creators.get(key, unknown)
