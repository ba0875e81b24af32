"""The loop of the uplink: collect, report, upload; one thread, one connection."""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from overnight import errors, http_client
from overnight.agent.uplink import (
    backoff,
    cpu_tail,
    credentials,
    event_tail,
    reports,
    rollup_spool,
    rollups,
    tasks,
    windows,
)
from overnight.model import files, times

REPORT = "/api/v1/agents/report"
POLL_SECONDS = 0.5
COALESCE_SECONDS = 0.4  # from the first event to the report: those that follow at once go with it
INTERVAL_SECONDS = 30.0
MAX_EVENTS = 500  # of a report
LINE_BYTES = 64 << 10  # of rollups in a report: 35 half minutes of 96 cores
HISTORY = "history.json"
GZIP = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
# Answers to a report that would be the same the next time.
INVALID = (400, 413, 422)

T = TypeVar("T")


class Options(NamedTuple):
    home: str
    ring: str  # folder of this host's events and readings
    host: str
    boot: str
    server: str
    ca: str = ""
    insecure: bool = False
    token: str = ""
    token_file: str = ""
    spool_bytes: int = 16 << 20
    upload_rate: float = 1e6  # bytes per second


class Uplink:
    """State is written after each accepted report; whatever happens before that is sent again."""

    def __init__(self, options: Options, log: Callable[[str], None]) -> None:
        self._options = options
        self._log = log
        self._folder = pathlib.Path(options.home) / "uplink"
        files.make_folder(self._folder)
        ring = pathlib.Path(options.ring)
        state = tasks.read_json(self._folder / "state.json") or {}
        try:
            self._events = event_tail.EventTail(ring, dict(state.get("events", {})))
            place = (int(state["spool"][0]), int(state["spool"][1])) if "spool" in state else (0, 0)
        except (TypeError, ValueError, KeyError, IndexError):
            state, place = {}, (0, 0)
            self._events = event_tail.EventTail(ring, {})
        self._spool = rollup_spool.RollupSpool(self._folder, options.spool_bytes, place)
        self._cpu = cpu_tail.CpuTail(ring, rollups.parse_place(self._spool.read_last()))
        self._rollups = rollups.Rollups()
        self._sent = {name: str(state.get(name, "")) for name in reports.INVENTORY}
        self._lost_events = int(state.get("lost_events", 0))
        self._spool.lost = int(state.get("lost_rollups", 0))
        ca = pathlib.Path(options.ca) if options.ca else None
        self._client = http_client.Client(options.server, ca=ca, insecure=options.insecure)
        self._credentials = credentials.Credentials(self._folder, self._client)
        self._tasks = tasks.Tasks(self._folder / "tasks")
        self._windows = windows.Windows(self._folder / "windows", options.upload_rate)
        self._limit = MAX_EVENTS
        self._token = options.token
        self._is_refused = False  # the credential: try the token
        self._reports, self._uploads = backoff.Backoff(), backoff.Backoff()
        self._next_report = 0.0
        self._interval = INTERVAL_SECONDS
        self._first_event = 0.0

    def run(self, wait: Callable[[float], bool]) -> None:
        """Run until `wait`, which pauses for some seconds, returns True; then send what is left, once."""
        while True:
            self._collect()
            if self._reports.is_over():
                self._try(self._talk, self._reports)
            # A store that takes no windows must not hold up events.
            if self._uploads.is_over() and self._reports.is_over():
                self._try(self._upload, self._uploads)
            if wait(self._pause()):
                break
        self._collect(closing=True)
        if self._reports.is_over() and self._credentials.enrolled:
            self._try(self._report, self._reports)
        self._save()
        self._cpu.close()
        self._client.close()

    def _pause(self) -> float:
        if self._windows.wanted and self._reports.is_over() and self._uploads.is_over():
            return min(max(self._windows.next - time.monotonic(), 0.0), POLL_SECONDS)
        return POLL_SECONDS

    # --- collect

    def _collect(self, *, closing: bool = False) -> None:
        done = [self._rollups.add(reading) for reading in self._cpu.poll()]
        if closing:
            done.append(self._rollups.finish())
        for document in filter(None, done):
            self._spool.add(json.dumps(document, separators=(",", ":")).encode())
        if any(done) and not closing:
            self._save()
        if self._events.has_new():
            self._first_event = self._first_event or time.monotonic()
        else:
            self._first_event = 0.0
        self._windows.refresh()
        if self._windows.choose_offers(time.monotonic()):
            self._next_report = 0.0

    def _save(self) -> None:
        state = {
            "events": self._events.places,
            "spool": self._spool.place,
            **self._sent,
            "lost_events": self._lost_events,
            "lost_rollups": self._spool.lost,
        }
        with contextlib.suppress(OSError):  # a full disk: after a crash more is sent again
            files.write_atomically(self._folder / "state.json", json.dumps(state))

    # --- talk

    def _try(self, talk: Callable[[], None], pause: backoff.Backoff) -> None:
        """Talk to the server; where that fails, wait longer each time, with jitter."""
        try:
            talk()
        except (errors.OvernightError, OSError) as error:
            problem, retry_after = errors.reason(error), 0.0
            if isinstance(error, errors.OvernightError):
                problem = f"{error.what}: {error.why}; {error.todo}"
            if isinstance(error, http_client.RefusedError):
                retry_after = error.retry_after or 0.0
                if error.status == 401 and self._credentials.enrolled:
                    if self._credentials.use_next():
                        return
                    self._is_refused = bool(self._token)
            if problem != pause.problem:
                self._log(f"{problem} (trying again)")
            pause.fail(problem, retry_after)
        else:
            if pause.failures and pause is self._reports:
                self._log("connected again")
            pause.succeed()

    def _upload(self) -> None:
        self._windows.upload_piece(self._client, time.monotonic())

    def _talk(self) -> None:
        if self._is_refused or not self._credentials.enrolled:
            self._is_refused = False
            self._enrol()
        now = time.monotonic()
        has_events = self._first_event and now >= self._first_event + COALESCE_SECONDS
        if has_events or now >= self._next_report:
            self._report()
        elif self._credentials.is_due():
            self._credentials.rotate()
            self._log("rotated the credential")
        for name, report in self._tasks.changed(self._windows.holds):
            self._report_task(name, report)

    def _enrol(self) -> None:
        if not self._token:
            raise errors.CannotError(
                "this host is not enrolled",
                why="it has no credential for this server",
                todo="`overnight agent --server URL --token-file FILE`, with a token of `overnight token create --role agent`",
            )
        self._credentials.enrol(self._token, self._options.host)
        credentials.forget_token(self._options.token_file)
        self._token = ""
        self._log(f"enrolled as {self._options.host}")

    def _report_task(self, name: str, report: tasks.Document) -> None:
        body = reports.compress([json.dumps(report).encode()])
        try:
            self._post(f"/api/v1/agents/tasks/{name}", body)
        except http_client.RefusedError as error:
            if error.status in (401, 429) or error.status >= 500:
                raise
            self._log(f"task {name}: {error.what}")  # it was cancelled, or is too old
        self._tasks.note_reported(name, report)

    def _report(self) -> None:
        batch = self._gather()
        try:
            answer = self._send(batch)
        except http_client.RefusedError as error:
            if error.status not in INVALID or batch.is_bare:
                raise
            self._isolate(batch, error)
        else:
            self._accept(batch, answer)

    def _send(self, batch: reports.Batch) -> dict[str, Any]:
        body = reports.encode(batch, self._options.boot, self._folder)
        return self._post(REPORT, body).document()

    def _post(self, path: str, body: bytes) -> http_client.Response:
        return self._client.request("POST", path, body, GZIP, repeatable=True)

    def _gather(self) -> reports.Batch:
        is_whole = self._limit == MAX_EVENTS  # else something of it is refused: a part at a time
        events, event_places = self._events.take(self._limit)
        for event in events:
            self._windows.request(event, times.now_us())
        lines: list[bytes] = []
        line_place = self._spool.place
        if is_whole or not events:
            lines, line_place = self._spool.read(LINE_BYTES * self._limit // MAX_EVENTS)
        lost = {"events": self._lost_events, "rollups": self._spool.lost}
        batch = reports.Batch(event_places, line_place, events, lines, lost)
        if not is_whole and (events or lines):
            return batch
        return batch._replace(
            offers=self._windows.choose_offers(time.monotonic()),
            inventory=self._changed_inventory(),
            history=(tasks.read_json(self._folder / HISTORY) or {}).get("spells", ()),
        )

    def _accept(self, batch: reports.Batch, answer: dict[str, Any]) -> None:
        self._commit(batch)
        self._lost_events -= batch.lost["events"]
        self._spool.lost -= batch.lost["rollups"]
        self._limit = min(MAX_EVENTS, self._limit * 2)
        self._first_event = 0.0
        asked = self._follow(answer)
        self._save()
        self._tasks.forget_old(times.now_us())
        more = batch.lines and self._spool.read(1)[0]  # the server was away
        if more or self._limit < MAX_EVENTS or asked & self._changed_inventory().keys():
            delay = 0.2
        else:
            delay = self._interval * (0.9 + backoff.random_share() / 5)
        self._next_report = time.monotonic() + delay

    def _follow(self, answer: dict[str, Any]) -> set[str]:
        """Do what an answer asks for; return the parts of the inventory that the next report must have."""
        self._credentials.confirm()
        with contextlib.suppress(TypeError, ValueError):
            self._interval = min(max(float(answer.get("interval", 30)), 1.0), 3600.0)
        self._windows.wanted |= {*_items(answer, "want", str)}
        self._windows.refresh()
        asked = self._sent.keys() & _items(answer, "send", str)
        self._sent |= dict.fromkeys(asked, "")
        for task in _items(answer, "tasks", dict):
            self._tasks.accept(task)
        return asked

    def _isolate(self, batch: reports.Batch, error: http_client.RefusedError) -> None:
        """Find what the server cannot take, by halves; drop that, and report it as lost."""
        self._next_report = 0.0
        if self._limit > 1:
            self._limit = max(1, min(self._limit, len(batch.events) or self._limit) // 2)
            return
        # Raises if the server refuses a report that holds nothing: then nothing is dropped.
        self._follow(self._send(reports.Batch(self._events.places, self._spool.place)))
        try:
            answer = self._send(batch)  # the server may have recovered since it refused this
        except http_client.RefusedError as again:
            if again.status not in INVALID:
                raise
        else:
            self._accept(batch, answer)
            return
        self._log(f"dropped what the server refuses: {error.what}: {error.why}")
        self._commit(batch)
        self._lost_events += len(batch.events)
        self._spool.lost += len(batch.lines)
        self._save()

    def _commit(self, batch: reports.Batch) -> None:
        """Go on behind a batch."""
        self._events.commit(batch.event_places)
        self._spool.commit(batch.line_place)
        self._windows.note_offered(batch.offers, time.monotonic())
        self._sent |= batch.inventory
        if batch.history:
            with contextlib.suppress(OSError):
                (self._folder / HISTORY).unlink()

    def _changed_inventory(self) -> dict[str, str]:
        """Return the versions of labels, snapshot and audit that the server does not have."""
        changed = {}
        for name, sent in self._sent.items():
            with contextlib.suppress(OSError):
                status = (self._folder / f"{name}.json").stat()
                version = f"{status.st_mtime_ns}-{status.st_size}"
                if version != sent:
                    changed[name] = version
        return changed


def _items(answer: dict[str, Any], name: str, kind: type[T]) -> list[T]:
    given = answer.get(name)
    return [item for item in given if isinstance(item, kind)] if isinstance(given, list) else []


def log_line(text: str) -> None:
    sys.stderr.write(f"uplink: {text}\n")
    sys.stderr.flush()
