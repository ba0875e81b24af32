"""What is known of hosts and their events, and the fleet as a value for its detectors."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING

from overnight import errors
from overnight.fleet import context
from overnight.fleet.sql import event_rows, host_rows
from overnight.model import control_plane, fleet
from overnight.model.control_plane import EventFilter, HostFilter, HostRow, Page
from overnight.model.text import printable
from overnight.model.times import SECOND_US
from overnight.store import added_events

if TYPE_CHECKING:
    from overnight.model.audit import Report as Audit
    from overnight.model.event import Event
    from overnight.model.selection import Window
    from overnight.model.snapshot import Snapshot

EVER = 1 << 62
EVERY_HOST, EVERY_EVENT = HostFilter(), EventFilter()


class Inventory:
    def __init__(self, control: context.Context) -> None:
        self._database = control.database

    def hosts(
        self, chosen: HostFilter = EVERY_HOST, cursor: str = "", limit: int = 100
    ) -> Page[HostRow]:
        """Return hosts by name."""
        [after] = control_plane.decode_cursor(cursor, str) if cursor else [""]
        labels = {printable(name): printable(value) for name, value in chosen.labels.items()}
        since, before = _time(chosen.seen_since_us), _time(chosen.seen_before_us)
        plain = HostFilter(labels, printable(chosen.prefix), since, before)
        with self._database.read() as connection:
            read = functools.partial(host_rows.list_page, connection, plain, after)
            return context.read_page(limit, read, lambda host: (host.name,))

    def host(self, name: str) -> HostRow:
        with self._database.read() as connection:
            found = host_rows.find(connection, printable(name))
        return found or context.refuse_unknown("host", name, "overnight hosts")

    def snapshot(self, name: str) -> Snapshot | None:
        """Return the last snapshot of a host; None where there is none."""
        with self._database.read() as connection:
            host_id = host_rows.find_id(connection, printable(name))
            found = dict(host_rows.read_snapshots(connection, {host_id: EVER})) if host_id else {}
        return next(iter(found.values()), None)

    def unit_audit(self, name: str) -> Audit:
        """Return the last audit of a host's units."""
        with self._database.read() as connection:
            found = host_rows.find_audit(connection, context.find_host(connection, name))
        if found is None:
            raise errors.NotFoundError(
                f"host {name} has not reported an audit",
                why="its agent is older than the server or was just started, or the host has no systemd units",
                todo=f"run `overnight audit` on {name}, or ask again in an hour",
            )
        return found

    def count(self, since_us: int) -> tuple[int, int]:
        """Return how many hosts there are, and how many of them reported since a time."""
        with self._database.read() as connection:
            return host_rows.count_seen(connection, _time(since_us))

    def events(
        self, chosen: EventFilter = EVERY_EVENT, cursor: str = "", limit: int = 100
    ) -> Page[Event]:
        """Return events, the newest first."""
        after = control_plane.decode_cursor(cursor, int, str, str) if cursor else ()
        with self._database.read() as connection:
            read = functools.partial(event_rows.list_page, connection, _plain(chosen), after)
            page = context.read_page(limit, read, lambda row: (row[1].time_us, row[0], row[1].id))
        return Page(tuple(event for _, event in page.items), page.next)

    def event(self, text: str, host: str = "") -> Event:
        """Return the event of an id, short id, or a prefix of either that only one event has."""
        with self._database.read() as connection:
            found = event_rows.find(connection, printable(text), printable(host))
        if not found:
            context.refuse_unknown(
                "event", text, "list the ids of stored events: `overnight events`"
            )
        if len(found) > 1:
            raise errors.UsageError(
                f"{printable(text, limit=80)!r} matches several events",
                why=", ".join(f"{event.id} on {event.host}" for event in found),
                todo="write more of the id, or name the host: --host NAME",
            )
        return found[0]

    def fleet(
        self,
        kinds: Collection[str] | None = None,
        window: Window | None = None,
        snapshots: Collection[str] | bool = False,
    ) -> fleet.Fleet:
        """Return all hosts with their observed time, and events of these kinds, in a window.

        `snapshots`: of the hosts with these names, or (True) of all; of a host with such events it is the one
        nearest to the last of them, as the host may have been repaired since.
        """
        begin, end = (window.begin_us, window.end_us) if window else (0, EVER)
        given = EventFilter((added_events.HOST_LABELS,), end_us=end)
        chosen = _plain(EventFilter(tuple(kinds or ()), begin_us=begin, end_us=end))
        events: dict[str, list[Event]] = {}
        spells: dict[str, list[fleet.Spell]] = {}
        with self._database.read() as connection:
            names = host_rows.read_names(connection)
            labels = host_rows.read_labels(connection)
            for host_id, spell in host_rows.read_spells(connection, begin, end):
                uptime = spell.uptime_us / SECOND_US
                observed = fleet.Spell(spell.begin_us, spell.end_us, uptime, spell.boot)
                spells.setdefault(host_id, []).append(observed)
            for host_id, event in event_rows.read(connection, given):
                texts = {name: str(value) for name, value in event.fields.items()}
                labels.setdefault(host_id, {}).update(texts)
            for host_id, event in event_rows.read(connection, chosen):
                if event.kind != added_events.HOST_LABELS:
                    events.setdefault(host_id, []).append(event)
            wanted = {
                host_id: events[host_id][-1].time_us if host_id in events else EVER
                for host_id, name in names.items()
                if snapshots is True or (snapshots and name in snapshots)
            }
            found = dict(host_rows.read_snapshots(connection, wanted)) if wanted else {}
        hosts = (
            fleet.Host(
                name,
                labels.get(host_id, {}),
                tuple(spells.get(host_id, ())),
                tuple(events.get(host_id, ())),
                found.get(host_id),
            )
            for host_id, name in names.items()
        )
        return fleet.Fleet(tuple(host.cut(window) for host in hosts) if window else tuple(hosts))


def _time(us: int) -> int:
    return max(0, min(us, EVER))


def _plain(chosen: EventFilter) -> EventFilter:
    """Return a filter whose texts and numbers every database takes."""
    kinds, hosts = (tuple(map(printable, texts)) for texts in (chosen.kinds, chosen.hosts))
    return EventFilter(kinds, hosts, chosen.severity, _time(chosen.begin_us), _time(chosen.end_us))
