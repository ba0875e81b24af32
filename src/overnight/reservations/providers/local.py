"""The machine that overnight runs on. A file names the owner; nothing is evicted.

The file is /run/overnight/reservation.json for root, and in $XDG_RUNTIME_DIR/overnight, or the data home, for others.
A reboot removes it with /run. What starts on the machine is not prevented, but reported.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence

from overnight import errors, reservations
from overnight.model import files
from overnight.model.reservation import Candidate, Held, HostPlan, Lease, Order, Workload
from overnight.model.times import SECOND_US
from overnight.reservations.providers import _local_processes as processes
from overnight.reservations.providers import _local_recorder
from overnight.sources import host as host_facts

NAME = "local"
FILE = "reservation.json"
SYSTEM = pathlib.Path("/run/overnight")
FACTS = ("kernel", "system", "image", "image_version", "cores")
SAMPLE_SECONDS = 1.0


def create(settings: reservations.Settings) -> reservations.Provider:
    return Local(settings)


class Local(reservations.Provider):
    name = NAME
    ignores = frozenset({"where", "region", "evict", "no_execute", "detach"})

    def __init__(
        self,
        settings: reservations.Settings,
        folder: pathlib.Path | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        own = pathlib.Path(runtime) / "overnight" if runtime else settings.home
        self._folder = folder or (SYSTEM if os.geteuid() == 0 else own)
        self._settings = settings
        self._sleep = sleep

    # marks

    def list_hosts(self, order: Order) -> Sequence[Candidate]:  # noqa: ARG002  one place
        labels = {name: str(value) for name, value in host_facts.read_host()[""].items()}
        held = self._read()
        owner = "" if held is None else held.lease.owner if held.lease else "an unreadable mark"
        booted = labels.get("booted_at")
        return [
            Candidate(
                name=self.host,
                labels=labels,
                zone=labels.get("zone", ""),
                instance_type=labels.get("instance_type", ""),
                booted_us=int(booted) * SECOND_US if booted else None,
                taken=owner or ("" if held is None else held.id),
                facts={name: labels[name] for name in FACTS if name in labels},
            )
        ]

    @property
    def host(self) -> str:
        return str(host_facts.read_host()[""].get("name", "localhost"))

    def reaches(self, host: str) -> bool:
        return host == self.host

    def _check_reach(self, host: str) -> None:
        if not self.reaches(host):
            raise reservations.PlatformError(
                f"{host} is another machine",
                why=f"this one is {self.host}, and provider {NAME} marks no other",
                todo=f"run the command on {host}",
            )

    def plan(self, host: Candidate, order: Order) -> HostPlan:  # noqa: ARG002  nothing is evicted
        busy = [f"{w.name} is not stopped" for w in self._find_foreign("")]
        return HostPlan(host=host, warnings=tuple(busy))

    def claim(self, host: str, order: Order, lease: Lease) -> None:  # noqa: ARG002  one place
        self._check_reach(host)
        with self._locked():
            self._check_free(host, lease.id)
            self._write(lease)

    def mark(self, host: str, order: Order, lease: Lease) -> None:
        self.claim(host, order, lease)

    def empty(
        self,
        host: str,  # noqa: ARG002
        order: Order,  # noqa: ARG002
        lease: Lease,
        progress: reservations.Progress,
    ) -> bool:
        for workload in self._find_foreign(lease.id):
            progress(f"{workload.name} is not stopped")
        return True

    def renew(self, host: str, order: Order, lease: Lease) -> bool:  # noqa: ARG002  one place
        self._check_reach(host)
        with self._locked():
            held = self._read()
            if held is None or held.id != lease.id:
                return False
            if held.lease != lease:
                self._write(lease)
            return True

    def release(self, host: str, order: Order, lease_id: str) -> None:
        self._check_reach(host)
        self.stop_agent(host, order, lease_id)
        if not self._folder.exists():
            return
        with self._locked():
            held = self._read()
            if held is not None and held.id == lease_id:
                files.remove(self._folder / FILE)

    def list_held(self, order: Order) -> Sequence[Held]:  # noqa: ARG002  one place
        held = self._read()
        return [] if held is None else [held]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            files.make_folder(self._folder, durable=False)
            if self._folder == SYSTEM:
                self._folder.chmod(0o755)
            with files.locked(self._folder):
                yield
        except OSError as error:
            raise reservations.PlatformError(
                f"cannot use {self._folder}",
                why=errors.reason(error),
                todo="run as root, or set XDG_RUNTIME_DIR",
            ) from error

    def _read(self) -> Held | None:
        """Return the mark of this machine, root's first."""
        folders = (self._folder,) if os.geteuid() == 0 else (SYSTEM, self._folder)
        for path in (folder / FILE for folder in folders):
            try:
                text, made = path.read_text(errors="replace"), path.stat().st_mtime_ns // 1000
            except FileNotFoundError:
                continue
            except OSError as error:
                raise reservations.PlatformError(
                    f"cannot read {path}", why=errors.reason(error), todo="run as root"
                ) from error
            lease = Lease.parse(text)
            return Held(self.host, lease.id if lease else "", lease, since_us=made)
        return None

    def _check_free(self, host: str, lease_id: str) -> None:
        held = self._read()
        if held is not None and held.id != lease_id:
            owner = held.lease.owner if held.lease else "an unreadable mark"
            raise reservations.TakenError(
                f"{host} is reserved by {owner}",
                why=f"{held.id or FILE} is written in {self._folder}",
                todo="`overnight janitor` removes it when it has expired",
            )

    def _write(self, lease: Lease) -> None:
        self._settings.steps("write mark: before")
        files.write_atomically(self._folder / FILE, lease.text(), mode=0o644)
        self._settings.steps("write mark: after")

    # what runs here

    def list_workloads(self, host: str, order: Order, lease: Lease) -> Sequence[Workload]:  # noqa: ARG002
        self._check_reach(host)
        return self._find_foreign(lease.id)

    def _find_foreign(self, lease_id: str) -> list[Workload]:
        before, begin = processes.read_processes(), time.monotonic()
        self._sleep(SAMPLE_SECONDS)
        after, seconds = processes.read_processes(), time.monotonic() - begin
        own = processes.own_session(after, os.getpid())
        for started in processes.find_marked(after, lease_id) if lease_id else ():
            own |= {started.pid, started.session}
        found = processes.find_foreign(before, after, max(seconds, 1e-3), own)
        return [Workload(f"{process.name} (pid {process.pid})", "process") for process, _ in found]

    def hear(self, host: str, order: Order) -> reservations.Heard:  # noqa: ARG002  one place
        """Say whether a recorder runs here, whoever started it, and how far the clock is off."""
        self._check_reach(host)
        return _local_recorder.hear()

    # the recorder

    def start_agent(
        self, host: str, order: Order, lease: Lease, setup: reservations.AgentSetup
    ) -> None:
        if self.hear(host, order).agent_us is None:
            mark = (self._folder / FILE, lease.id)
            _local_recorder.start(self._settings, lease, setup, belongs_to=mark)

    def stop_agent(self, host: str, order: Order, lease_id: str) -> None:  # noqa: ARG002  one place
        _local_recorder.stop(lease_id)
