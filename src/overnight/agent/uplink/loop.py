"""The loop of the uplink: collect, report, upload; one thread, one connection."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import pathlib
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from overnight import errors, http_client
from overnight.agent.uplink import (
    backoff,
    cpu_tail,
    credentials,
    event_tail,
    rollup_spool,
    rollups,
    tasks,
    windows,
)
from overnight.model import files

REPORT = "/api/v1/agents/report"
POLL_SECONDS = 0.5
COALESCE_SECONDS = 0.4  # from the first event to the report: those that follow at once go with it
INTERVAL_SECONDS = 30.0
MAX_EVENTS = 500  # of a report
LINE_BYTES = 64 << 10  # of rollups in a report: 35 half minutes of 96 cores
SECOND_US = 1_000_000
PIECE = 64 << 10
HISTORY = "history.json"
# Answers to a report that would be the same the next time.
INVALID = (400, 413, 422)


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


class _Batch(NamedTuple):
    """What a report holds, and the places behind it."""

    events: list[event_tail.Event]
    event_places: event_tail.Places
    lines: list[bytes]
    line_place: rollup_spool.Place
    offers: list[windows.Offer]
    lost: dict[str, int]
    labels: str = ""  # digests of what is sent
    snapshot: str = ""
    history: Sequence[dict[str, Any]] = ()  # observed time before this process

    @property
    def is_bare(self) -> bool:
        return not (
            self.events or self.lines or self.offers or self.labels or self.snapshot or self.history
        )


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
            at = (str(state["cpu"][0]), int(state["cpu"][1])) if "cpu" in state else ("", 0)
        except (TypeError, ValueError, KeyError, IndexError):
            state, place, at = {}, (0, 0), ("", 0)
            self._events = event_tail.EventTail(ring, {})
        self._spool = rollup_spool.RollupSpool(self._folder, options.spool_bytes, place)
        self._cpu = cpu_tail.CpuTail(ring, at)
        self._rollups = rollups.Rollups()
        self._rollups.place = at
        self._sent = {name: str(state.get(name, "")) for name in ("labels", "snapshot")}
        self._lost_events = int(state.get("lost_events", 0))
        self._spool.lost = int(state.get("lost_rollups", 0))
        ca = pathlib.Path(options.ca) if options.ca else None
        self._client = http_client.Client(options.server, ca=ca, insecure=options.insecure)
        self._credentials = credentials.Credentials(self._folder, self._client)
        self._tasks = tasks.Tasks(self._folder / "tasks")
        self._windows = windows.Windows(self._folder / "windows", options.upload_rate)
        self._digests: dict[str, tuple[int, str]] = {}  # by file: when it was written, digest
        self._limit = MAX_EVENTS
        self._probe = self._probed = False  # a report was refused: would an empty one be, too?
        self._token = options.token
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
            "cpu": self._rollups.place,
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
            if isinstance(error, http_client.RefusedError):
                if error.status == 401 and self._credentials.enrolled:
                    if self._credentials.use_next():
                        return
                    if self._token:
                        self._credentials.forget()
                pause.fail(error.retry_after or 0.0)
            else:
                pause.fail(0.0)
            problem = errors.reason(error)
            if isinstance(error, errors.OvernightError):
                problem = f"{error.what}: {error.why}; {error.todo}"
            if problem != pause.problem:
                self._log(f"{problem} (trying again)")
            pause.problem = problem
        else:
            if pause.failures and pause is self._reports:
                self._log("connected again")
            pause.failures, pause.problem = 0, ""

    def _upload(self) -> None:
        began = time.monotonic()
        self._windows.upload_piece(self._client, began)
        self._windows.slow_down(time.monotonic() - began)

    def _talk(self) -> None:
        if not self._credentials.enrolled:
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
                todo="overnight agent --server URL --token-file FILE, with a token of overnight token create --role agent",
            )
        self._credentials.enrol(self._token, self._options.host)
        credentials.forget_token(self._options.token_file)
        self._token = ""
        self._log(f"enrolled as {self._options.host}")

    def _report_task(self, name: str, report: tasks.Document) -> None:
        body = http_client.compress([json.dumps(report).encode()])
        try:
            self._client.request(
                "POST", f"/api/v1/agents/tasks/{name}", body, GZIP, repeatable=True
            )
        except http_client.RefusedError as error:
            if error.status in (401, 429) or error.status >= 500:
                raise
            self._log(f"task {name}: {error.what}")  # it was cancelled, or is too old
        self._tasks.note_reported(name, report)

    def _report(self) -> None:
        batch = self._gather()
        try:
            answer = self._client.request(
                "POST", REPORT, self._body(batch), GZIP, repeatable=True
            ).document()
        except http_client.RefusedError as error:
            if error.status not in INVALID or batch.is_bare:
                raise
            self._isolate(batch, error)
            return
        self._accept(batch, answer)

    def _gather(self) -> _Batch:
        if self._probe:
            return _Batch([], self._events.places, [], self._spool.place, [], {})
        lost = {"events": self._lost_events, "rollups": self._spool.lost}
        events, event_places = self._events.take(self._limit)
        for event in events:
            self._windows.request(event, time.time_ns() // 1000)
        everything = self._limit == MAX_EVENTS  # else something of it is refused: a part at a time
        lines: list[bytes] = []
        line_place = self._spool.place
        if everything or not events:
            lines, line_place = self._spool.read(LINE_BYTES * self._limit // MAX_EVENTS)
        if not everything and (events or lines):
            return _Batch(events, event_places, lines, line_place, [], lost)
        offers = self._windows.choose_offers(time.monotonic())
        labels, snapshot = (self._changed(name) for name in ("labels", "snapshot"))
        history = (tasks.read_json(self._folder / HISTORY) or {}).get("spells", ())
        return _Batch(
            events, event_places, lines, line_place, offers, lost, labels, snapshot, history
        )

    def _body(self, batch: _Batch) -> bytes:
        spells = list(batch.history)
        found: list[str] = []
        for line in batch.lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # cut off by a crash
                document = json.loads(line)
                _extend(spells, document["spells"])
                if "rollup" in document:
                    found.append(json.dumps(document["rollup"], separators=(",", ":")))
        report = {
            "version": 1,
            "sent_us": time.time_ns() // 1000,
            "boot": self._options.boot,
            "uptime_us": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000,
            "spells": spells,
            "events": batch.events,
            "windows": [_without_name(offer) for offer in batch.offers],
            "lost": batch.lost,
        }
        text = (
            json.dumps(report, separators=(",", ":"))[:-1] + ',"rollups":[' + ",".join(found) + "]"
        )
        pieces: list[Iterable[bytes]] = [[text.encode()]]
        for name in ("labels", "snapshot"):
            if getattr(batch, name):
                pieces += ([b',"%s":' % name.encode()], _read_pieces(self._folder / f"{name}.json"))
        return http_client.compress(itertools.chain(*pieces, [b"}"]))

    def _accept(self, batch: _Batch, answer: dict[str, Any]) -> None:
        now = time.monotonic()
        if self._probe:
            self._probe, self._probed = False, True
        else:
            self._probed = False
            self._events.commit(batch.event_places)
            self._spool.commit(batch.line_place)
            self._windows.note_offered(batch.offers, now)
            self._note_sent(batch)
            self._lost_events -= batch.lost["events"]
            self._spool.lost -= batch.lost["rollups"]
            self._limit = min(MAX_EVENTS, self._limit * 2)
        self._first_event = 0.0
        with contextlib.suppress(TypeError, ValueError):
            self._interval = min(max(float(answer.get("interval", 30)), 1.0), 3600.0)
        wanted = answer.get("want")
        self._windows.wanted |= {str(d) for d in wanted} if isinstance(wanted, list) else set()
        self._windows.refresh()
        asked = [name for name in answer.get("send") or () if name in self._sent]
        for name in asked:
            self._sent[name] = ""
        for task in answer.get("tasks") or ():
            if isinstance(task, dict):
                self._tasks.accept(task)
        self._save()
        self._tasks.forget_old(time.time_ns() // 1000)
        more = batch.lines and self._spool.read(1)[0]  # the server was away
        urgent = more or self._limit < MAX_EVENTS or any(map(self._changed, asked))
        self._next_report = now + (
            0.2 if urgent else self._interval * (0.9 + backoff.random_share() / 5)
        )

    def _isolate(self, batch: _Batch, error: http_client.RefusedError) -> None:
        """Find what the server cannot take, by halves; drop that, and report it as lost.

        Nothing is dropped while the server refuses a report that holds nothing.
        """
        self._next_report = 0.0
        if self._limit > 1:
            self._limit = max(1, min(self._limit, len(batch.events) or self._limit) // 2)
            return
        if not self._probed:
            self._probe = True
            return
        self._probed = False
        self._log(f"dropped what the server refuses: {error.what}: {error.why}")
        if batch.events:
            self._events.commit(batch.event_places)
            self._lost_events += len(batch.events)
        else:
            self._spool.commit(batch.line_place)
            self._spool.lost += len(batch.lines)
            self._windows.note_offered(batch.offers, time.monotonic())
            self._note_sent(batch)
        self._save()

    def _note_sent(self, batch: _Batch) -> None:
        self._sent |= {name: digest for name in self._sent if (digest := getattr(batch, name))}
        if batch.history:
            with contextlib.suppress(OSError):
                (self._folder / HISTORY).unlink()

    def _changed(self, name: str) -> str:
        """Return the digest of labels or snapshot, if the server does not have it; '' else."""
        path = self._folder / f"{name}.json"
        try:
            written = path.stat().st_mtime_ns
            if self._digests.get(name, (0, ""))[0] != written:
                checksum = functools.reduce(lambda sum_, piece: zlib.crc32(piece, sum_), _read_pieces(path), 0)  # fmt: skip
                self._digests[name] = (written, f"{checksum:08x}-{path.stat().st_size}")
        except OSError:
            return ""
        digest = self._digests[name][1]
        return digest if digest != self._sent[name] else ""


GZIP = {"Content-Type": "application/json", "Content-Encoding": "gzip"}


def _extend(spells: list[dict[str, Any]], more: list[dict[str, Any]]) -> None:
    """Add spells; one that continues the last makes it longer."""
    for spell in more:
        last = spells[-1] if spells else {}
        if (last.get("boot"), last.get("end_us")) == (spell["boot"], spell["begin_us"]):
            last["end_us"] = spell["end_us"]
        else:
            spells.append(spell)


def _without_name(offer: windows.Offer) -> windows.Offer:
    return {name: value for name, value in offer.items() if name != "name"}


def _read_pieces(path: pathlib.Path) -> Iterator[bytes]:
    """Read a file in pieces: a snapshot has megabytes."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def log_line(text: str) -> None:
    sys.stderr.write(f"uplink: {text}\n")
    sys.stderr.flush()
