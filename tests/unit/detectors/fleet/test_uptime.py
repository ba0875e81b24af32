"""Uptime hazard: rising, falling, constant, and too little data."""

from __future__ import annotations

import dataclasses

import fleets
import numpy as np
import pytest

from overnight.detectors.fleet import hazard, uptime
from overnight.model.finding import Status
from overnight.queries import fleet


def make_host(
    chance: np.random.Generator, number: int, early: float, late: float, onset: float = 7.0
) -> fleet.Host:
    """Make thirty days of a host with random reboots; hazards are events per day."""
    at, up, spells, events = 0.0, float(chance.exponential(8)), [], []
    while at < 30:
        span = min(float(chance.exponential(12)), 30 - at)
        boot = f"{len(spells) + 1:08x}"
        begin, end = round(at * fleets.DAY_US), round((at + span) * fleets.DAY_US)
        spells.append(fleet.Spell(begin, end, up * 86400, boot))
        for into in chance.uniform(0, span, chance.poisson(span * max(early, late))):
            hazard_here = late if up + into >= onset else early
            if chance.random() < hazard_here / max(early, late):
                events.append(fleets.event(f"h{number}", at + float(into), boot))
        at, up = at + span, 0.0
    return fleet.Host(f"h{number}", {}, tuple(spells), tuple(events))


def make_fleet(early: float, late: float, hosts: int = 50) -> fleet.Fleet:
    chance = np.random.default_rng(7)
    return fleet.Fleet(tuple(make_host(chance, n, early, late) for n in range(hosts)))


def test_a_hazard_that_starts_after_a_week_is_found() -> None:
    answer = uptime.look(make_fleet(0.0, 0.05), fleets.KIND)
    assert answer.status is Status.FOUND
    (finding,) = answer.findings
    assert finding.kind == "fleet.uptime_hazard"
    assert "a reboot cures it for 7" in finding.summary
    assert "a state accumulates" in finding.summary
    assert finding.magnitude["accumulates"] == 1
    assert finding.magnitude["onset_hours_low"] <= 7 * 24 <= finding.magnitude["onset_hours_high"]
    assert finding.magnitude["onset_hours"] == pytest.approx(7 * 24, rel=0.15)
    assert finding.against == ()


def test_a_hazard_that_falls_after_boot_is_found() -> None:
    (finding,) = uptime.look(make_fleet(0.2, 0.01), fleets.KIND).findings
    assert "comes early after the boot" in finding.summary
    assert finding.magnitude["rate_ratio"] < 1
    assert finding.magnitude["accumulates"] == 0


def test_a_constant_rate_is_clear() -> None:
    answer = uptime.look(make_fleet(0.05, 0.05), fleets.KIND)
    assert answer.status is Status.CLEAR
    assert "does not change with uptime" in answer.why


def test_without_reboots_the_confidence_is_lower() -> None:
    old = [fleets.host(f"o{n}", days=1, uptime_days=40 + n, events=[0.5]) for n in range(10)]
    young = [fleets.host(f"y{n}", days=1, uptime_days=n / 10) for n in range(30)]
    (finding,) = uptime.look(fleet.Fleet((*old, *young)), fleets.KIND).findings
    assert finding.magnitude["accumulates"] == 0
    assert any("may stand for something else" in entry.text for entry in finding.against)
    assert finding.confidence < 0.75


@pytest.mark.parametrize(
    ("hosts", "status", "why"),
    [
        ([], Status.NO_DATA, "no host was watched"),
        ([fleets.host("a")], Status.CLEAR, "no net.driver_reset in 10.0 watched"),
        ([fleets.host("a", days=0.1, events=[0.05] * 9)], Status.NO_DATA, "no uptime has"),
        ([fleets.host("a", days=30, events=[1.0] * 9)], Status.NO_DATA, "9 net.driver_reset on 1"),
    ],
)  # fmt: skip
def test_an_answer_without_a_finding_has_a_reason(hosts, status, why) -> None:
    answer = uptime.look(fleet.Fleet(tuple(hosts)), fleets.KIND)
    assert answer.status is status
    assert why in answer.why


def test_time_before_the_agent_is_not_exposure() -> None:
    """Left truncation: a host first seen after 20 days has no exposure before."""
    line = uptime.build_timeline(
        (fleets.host("a", days=5, uptime_days=20, events=[0.5]),), fleets.KIND
    )
    bands = hazard.bands(line)
    assert [(band.low / hazard.DAY, band.events) for band in bands] == [(14, 1), (21, 0)]
    assert sum(band.seconds for band in bands) == pytest.approx(5 * hazard.DAY)


def test_bands_have_exact_intervals() -> None:
    line = uptime.build_timeline((fleets.host("a", days=0.2, events=[0.1, 0.1]),), fleets.KIND)
    (band,) = hazard.bands(line)
    assert band.rate_low * band.seconds == pytest.approx(0.2422, abs=1e-4)
    assert band.rate_high * band.seconds == pytest.approx(7.2247, abs=1e-4)


def test_a_burst_counts_once() -> None:
    """Forty events in one hour of one old host are not a trend."""
    hosts = [fleets.host(f"h{n}", days=10, uptime_days=n) for n in range(20)]
    burst = [9 + n / 1000 for n in range(40)]
    hosts[19] = fleets.host("h19", days=10, uptime_days=19, events=burst)
    hosts[3] = fleets.host("h3", days=10, uptime_days=3, events=[1.0])
    hosts[5] = fleets.host("h5", days=10, uptime_days=5, events=[4.0])
    answer = uptime.look(fleet.Fleet(tuple(hosts)), fleets.KIND)
    assert answer.status is not Status.FOUND


def test_events_in_unwatched_time_are_left_out() -> None:
    host = fleets.host("a", days=5, events=[1.0, 9.0])
    wrong = dataclasses.replace(fleets.event("a", 2.0), boot="0000000b")
    host = dataclasses.replace(host, events=(*host.events, wrong))
    assert len(uptime.build_timeline((host,), fleets.KIND).event_into) == 1
