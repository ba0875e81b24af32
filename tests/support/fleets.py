"""Fleets for tests: single hosts, and random fleets with and without a fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from overnight.detectors.fleet import hazard
from overnight.model import fleet
from overnight.model.event import Event

if TYPE_CHECKING:
    from overnight.model.snapshot import Snapshot

DAY_US = 86_400_000_000
KIND = "net.driver_reset"


def host(
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    days: float = 10,
    uptime_days: float = 0,
    events: Sequence[float] = (),
    taken: Snapshot | None = None,
) -> fleet.Host:
    """Return a host recorded for `days` days in one boot, with events on these days."""
    spell = fleet.Spell(0, round(days * DAY_US), uptime_days * 86400, "0000000a")
    return fleet.Host(name, labels or {}, (spell,), tuple(event(name, at) for at in events), taken)


def event(name: str, at_day: float, boot: str = "") -> Event:
    return Event(round(at_day * DAY_US), KIND, host=name, boot=boot)


# --- cohorts: 60 hosts in 3 zones; some hosts have events again and again, most have none


ZONES = np.repeat(["a", "b", "c"], 20)


def clustered(
    chance: np.random.Generator, mean: float, shape: float, times: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return events and recorded time of 60 hosts with different rates; zone a has `times` the rate.

    Rates are gamma distributed with that shape: with 0.25, a tenth of the hosts has half of the events.
    """
    count = len(ZONES)
    time = chance.uniform(0.3, 1.0, count)
    rate = mean * chance.gamma(shape, 1 / shape, count) * np.where(ZONES == "a", times, 1.0)
    return chance.poisson(rate * time).astype(float), time


# --- uptime: 60 hosts recorded for 30 days, from any uptime on, rebooted sometimes


def rebooted(
    chance: np.random.Generator,
    *,
    events: float = 30,
    early: float = 1.0,
    onset_days: float = 7.0,
    shape: float = 0.0,
    burst: float = 1.0,
    hosts: int = 60,
    days: float = 30.0,
) -> hazard.Timeline:
    """Return a timeline whose hazard before the onset is `early` times the later one.

    `shape` is as in `clustered`; with 0 all hosts are alike. Each event starts a burst of `burst` events on
    average, which lasts some hours.
    """
    owner, uptime, length = [], [], []
    for number in range(hosts):
        at, up = 0.0, float(chance.exponential(10))
        while at < days:
            span = min(float(chance.exponential(12)), days - at)
            owner.append(number)
            uptime.append(up)
            length.append(span)
            at, up = at + span, 0.0
    owners, up_at, spans = np.array(owner), np.array(uptime), np.array(length)
    frailty = chance.gamma(shape, 1 / shape, hosts) if shape else np.ones(hosts)
    after_onset = np.maximum(0, up_at + spans - np.maximum(up_at, onset_days))
    rate = events / burst / (frailty[owners] * (after_onset + early * (spans - after_onset))).sum()
    spell = np.repeat(np.arange(len(owners)), chance.poisson(rate * frailty[owners] * spans))
    into = chance.random(len(spell)) * spans[spell]
    kept = (up_at[spell] + into >= onset_days) | (chance.random(len(spell)) < early)
    spell, into = spell[kept], into[kept]
    after = np.repeat(np.arange(len(spell)), chance.geometric(1 / burst, len(spell)) - 1)
    later = into[after] + chance.exponential(0.1, len(after))
    inside = later < spans[spell[after]]
    spell = np.concatenate((spell, spell[after][inside]))
    into = np.concatenate((into, later[inside]))
    day = hazard.DAY
    return hazard.Timeline(owners, up_at * day, spans * day, spell, into * day)


# --- drift: 40 hosts, 12 of them sick, 200 items of which the first is the cause


def drifted(chance: np.random.Generator, *, cause: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return which host has which item, and which hosts are sick; items have random frequencies.

    The cause is on 95 % of sick hosts and 15 % of healthy ones.
    """
    sick = np.arange(40) < 12
    has = chance.random((40, 200)) < chance.uniform(0, 1, 200)
    if cause:
        has[:, 0] = chance.random(40) < np.where(sick, 0.95, 0.15)
    return has, sick
