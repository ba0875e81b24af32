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
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from overnight import errors
from overnight.agent import jobs, task_config, task_results
from overnight.agent.uplink import tasks, windows
from overnight.model import checked_json, files, host_changes, process_identity, protocol, times
from overnight.model.protocol import TaskKind
from overnight.model.text import plural

MAX_RUNNING = 8
RECORD_GRACE_SECONDS = 60.0  # to store the last segment
# The recorder notes the labels when it starts, maybe late on a loaded host; then each hour.
FIRST_SECONDS, SECOND_SECONDS, INVENTORY_SECONDS = 10.0, 60.0, 3600.0
RETRY_SECONDS, MAX_TRIES = 60.0, 3  # of a bundle
MAX_WINDOW_US = 6 * 3_600_000_000
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

# No value begins with a dash: it would be an option.
WORD = re.compile(r"[a-z][a-z0-9-]{0,63}")
TARGET = re.compile(r"[A-Za-z0-9_.:/@+][A-Za-z0-9_.:/@+-]{0,127}")
ADDRESS = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:/\[\]-]{0,254}")
FILE = re.compile(r"/[^\x00]{1,4095}")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
CORES = re.compile(r"[0-9][0-9,-]{0,255}")
ARGUMENTS: Mapping[TaskKind, str] = {
    TaskKind.RECORD: "seconds frequency segment budget every",
    TaskKind.LOAD: "workload seconds cores duty seed orchestrator address profile hosts",
    TaskKind.AGE: "state number arm",
    TaskKind.SNAPSHOT: "",
    TaskKind.UPLOAD_WINDOW: "event begin_us end_us",
    TaskKind.INSTRUMENT: "name target seconds",
    TaskKind.CHANGE: "name target",
    TaskKind.UNDO: "task",
    TaskKind.STOP: "task",
}
# Those that are options of the command: the range and the unit of a number, the form of a text.
NUMBERS = {
    "frequency": (1, 999, ""),
    "segment": (1, 1 << 62, "s"),
    "budget": (1, 1 << 62, "B"),
    "duty": (1, 100, "%"),
    "seed": (0, 1 << 31, ""),
}
TEXTS = {"arm": WORD, "cores": CORES, "orchestrator": WORD, "address": ADDRESS, "profile": FILE}


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
        own: task_config.TaskConfig | None = None,
        records_stacks: bool = False,
    ) -> None:
        """Run tasks of a server; or those that `own` allows, on a host that records nothing else.

        `records_stacks`: the agent does, so that a task of kind record has nothing to do.
        """
        self._home, self._host, self._config, self._own = home, host, config, own
        self._records_stacks = records_stacks
        self._window_bytes = window_bytes
        self._log = log
        self._folder = home / "uplink"
        self._tasks, self._windows = self._folder / "tasks", self._folder / "windows"
        self._jobs = jobs.Jobs()
        self._is_closing = False
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
            if self._own is None:
                self._begin_inventory(now)

    def _begin_inventory(self, now: float) -> None:
        if now < self._inventory_at or "inventory" in self._jobs.running:
            return
        first = () if self._inventories else ("history",)
        self._inventory_at = now + (INVENTORY_SECONDS if self._inventories else SECOND_SECONDS)
        self._inventories += 1

        def end(succeeded: bool, output: str) -> None:
            if not succeeded:
                self._log(f"labels, snapshot or audit were not read: {output}")

        log = self._folder / "inventory.log"
        self._jobs.start("inventory", (*self._inventory(), *first), 600, log, end)

    def close(self) -> None:
        """End all processes; their tasks failed."""
        self._is_closing = True
        self._jobs.close()

    # --- tasks

    def _fail_interrupted(self) -> None:
        """Report tasks that ran when the agent was killed, and end their processes."""
        for path in self._tasks.glob("*/state.json"):
            state = tasks.read_json(path) or {}
            if state.get("state") == "running":
                boot = process_identity.read_boot()
                if state.get("reboots", boot) != boot:
                    _write_state(path.parent, "done", f"rebooted, boot {boot}", result={"boot": boot})  # fmt: skip
                    continue
                pid, started = int(state.get("pid", 0)), str(state.get("started", ""))
                if pid and process_identity.is_running(pid, started, str(state.get("boot", ""))):
                    jobs.signal_group(pid, signal.SIGKILL)
                _write_state(path.parent, "failed", protocol.INTERRUPTED)

    def _begin_task(self, folder: pathlib.Path) -> None:
        task = tasks.read_json(folder / "task.json") or {}
        try:
            self._run_task(folder, task)
        except (RefusedError, errors.UsageError) as error:
            _write_state(folder, "refused", str(error))
        except errors.OvernightError as error:
            _write_state(folder, "failed", f"{error.what}: {error.why}")
        except OSError as error:
            _write_state(folder, "failed", str(error))

    def _run_task(self, folder: pathlib.Path, task: tasks.Document) -> None:
        try:
            config = self._own or task_config.read(self._config)
        except errors.OvernightError as error:
            raise RefusedError(f"{error.what}: {error.why}; {error.todo}") from error
        if task.get("kind") not in config.allow:
            self._refuse(f"does not allow {task.get('kind')}")
        if int(task.get("expires_us") or 0) < times.now_us():
            raise RefusedError("it expired before the agent began it")
        kind = TaskKind(task["kind"])
        given = checked_json.Object(task.get("arguments") or {}, "arguments")
        if unknown := sorted(given.fields.keys() - ARGUMENTS[kind].split()):
            raise RefusedError(f"it has an unknown argument {unknown[0]!r}")
        if kind is TaskKind.STOP:
            self._stop(folder, given.get("task"))
            return
        if sum(name.startswith("task ") for name in self._jobs.running) >= MAX_RUNNING:
            raise RefusedError(f"{MAX_RUNNING} tasks are running, the maximum")
        named = kind in (TaskKind.CHANGE, TaskKind.UNDO)
        if kind is TaskKind.INSTRUMENT:
            # With a time it stores what it reads; a command of the administrator without one only prints.
            named = "seconds" not in given.fields and str(given.get("name")) not in config.builtin
        find = self._find_named if named else self._find_fixed
        command = find(kind, folder.name, given, config)
        ticks, begun = task_results.read_ticks(), time.monotonic()
        reboots = {"reboots": process_identity.read_boot()} if command.is_reboot else {}
        # Before the start: a task that was begun is not begun again.
        _write_state(folder, "running", "", **reboots)

        def end(succeeded: bool, output: str) -> None:
            if reboots and (succeeded or self._is_closing):
                return  # judged by the boot id when the agent starts again
            if kind is TaskKind.UNDO and succeeded:
                left = [each for each in self._changes() if each.get("undone_by") != folder.name]
                self._write_changes(left)
                if left and given.get("task") is None:  # all of them, the last first
                    (folder / "state.json").unlink()
                    return
            result, detail = task_results.read(kind, output)
            if kind is TaskKind.UPLOAD_WINDOW and succeeded:
                digest = windows.read_digest(self._windows, f"task-{folder.name}")
                result, succeeded = {"sha256": digest}, bool(digest)
                detail = detail if succeeded else "the server refused the bundle"
            elif kind is TaskKind.RECORD:
                result = task_results.measure_cores(ticks, time.monotonic() - begun)
            _write_state(folder, "done" if succeeded else "failed", detail, result=result)

        process = self._jobs.start(
            f"task {folder.name}", command.argv, command.seconds, folder / "log", end,
            CLEAN if named and not command.is_builtin else None,
            RECORD_GRACE_SECONDS if kind is TaskKind.RECORD else jobs.GRACE_SECONDS,
        )  # fmt: skip
        identity = process_identity.read_identity(process.pid)
        _write_state(folder, "running", "", pid=process.pid, **identity, **reboots)

    def _stop(self, folder: pathlib.Path, wanted: object) -> None:
        """Stop a task, or all of them."""
        stopped = [
            job
            for name, job in self._jobs.running.items()
            if name.startswith("task ") and wanted in (None, "", name.removeprefix("task "))
        ]
        for job in stopped:
            job.ended_by = f"stopped by task {folder.name}"
        _write_state(folder, "done", f"stopped {plural(len(stopped), 'task')}")

    def _find_fixed(
        self, kind: TaskKind, task: str, given: checked_json.Object, config: task_config.TaskConfig
    ) -> task_config.Command:
        """Return the command of a kind with the values that it takes."""
        if kind is TaskKind.SNAPSHOT:
            return task_config.Command(self._inventory(), 600)
        if kind is TaskKind.UPLOAD_WINDOW:
            return task_config.Command(self._bundle(f"task-{task}", given), 3600)
        cli = (sys.executable, "-m", "overnight", "--home", str(self._home), kind)
        options = tuple(_list_options(given))
        if kind is TaskKind.AGE:
            return task_config.Command((*cli, "-O", "json", *_age_words(given), *options), 3600)
        seconds = given.integer("seconds", 1, config.max_seconds)
        options = ("--for", f"{seconds}s", *options)
        if kind is TaskKind.INSTRUMENT:
            name = given.text("name", form=WORD)
            if name not in config.builtin and name not in config.instruments:
                self._refuse(f"lists no instrument {name!r}")
            words = (name, given.text("target", form=TARGET)) if given.get("target") else (name,)
            argv = (*cli, *words, *options, "--config", str(self._config))
            return task_config.Command(argv, seconds + 120)
        if kind is TaskKind.LOAD:
            if "profile" in given.fields and self._own is None:
                raise RefusedError("a profile is a file of the machine that runs the plan")
            argv = (*cli, "-O", "json", given.text("workload", form=WORD), *options)
            return task_config.Command(argv, seconds + 300)
        if self._records_stacks:
            return task_config.Command(("/bin/sleep", str(seconds)), seconds + 60)
        only = ("--profiles-only",) if self._own is None else ()  # the agent records signals
        return task_config.Command((*cli, *options, *only), seconds + 900)

    def _refuse(self, why: str) -> NoReturn:
        raise RefusedError(f"{self._config} on {self._host} {why}")

    def _find_named(
        self, kind: TaskKind, task: str, given: checked_json.Object, config: task_config.TaskConfig
    ) -> task_config.Command:
        """Return the command of the administrator; a change is noted first, so that it can be undone."""
        changes = self._changes()
        if kind is TaskKind.UNDO:
            chosen = [each for each in changes if given.get("task") in (None, each["task"])]
            if not chosen:
                raise RefusedError("there is no such change to undo")
            chosen[-1]["undone_by"] = task
            self._write_changes(changes)
            if "builtin" in chosen[-1]:
                return self._builtin("undo", chosen[-1]["task"])
            return task_config.Command(tuple(chosen[-1]["undo"]), 300)
        known = config.instruments if kind is TaskKind.INSTRUMENT else config.changes
        name = given.get("name")
        if not isinstance(name, str) or name not in known:
            self._refuse(f"lists no {kind} {name!r}")
        command, target = known[name], given.text("target", host_changes.MAX_TARGET, default="")
        note: dict[str, Any] = {"task": task, "name": name, "at_us": times.now_us()}
        if isinstance(command, task_config.BuiltinChange):
            try:
                change = command.check(target)
            except ValueError as error:
                self._refuse(f"does not allow it: {error}")
            self._write_changes([*changes, note | {"builtin": str(change)}])
            words = ("apply", task, change.builtin, *change.words)
            return self._builtin(*words, seconds=command.seconds)
        if target:
            raise RefusedError(f"{kind} {name} is a command, and takes no target")
        if kind is TaskKind.CHANGE:
            self._write_changes([*changes, note | {"undo": command.undo}])
        return command

    def _builtin(self, *words: str, seconds: float = 300.0) -> task_config.Command:
        argv = (sys.executable, "-m", "overnight.app.changes", str(self._home), *words)
        is_reboot = host_changes.Builtin.REBOOT in words
        return task_config.Command(argv, seconds, is_builtin=True, is_reboot=is_reboot)

    def _changes(self) -> list[dict[str, Any]]:
        document = tasks.read_json(self._folder / "changes.json") or {}
        return list(document.get("changes", []))

    def _write_changes(self, changes: list[dict[str, Any]]) -> None:
        text = json.dumps({"changes": changes})
        files.write_atomically(self._folder / "changes.json", text)

    # --- bundles and inventories

    def _inventory(self) -> tuple[str, ...]:
        module = (sys.executable, "-m", "overnight.app.agent_inventory")
        return (*module, str(self._home), self._host, str(self._config))

    def _bundle(self, name: str, given: checked_json.Object) -> tuple[str, ...]:
        module = (sys.executable, "-m", "overnight.app.window_bundle", str(self._home), self._host)
        if given.get("event") is not None:
            return (*module, name, "--event", given.text("event", form=protocol.ID))
        begin = given.integer("begin_us", 0, 1 << 62)
        end = given.integer("end_us", begin + 1, begin + MAX_WINDOW_US)
        return (*module, name, "--window", str(begin), str(end))

    def _begin_window(self, now: float) -> None:
        if any(name.startswith("window ") for name in self._jobs.running):
            return
        now_us = times.now_us()
        paths = self._windows.glob("*" + windows.REQUEST)
        for path in sorted(paths, key=lambda path: (windows.FIRST not in path.suffixes, path.name)):
            request = tasks.read_json(path) or {}
            due_us, name = int(request.get("due_us", 0)), path.name.removesuffix(windows.REQUEST)
            retry_at, tries = self._retry_at.get(name, (0.0, 0))
            # A clock that was set back must not hold it up for long.
            if (now_us < due_us < now_us + windows.MAX_AGE_US) or now < retry_at:
                continue
            self._make_room()
            self._retry_at[name] = (now + RETRY_SECONDS, tries + 1)
            argv = self._bundle(
                name, checked_json.Object({"event": request.get("event", name)}, "request")
            )
            end, log = functools.partial(self._end_window, name), self._folder / "window.log"
            self._jobs.start(f"window {name}", argv, 3600, log, end)
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
            self._log(
                f"removed the bundle of event {path.stem}, which was not uploaded: --windows is used up"
            )
            files.write(path.with_suffix(windows.DONE), b"")
            path.with_suffix(windows.OFFER).unlink(missing_ok=True)
            path.unlink()


