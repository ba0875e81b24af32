"""`overnight agent`: the recorder of a host, and beside it the uplink to its server and the tasks that come from there.

Whatever happens to the uplink or the server, the recording goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import overnight
from overnight import errors, http_client
from overnight.agent import task_config, task_runner
from overnight.agent.uplink import loop, tasks
from overnight.app import home as homes
from overnight.app import record
from overnight.model import addresses, files, times
from overnight.model.event import PARTIAL, Event
from overnight.model.severity import Severity
from overnight.sources import perf
from overnight.store import added_events
from overnight.store.ring import layout

if TYPE_CHECKING:
    from overnight.model.recording import Recording

CONFIG = task_config.PATH
STEP_SECONDS = 0.5
STOP_SECONDS = 45.0  # one request may take 30
MAX_BACKOFF_SECONDS = 60.0
TOKEN = "OVERNIGHT_AGENT_TOKEN"  # noqa: S105 - the name of a variable
Log = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Options:
    """What to record, and where to report it."""

    record: record.Options
    server: str
    token: str = ""
    token_file: pathlib.Path | None = None
    ca: pathlib.Path | None = None
    insecure: bool = False
    config: pathlib.Path = CONFIG
    default_config: pathlib.Path | None = None  # where there is no `config`
    spool_bytes: int = 16 << 20
    window_bytes: int = 1 << 30
    upload_rate: float = 1e6  # bytes per second

    @property
    def tasks(self) -> pathlib.Path:
        """The file that lists the allowed tasks."""
        given = self.default_config
        return self.config if given is None or os.path.lexists(self.config) else given


def read_token(file: pathlib.Path | None) -> str:
    """Return the token in a file, in standard input (-) or in the environment, which is cleared; '' without one."""
    given = os.environ.pop(TOKEN, "")
    if file is None:
        return given.strip()
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except FileNotFoundError:
        return ""  # it was used, and removed
    except (OSError, UnicodeDecodeError) as error:
        raise errors.unreadable(file, error, "name a file with a token: --token-file FILE") from error  # fmt: skip
    return text.strip()


def run(
    options: Options,
    stop: threading.Event,
    on_progress: Callable[[record.Progress], None],
    log: Log,
) -> Recording:
    """Record until stopped, and report meanwhile. What cannot work raises before anything is recorded."""
    home = options.record.home
    homes.need_writable(home)
    addresses.parse_server_url(options.server, insecure=options.insecure)
    if options.ca is not None:
        http_client.make_context(options.ca)
    task_config.read(options.tasks)
    folder = home / "uplink"
    files.make_folder(folder)
    with _locked(folder / "lock"):
        stored = tasks.read_json(folder / "credential") or {}
        if not options.token and "credential" not in stored:
            raise errors.UsageError(
                "this host is not enrolled, and no token was given",
                why="a host enrols with a single-use token of its server",
                todo="on the server: `overnight token create --role agent`; here: `overnight agent --token-file FILE`",
            )
        if missing := record.find_missing(options.record):
            text = f"cannot record {' and '.join(missing)}; `overnight doctor` names the fix"
            log(f"warning: {text}")
            _report_partial(home, text)
        supervisor = Supervisor(options, log)
        supervisor.start()
        try:
            return record.record(options.record, stop, on_progress)
        finally:
            supervisor.stop()


def _report_partial(home: pathlib.Path, text: str) -> None:
    """Store what cannot be recorded as an event, which the uplink sends."""
    at_us, host = times.now_us(), platform.node() or "host"
    event = Event(
        at_us, PARTIAL, text, host, severity=Severity.INFO, id=f"{PARTIAL}-{at_us}", source="agent"
    )
    with contextlib.suppress(errors.CannotError):  # the recording goes on
        added_events.add(home, [event])


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    descriptor = files.open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise errors.CannotError(
                "another agent runs with this data home",
                why=f"it holds {path}",
                todo="stop it, or choose another data home: `overnight --home DIR agent`",
            ) from error
        yield
    finally:
        os.close(descriptor)


class Supervisor:
    """A thread that keeps the uplink running, and runs tasks."""

    def __init__(self, options: Options, log: Log) -> None:
        self._options = options
        self._log = log
        self._home = options.record.home
        self._host = platform.node() or "host"
        self._runner = task_runner.TaskRunner(
            self._home, self._host, options.tasks, options.window_bytes, log,
            records_stacks=options.record.profiles,
        )  # fmt: skip
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="uplink")
        self._uplink: subprocess.Popen[bytes] | None = None
        self._started = self._next_start = 0.0
        self._failures = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the uplink send the rest, and end all processes."""
        self._stop.set()
        self._thread.join()
        self._runner.close()
        if self._uplink is not None:
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                self._uplink.communicate(timeout=STOP_SECONDS)
            self._uplink.kill()
            self._uplink.wait()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._check_uplink()
                self._runner.step()
            except Exception as error:  # the recording goes on, and so does this
                self._log(f"uplink: {type(error).__name__}: {error}")
            self._stop.wait(STEP_SECONDS)

    def _check_uplink(self) -> None:
        now = time.monotonic()
        if self._uplink is not None:
            code = self._uplink.poll()
            if code is None:
                return
            with contextlib.suppress(OSError):
                self._uplink.communicate()  # closes its pipe
            self._failures = 1 if now - self._started > MAX_BACKOFF_SECONDS else self._failures + 1
            delay = min(MAX_BACKOFF_SECONDS, 2.0 ** min(self._failures - 1, 10))
            self._log(f"the uplink ended ({code}), starting it again in {delay:.0f} s; the recording goes on")  # fmt: skip
            self._uplink, self._next_start = None, now + delay
        if now >= self._next_start:
            self._started = now
            self._uplink = self._start_uplink()

    def _start_uplink(self) -> subprocess.Popen[bytes]:
        options = self._options
        given = loop.Options(
            home=str(self._home),
            ring=str(layout.host_folder(self._home, self._host)),
            host=self._host,
            boot=perf.read_identity().boot,
            server=options.server,
            ca=_absolute(options.ca),
            insecure=options.insecure,
            token=options.token,
            token_file=_absolute(options.token_file),
            spool_bytes=options.spool_bytes,
            upload_rate=options.upload_rate,
        )
        # -S: the site packages are not needed, and half a megabyte is. A session of its own: Ctrl-C must
        # not end it before it has sent the rest.
        package = pathlib.Path(overnight.__file__).parent.parent
        child = subprocess.Popen(
            [sys.executable, "-S", "-P", "-m", "overnight.agent.uplink"],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(package)},
            start_new_session=True,
        )
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended at once
            child.stdin.write(json.dumps(given._asdict()).encode() + b"\n")
            child.stdin.flush()
        return child


def _absolute(path: pathlib.Path | None) -> str:
    return str(path.absolute()) if path else ""
