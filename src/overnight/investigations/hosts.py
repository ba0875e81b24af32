"""Hosts of an investigation, asked by tasks: this machine, and hosts whose agents report to the fleet."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.agent import event_pins, task_config, task_runner
from overnight.agent.uplink import tasks as task_files
from overnight.investigations import context
from overnight.model import files, times
from overnight.model.control_plane import EventFilter, HostFilter
from overnight.model.host_changes import Builtin
from overnight.model.pins import Pin, Pins
from overnight.model.protocol import TaskKind, TaskState
from overnight.model.times import DAY_US, MINUTE_US, SECOND_US
from overnight.store.ring import layout
from overnight.store.ring import reader as rings

if TYPE_CHECKING:
    from overnight.fleet import control
    from overnight.model.event import Event
    from overnight.model.plan import Plan

STEP_SECONDS = 0.5
MAX_SECONDS = 14 * 86_400
# A host that takes a task later than this has lost the arm.
EXPIRES_US = 15 * MINUTE_US
MAX_EVENTS = 1000
BY = "run"


def own_config(plan: Plan) -> task_config.TaskConfig:
    """Return what tasks may do on this machine: what agent.toml lists, and what the plan names, which root runs."""
    listed = task_config.read()
    allowed = {name: task_config.BuiltinChange(Builtin(name), ("*",)) for name in plan.experiment.allow}  # fmt: skip
    return dataclasses.replace(
        listed,
        allow=frozenset(task_config.KINDS),
        max_seconds=MAX_SECONDS,
        builtin=listed.builtin | {each.name for each in plan.instruments},
        changes={**allowed, **listed.changes},
    )


class LocalHost(context.HostControl):
    """The machine that this runs on. Tasks are child processes, as those of an agent are; `close` ends them.

    They write to a data home of the investigation, which one process at a time has: others get a BlockingIOError.
    """

    def __init__(self, home: pathlib.Path, host: str, plan: Plan) -> None:
        self.home = home
        self._tasks = home / "uplink" / "tasks"
        files.make_folder(home)
        self._lock = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise
        self._runner = task_runner.TaskRunner(home, host, own=own_config(plan))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tasks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(STEP_SECONDS):
            self._runner.step()

    def close(self) -> None:
        """End all tasks; what they have recorded stays."""
        self._ended.set()
        self._thread.join()
        self._runner.close()
        os.close(self._lock)

    def start(self, host: str, task_id: str, kind: TaskKind, arguments: Mapping[str, Any]) -> None:  # noqa: ARG002  one host
        folder = self._tasks / task_id
        if (folder / "task.json").exists():
            return
        task = {"id": task_id, "kind": kind, "arguments": dict(arguments)}
        files.make_folder(folder)
        expires_us = times.now_us() + DAY_US
        files.write_atomically(folder / "task.json", json.dumps({**task, "expires_us": expires_us}))

    def look(self, task_ids: Sequence[str]) -> Mapping[str, context.TaskStatus]:
        found = {}
        for task_id in task_ids:
            if (self._tasks / task_id / "task.json").exists():
                state = task_files.read_json(self._tasks / task_id / "state.json") or {}
                found[task_id] = context.TaskStatus(
                    TaskState(state.get("state", TaskState.PENDING)),
                    str(state.get("detail", "")),
                    state.get("result") or {},
                )
        return found

    def stop(self, host: str, task_id: str) -> None:
        now_us = times.now_us()
        self.start(host, _stop_id(task_id, now_us, 3 * SECOND_US), TaskKind.STOP, {"task": task_id})

    def list_events(self, hosts: Sequence[str], begin_us: int, end_us: int) -> Sequence[Event]:
        found = rings.Reader(self.home).events(begin_us, end_us)
        own = [event for event in found if event.time_us >= begin_us]
        # The reservation may name this machine otherwise than the recorder does.
        return [dataclasses.replace(event, host=host) for host in hosts[:1] for event in own]

    def pin(self, host: str, event: Event) -> None:  # noqa: ARG002  one host
        begin, end = _window(event)
        pin = Pin(event.id, begin * 1000, end * 1000, f"{event.kind}: {event.text}"[:200])
        for name in rings.Reader(self.home).hosts():
            layout.ring_pins(self.home, name).pin(pin)
        if (spool := self.home / "spool").is_dir():
            Pins(spool / "pins").pin(pin)

    def used_bytes(self) -> int:
        total = 0
        for path in self.home.rglob("*"):
            with contextlib.suppress(OSError):  # it was removed meanwhile
                total += path.lstat().st_blocks * 512
        return total


class FleetHosts(context.HostControl):
    """Hosts whose agents report to a server. They are named as their platform does, or as their agent does."""

    def __init__(self, plane: control.ControlPlane, why: str) -> None:
        self._plane, self._why = plane, why
        self._names: dict[str, str] = {}
        self._pinned: set[tuple[str, str]] = set()

    def _find(self, host: str) -> str:
        """Return the name that the agent of a host reports: a cloud names hosts by their instance."""
        if host not in self._names:
            with contextlib.suppress(errors.NotFoundError):
                self._names[host] = self._plane.host(host).name
                return self._names[host]
            found = self._plane.hosts(HostFilter({"instance": host}), limit=1).items
            if not found:
                raise errors.NotFoundError(
                    f"no agent reports from {host}",
                    why="the fleet knows no host of this name",
                    todo="overnight hosts",
                )
            self._names[host] = found[0].name
        return self._names[host]

    def start(self, host: str, task_id: str, kind: TaskKind, arguments: Mapping[str, Any]) -> None:
        if "hosts" in arguments:  # Ray has them by the names that they have themselves
            arguments = {**arguments, "hosts": [self._find(each) for each in arguments["hosts"]]}
        self._plane.tasks.create(
            self._find(host), kind, arguments, by=BY, why=self._why, task_id=task_id,
            expires_us=self._plane.context.clock() + EXPIRES_US,
        )  # fmt: skip

    def look(self, task_ids: Sequence[str]) -> Mapping[str, context.TaskStatus]:
        found = {}
        for task_id in task_ids:
            with contextlib.suppress(errors.NotFoundError):
                row = self._plane.tasks.get(task_id)
                found[task_id] = context.TaskStatus(row.state, row.detail, row.result)
        return found

    def stop(self, host: str, task_id: str) -> None:
        with contextlib.suppress(errors.NotFoundError):
            state = self._plane.tasks.get(task_id).state
            if state is TaskState.PENDING:
                self._plane.tasks.cancel(task_id, by=BY, why=self._why)
            elif not state.is_final:  # not cancelled: its result is wanted
                now_us = self._plane.context.clock()
                stop = _stop_id(task_id, now_us, MINUTE_US)
                self.start(host, stop, TaskKind.STOP, {"task": task_id})

    def find_names(self, hosts: Sequence[str]) -> dict[str, str]:
        """Return the platform's name of each host by that of its agent; hosts without one are left out."""
        names = {}
        for host in hosts:
            with contextlib.suppress(errors.NotFoundError):
                names[self._find(host)] = host
        return names

    def list_events(self, hosts: Sequence[str], begin_us: int, end_us: int) -> Sequence[Event]:
        names = self.find_names(hosts)
        if not names:
            return ()
        chosen = EventFilter(hosts=tuple(names), begin_us=begin_us, end_us=end_us)
        found = self._plane.events(chosen, limit=MAX_EVENTS).items
        return [dataclasses.replace(event, host=names[event.host]) for event in found]

    def pin(self, host: str, event: Event) -> None:
        begin, end = _window(event)
        if (host, event.id) in self._pinned or self._plane.context.clock() < end:
            return  # a bundle has only what was recorded when it is made
        own = event.host == host
        arguments = {"event": event.id} if own else {"begin_us": begin, "end_us": end}
        digest = hashlib.sha256("\0".join((self._why, host, event.id)).encode()).hexdigest()
        with contextlib.suppress(errors.NotFoundError):
            self.start(host, f"t-{digest[:16]}", TaskKind.UPLOAD_WINDOW, arguments)
        self._pinned.add((host, event.id))

    def used_bytes(self) -> int:
        return 0  # the recorder of each host keeps to its budget


def _stop_id(task_id: str, now_us: int, every_us: int) -> str:
    """Return the id of a stop; another one after a while, as a host may begin the task only then."""
    return f"stop-{task_id}-{now_us // every_us}"


def _window(event: Event) -> tuple[int, int]:
    end_us = max(event.until_us, event.time_us) + event_pins.AFTER_US
    return event.time_us - event_pins.BEFORE_US, end_us
