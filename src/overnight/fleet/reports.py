"""A report of an agent: one transaction, which may be repeated, delayed, or run twice at once.

The host's row is locked first, so that reports of one host follow each other. Events and rollups are rows of
their own keys; a report that arrives late changes nothing that a later one of the same boot has set.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.fleet import agents, spells, tasks, windows
from overnight.fleet.sql import event_rows, host_rows, rollup_rows
from overnight.model import checked_json, times, uplink
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.database import engine
    from overnight.fleet import context
    from overnight.model.control_plane import AgentIdentity
    from overnight.model.event import Event


SILENT_US = 90 * times.SECOND_US  # three reports
EVENT_BYTES = 1024  # a larger event counts as several
INTERVAL_SIZE = 64  # of a rollup, besides its cores
MAX_COMPARED = 1_000_000  # known spells times new ones: half a second


def accept(control: context.Context, who: AgentIdentity, report: uplink.Report) -> uplink.Reply:
    """Store a report; raise UnauthenticatedError for a host that is gone, QuotaError for too many events."""
    now = control.clock()
    report, note = limit_times(report, now, control.limits.late_days)
    events = _latest(report.events, who.host)
    with control.database.write("report") as connection:
        host = host_rows.lock(connection, who)
        if host is None:
            raise agents.unknown_credential()
        changes = _count(control.limits, host, sum(map(_size, events)), now)
        report, amount, dropped = _limit_rollups(control.limits, host, report, now)
        changes["day_rollups"] = amount
        changes |= _state(connection, control.limits, host, report, now)
        refused = _observe(connection, control.limits, host.id, report.spells)
        if notes := "; ".join(filter(None, (note, dropped, refused))):
            changes["note"] = f"{times.format_instant(now)} {notes}"
        host_rows.save(connection, host.id, **changes)
        event_rows.put(connection, host.id, events, now)
        rollup_rows.put(connection, host.id, report.rollups)
        want = windows.offer(connection, control.limits, host.id, report.windows, now)
        leased = tasks.lease(connection, host.id, now)
    given = {"labels": (report.labels, host.labels_us), "snapshot": (report.snapshot, host.snapshot_us)}  # fmt: skip
    send = tuple(
        name
        for name, (new, known_us) in given.items()
        # Also what came too late to count: the agent sends what it has now.
        if f"{name}_us" not in changes and (new is not None or known_us is None)
    )
    return uplink.Reply(control.limits.interval, now, leased, want, send)


def limit_times(report: uplink.Report, now_us: int, days: int) -> tuple[uplink.Report, str]:
    """Return the report without times in the future or too far in the past, and a note of what was changed."""
    since, limit = now_us - days * times.DAY_US, now_us + event_rows.AHEAD_US
    events = tuple(event_rows.dated_back(event, now_us) for event in report.events)
    observed = tuple(
        _cut(spell, since, limit)
        for spell in report.spells
        if spell.begin_us < limit and spell.end_us >= since
    )
    rollups = tuple(rollup for rollup in report.rollups if since <= rollup.begin_us < limit)
    limited = dataclasses.replace(report, events=events, spells=observed, rollups=rollups)
    notes = []
    dated = sum(a is not b for a, b in zip(events, report.events, strict=True))
    left = sum(rollup.begin_us >= limit for rollup in report.rollups)
    cut = sum(spell.end_us > limit for spell in report.spells)
    what = f"the clock of the host is ahead: {plural(dated, 'event')} stored with the time of receipt, "
    if dated + left + cut:
        notes.append(f"{what}{plural(left, 'rollup')} dropped, {plural(cut, 'spell')} cut")
    left = sum(rollup.begin_us < since for rollup in report.rollups)
    cut = sum(spell.begin_us < since for spell in report.spells)
    what = f"older than {days} days: "
    if left + cut:
        notes.append(f"{what}{plural(left, 'rollup')} dropped, {plural(cut, 'spell')} cut")
    return limited, "; ".join(notes)


def _cut(spell: uplink.Observed, since_us: int, limit_us: int) -> uplink.Observed:
    begin = max(spell.begin_us, since_us)
    uptime = spell.uptime_us + begin - spell.begin_us
    return uplink.Observed(spell.boot, begin, min(spell.end_us, limit_us), uptime)


def _limit_rollups(
    limits: context.Limits, host: Any, report: uplink.Report, now_us: int
) -> tuple[uplink.Report, int, str]:
    """Return the report with the rollups that the host may still send today, their amount, and a note of the rest."""
    amount = (host.day_rollups or 0) if host.day == now_us // times.DAY_US else 0
    kept = []
    for rollup in report.rollups:
        size = len(rollup.cores) + INTERVAL_SIZE
        if amount + size <= limits.rollups_a_day:
            amount += size
            kept.append(rollup)
    left = len(report.rollups) - len(kept)
    note = f"too many rollups today: {plural(left, 'rollup')} dropped" if left else ""
    return dataclasses.replace(report, rollups=tuple(kept)), amount, note


def _latest(events: tuple[Event, ...], host: str) -> list[Event]:
    """Return the latest version of each event, as one of this host."""
    by_id: dict[str, Event] = {}
    for event in events:
        if event.id not in by_id or uplink.is_newer(event, by_id[event.id]):
            by_id[event.id] = event
    return [dataclasses.replace(event, host=host) for event in by_id.values()]


def _size(event: Event) -> int:
    return 1 + len(json.dumps(event.as_json())) // EVENT_BYTES


def _count(limits: context.Limits, host: Any, events: int, now_us: int) -> dict[str, Any]:
    day = now_us // times.DAY_US
    count = events + (host.day_events if host.day == day else 0)
    if events and count > limits.events_a_day:
        raise errors.QuotaError(
            f"host {host.name} sent more than {limits.events_a_day} events today",
            why="events are limited, so that one host cannot fill the database",
            todo=f"find what repeats: `overnight events --host {host.name}`; raise its threshold on the host",
        )
    return {"day": day, "day_events": count}


def _state(
    connection: engine.Connection,
    limits: context.Limits,
    host: Any,
    report: uplink.Report,
    now_us: int,
) -> dict[str, Any]:
    """Return what a report changes of the host itself; nothing if a later one was accepted before.

    Uptime orders the reports of a boot, and the time of boot on the server's clock orders boots: the clock of
    the host may be set at any time. A report that was delayed makes its boot look later than it was, so an
    earlier boot counts again once nothing was heard of the later one for a while.
    """
    booted = now_us - report.uptime_us
    if report.boot == host.boot:
        if report.uptime_us < host.uptime_us:
            return {}
        booted = min(booted, host.booted_us)
    elif booted <= host.booted_us and now_us - host.seen_us < SILENT_US:
        return {}
    changes: dict[str, Any] = {"seen_us": max(now_us, host.seen_us)}
    is_repeated = (report.boot, report.uptime_us) == (host.boot, host.uptime_us)
    if not is_repeated:
        for name, lost in vars(report.lost).items():
            known = getattr(host, f"lost_{name}")
            changes[f"lost_{name}"] = min(known + lost, checked_json.MAX_INTEGER)
    changes |= {
        "boot": report.boot,
        "uptime_us": report.uptime_us,
        "booted_us": booted,
        "skew_us": report.sent_us - now_us,
    }
    if report.labels is not None:
        host_rows.replace_labels(connection, host.id, report.labels)
        changes["labels_us"] = now_us
    if report.snapshot is not None:
        host_rows.add_snapshot(connection, host.id, report.snapshot, now_us, limits.snapshots)
        changes["snapshot_us"] = now_us
    if report.audit is not None and not is_repeated:
        # By the clock of the server, as for snapshots; its host is the one that sent it.
        age_us = max(0, report.sent_us - report.audit.examined_us)
        examined = {"host": host.name, "examined_us": max(0, now_us - age_us)}
        host_rows.save_audit(connection, host.id, dataclasses.replace(report.audit, **examined))
    return changes


def _observe(
    connection: engine.Connection,
    limits: context.Limits,
    host_id: str,
    observed: tuple[uplink.Observed, ...],
) -> str:
    """Store observed time; return a note if there is too much of it."""
    if not observed:
        return ""
    begin = min(spell.begin_us for spell in observed) - spells.JOIN_US
    end = max(spell.end_us for spell in observed) + spells.JOIN_US
    known = [spell for _, spell in host_rows.read_spells(connection, begin, end, host_id)]
    is_costly = len(known) * len(observed) > MAX_COMPARED
    gone, new = (set[int](), []) if is_costly else spells.merge(known, observed)
    more = {spell.begin_us for spell in new} - {spell.begin_us for spell in known}
    if is_costly or (
        more and host_rows.count_spells(connection, host_id) + len(more) > limits.spells
    ):
        return f"too many interruptions of the recording: {plural(len(observed), 'spell')} dropped"
    host_rows.change_spells(connection, host_id, gone, new)
    return ""
