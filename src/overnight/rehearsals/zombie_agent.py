"""The agent and the collector of `zombies`: units of a booted machine, or processes of this host."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import threading
from typing import TYPE_CHECKING

from overnight import errors
from overnight.machines import container, nspawn
from overnight.rehearsals import cgroups, processes

if TYPE_CHECKING:
    from overnight import rehearsals

PROGRAMS = ("client.py", "collector.py", "supervisor.py")
# Where the agent's cgroups are: below its unit, or where a runtime creates them: its unit, their parent, and the
# text before and after an id in their names.
LAYOUTS = {
    "unit": ("", "", "", ""),
    "docker-cgroupfs": ("docker.service", "docker", "", ""),
    "docker-systemd": ("docker.service", cgroups.SLICE, "docker-", ".scope"),
    "containerd-systemd": ("containerd.service", cgroups.SLICE, "cri-containerd-", ".scope"),
}
PIPE = "/run/runtime.pipe"
# Inside a machine on v1 systemd is not notified when a cgroup is empty: it watches the main process only.
STOP = "KillMode=process"
INSIDE = pathlib.Path(__file__).parent / "machine_programs"
MEMORY = pathlib.Path("/dev/shm")  # noqa: S108 - the task's state must be in memory; its name is random


@dataclasses.dataclass(frozen=True)
class Cast:
    """Names and numbers drawn from the seed."""

    unit: str
    supervisor: str
    task: str
    collector: str
    collector_unit: str
    client: str  # of the runtime, where there is one
    zombies: int
    starts_per_second: int
    workers: int
    rate: int = 0  # bytes that each worker reads in a second; 0: as fast as possible
    masked: bool = False  # the unit: the fix
    layout: str = "unit"

    @property
    def parent(self) -> str:
        """The parent of the agent's cgroups, below the machine's."""
        return LAYOUTS[self.layout][1] or f"{cgroups.SLICE}/{self.unit}"


def _agent(cast: Cast, opt: str, top: str, state: str) -> list[str]:
    return [
        f"{opt}/{cast.supervisor}", "-I", "-S", f"{opt}/supervisor.py", f"{top}/{cast.parent}",
        f"{top}/{cgroups.REST}", state, f"{opt}/{cast.task}", str(cast.zombies), str(cast.starts_per_second),
    ]  # fmt: skip


def _collector(cast: Cast, opt: str, top: str, data: str) -> list[str]:
    files = [f"{data}/data-{number}" for number in range(cast.workers)]
    group = f"{top}/{cgroups.SLICE}/{cast.collector_unit}"
    return [f"{opt}/{cast.collector}", "-I", "-S", f"{opt}/collector.py", group, str(cast.rate), *files]  # fmt: skip


def _links(cast: Cast) -> dict[str, str]:
    program, _ = container.interpreter()
    links = {cast.supervisor: str(program), cast.collector: str(program), cast.task: "/bin/sh"}
    return links | ({cast.client: "/bin/sleep"} if cast.client else {})


class InMachine:
    """Units of a machine booted for them. `ready` exists once the agent has left its cgroups."""

    def __init__(
        self, stage: rehearsals.Stage, cast: Cast, groups: cgroups.Groups, data: pathlib.Path
    ) -> None:
        self.cast, self.groups = cast, groups
        state = "/dev/shm/state"  # noqa: S108 - the machine's own
        agent = " ".join(_agent(cast, "/opt", cgroups.INSIDE, state))
        reads = " ".join(_collector(cast, "/opt", cgroups.INSIDE, "/data"))
        _, more = container.interpreter()
        units = {cast.unit: agent}
        runtime, _, before, after = LAYOUTS[cast.layout]
        if runtime:
            client = f"/opt/{cast.supervisor} -I -S /opt/client.py {PIPE} /opt/{cast.client}"
            units = {cast.unit: client, runtime: f'{agent} {PIPE} "{before}" "{after}"'}
        service = f"Restart=always\n{STOP}"
        self._machine = nspawn.boot(
            stage.journal,
            {
                **{
                    name: nspawn.unit(f"exec {words}", service=service, wanted=not cast.masked)
                    for name, words in units.items()
                },
                cast.collector_unit: nspawn.unit(
                    f"exec {reads}",
                    service=f"CPUAffinity={stage.core}\n{STOP}",
                    wanted=False,
                ),
            },
            {f"opt/{name}": (INSIDE / name).read_text() for name in PROGRAMS},
            links={f"opt/{name}": target for name, target in _links(cast).items()},
            binds={str(groups.top): cgroups.INSIDE, str(data): "/data"},
            read_only=more,
            cores=(stage.spare,),
            name=stage.journal.run,
        )
        self._state = self._machine.path(state)
        self.ready = self._state / "ready"
        if cast.masked:
            self.mask(cast.unit)

    def mask(self, unit: str) -> None:
        self._machine.run("systemctl", "mask", "--runtime", "--now", "--", unit)

    def purge(self) -> None:
        """Delete the files in memory that keep cgroups dying."""
        for path in self._state.glob("*"):
            path.unlink(missing_ok=True)

    def collect(self, stage: rehearsals.Stage) -> None:
        """Run the collector until `stage.stop` is set."""
        self._machine.run("systemctl", "start", self.cast.collector_unit)

        def stop() -> None:
            # The agent continues; the undo journal removes the machine.
            with contextlib.suppress(errors.CannotError, OSError):
                self.groups.remove_limit()
                self.signal_collector("KILL")

        processes.call_at_end(stage, stop)

    def signal_collector(self, name: str) -> None:
        self._machine.run("systemctl", "kill", f"--signal={name}", self.cast.collector_unit)


class OnHost:
    """Processes of this host, in cgroups named like those of a machine."""

    def __init__(
        self, stage: rehearsals.Stage, cast: Cast, groups: cgroups.Groups, data: pathlib.Path
    ) -> None:
        self.cast, self.groups, self._data = cast, groups, data
        self._opt = stage.folder / "opt"
        self._opt.mkdir()
        for name in PROGRAMS:
            (self._opt / name).write_text((INSIDE / name).read_text())
        for name, target in _links(cast).items():
            (self._opt / name).symlink_to(target)
        state = MEMORY / stage.journal.run
        stage.journal.write("folder", state)
        state.mkdir(mode=0o700)
        self.ready = state / "ready"
        agent = _agent(cast, str(self._opt), str(groups.top), str(state))
        supervisor = self._run(stage, cast.supervisor, stage.spare, agent)
        stage.fault_processes.append(supervisor)
        # The undo journal ends it, like a machine; this thread reaps it.
        threading.Thread(target=supervisor.wait, name="agent", daemon=True).start()

    def _run(
        self, stage: rehearsals.Stage, name: str, core: int, words: list[str]
    ) -> subprocess.Popen[bytes]:
        return processes.start(
            stage, "overnight.rehearsals.zombie_agent", name=name, core=core, words=words
        )

    def collect(self, stage: rehearsals.Stage) -> None:
        words = _collector(self.cast, str(self._opt), str(self.groups.top), str(self._data))
        collector = self._run(stage, self.cast.collector, stage.core, words)
        processes.end_with_fault(stage, collector)

        def stop() -> None:
            with contextlib.suppress(OSError):
                self.groups.remove_limit()

        processes.call_at_end(stage, stop)


def main() -> None:
    """Set up this process and replace it by the program."""
    settings = processes.begin()
    os.execv(settings["words"][0], settings["words"])  # noqa: S606 - it still dies with the run


if __name__ == "__main__":
    main()
