"""Run the tasks of a server, and the bundles and inventories of the uplink, as child processes of the agent.

A thread of the agent calls `step` twice a second; the uplink and this meet in the files of HOME/uplink only. Each
state is written before its process starts, so that after kill -9 a task is reported as failed, not forgotten.
"""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from overnight import errors
from overnight.agent import jobs, task_config
from overnight.agent.uplink import tasks, windows
from overnight.model import files, process_identity

MAX_RUNNING = 4
# The recorder notes the labels when it starts, maybe late on a loaded host; then each hour.
FIRST_SECONDS, SECOND_SECONDS, INVENTORY_SECONDS = 10.0, 60.0, 3600.0
RETRY_SECONDS, MAX_TRIES = 60.0, 3  # of a bundle
WORD = re.compile(r"[a-z][a-z0-9-]{0,63}")
CORES = re.compile(r"[0-9][0-9,-]{0,255}")
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

Arguments = Mapping[str, Any]


class RefusedError(Exception):
    """The task is not allowed here, or not valid; the message says why."""


class TaskRunner:
    def __init__(
        self,
        home: pathlib.Path,
        host: str,
        config: pathlib.Path = task_config.PATH,
        window_bytes: int = 1 << 30,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home, self._host, self._config = home, host, config
        self._window_bytes = window_bytes
        self._log = log
        self._folder = home / "uplink"
        self._tasks, self._windows = self._folder / "tasks", self._folder / "windows"
        self._jobs = jobs.Jobs()
        self._retry_at: dict[str, tuple[float, int]] = {}
        self._inventory_at = time.monotonic() + FIRST_SECONDS
        self._inventories = 0
        for folder in (self._tasks, self._windows):
            files.make_folder(folder)
        self._fail_interrupted()

    def step(self) -> None:
        """Look after processes, and start what is due."""
        now = time.monotonic()
        with contextlib.suppress(OSError):  # a full disk or no free file: at the next step
            self._jobs.check()
            for folder in sorted(self._tasks.iterdir()):
                if not (folder / "state.json").exists() and (folder / "task.json").exists():
                    self._begin_task(folder)
            self._begin_window(now)
            self._begin_inventory(now)

    def _begin_inventory(self, now: float) -> None:
        if now >= self._inventory_at and "inventory" not in self._jobs.running:
            first = () if self._inventories else ("history",)
            self._inventory_at = now + (INVENTORY_SECONDS if self._inventories else SECOND_SECONDS)
            self._inventories += 1
            log = self._folder / "inventory.log"
            self._jobs.start("inventory", (*self._inventory(), *first), 600, log, self._end_inventory)  # fmt: skip

    def close(self) -> None:
        """End all processes; their tasks failed."""
        self._jobs.close()

    # --- tasks

    def _fail_interrupted(self) -> None:
        """Report tasks that ran when the agent was killed, and end their processes."""
        for path in self._tasks.glob("*/state.json"):
            state = tasks.read_json(path) or {}
            if state.get("state") == "running":
                pid, started = int(state.get("pid", 0)), str(state.get("started", ""))
                if pid and process_identity.is_running(pid, started, str(state.get("boot", ""))):
                    jobs.signal_group(pid, signal.SIGKILL)
                _write_state(path.parent, "failed", "the agent ended while it ran")

    def _begin_task(self, folder: pathlib.Path) -> None:
        task = tasks.read_json(folder / "task.json") or {}
        try:
            self._run_task(folder, str(task.get("kind")), task)
        except RefusedError as error:
            _write_state(folder, "refused", str(error))
        except (errors.OvernightError, OSError) as error:
            why = (
                f"{error}: {error.why}" if isinstance(error, errors.OvernightError) else str(error)
            )
            _write_state(folder, "failed", why)

    def _run_task(self, folder: pathlib.Path, kind: str, task: dict[str, Any]) -> None:
        try:
            config = task_config.read(self._config)
        except errors.OvernightError as error:
            raise RefusedError(f"{error.what}: {error.why}; {error.todo}") from error
        if kind not in config.allow:
            raise RefusedError(f"{self._config} on {self._host} does not allow {kind}")
        if int(task.get("expires_us") or 0) < time.time_ns() // 1000:
            raise RefusedError("it came too late")
        given = task.get("arguments")
        arguments: Arguments = given if isinstance(given, dict) else {}
        if kind == "stop":
            self._stop(folder, arguments)
            return
        if (
            sum(job.log.parent.parent == self._tasks for job in self._jobs.running.values())
            >= MAX_RUNNING
        ):
            raise RefusedError(f"{MAX_RUNNING} tasks are running")
        env: Mapping[str, str] | None = None
        if kind in ("instrument", "change", "undo"):
            command, env = self._named(kind, folder.name, arguments, config), CLEAN
            argv, seconds = command.argv, command.seconds
        else:
            argv, seconds = self._command(kind, folder.name, arguments, config)
        # Before the start: a task that was begun is not begun again.
        _write_state(folder, "running", "")

        def end(succeeded: bool, output: str) -> None:
            if kind == "undo" and succeeded:
                self._forget_change(folder.name)
                if self._changes() and "task" not in arguments:  # all of them, the last first
                    (folder / "state.json").unlink()
                    return
            self._end_task(folder, kind, succeeded, output)

        process = self._jobs.start(f"task {folder.name}", argv, seconds, folder / "log", end, env)
        identity = process_identity.read_identity(process.pid)
        _write_state(folder, "running", "", pid=process.pid, **identity)

    def _end_task(self, folder: pathlib.Path, kind: str, succeeded: bool, output: str) -> None:
        result: dict[str, Any] = {}
        if kind == "upload-window" and succeeded:
            digest = windows.read_digest(self._windows, f"task-{folder.name}")
            result, succeeded = {"sha256": digest}, bool(digest)
            output = output if succeeded else "the server refused the bundle"
        elif kind == "instrument":
            result = {"output": output}
        _write_state(folder, "done" if succeeded else "failed", output[-1000:], result=result)

    def _stop(self, folder: pathlib.Path, arguments: Arguments) -> None:
        _only(arguments, "task")
        wanted = arguments.get("task")
        stopped = [job for name, job in self._jobs.running.items() if name == f"task {wanted}" or (not wanted and name.startswith("task "))]  # fmt: skip
        for job in stopped:
            job.ended_by = f"stopped by task {folder.name}"
        _write_state(folder, "done", f"stopped {len(stopped)} of the running tasks")

    def _command(
        self, kind: str, name: str, given: Arguments, config: task_config.TaskConfig
    ) -> tuple[tuple[str, ...], float]:
        """Return the fixed command of a kind with the values that it takes, and its time limit."""
        cli = (sys.executable, "-m", "overnight", "--home", str(self._home))
        if kind == "snapshot":
            _only(given)
            return self._inventory(), 600
        if kind == "upload-window":
            _only(given, "event", "begin_us", "end_us")
            return self._bundle(f"task-{name}", given), 3600
        if kind == "age":
            _only(given, "state", "number")
            state = _word("state", given)
            return (*cli, "age", state, str(_number("number", given, 0, 10_000_000))), 3600
        seconds = _number("seconds", given, 1, config.max_seconds)
        lasting = ("--for", f"{seconds}s")
        if kind == "record":
            _only(given, "seconds", "frequency")
            hertz = _number("frequency", {"frequency": 97, **given}, 1, 999)
            return (*cli, "record", "--profiles-only", *lasting, "--frequency", str(hertz)), seconds + 900  # fmt: skip
        _only(given, "workload", "seconds", "cores", "duty")
        argv = [*cli, "load", _word("workload", given), *lasting]
        if "cores" in given:
            if not CORES.fullmatch(str(given["cores"])):
                raise RefusedError("cores is not a list such as 0-3,5")
            argv += ["--cores", str(given["cores"])]
        if "duty" in given:
            argv += ["--duty", f"{_number('duty', given, 1, 100)}%"]
        return tuple(argv), seconds + 300

    def _named(
        self, kind: str, task: str, given: Arguments, config: task_config.TaskConfig
    ) -> task_config.Command:
        """Return the command of the administrator; a change is noted first, so that it can be undone."""
        if kind == "undo":
            _only(given, "task")
            changes = self._changes()
            chosen = [n for n, each in enumerate(changes) if given.get("task") in (None, each["task"])]  # fmt: skip
            if not chosen:
                raise RefusedError("there is no such change to undo")
            last = changes[chosen[-1]]
            last["undone_by"] = task
            self._write_changes(changes)
            return task_config.Command(tuple(last["undo"]), 300)
        _only(given, "name")
        known = config.instruments if kind == "instrument" else config.changes
        name = given.get("name")
        if not isinstance(name, str) or name not in known:
            raise RefusedError(f"{self._config} on {self._host} lists no {kind} {name!r}")
        command = known[name]
        if kind == "change":
            change = {"task": task, "name": name, "undo": list(command.undo), "at_us": time.time_ns() // 1000}  # fmt: skip
            self._write_changes([*self._changes(), change])
        return command

    def _changes(self) -> list[dict[str, Any]]:
        document = tasks.read_json(self._folder / "changes.json") or {}
        return list(document.get("changes", []))

    def _write_changes(self, changes: list[dict[str, Any]]) -> None:
        text = json.dumps({"changes": changes})
        files.write_atomically(self._folder / "changes.json", text)

    def _forget_change(self, undo: str) -> None:
        left = [change for change in self._changes() if change.get("undone_by") != undo]
        self._write_changes(left)

    # --- bundles and inventories

    def _inventory(self) -> tuple[str, ...]:
        module = (sys.executable, "-m", "overnight.app.agent_inventory")
        return (*module, str(self._home), self._host, str(self._config))

    def _end_inventory(self, succeeded: bool, output: str) -> None:
        if not succeeded:
            self._log(f"labels and snapshot were not read: {output}")

    def _bundle(self, name: str, given: Arguments) -> tuple[str, ...]:
        module = (sys.executable, "-m", "overnight.app.window_bundle", str(self._home), self._host)
        event = given.get("event")
        if event is not None:
            if not isinstance(event, str) or not windows.NAME.fullmatch(event):
                raise RefusedError("event is not the id of an event")
            return (*module, name, "--event", event)
        begin = _number("begin_us", given, 0, 1 << 62)
        end = _number("end_us", given, begin + 1, begin + MAX_WINDOW_US)
        return (*module, name, "--window", str(begin), str(end))

    def _begin_window(self, now: float) -> None:
        if any(name.startswith("window ") for name in self._jobs.running):
            return
        now_us = time.time_ns() // 1000
        for path in sorted(self._windows.glob("*" + windows.REQUEST)):
            request = tasks.read_json(path) or {}
            due_us, name = int(request.get("due_us", 0)), path.name.removesuffix(windows.REQUEST)
            retry_at, tries = self._retry_at.get(name, (0.0, 0))
            # A clock that was set back must not hold it up for long.
            if (now_us < due_us < now_us + windows.MAX_AGE_US) or now < retry_at:
                continue
            self._make_room()
            self._retry_at[name] = (now + RETRY_SECONDS, tries + 1)
            end = functools.partial(self._end_window, name)
            log = self._folder / "window.log"
            self._jobs.start(f"window {name}", self._bundle(name, {"event": name}), 3600, log, end)
            return

    def _end_window(self, name: str, succeeded: bool, output: str) -> None:
        if not succeeded and self._retry_at[name][1] < MAX_TRIES:
            return
        if not succeeded:
            self._log(f"no bundle of event {name}: {output}")
            files.write(self._windows / (name + windows.DONE), b"")
        (self._windows / (name + windows.REQUEST)).unlink(missing_ok=True)
        del self._retry_at[name]

    def _make_room(self) -> None:
        """Remove the oldest bundles above the budget; the recording still has what they hold."""
        bundles = sorted(self._windows.glob("*" + windows.BUNDLE), key=lambda path: path.stat().st_mtime_ns)  # fmt: skip
        surplus = sum(path.stat().st_size for path in bundles) - self._window_bytes
        for path in bundles:
            if surplus <= 0:
                return
            surplus -= path.stat().st_size
            self._log(f"removed the bundle of event {path.stem}, which was not uploaded: no room")
            files.write(path.with_suffix(windows.DONE), b"")
            path.with_suffix(windows.OFFER).unlink(missing_ok=True)
            path.unlink()


MAX_WINDOW_US = 6 * 3_600_000_000


def _only(given: Arguments, *names: str) -> None:
    if unknown := sorted(given.keys() - set(names)):
        raise RefusedError(f"it has an unknown argument {unknown[0]!r}")


def _number(name: str, given: Arguments, least: int, most: int) -> int:
    value = given.get(name)
    if type(value) is not int or not least <= value <= most:
        raise RefusedError(f"{name} is not a number from {least} to {most}")
    return value


def _word(name: str, given: Arguments) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not WORD.fullmatch(value):
        raise RefusedError(f"{name} is not a name")
    return value


def _write_state(folder: pathlib.Path, state: str, detail: str, **more: object) -> None:
    document = {"state": state, "detail": detail, "progress": float(state == "done"), **more}
    files.write_atomically(folder / "state.json", json.dumps(document))
