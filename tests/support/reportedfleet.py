"""The database of a server with the hosts of a made-up fleet, and the window of one event."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import secrets
import shutil
import time

import images

import scenarios
from overnight.app import audit, bundles, pools
from overnight.fleet import blobs, control
from overnight.model.control_plane import Role
from overnight.model.fleet import Fleet, Host
from overnight.model.times import DAY_US, format_instant
from overnight.model.uplink import Observed, Offer, Report
from overnight.queries import fleet as fleets
from scenarios import fleet

YEAR_US = 366 * 86_400_000_000
PIECE = 1 << 20


def make(night: scenarios.Truth, home: pathlib.Path) -> Fleet:
    """Return the fleet that agents report, with the host of the night in it.

    Its last event was a day ago: a server dates future ones back, and forgets those that are too old.
    """
    shutil.copytree(night.home, home)
    fleet.build_fleet(home, 3)
    by_us = night.event.time_us - (time.time_ns() // 1000 - DAY_US)
    return Fleet(tuple(_earlier(host, by_us) for host in fleets.read_fleet(home).hosts))


def _earlier(host: Host, by_us: int) -> Host:
    spells = (
        dataclasses.replace(s, begin_us=s.begin_us - by_us, end_us=s.end_us - by_us)
        for s in host.spells
    )
    events = (
        dataclasses.replace(e, time_us=e.time_us - by_us, until_us=max(0, e.until_us - by_us))
        for e in host.events
    )
    return dataclasses.replace(host, spells=tuple(spells), events=tuple(events))


def find_middle(known: Fleet) -> str:
    """Return a time in the middle of what was watched, as people write it."""
    spells = [spell for host in known.hosts for spell in host.spells]
    first, last = min(s.begin_us for s in spells), max(s.end_us for s in spells)
    return format_instant((first + last) // 2)


def fill(home: pathlib.Path, night: scenarios.Truth, known: Fleet) -> None:
    """Write what a server has when every host has reported, and one has uploaded the window of its event."""
    where = pools.Pools(home, "")
    plane = control.ControlPlane(where.plane.context.database, blobs.Blobs(home / "blobs"))
    file = home / "night.overnight"
    bundles.create(night.home, night.event, file)
    data = file.read_bytes()
    images.deep_learning(home / "image")
    offer = Offer(night.event.id, hashlib.sha256(data).hexdigest(), len(data), 1, 2)
    for host in known.hosts:
        expires = plane.context.clock() + YEAR_US
        token = plane.tokens.create(Role.AGENT, name=host.name, expires_us=expires)
        identity = plane.agents.enrol(token.text, secrets.token_urlsafe(32), host.name)
        observed = (
            Observed(spell.boot, spell.begin_us, spell.end_us, round(spell.uptime * 1e6))
            for spell in host.spells
        )
        now = plane.context.clock()
        report = Report(
            now, host.spells[-1].boot, 1_000_000, tuple(observed), host.labels, host.events,
            snapshot=host.snapshot, windows=(offer,) if host.name == night.host else (),
            audit=audit.examine(home / "image") if host.name == night.host else None,
        )  # fmt: skip
        plane.report(identity, report)
        if host.name == night.host:
            for at in range(0, len(data), PIECE):
                plane.put_blob(identity, offer.sha256, at, len(data), data[at : at + PIECE])
    where.plane.context.database.close()
