"""Readings of instruments are evidence of the findings that they concern."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import casebook
import evidence
import pytest
import rings

from overnight.detectors import core_saturation, softirq, zombie_cgroups
from overnight.model.instrument import Reading, ReadingKind
from overnight.store import readings

if TYPE_CHECKING:
    from overnight.model.finding import Evidence, Finding

AT = casebook.EVENT_SECOND
SOURCE = "instruments"


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path)


def store(home: pathlib.Path, found: list[Reading], name: str = "runqueue-latency") -> None:
    writer = readings.ReadingWriter(home, rings.HOST, name, "", rings.us(0))
    writer.add(found)
    writer.close()


def of_instruments(finding: Finding) -> list[Evidence]:
    return [each for each in (*finding.evidence, *finding.against) if each.source == SOURCE]


def waits(core: int, begin: int, end: int, us: float, subject: str = "") -> list[Reading]:
    values = {"max_us": us} if subject else {"count": 50.0, "p50_us": 9.0, "p99_us": us / 2, "max_us": us}  # fmt: skip
    return [
        Reading(rings.us(second), ReadingKind.RUN_QUEUE, core, 7, subject, values=values)
        for second in range(begin, end)
    ]


def saturate(home: casebook.Home) -> Finding:
    def pinned(second: int, core: int) -> tuple[float, float, float]:
        if core == 2 and AT - 6 <= second < AT:
            return 0.0, 1.0, 0.0
        return casebook.quiet(second, core)

    home.cpu(pinned)
    home.event(core=2)
    (finding,) = core_saturation.DETECTORS[0].look(home.case()).findings
    return finding


def test_waits_for_the_saturated_core_are_compared_with_the_baseline(home: casebook.Home) -> None:
    store(
        home.folder,
        [
            *waits(2, 0, AT - 60, 300.0),
            *waits(2, AT - 6, AT, 812_000.0),
            *waits(2, AT - 3, AT - 2, 812_000.0, "ksoftirqd/2"),
            *waits(1, AT - 6, AT, 5_000_000.0),  # another core
        ],
    )
    (fact,) = of_instruments(saturate(home))
    assert fact.values["max_us"] == 812_000
    assert fact.values["baseline_max_us"] == 300
    assert "waited up to 812 ms for core 2" in fact.text
    assert "ksoftirqd/2 among them; at most 300 µs in the baseline" in fact.text
    assert fact.look.startswith("overnight instrument show -b ")


@pytest.mark.parametrize(
    ("now", "before"), [(9_000.0, 300.0), (50_000.0, 20_000.0)], ids=["short", "as before"]
)
def test_waits_that_are_not_unusual_are_stated_as_such(
    home: casebook.Home, now: float, before: float
) -> None:
    store(home.folder, [*waits(2, 0, AT - 60, before), *waits(2, AT - 6, AT, now)])
    (fact,) = of_instruments(saturate(home))
    assert fact.text.startswith("no task waited unusually long for core 2")


def test_without_an_instrument_nothing_is_added(home: casebook.Home) -> None:
    store(home.folder, waits(2, 0, AT - 60, 300.0))  # it ended before the incident
    assert not of_instruments(saturate(home))


def find_storm(home: casebook.Home, **totals: float) -> tuple[Finding, ...]:
    """Return the findings of a core that is in softirqs, with no other sign of what they are."""

    def storm(second: int, core: int) -> tuple[float, float, float]:
        return (0.0, 0.0, 0.97) if core == 2 and AT - 5 <= second < AT + 5 else (0.05, 0.0, 0.02)

    found = [
        Reading(rings.us(second), ReadingKind.SOFTIRQ, 2, subject=name, values={"count": 9.0, "total_us": us, "max_us": us / 9})
        for second in range(AT - 5, AT + 5)
        for name, us in totals.items()
    ]  # fmt: skip
    store(home.folder, found, "interrupt-time")
    home.cpu(storm)
    home.event("net.softnet_drops", core=2)
    return softirq.DETECTORS[0].look(home.case()).findings


def test_softirq_time_by_vector_shows_that_it_is_the_network(home: casebook.Home) -> None:
    (finding,) = find_storm(home, NET_RX=900_000.0, TIMER=20_000.0)
    (fact,) = of_instruments(finding)
    assert fact.values["share_of_softirq_time"] == pytest.approx(0.978, abs=0.001)
    assert "98 % of the softirq time of core 2 was NET_RX and NET_TX" in fact.text


def test_other_softirqs_are_not_the_networks(home: casebook.Home) -> None:
    assert not find_storm(home, TASKLET=900_000.0, NET_RX=20_000.0)


def test_other_softirqs_count_against_a_storm(home: casebook.Home) -> None:
    home.numbers("softirqs", ("NET_RX",), lambda s: {"2": (100 * s + 9_000 * max(0, s - AT + 5),)}, range(home.seconds))  # fmt: skip
    (finding,) = find_storm(home, TASKLET=900_000.0, NET_RX=20_000.0)
    (fact,) = finding.against
    assert fact.text.startswith("2 % of the softirq time of core 2 was NET_RX")
    assert finding.confidence == pytest.approx(0.35)


def test_without_the_instrument_nothing_shows_the_network(home: casebook.Home) -> None:
    assert not find_storm(home)


def test_the_process_that_creates_the_cgroups_is_named_beside_the_zombies(
    tmp_path: pathlib.Path,
) -> None:
    home = evidence.Home(tmp_path, 3 * 3600)
    home.signal("memory-cgroups", 60, lambda s: {"": (30_240 + s // 15, 240, 30_000 + s // 15, 0, 1)})  # fmt: skip
    event = home.add_event(home.seconds - 60, "net.driver_reset")
    case = home.case(event)
    end = home.seconds - 120

    def created(second: int, process: str, count: float, memory: float = 1.0) -> Reading:
        values = {"memory": memory, "count": count}
        return Reading(rings.us(second), ReadingKind.CGROUP_CREATED, -1, 7, process, "", values)

    store(
        tmp_path,
        [
            created(end - 4_000, "long-ago", 5_000.0),
            created(end - 9, "ember-scout", 40.0),
            Reading(rings.us(end - 9), ReadingKind.CGROUP_CREATED, -1, 7, "ember-scout", "/x/run-7", {"memory": 1.0}),
            created(end - 8, "systemd", 2.0),
            created(end - 7, "elsewhere", 900.0, memory=0.0),  # in another hierarchy
        ],
        "cgroup-churn",
    )  # fmt: skip
    (finding,) = zombie_cgroups.DETECTORS[0].look(case).findings
    (fact,) = of_instruments(finding)
    assert fact.text.startswith("ember-scout created 40 of the 42 memory cgroups")
    assert "/x/run-7" in fact.text
    assert fact.values["process"] == "ember-scout"
