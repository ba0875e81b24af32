"""The reference incident: a crash-looping agent leaks memory cgroups, until a walk over them takes a core.

systemd sees a healthy unit: the agent's own supervisor restarts the task forever, each time in a new memory
cgroup, which stays dying because the task leaves a file in memory. Then a second unit, the collector, reads
files in the same slice, which is at its memory limit: to reclaim a page the kernel walks every cgroup below,
dying ones included. Measured on 6.18 with 12,000 zombies: 100 % of a core, mostly in mem_cgroup_iter.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from typing import TYPE_CHECKING

from overnight import errors, rehearsals
from overnight.model.plan import ArmKind
from overnight.rehearsals import cgroups, processes, random_names, zombie_agent
from overnight.sources.memorycgroups import parents

if TYPE_CHECKING:
    from overnight.model.truth import Truth

MEGABYTE = 1 << 20
FILE_BYTES = 256 * MEGABYTE  # per worker at least: far more than the slice's limit
CACHE_BYTES = 32 * MEGABYTE  # page cache that fits into the slice
# The agent keeps leaking while the slice has its limit; the limit must leave room for that.
LEAKING_SECONDS = 150
READY_SECONDS = 60.0
# Far above the detector's threshold: as many as a week of such a loop leaves.
MANY = {True: (11_500, 14_000), False: (14_000, 18_000)}
# In arms the collector has the same work everywhere: cheap on a fresh host, a core's worth on an aged one.
ARM_RATE = 14 * MEGABYTE


class Zombies:
    name = "zombies"
    about = "A crash-looping agent leaks memory cgroups, until a walk over them takes a core."
    needs = ("root", "kmsg", "netns", "memory-cgroups")
    has_event = True

    def __init__(self) -> None:
        self._agents: zombie_agent.InMachine | zombie_agent.OnHost | None = None

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Start the agent, with weeks of crashes created in seconds."""
        cast = _draw(stage)
        groups = cgroups.Groups.make(stage.journal, stage.journal.run)
        groups.require(cast.zombies)
        groups.weigh(cast.workers)
        groups.add(cast.parent, parent=True)
        groups.add(f"{cgroups.SLICE}/{cast.collector_unit}")
        data = cgroups.disk_folder(stage)
        for number in range(cast.workers):
            with (data / f"data-{number}").open("wb") as file:
                # No blocks: pages of zeros, and no disk to wait for.
                file.truncate(max(FILE_BYTES, 2 * _room(cast)))
        left = f"{cast.unit} has leaked {cast.zombies:,} memory cgroups"
        if stage.arm is not None or shutil.which("systemd-nspawn"):
            stage.report(f"booting a machine in which {left}")
            self._agents = zombie_agent.InMachine(stage, cast, groups, data)
        else:
            stage.report(f"{left}; it runs on this host, because systemd-nspawn is not installed")
            self._agents = zombie_agent.OnHost(stage, cast, groups, data)
            stage.facts["machine"] = ""
        deadline = time.monotonic() + READY_SECONDS
        while not (cast.masked or self._agents.ready.exists()):
            if time.monotonic() > deadline or stage.stop.is_set():
                raise errors.CannotError(
                    f"the agent did not create its cgroups in {READY_SECONDS:.0f} s",
                    why="this host is too busy",
                    todo="retry when the host is less busy",
                )
            processes.check(stage)
            time.sleep(0.05)

    def strike(self, stage: rehearsals.Stage) -> None:
        """Set the slice's limit and start the collector."""
        assert self._agents is not None
        self._agents.groups.limit(_room(self._agents.cast))
        self._agents.collect(stage)

    def change(self, stage: rehearsals.Stage, change: str) -> None:  # noqa: ARG002 - a rehearsal on the host needs it
        """Carry out a change in the machine: mask-unit, which stops it, or purge."""
        assert isinstance(self._agents, zombie_agent.InMachine)
        name, _, target = change.partition(" ")
        if name == "mask-unit" and target == self._agents.cast.unit:
            self._agents.mask(target)
        elif name == "purge":
            self._agents.purge()
        else:
            raise errors.CannotError(
                f"cannot carry out {change}",
                why=f"the machine of this rehearsal has {self._agents.cast.unit} only",
                todo="allow mask-unit and purge",
            )

    def pause(self) -> None:
        assert isinstance(self._agents, zombie_agent.InMachine)
        self._agents.signal_collector("STOP")

    def resume(self) -> None:
        assert isinstance(self._agents, zombie_agent.InMachine)
        self._agents.signal_collector("CONT")

    def truth(self, stage: rehearsals.Stage) -> Truth:
        facts = stage.facts
        return rehearsals.starved(
            stage,
            ("unit.hidden_crash_loop", {"unit": str(facts["unit"])}),
            ("memory.zombie_cgroups", {}),
            ("memory.cgroup_walk", {"core": stage.core, "process": str(facts["collector"])}),
        )


def _draw(stage: rehearsals.Stage) -> zombie_agent.Cast:
    chance = stage.chance
    agent, task, collector = random_names.draw(chance, 3)
    supervisor = f"{agent.partition('-')[0]}-{chance.choice(('init', 'run', 'up', 'boss'))}"
    zombies = chance.randint(*MANY[stage.brief])
    # Too few calls fit into a brief form for the unit behind a runtime to be known.
    may_be_elsewhere = not stage.brief and shutil.which("systemd-nspawn")
    layout = chance.choice(list(zombie_agent.LAYOUTS)) if may_be_elsewhere else "unit"
    # Of 64 containers at a time all have a name.
    starts = chance.randint(8, 15 if layout == "unit" else 12)
    cast = zombie_agent.Cast(
        unit=f"{agent}.service",
        supervisor=supervisor,
        task=task,
        collector=collector,
        collector_unit=f"{collector}.service",
        client="" if layout == "unit" else f"{agent.partition('-')[0]}-wait",
        zombies=zombies if stage.arm is not ArmKind.COLD else 0,
        starts_per_second=starts,
        workers=chance.choice((3, 4)),
        rate=ARM_RATE if stage.arm else 0,
        masked=stage.arm is ArmKind.FIXED,
        layout=layout,
    )
    stage.facts.update(dataclasses.asdict(cast), machine=stage.journal.run)
    return cast


def _room(cast: zombie_agent.Cast) -> int:
    """Bytes that the slice may use beyond its usage when the collector starts."""
    return CACHE_BYTES + cast.starts_per_second * LEAKING_SECONDS * parents.dying_cost()


REHEARSALS = (Zombies(),)
