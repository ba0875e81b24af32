"""`overnight serve`: hosts, events and pools of one database, behind one address.

Several servers may use one PostgreSQL and one blob folder. Background work takes locks in the database, so that
each part of it is done by one of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import pathlib
import ssl
import threading
from typing import TYPE_CHECKING

from overnight import errors
from overnight.app import (
    answer_process,
    fleet_agents,
    fleet_questions,
    fleet_windows,
    pool_serving,
    pools,
    serving_metrics,
)
from overnight.model import addresses, openmetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from overnight.fleet import control

LISTEN = "127.0.0.1:8416"
JOB_SECONDS = 60.0
BLOBS = "blobs"
REPORTS = "reports"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    home: pathlib.Path
    database: str = ""  # URL; '' is a file in the data home
    blobs: pathlib.Path | None = None  # None is a folder in the data home
    listen: str = LISTEN
    endpoint: str = ""  # URL that pool members use, if it differs
    tls_cert: pathlib.Path | None = None
    tls_key: pathlib.Path | None = None
    insecure: bool = False
    metrics: str = ""  # address for metrics without a token
    interval: float = 60.0  # tick of the reaper


def status_of(error: errors.OvernightError) -> int:
    """Return the HTTP status of an error."""
    from overnight.database import database_errors

    statuses: tuple[tuple[type[errors.OvernightError], int], ...] = (
        (errors.UnauthenticatedError, 401),
        (errors.NotAllowedError, 403),
        (errors.NotFoundError, 404),
        (errors.ConflictError, 409),
        (fleet_agents.TooLargeError, 413),
        (errors.QuotaError, 429),
        (database_errors.DatabaseUnavailableError, 503),
        (answer_process.BusyError, 503),
        (answer_process.FailedError, 500),
        (errors.UsageError, 400),
        (errors.CannotError, 409),
    )
    return next((status for kind, status in statuses if isinstance(error, kind)), 500)


def is_database_away(error: errors.OvernightError) -> bool:
    from overnight.database import database_errors

    return isinstance(error, database_errors.DatabaseUnavailableError)


class Server:
    """What a server does besides HTTP; `start` before the first request, `stop` after the last."""

    def __init__(self, request: Request, progress: Callable[[str], None] = lambda _: None) -> None:
        self.request = request
        self._progress = progress
        self.counters = serving_metrics.Counters()
        self.pools = pools.Pools(request.home, request.database)
        folder = request.blobs or request.home / BLOBS
        self.fleet = open_fleet(self.pools, folder)
        self.agents = fleet_agents.Agents(self.fleet, self.counters)
        from overnight.database import engine

        url = request.database or engine.default_url(request.home)
        self.answers = answer_process.Answers(url, folder, folder / REPORTS)
        self._stop = threading.Event()
        self._opened = contextlib.ExitStack()
        self._threads: list[threading.Thread] = []

    def start(self, url: str) -> None:
        """Save the URL for pool members, and start the reaper, background work and metrics."""
        request, plane = self.request, self.pools.plane
        pool_serving.save_endpoint(plane, request.endpoint, url, chosen=bool(request.endpoint))
        if request.metrics:
            address = pool_serving.open_metrics(self._opened, request.metrics, self.metrics)
            self._progress(f"metrics at {address}")
        reap = functools.partial(
            pool_serving.run_reaper, plane, self._stop, request.interval, self._progress
        )
        for name, work in (("reaper", reap), ("fleet jobs", self._run_jobs)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        self._opened.close()
        self.pools.plane.context.database.close()

    def _run_jobs(self) -> None:
        failed = ""
        while not self._stop.wait(JOB_SECONDS):
            before, failed = failed, ""
            try:
                self.fleet.maintain()
                self.answers.prune()
            except errors.OvernightError as error:
                failed = f"{error.what}: {error.why}"
            except Exception as error:  # tried again in a minute
                failed = repr(error)
            if failed != before:
                self._progress(f"background work failed: {failed}" if failed else "background work goes on")  # fmt: skip

    def check_ready(self) -> None:
        """Raise DatabaseUnavailableError while the database cannot be reached."""
        with self.pools.plane.context.database.read():
            pass

    def diagnosis(self, event_id: str, form: str, host: str = "") -> pathlib.Path:
        """Return the diagnosis of an event as a file; the first call takes seconds."""
        event = self.fleet.event(event_id, host)
        window = fleet_windows.find_held(self.fleet, event.host, event.id)
        bundle = self.fleet.open_window(window.sha256)
        return self.answers.diagnose(bundle, window.sha256, event, form)

    def ask(self, name: str, parameters: Mapping[str, Sequence[str]]) -> bytes:
        """Return the document that answers a question about the fleet."""
        fleet_questions.find_question(name).parse(parameters)
        return self.answers.ask(name, parameters)

    @staticmethod
    def report_policy() -> str:
        """Return the Content-Security-Policy of a report."""
        from overnight.reports.diagnosis import style

        return style.policy()

    def answer_member(self, path: str, credential: str, body: bytes) -> tuple[int, bytes]:
        """Answer a pool member; return status and JSON."""
        from overnight.pools import member_api

        try:
            document = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            document = None
        answer = member_api.answer(self.pools.plane.enrolment, path, credential, document)
        return answer.status, answer.body

    def metrics(self) -> str:
        from overnight.pools import metrics as pool_metrics

        page = openmetrics.Page()
        self.counters.add_to(page)
        since_us = self.fleet.context.clock() - fleet_windows.OFFLINE_US
        serving_metrics.add_hosts(page, *self.fleet.count_hosts(since_us))
        pool_metrics.add_pools(page, self.pools.plane)
        return page.text()


def open_fleet(where: pools.Pools, folder: pathlib.Path | None = None) -> control.ControlPlane:
    """Open the fleet of a database; the folder of windows must be the one that the database knows."""
    from overnight.fleet import blobs, control

    return control.ControlPlane(
        where.plane.context.database, blobs.Blobs(folder or where.home / BLOBS)
    )


def check(request: Request) -> tuple[str, int, ssl.SSLContext | None]:
    """Return address, port and TLS; raise where credentials would cross a network unencrypted."""
    address, port = addresses.parse_address(request.listen, "--listen")
    pool_serving.check(request.interval, request.endpoint)
    if bool(request.tls_cert) != bool(request.tls_key):
        raise errors.UsageError(
            "--tls-cert and --tls-key must be given together",
            why="a certificate is useless without its key",
            todo="overnight serve --tls-cert FILE --tls-key FILE",
        )
    if request.tls_cert and request.tls_key:
        return address, port, load_tls(request.tls_cert, request.tls_key)
    if not addresses.is_loopback(address) and not request.insecure:
        raise errors.UsageError(
            f"refusing plain HTTP beyond loopback: {address}",
            why="anyone on the network could read tokens and credentials",
            todo="add --tls-cert FILE --tls-key FILE, or --insecure on a network that you trust",
        )
    return address, port, None


def load_tls(cert: pathlib.Path, key: pathlib.Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password="")  # an encrypted key must not ask
    except (OSError, ssl.SSLError) as error:
        raise errors.CannotError(
            f"cannot use the certificate {cert} with the key {key}",
            why=errors.reason(error),
            todo="give PEM files of one pair, the key without a passphrase",
        ) from error
    return context
