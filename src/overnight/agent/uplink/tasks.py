"""The uplink's side of tasks: each in a folder HOME/uplink/tasks/ID, so that nothing is forgotten or run twice.

task.json    as the server sent it
state.json   how it goes, by `task_runner`: state, detail, progress, result
reported     the last state that the server has confirmed
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from overnight.model import files, protocol

REPORTED = ("state", "detail", "progress", "result")
FINAL = tuple(state for state in protocol.REPORTED if state.is_final)
KEEP_US = 86_400_000_000  # after its expiry: the server may send a task again until then
MAX_TASKS = 64

Document = dict[str, Any]


class Tasks:
    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._reported: dict[str, str] = {}
        files.make_folder(folder)

    def accept(self, task: Document) -> None:
        """Store a task, unless it is known: the server sends each until it has an answer."""
        if (
            not protocol.ID.fullmatch(str(task.get("id")))
            or task.get("kind") not in tuple(protocol.TaskKind)
            or not isinstance(task.get("expires_us"), int)
        ):
            return
        folder = self._folder / str(task["id"])
        if (folder / "task.json").exists() or len(self._list()) >= MAX_TASKS:
            return
        files.make_folder(folder)
        files.write_atomically(folder / "task.json", json.dumps(task))

    def changed(self, holds: Callable[[str], bool]) -> Iterator[tuple[str, Document]]:
        """Yield each task whose state the server does not know; `holds`: a bundle is still to be uploaded."""
        for name in self._list():
            state = read_json(self._folder / name / "state.json")
            if not state or "state" not in state:
                continue
            report: Document = {key: state[key] for key in REPORTED if key in state}
            digest = str(report.get("result", {}).get("sha256", ""))
            if report["state"] == "done" and digest and holds(digest):
                # Done means that the server has the bundle.
                report |= {"state": "running", "detail": "uploading", "progress": 0.5}
            if self._last_reported(name) != _summary(report):
                yield name, report

    def note_reported(self, name: str, report: Document) -> None:
        self._reported[name] = _summary(report)
        with contextlib.suppress(OSError):
            files.write_atomically(self._folder / name / "reported", self._reported[name])

    def forget_old(self, now_us: int) -> None:
        """Remove finished tasks that the server cannot send again."""
        for name in self._list():
            task = read_json(self._folder / name / "task.json") or {}
            expires_us = task.get("expires_us")
            is_old = not isinstance(expires_us, int) or now_us > expires_us + KEEP_US
            if is_old and self._last_reported(name).startswith(FINAL):
                self._reported.pop(name, None)
                with contextlib.suppress(OSError):
                    for path in (self._folder / name).iterdir():
                        path.unlink()
                    (self._folder / name).rmdir()

    def _last_reported(self, name: str) -> str:
        if name not in self._reported:
            try:
                self._reported[name] = (self._folder / name / "reported").read_text()
            except OSError:
                self._reported[name] = ""
        return self._reported[name]

    def _list(self) -> list[str]:
        with contextlib.suppress(OSError):
            return sorted(os.listdir(self._folder))  # noqa: PTH208 - each second
        return []


def _summary(report: Document) -> str:
    return f"{report['state']} {report.get('detail', '')} {report.get('progress', '')}"


def read_json(path: pathlib.Path) -> Document | None:
    """Return the object in a file; None: there is none."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
