"""The reference incident: an agent that fails for ever leaves zombies, and one day a walk over them takes a core.

A machine with a real systemd runs the agent. To systemd the unit is well: its own supervisor starts the
task again and again, each time in a new memory cgroup that never goes, for the task leaves a file in
memory. Then a second unit, the collector, reads files in the same slice, which is at its memory limit: to
make room for a page the kernel goes through every cgroup below, dead ones included. Measured on 6.18 with
12,000 zombies: 100 % of a core in the kernel, in mem_cgroup_iter first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import threading
import time
from typing import TYPE_CHECKING

from overnight import errors, rehearsals
from overnight.hosts import booting, machines
from overnight.rehearsals import groups, names

if TYPE_CHECKING:
    from overnight.model import truth

__all__ = ["REHEARSALS", "Zombies"]

PROGRAMS = ("collector.py", "supervisor.py")
STATE = "/dev/shm/state"  # noqa: S108 - the machine's own
INSIDE = pathlib.Path(__file__).parent / "inside"
MEGABYTE = 1 << 20
FILE_BYTES = 256 * MEGABYTE  # of each worker at least: much more than the slice has room for
CACHE_BYTES = 32 * MEGABYTE  # what page cache may take of the slice
LEAKING_SECONDS = (
    150  # the agent goes on while the slice has its limit: nothing must be killed for that
)
READY_SECONDS = 60.0
# Far above what a detector calls many, and as many as a week of such a loop leaves.
MANY = {True: (11_500, 14_000), False: (14_000, 18_000)}


@dataclasses.dataclass(frozen=True)
class _Cast:
    """What the seed chose."""

    unit: str
    supervisor: str
    task: str
    collector: str
    collector_unit: str
    zombies: int
    starts_per_second: int
    workers: int

    @property
    def room(self) -> int:
        """Bytes that the slice may use beyond what it uses when the collector begins."""
        return CACHE_BYTES + self.starts_per_second * LEAKING_SECONDS * groups.zombie_bytes()


class Zombies:
    """A `Rehearsal`."""

    name = "zombies"
    about = (
        "An agent that fails for ever leaks memory cgroups, until a walk over them takes a core."
    )
    needs = ("root", "kmsg", "netns", "memory-cgroups", "nspawn")
    has_event = True

    def __init__(self) -> None:
        self._cast: _Cast | None = None
        self._machine: machines.Machine | None = None
        self._groups: groups.Groups | None = None

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Boot the machine; the agent has been failing for weeks, which takes some seconds here."""
        cast = self._cast = _draw(stage)
        made = self._groups = groups.Groups.make(stage.ledger, stage.ledger.run)
        made.require(cast.zombies)
        for unit in (cast.unit, cast.collector_unit):
            made.add(unit)
        data = groups.disk_folder(stage)
        for number in range(cast.workers):
            with (data / f"data-{number}").open("wb") as file:
                file.truncate(
                    max(FILE_BYTES, 2 * cast.room)
                )  # no blocks: pages of zeros, and no disk to wait for
        program, more = booting.interpreter()
        stage.say(f"booting a machine in which {cast.unit} has left {cast.zombies:,} cgroups")
        self._machine = machines.boot(
            stage.ledger,
            {cast.unit: _agent(cast), cast.collector_unit: _collector(cast, stage.core)},
            {f"opt/{name}": (INSIDE / name).read_text() for name in PROGRAMS},
            links={
                f"opt/{cast.supervisor}": str(program),
                f"opt/{cast.collector}": str(program),
                f"opt/{cast.task}": "/bin/sh",
            },
            binds={str(made.top): groups.INSIDE, str(data): "/data"},
            read_only=more,
            cores=(stage.spare,),
            name=stage.ledger.run,
        )
        self._wait(stage, self._machine.path(f"{STATE}/ready"))

    def _wait(self, stage: rehearsals.Stage, ready: pathlib.Path) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not ready.exists():
            if time.monotonic() > deadline or stage.stop.is_set():
                raise errors.CannotError(
                    "the agent did not leave its cgroups in time",
                    why=f"not after {READY_SECONDS:.0f} s",
                    todo="run it on a host that has less to do",
                )
            time.sleep(0.05)

    def strike(self, stage: rehearsals.Stage) -> None:
        """The slice is at its limit, and the collector reads."""
        machine, made, cast = self._machine, self._groups, self._cast
        assert machine is not None
        assert made is not None
        assert cast is not None
        made.limit(cast.room)
        collector = cast.collector_unit
        machine.run("systemctl", "start", collector)

        def end() -> None:
            stage.stop.wait()
            # The agent goes on as before; the machine itself is the ledger's to undo.
            with contextlib.suppress(errors.CannotError, OSError):
                made.unlimited()
                machine.run("systemctl", "kill", "--signal=KILL", collector)

        thread = threading.Thread(target=end, name="fault", daemon=True)
        thread.start()
        stage.ending.append(thread)

    def truth(self, stage: rehearsals.Stage) -> truth.Truth:
        """From the agent's unit to the reset."""
        facts = stage.facts
        return rehearsals.starved(
            stage,
            ("unit.hidden_crash_loop", {"unit": str(facts["unit"])}),
            ("memory.zombie_cgroups", {}),
            ("memory.cgroup_walk", {"core": stage.core, "process": str(facts["collector"])}),
        )


def _draw(stage: rehearsals.Stage) -> _Cast:
    chance = stage.chance
    agent, task, collector = names.draw(chance, 3)
    cast = _Cast(
        unit=f"{agent}.service",
        supervisor=f"{agent.partition('-')[0]}-{chance.choice(('init', 'run', 'up', 'boss'))}",
        task=task,
        collector=collector,
        collector_unit=f"{collector}.service",
        zombies=chance.randint(*MANY[stage.brief]),
        starts_per_second=chance.randint(8, 15),
        workers=chance.choice((3, 4)),
    )
    stage.facts.update(dataclasses.asdict(cast), machine=stage.ledger.run)
    return cast


def _agent(cast: _Cast) -> str:
    words = (
        f"/opt/{cast.supervisor} -I -S /opt/supervisor.py {groups.INSIDE}/{groups.SLICE}/{cast.unit}",
        f"{groups.INSIDE}/{groups.REST} {STATE} /opt/{cast.task} {cast.zombies} {cast.starts_per_second}",
    )
    return machines.unit(f"exec {' '.join(words)}", service="Restart=always")


def _collector(cast: _Cast, core: int) -> str:
    files = " ".join(f"/data/data-{number}" for number in range(cast.workers))
    return machines.unit(
        f"exec /opt/{cast.collector} -I -S /opt/collector.py"
        f" {groups.INSIDE}/{groups.SLICE}/{cast.collector_unit} {files}",
        # Inside a machine nothing tells systemd on v1 that a cgroup is empty: it looks at the main process alone.
        service=f"CPUAffinity={core}\nKillMode=process",
        wanted=False,
    )


REHEARSALS = (Zombies(),)
