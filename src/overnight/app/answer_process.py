"""Answers of a server that take long, each made by a process of its own: questions about the fleet, and diagnoses.

A question about 10,000 hosts needs seconds and hundreds of megabytes, which the server does not have to spare. A bundle
comes from a host and may be hostile; the process that opens it does not know the database. `python -m` starts
both: a server with threads must not fork.
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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import overnight
from overnight import errors
from overnight.model import files
from overnight.model.text import printable

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.fleet import Fleet

CPU_SECONDS = 300
QUESTION_SECONDS, DIAGNOSIS_SECONDS = 110.0, 600.0
AT_ONCE, WAITING = 2, 6
NICE = 10
KEEP_SECONDS = 14 * 86_400
PR_SET_PDEATHSIG = 1


class BusyError(errors.CannotError):
    """Too many answers are being made; the request may be repeated."""


class FailedError(errors.CannotError):
    """The process took too long, or ended without an answer."""


class Answers:
    """Starts the processes, a few at a time, and keeps diagnoses in a folder that servers share."""

    def __init__(self, database: str, blobs: pathlib.Path, kept: pathlib.Path) -> None:
        self._known = {"database": database, "blobs": str(blobs)}
        self._folder = kept
        self._running = threading.BoundedSemaphore(AT_ONCE)
        self._taken = threading.BoundedSemaphore(AT_ONCE + WAITING)

    def ask(self, name: str, parameters: Mapping[str, Sequence[str]]) -> bytes:
        """Return the document that answers a question about the fleet."""
        given = {**self._known, "name": name, "parameters": parameters}
        return self._run("question", given, QUESTION_SECONDS)

    def diagnose(self, bundle: pathlib.Path, sha256: str, event: Event, form: str) -> pathlib.Path:
        """Return a file with the diagnosis of an event as html, json or text; only the first call makes it."""
        key = "\0".join((sha256, event.id, form, overnight.__version__))
        path = self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.{form}"
        if not path.exists():
            try:
                fleet = json.loads(self.ask("findings", {"kind": [event.kind]}))
            except errors.CannotError:
                fleet = None  # the verdict does without
            given = {"bundle": str(bundle), "event": event.id, "form": form, "fleet": fleet}
            content = self._run("diagnosis", given, DIAGNOSIS_SECONDS)
            files.make_folder(self._folder)
            files.write_atomically(path, content, mode=0o600)
        return path

    def study(self, bundle: pathlib.Path, name: str, asked: Mapping[str, object]) -> dict[str, Any]:
        """Return what `app.studies` answers from the evidence of a bundle."""
        sent = {"bundle": str(bundle), "name": name, "asked": asked}
        document: dict[str, Any] = json.loads(self._run("study", sent, QUESTION_SECONDS))
        return document

    def size(self, home: pathlib.Path, request: Mapping[str, object]) -> dict[str, Any]:
        """Return the size of a pool, as `overnight pool size -O json`."""
        sent = {**self._known, "home": str(home), "request": request}
        document: dict[str, Any] = json.loads(self._run("size", sent, QUESTION_SECONDS))
        return document

    def prune(self) -> None:
        """Remove diagnoses made long ago; they are made again when they are asked for."""
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another server was first
                if time.time() - path.stat().st_mtime > KEEP_SECONDS:
                    path.unlink()

    def _run(self, what: str, given: Mapping[str, object], seconds: float) -> bytes:
        if not self._taken.acquire(blocking=False):
            raise BusyError(
                "too many questions at once",
                why=f"this server answers {AT_ONCE} at a time, and {WAITING} wait",
                todo="repeat the request in a minute",
            )
        try:
            # The process unpacks bundles in the folder: it goes with what a killed one leaves behind.
            with self._running, tempfile.TemporaryDirectory(prefix="overnight-answer-") as scratch:
                done = subprocess.run(
                    [sys.executable, "-P", "-m", __name__, what], input=json.dumps(given).encode(),
                    capture_output=True, timeout=seconds, env=os.environ | {"TMPDIR": scratch}, check=False,
                )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise _failed(what, f"it took longer than {seconds:g} s") from error
        finally:
            self._taken.release()
        if done.returncode == 0:
            return done.stdout
        try:
            raise errors.from_json(json.loads(done.stdout))
        except (ValueError, KeyError, TypeError):
            raise _failed(what, f"its process ended with {done.returncode}") from None


def _failed(what: str, why: str) -> FailedError:
    return FailedError(
        f"the {what} could not be answered",
        why=why,
        todo="ask about less: a shorter time, or fetch the window and run `overnight diagnose` on it",
    )


def _answer(given: dict[str, Any]) -> bytes:
    from overnight.app import fleet_questions, questions
    from overnight.database import engine
    from overnight.fleet import blobs, control

    folder = blobs.Blobs(pathlib.Path(given["blobs"]))
    plane = control.ControlPlane(engine.Database(given["database"]), folder)

    def read(wanted: questions.Wanted) -> Fleet:
        return plane.fleet(wanted.kinds, snapshots=wanted.snapshots)

    return json.dumps(fleet_questions.answer(given["name"], given["parameters"], read)).encode()


def _diagnose(given: dict[str, Any]) -> bytes:
    from overnight.app import diagnose, fleet_questions

    fleet, bundle = given["fleet"], pathlib.Path(given["bundle"])
    found = fleet and fleet_questions.FINDINGS.decode(fleet)
    ask_fleet = (lambda _: found) if found else None
    result = diagnose.diagnose(
        diagnose.Request(bundle.parent, bundle, event_id=given["event"], ask_fleet=ask_fleet)
    )
    if given["form"] != "text":
        out = io.BytesIO()
        result.write(given["form"], out)
        return out.getvalue()
    import rich.console

    text = io.StringIO()
    rich.console.Console(file=text, width=100).print(result.render(), crop=False)
    return printable(text.getvalue(), keep="\n").encode()  # names in it come from the host


def _study(given: dict[str, Any]) -> bytes:
    from overnight.app import bundles, studies, windows

    with bundles.open_temporarily(pathlib.Path(given["bundle"])) as opened:
        assert opened.home is not None
        asked = given["asked"]
        found = windows.Evidence(opened.home, asked["event"], asked["begin"], asked["end"])
        return json.dumps(studies.run(given["name"], found, asked)).encode()


def _size(given: dict[str, Any]) -> bytes:
    from overnight.app import pool_sizing, pools

    where = pools.Pools(pathlib.Path(given["home"]), given["database"])
    request = pool_sizing.SizeRequest(**given["request"])
    return json.dumps(pool_sizing.size_pool(where, request).as_json()).encode()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        jobs = {"question": _answer, "diagnosis": _diagnose, "study": _study, "size": _size}
        output, code = jobs[sys.argv[1]](json.load(sys.stdin)), 0
    except errors.OvernightError as error:
        output, code = json.dumps(error.as_json()).encode(), int(error.exit_code)
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()
    os._exit(code)
