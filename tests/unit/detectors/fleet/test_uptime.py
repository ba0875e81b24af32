"""Uptime hazard: rising, falling, constant, and too little data."""

from __future__ import annotations

import dataclasses

import fleets
import numpy as np
import pytest

from overnight.detectors.fleet import hazard, uptime
from overnight.model import fleet
from overnight.model.finding import Status


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
    answer = uptime.UptimeHazard().ask(make_fleet(0.0, 0.05), fleets.KIND)
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
    (finding,) = uptime.UptimeHazard().ask(make_fleet(0.2, 0.01), fleets.KIND).findings
    assert "comes early after the boot" in finding.summary
    assert finding.magnitude["rate_ratio"] < 1
    assert finding.magnitude["accumulates"] == 0


def test_a_constant_rate_is_clear() -> None:
    answer = uptime.UptimeHazard().ask(make_fleet(0.05, 0.05), fleets.KIND)
    assert answer.status is Status.CLEAR
    assert "does not change with uptime" in answer.why


def test_without_reboots_the_confidence_is_lower() -> None:
    old = [fleets.host(f"o{n}", days=1, uptime_days=40 + n, events=[0.5]) for n in range(10)]
    young = [fleets.host(f"y{n}", days=1, uptime_days=n / 10) for n in range(30)]
    (finding,) = uptime.UptimeHazard().ask(fleet.Fleet((*old, *young)), fleets.KIND).findings
    assert finding.magnitude["accumulates"] == 0
    assert any("may be a proxy for something else" in entry.text for entry in finding.against)
    assert finding.confidence < 0.75


def rebooted_fleet(watched_days: float) -> fleet.Fleet:
    """Old hosts have events, young ones none; five of the old reboot and are watched for some days."""
    old = [fleets.host(f"o{n}", days=1, uptime_days=40 + n, events=[0.5]) for n in range(10)]
    young = [fleets.host(f"y{n}", days=1, uptime_days=n / 10) for n in range(30)]
    begin, end = (round(days * fleets.DAY_US) for days in (2, 2 + watched_days))
    again = fleet.Spell(begin, end, 0.0, "0000000b")
    cured = [dataclasses.replace(host, spells=(*host.spells, again)) for host in old[:5]]
    return fleet.Fleet((*cured, *old[5:], *young))


@pytest.mark.parametrize(
    ("watched_days", "cured"),
    [
        pytest.param(2, True, id="ten days without an event"),
        pytest.param(0.1, False, id="half a day, too few hours"),
    ],
)
def test_a_reboot_is_a_cure_only_if_that_is_significant(watched_days: float, cured: bool) -> None:
    (finding,) = uptime.UptimeHazard().ask(rebooted_fleet(watched_days), fleets.KIND).findings
    assert finding.magnitude["reboots_after_event"] == 5
    assert finding.magnitude["accumulates"] == cured
    assert ("a reboot cures it" in finding.summary) == cured
    facts = [each for each in finding.against if "after 5 reboots" in each.text]
    assert bool(facts) != cured


@pytest.mark.parametrize(
    ("boots", "events", "expected"),
    [
        pytest.param("ab", (0.5,), (1, 1.0, 0), id="a reboot"),
        pytest.param("aa", (0.5,), (0, 0.0, 0), id="a pause of the recorder in one boot"),
        pytest.param("aab", (0.5,), (1, 1.0, 0), id="a pause, then a reboot"),
        pytest.param("abb", (0.5,), (1, 2.0, 0), id="a reboot, then a pause"),
        pytest.param("abc", (0.5,), (2, 2.0, 0), id="two reboots"),
        pytest.param("abc", (2.5,), (1, 1.0, 0), id="a reboot before the first event"),
        pytest.param("ab", (0.5, 2.5), (1, 1.0, 1), id="it came back"),
        pytest.param("ab", (), (0, 0.0, 0), id="no event"),
    ],
)
def test_only_reboots_after_an_event_count(
    boots: str, events: tuple[float, ...], expected: tuple[int, float, int]
) -> None:
    """Each spell is a day, on every second day; a spell of the same boot goes on with its uptime."""
    spells = tuple(
        fleet.Spell(
            2 * n * fleets.DAY_US, (2 * n + 1) * fleets.DAY_US, 2.0 * (n - boots.index(boot)) * 86400, boot
        )
        for n, boot in enumerate(boots)
    )  # fmt: skip
    host = dataclasses.replace(fleets.host("h", events=events), spells=spells)
    cure = uptime.measure_cure(fleet.Fleet((host,)), fleets.KIND, 30 * 86400.0, 1e-6)
    assert (cure.reboots, cure.seconds / 86400, cure.events) == expected


@pytest.mark.parametrize(
    ("sick", "events", "status"),
    [
        pytest.param(3, 2, Status.FOUND, id="three hosts"),
        pytest.param(2, 3, Status.NO_DATA, id="two hosts"),
        pytest.param(4, 1, Status.NO_DATA, id="four events"),
    ],
)
def test_a_few_sick_hosts_are_no_data(sick: int, events: int, status: Status) -> None:
    """All events are in the oldest tenth of the watched time."""
    old = [
        fleets.host(f"o{n}", days=1, uptime_days=60, events=[0.1 + 0.2 * k for k in range(events)])
        for n in range(sick)
    ]
    young = [fleets.host(f"y{n}", days=1, uptime_days=0.5) for n in range(9 * sick)]
    answer = uptime.UptimeHazard().ask(fleet.Fleet((*old, *young)), fleets.KIND)
    assert answer.status is status, answer.why


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
    answer = uptime.UptimeHazard().ask(fleet.Fleet(tuple(hosts)), fleets.KIND)
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
    answer = uptime.UptimeHazard().ask(fleet.Fleet(tuple(hosts)), fleets.KIND)
    assert answer.status is not Status.FOUND


def test_events_in_unwatched_time_are_left_out() -> None:
    host = fleets.host("a", days=5, events=[1.0, 9.0])
    wrong = dataclasses.replace(fleets.event("a", 2.0), boot="0000000b")
    host = dataclasses.replace(host, events=(*host.events, wrong))
    assert len(uptime.build_timeline((host,), fleets.KIND).event_into) == 1