def _age_words(given: checked_json.Object) -> Iterator[str]:
    """Yield the arguments of `overnight age`; `undo` and `purge` are states, too."""
    state = given.text("state", form=WORD)
    yield "--undo" if state == "undo" else state
    if "number" in given.fields:
        yield str(given.integer("number", 0, 10_000_000))
    if state == "purge":
        yield "--yes"


def _list_options(given: checked_json.Object) -> Iterator[str]:
    for name, (low, high, unit) in NUMBERS.items():
        if name in given.fields:
            yield from (f"--{name}", f"{given.integer(name, low, high)}{unit}")
    for name, form in TEXTS.items():
        if name in given.fields:
            yield from (f"--{name}", given.text(name, 4096, form=form))
    for signal_name, seconds in given.document("every").items():
        yield from ("--every", f"{signal_name}={seconds}")
    if "hosts" in given.fields:
        hosts = given.fields["hosts"]
        if not isinstance(hosts, list) or not all(isinstance(h, str) and HOST.fullmatch(h) for h in hosts):  # fmt: skip
            raise RefusedError("hosts is not a list of host names")
        yield from ("--hosts", ",".join(hosts))


def _write_state(folder: pathlib.Path, state: str, detail: str, **more: object) -> None:
    document = {"state": state, "detail": detail, "progress": float(state == "done"), **more}
    files.write_atomically(folder / "state.json", json.dumps(document))
