"""Where the calls of an assistant go: into a server, to a server, or to a data home; people confirm them there.

Three backends with the same methods. All of them block, and may be used by several threads at once.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import itertools
import json
import pathlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.app import (
    clusters,
    confirmations,
    events,
    fleet_questions,
    guards,
    investigations,
    operations,
    pools,
    reservations,
    studies,
    windows,
)
from overnight.model.control_plane import EventFilter, HostFilter, Principal, Role
from overnight.model.times import DAY_US

if TYPE_CHECKING:
    from overnight.app import questions, remote, server_settings, serving
    from overnight.model.confirmation import Confirmation
    from overnight.model.event import Event

EVENT_DAYS = 7  # of a list of events, unless a begin is given
PAGE = 1000


class Backend(abc.ABC):
    """One assistant; `url` is the server that delivers reports, '' for none.

    `confirm` confirms a request as the person at the client, after they agree; None without such a person.
    """

    url = ""
    confirm: Callable[[Confirmation], None] | None = None

    def check_role(self, action: str) -> None:  # noqa: B027 - a local user may do all, a remote server checks
        """Raise NotAllowedError for an operation that the caller may not run, before its arguments are read."""

    @abc.abstractmethod
    def run(self, action: str, given: Mapping[str, Any], *, only_ask: bool = False) -> Any:
        """Run an operation, such as `pool.drain`; raise ConfirmationNeededError where a person must confirm it.

        With `only_ask` it is not carried out in any case.
        """

    @abc.abstractmethod
    def ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a question about many hosts."""

    @abc.abstractmethod
    def hosts(self) -> fleet_questions.Hosts: ...

    @abc.abstractmethod
    def events(self, request: EventFilter, limit: int) -> tuple[Event, ...]:
        """Return the newest events."""

    @abc.abstractmethod
    def study(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer from the evidence of an `event`, or of a `host` from `begin` to `end`; `app.studies` has the names."""

    @abc.abstractmethod
    def size(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Propose the size of a pool; `pool_sizing.SizeRequest` has the fields."""

    @abc.abstractmethod
    def audit(self, host: str) -> dict[str, Any]:
        """Return the audit of a host's units; '' is this machine, without a server."""


def _find_operation(action: str) -> operations.Operation:
    return next(each for each in operations.OPERATIONS if each.action == action)


def _confirm(where: confirmations.Confirmations, pending: Confirmation) -> None:
    [code] = [each.code for each in where.list() if each.id == pending.id]
    where.confirm(code)


def _connect(settings: server_settings.Settings) -> contextlib.closing[remote.Server]:
    from overnight.app import remote

    return contextlib.closing(remote.Server(settings))


def _confirm_at(person: server_settings.Settings, pending: Confirmation) -> None:
    with _connect(person) as server:
        _confirm(server.confirmations, pending)


class LocalBackend(Backend):
    """A data home and its database. The local user confirms, at the client or with `overnight confirm`."""

    def __init__(self, home: pathlib.Path, database: str = "") -> None:
        from overnight.app import tokens

        self.home = home
        self._pools = pools.Pools(home, database)
        self._use = _LocalUseCases(home, database, self._pools)
        self._by = Principal(
            f"mcp-{secrets.token_hex(4)}", tokens.local_user(), Role.ADMIN, assistant=True
        )
        person = Principal(f"{self._by.id}-person", tokens.local_user(), Role.ADMIN)
        self._person = confirmations.Confirmations(home, database, person)
        self.confirm = functools.partial(_confirm, self._person)

    def run(self, action: str, given: Mapping[str, Any], *, only_ask: bool = False) -> Any:
        operation = _find_operation(action)
        if action == "investigation.create":
            raise errors.CannotError(
                "an investigation cannot be started from here",
                why="it runs for hours in the terminal that starts it",
                todo="`overnight run PLAN`, or start it on a server: `overnight mcp --server URL`",
            )
        call = guards.Call(self._use, self._person.rows, given, self._by)
        return guards.carry_out(call, operation, only_ask=only_ask)

    def ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        question = fleet_questions.find_question(name)
        asked = question.parse(_as_parameters(request))
        document: dict[str, Any] = question.ask_home(self.home, asked).as_json()
        return document

    def hosts(self) -> fleet_questions.Hosts:
        return fleet_questions.list_hosts(self.home)

    def events(self, request: EventFilter, limit: int) -> tuple[Event, ...]:
        listing = events.list_events(
            events.Request(
                self.home,
                begin=windows.exact_text(request.begin_us),
                end=windows.exact_text(request.end_us),
                hosts=request.hosts,
                kinds=request.kinds,
                severity=request.severity or "info",
            )
        )
        return listing.events[::-1][:limit]

    def study(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        if name == studies.CENSUS and not (asked["event"] or asked["host"]):
            return studies.take_census()
        found = windows.Evidence(self.home, asked["event"], asked.get("begin", ""), asked.get("end", ""))  # fmt: skip
        return studies.run(name, found, asked)

    def audit(self, host: str) -> dict[str, Any]:
        return studies.audit(host)

    def size(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return _size(self._pools, request)


class _LocalReservations(reservations.Reservations):
    """Reservations that this process carries out: no server drives them."""

    def create(self, order: Any, *, confirmed: bool, **_: Any) -> reservations.Report:
        return self.reserve(order, confirmed=confirmed)

    def end(self, reservation_id: str) -> reservations.Report:
        return self.release(reservation_id)


class _LocalUseCases:
    def __init__(self, home: pathlib.Path, database: str, of_pools: pools.Pools) -> None:
        self.pools = of_pools
        self.clusters = clusters.Clusters(of_pools)
        self.reservations: reservations.Reservations = _LocalReservations(home, database)
        use = reservations.Reservations(home, database)
        self.investigations = investigations.Investigations(home, use)


class RemoteBackend(Backend):
    """A server, asked over HTTP with the token of the assistant.

    `person` has the token of the person at the client, for what they agree to there: without it, they confirm with a
    credential of their own elsewhere.
    """

    def __init__(
        self, settings: server_settings.Settings, person: server_settings.Settings | None = None
    ) -> None:
        self.url = settings.url
        self._settings = settings
        if person is not None:
            self.confirm = functools.partial(_confirm_at, person)

    def _server(self) -> contextlib.closing[remote.Server]:
        """Open a connection of its own: it is not for several threads at once."""
        return _connect(self._settings)

    def run(self, action: str, given: Mapping[str, Any], *, only_ask: bool = False) -> Any:
        operation = _find_operation(action)
        with self._server() as server:
            where = getattr(server, operation.area)
            where.assistant = operations.ASK if only_ask else operations.CALL
            return getattr(where, operation.name)(**given)

    def ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        question: questions.Question[Any, Any] = fleet_questions.find_question(name)
        with self._server() as server:
            found = server.ask(question, question.parse(_as_parameters(request)))
        document: dict[str, Any] = found.as_json()
        return document

    def hosts(self) -> fleet_questions.Hosts:
        with self._server() as server:
            return server.list_hosts()

    def events(self, request: EventFilter, limit: int) -> tuple[Event, ...]:
        with self._server() as server:
            return tuple(itertools.islice(server.newest_events(request), limit))

    def study(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        hosts, span = tuple(filter(None, (asked["host"],))), {n: asked.get(n, "") for n in ("begin", "end")}  # fmt: skip
        with (
            self._server() as server,
            server.evidence(event_id=asked["event"], hosts=hosts, **span) as found,
        ):
            return studies.run(name, found, asked, server.ask_fleet)

    def audit(self, host: str) -> dict[str, Any]:
        with self._server() as server:
            return server.read_audit(host).as_json()

    def size(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._server() as server:
            return _size(server.pools, request)


class ServedBackend(Backend):
    """Inside a server. A program may answer at the client: people confirm with a credential of their own."""

    def __init__(self, server: serving.Server, by: Principal) -> None:
        self._server, self._by = server, by
        self.url = server.url

    def check_role(self, action: str) -> None:
        self._server.check_role(_find_operation(action), self._by)

    def run(self, action: str, given: Mapping[str, Any], *, only_ask: bool = False) -> Any:
        return self._server.run(_find_operation(action), given, self._by, only_ask=only_ask)

    def ask(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._server.ask(name, _as_parameters(request)))
        return document

    def hosts(self) -> fleet_questions.Hosts:
        page = self._server.fleet.hosts(HostFilter(), "", PAGE)
        rows = [*page.items]
        while page.next:
            page = self._server.fleet.hosts(HostFilter(), page.next, PAGE)
            rows += page.items
        fields = ("name", "labels", "seen_us", "booted_us", "snapshot_us", "lost_events", "lost_rollups", "note")  # fmt: skip
        return fleet_questions.Hosts(
            tuple(fleet_questions.HostSummary(*(getattr(row, n) for n in fields)) for row in rows)
        )

    def events(self, request: EventFilter, limit: int) -> tuple[Event, ...]:
        return self._server.fleet.events(request, "", limit).items

    def study(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        return self._server.study(name, self._by, asked)

    def audit(self, host: str) -> dict[str, Any]:
        from overnight.app import remote

        return self._server.fleet.unit_audit(remote.only_host([host])).as_json()

    def size(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self._server.answers.size(self._server.request.home, request)


def _size(where: pools.Pools, request: Mapping[str, Any]) -> dict[str, Any]:
    from overnight.app import pool_sizing

    return pool_sizing.size_pool(where, pool_sizing.SizeRequest(**request)).as_json()


def _as_parameters(request: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return a request as query parameters, without empty values."""
    listed = {n: [v] if isinstance(v, str) else list(v) for n, v in request.items()}
    return {name: texts for name, texts in listed.items() if any(texts)}


def make_filter(
    kinds: Sequence[str], hosts: Sequence[str], severity: str, begin: str, end: str, now_us: int
) -> EventFilter:
    """Return which events to list; times are as users write them, and absolute. The last week, if there is no begin."""
    from overnight.app import remote
    from overnight.model.selection import Window

    default = Window(now_us - EVENT_DAYS * DAY_US, now_us + 1)
    window = remote.parse_window(begin, end, default)
    return EventFilter(tuple(kinds), tuple(hosts), severity, window.begin_us, window.end_us)
