"""`overnight serve`: hosts, events, pools, reservations and investigations of one database, behind one address.

Several servers may use one PostgreSQL and one blob folder. Background work takes locks in the database, so that
each part of it is done by one of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import ipaddress
import json
import pathlib
import ssl
import threading
from typing import TYPE_CHECKING, Any

from overnight import errors, http_listener
from overnight.app import (
    answer_process,
    clusters,
    confirmations,
    fleet_agents,
    fleet_questions,
    fleet_windows,
    guards,
    holdings,
    investigation_serving,
    investigations,
    operations,
    pool_serving,
    pools,
    remote,
    reservation_serving,
    reservations,
    serving_metrics,
    studies,
    windows,
)
from overnight.database import database_errors, engine
from overnight.fleet import blobs, control
from overnight.model import addresses, openmetrics
from overnight.model.selection import Window
from overnight.pools import member_api, pool_errors, reaper
from overnight.pools import metrics as pool_metrics
from overnight.reports.diagnosis import style

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from overnight.model.control_plane import Principal

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
    endpoint: str = ""  # URL that pool members and agents of reserved hosts use, if it differs
    tls_cert: pathlib.Path | None = None
    tls_key: pathlib.Path | None = None
    insecure: bool = False
    metrics: str = ""  # address for metrics without a token
    interval: float = 60.0  # tick of the reaper, and of reservations
    trusted_proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()


DatabaseAwayError = database_errors.DatabaseUnavailableError  # interfaces do not import database
# The first that matches.
STATUSES: tuple[tuple[type[errors.OvernightError], int], ...] = (
    (errors.UnauthenticatedError, 401),
    (errors.NotAllowedError, 403),
    (errors.NotFoundError, 404),
    (errors.ConflictError, 409),
    (fleet_agents.TooLargeError, 413),
    (errors.QuotaError, 429),
    (DatabaseAwayError, 503),
    (answer_process.BusyError, 503),
    (answer_process.FailedError, 500),
    (errors.UnconfirmedError, 409),
    (errors.UsageError, 400),
    (pool_errors.PoolError, 409),
    (errors.CannotError, 409),
)


def status_of(error: errors.OvernightError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


class Server:
    """What a server does besides HTTP; `start` before the first request, `stop` after the last."""

    def __init__(self, request: Request, progress: Callable[[str], None] = lambda _: None) -> None:
        self.request = request
        self._progress = progress
        self.counters = serving_metrics.Counters()
        self.pools = pools.Pools(request.home, request.database)
        self.clusters = clusters.Clusters(self.pools)
        self._database = self.pools.plane.context.database
        self.reservations = reservations.Reservations(
            request.home, request.database, self._database
        )
        self._endpoint = request.endpoint
        folder = request.blobs or request.home / BLOBS
        self.fleet = control.ControlPlane(self._database, blobs.Blobs(folder))
        self._driver = reservation_serving.Driver(
            self.reservations, request.interval, progress, self.fleet.context.limits.event_days
        )
        self.agents = fleet_agents.Agents(self.fleet, self.counters)
        self._reports = folder / investigations.FOLDER
        evidence = investigation_serving.FleetEvidence(
            self._reports, self.reservations, self.fleet, lambda: self._endpoint, self.diagnosis
        )
        served = investigation_serving.ServedInvestigations(self.reservations, evidence)
        self.investigations: investigations.Investigations = served
        self._investigator = investigation_serving.make_loop(
            self.investigations, request.interval, progress
        )
        url = request.database or engine.default_url(request.home)
        self.answers = answer_process.Answers(url, folder, folder / REPORTS)
        self._stop = threading.Event()
        self._counting = threading.Lock()  # until the next call counts the hosts of this one
        self._opened = contextlib.ExitStack()
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """The URL at which people and hosts reach it."""
        return self._endpoint

    def start(self, url: str) -> None:
        """Save the URL for pool members, and start the reaper, background work and metrics."""
        request, plane = self.request, self.pools.plane
        self._endpoint = request.endpoint or url
        pool_serving.save_endpoint(plane, request.endpoint, url, chosen=bool(request.endpoint))
        reaper.report_alive(plane)  # before the first caller orders a cluster
        if request.metrics:
            address = pool_serving.open_metrics(self._opened, request.metrics, self.metrics)
            self._progress(f"metrics at {address}")
        reap = functools.partial(
            pool_serving.run_reaper, self.pools, self._stop, request.interval, self._progress
        )
        drive = functools.partial(self._driver.run, self._stop)
        investigate = functools.partial(self._investigator.run, self._stop)
        for name, work in (
            ("reaper", reap),
            ("fleet jobs", self._run_jobs),
            ("reservations", drive),
            ("investigations", investigate),
        ):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        self._driver.wake()
        self._investigator.wake()
        for thread in self._threads:
            thread.join(10)
        self._opened.close()
        self._database.close()

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
                self._progress(f"background work failed: {failed}" if failed else "background work succeeds again")  # fmt: skip

    def run(
        self,
        operation: operations.Operation,
        given: Mapping[str, Any],
        by: Principal,
        is_gone: Callable[[], bool] = lambda: False,
        why: str = "",
        *,
        only_ask: bool = False,
    ) -> Any:
        """Run an operation for somebody, as `guards.carry_out` does; raise NotAllowedError."""
        self.check_role(operation, by)
        if operation in operations.RESERVATIONS and (operation.changes or given.get("load")):
            given = reservation_serving.admit(self.reservations, given, by, self._endpoint)
        if operation in operations.INVESTIGATIONS and operation.changes:
            given = investigation_serving.admit(self.investigations, given, by)
        if operation in operations.CONFIRMATIONS:
            where = confirmations.Confirmations(
                self.request.home, by=by, rows=self.fleet.confirmations
            )
            return operations.run(where, operation, given, is_gone)  # with an audit log of its own
        is_counted = by.assistant and operation.action in holdings.COUNTED
        with self._counting if is_counted else contextlib.nullcontext():
            call = guards.Call(self, self.fleet.confirmations, given, by)
            result = guards.carry_out(call, operation, is_gone=is_gone, why=why, only_ask=only_ask)
        if operation in operations.RESERVATIONS and operation.changes:
            self._driver.wake()
        if operation in operations.INVESTIGATIONS and operation.changes:
            self._investigator.wake()
        return result

    @staticmethod
    def check_role(operation: operations.Operation, by: Principal) -> None:
        if not by.role.allows(operation.role):
            raise errors.NotAllowedError(
                f"the role {operation.role} is required",
                why=f"token {by.name} has the role {by.role}",
                todo="use a token with that role",
            )

    def check_ready(self) -> None:
        """Raise DatabaseUnavailableError while the database cannot be reached."""
        with self._database.read() as connection:
            connection.exec_driver_sql("SELECT 1")

    def diagnosis(self, event_id: str, form: str, host: str = "") -> pathlib.Path:
        """Return the diagnosis of an event as a file; the first call takes seconds."""
        event = self.fleet.event(event_id, host)
        window = fleet_windows.find_held(self.fleet, event.host, event.id)
        bundle = self.fleet.open_window(window.sha256)
        return self.answers.diagnose(bundle, window.sha256, event, form)

    def study(self, name: str, by: Principal, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `app.studies` answers about an `event`, or a `host` from `begin` to `end`.

        Its host is asked for the evidence that the server does not hold.
        """
        if asked["event"]:
            event = self.fleet.event(asked["event"], asked["host"])
            held = fleet_windows.require_window(self.fleet, by, event.host, event_id=event.id)
            if name == studies.DIAGNOSE:  # kept
                document: dict[str, Any] = json.loads(self.diagnosis(event.id, "json", event.host).read_bytes())  # fmt: skip
                return document
            given = {**asked, "event": event.id, "host": event.host}
        else:
            now = Window(0, self.fleet.context.clock())
            window = remote.parse_window(asked["begin"], asked["end"], now)
            held = fleet_windows.require_window(self.fleet, by, asked["host"], **vars(window))
            span = map(windows.exact_text, (window.begin_us, window.end_us))
            given = {**asked, **dict(zip(("begin", "end"), span, strict=True))}
        return self.answers.study(self.fleet.open_window(held.sha256), name, given)

    def investigation_file(self, investigation_id: str, name: str) -> tuple[pathlib.Path, str]:
        """Return a file of the report of an investigation, and its media type."""
        return investigation_serving.find_file(self._reports, investigation_id, name)

    def ask(self, name: str, parameters: Mapping[str, Sequence[str]]) -> bytes:
        """Return the document that answers a question about the fleet."""
        fleet_questions.find_question(name).parse(parameters)
        return self.answers.ask(name, parameters)

    @staticmethod
    def report_policy() -> str:
        """Return the Content-Security-Policy of a report."""
        return f"{style.policy()}; frame-ancestors 'none'"

    def answer_member(self, path: str, credential: str, body: bytes) -> http_listener.Answer:
        return member_api.answer(self.pools.plane.enrolment, path, credential, body)

    def metrics(self) -> str:
        page = openmetrics.Page()
        self.counters.add_to(page)
        since_us = self.fleet.context.clock() - fleet_windows.OFFLINE_US
        serving_metrics.add_hosts(page, *self.fleet.count_hosts(since_us))
        pool_metrics.add_pools(page, self.pools.plane)
        reservation_serving.add_metrics(page, self.reservations)
        return page.text()


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
