"""The diagnosis of an uploaded window as a file, made by a child process of its own.

A bundle comes from a host and may be hostile, and `reader_process` forks, which a server with threads must not do:
`python -m overnight.app.window_report` opens it, with limits on time and memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING

import overnight
from overnight import errors
from overnight.model.text import printable

if TYPE_CHECKING:
    from overnight.app import diagnose

FORMS = {"html": "html", "json": "json", "markdown": "md", "text": "txt"}
CPU_SECONDS = 300
SECONDS = 600.0
WAITING = 4
NICE = 10
KEEP_SECONDS = 14 * 86_400
PR_SET_PDEATHSIG = 1


class BusyError(errors.CannotError):
    """Too many diagnoses are running; the request may be repeated."""


class WindowReports:
    """Reports below a folder, one made at a time; safe to share between threads and servers."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._working = threading.Lock()
        self._waiting = threading.BoundedSemaphore(WAITING)

    def get(self, bundle: pathlib.Path, sha256: str, event_id: str, form: str) -> pathlib.Path:
        """Return the report of an event in a form of `FORMS`; the first call diagnoses it."""
        key = "\0".join((sha256, event_id, form, overnight.__version__))
        path = self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.{FORMS[form]}"
        if path.exists():
            return path
        if not self._waiting.acquire(blocking=False):
            raise _busy()
        try:
            with self._working:
                if not path.exists():
                    self._make(bundle, event_id, form, path)
        finally:
            self._waiting.release()
        return path

    def _make(self, bundle: pathlib.Path, event_id: str, form: str, path: pathlib.Path) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            draft = pathlib.Path(scratch, "report")
            command = [sys.executable, "-m", __name__, str(bundle), event_id, form, str(draft)]
            # The folder for the opened bundle: it is removed with the report's draft.
            environment = os.environ | {"TMPDIR": scratch}
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS,
                    env=environment, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired as error:
                raise _failed(event_id, f"it took longer than {SECONDS:g} s") from error
            if done.returncode == 0:
                draft.rename(path)
                return
            with contextlib.suppress(ValueError, KeyError, TypeError):
                raise errors.from_json(json.loads(done.stdout))
            raise _failed(event_id, f"its process ended with {done.returncode}")

    def prune(self) -> None:
        """Remove reports that were made long ago; they are made again when they are asked for."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                with contextlib.suppress(OSError):
                    if path.is_file() and time.time() - path.stat().st_mtime > KEEP_SECONDS:
                        path.unlink()


def _busy() -> BusyError:
    return BusyError(
        "too many diagnoses are running",
        why="this server makes one at a time",
        todo="repeat the request in a minute",
    )


def _failed(event_id: str, why: str) -> errors.CannotError:
    return errors.CannotError(
        f"event {event_id} could not be diagnosed",
        why=why,
        todo="fetch the window and diagnose it elsewhere: overnight diagnose WINDOW.overnight",
    )


def main(arguments: list[str]) -> int:
    """Write the report of an event: BUNDLE EVENT FORM FILE."""
    bundle, event_id, form, file = arguments
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from overnight.app import diagnose

    request = diagnose.Request(pathlib.Path(), bundle=pathlib.Path(bundle), event_id=event_id)
    try:
        diagnosis = diagnose.diagnose(request)
        with pathlib.Path(file).open("wb") as out:
            if form == "text":
                out.write(_render(diagnosis).encode())
            else:
                diagnosis.write(form, out)
    except errors.OvernightError as error:
        print(json.dumps(error.as_json()))  # noqa: T201  the parent reads it
        return int(error.exit_code)
    return 0


def _render(diagnosis: diagnose.Diagnosis) -> str:
    import rich.console

    text = io.StringIO()
    rich.console.Console(file=text, width=100).print(diagnosis.render())
    return printable(text.getvalue(), keep="\n")  # names in it come from the host


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
