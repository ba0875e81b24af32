"""A fleet read from a data home: labels, watched time, reboots, gaps, events and snapshots."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest
import rings

from overnight.model import clock
from overnight.model.event import Event
from overnight.model.snapshot import Snapshot
from overnight.queries import fleet
from overnight.store import added_events
from overnight.store.ring import reader, writer

BOOTS = ("1a2b3c4d-0000-4000-8000-000000000000", "5e6f7a8b-0000-4000-8000-000000000000")


def at(second: float, uptime: float) -> clock.Clock:
    return clock.Clock(rings.us(second) * 1000, round(uptime * 1e9))


def record(
    home: pathlib.Path, host: str, boot: str, seconds: range, uptime: float, zone: str = "z1"
) -> writer.Writer:
    """Record ticks of one boot that is `uptime` seconds old at the first tick."""
    ring_writer = writer.Writer(home, host, boot, budget_bytes=1 << 30, age_seconds=30 * 86400)
    first = at(seconds[0], uptime)
    ring_writer.facts("host", first, {"": {"zone": zone, "kernel": "6.1", "cores": 96, "name": host}, "eth0": {"driver": "ena"}})  # fmt: skip
    for second in seconds:
        now = at(second, uptime + second - seconds[0])
        ring_writer.numbers("cpu", ("user",), now, {"0": (second,)})
        ring_writer.tick(now)
    return ring_writer


def save(home: pathlib.Path, host: str, stamp: str, value: str) -> None:
    taken = Snapshot({"host": host}, {"sysctl": {"vm.swappiness": value}}, ())
    path = home / "snapshots" / host / f"{stamp}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(taken.as_json()))


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    first = record(tmp_path, "db-7", BOOTS[0], range(100), 5000)
    first.event(Event(rings.us(50), "net.driver_reset", host="db-7", boot=BOOTS[0], id="a"))
    first.note_gap(rings.us(20), rings.us(30), "the disk was full")
    first.close()
    second = record(tmp_path, "db-7", BOOTS[1], range(200, 260), 30)
    second.event(Event(rings.us(210), "cpu.core_pinned", host="db-7", boot=BOOTS[1], id="b"))
    second.close()
    record(tmp_path, "db-8", BOOTS[0], range(50), 10, zone="z2").close()
    return tmp_path


def test_labels_watched_time_and_events(home: pathlib.Path) -> None:
    hosts_read = fleet.read_fleet(home)
    assert [host.name for host in hosts_read.hosts] == ["db-7", "db-8"]
    seven, eight = hosts_read.hosts
    assert seven.labels == {"zone": "z1", "kernel": "6.1", "driver": "ena"}
    assert eight.labels["zone"] == "z2"
    assert [(spell.begin_us, spell.end_us, spell.uptime) for spell in seven.spells] == [
        (rings.us(0), rings.us(20), 5000),
        (rings.us(30), rings.us(99), 5030),
        (rings.us(200), rings.us(259), 30),
    ]
    assert seven.seconds == 20 + 69 + 59
    assert [event.kind for event in seven.events] == ["net.driver_reset", "cpu.core_pinned"]
    assert [seven.place(event) for event in seven.events] == [(1, 20.0), (2, 10.0)]
    assert [event.id for event in seven.of_kind("net.")] == ["a"]
    assert hosts_read.window_us == (rings.us(0), rings.us(259))
    assert hosts_read.problems == ()


def test_an_event_of_another_boot_or_of_unwatched_time_has_no_place(home) -> None:
    seven = fleet.read_fleet(home).hosts[0]
    assert seven.place(Event(rings.us(210), "x", boot="ffffffff-0")) is None
    assert seven.place(Event(rings.us(5000), "x")) is None
    # Reported with the tick after the last recorded one.
    assert seven.place(Event(rings.us(261), "x", boot=BOOTS[1])) == (2, 59.0)


def test_trimmed_time_counts_as_watched() -> None:
    """A pinned window stays when the time around it is trimmed; that time was watched too."""
    stretches = [
        reader.Stretch("a", rings.us(0), rings.us(10), 7_000_000),
        reader.Stretch("a", rings.us(500), rings.us(600), 507_000_000),
    ]
    assert [spell.seconds for spell in fleet.fold_spells(stretches)] == [600]


def test_the_snapshot_of_an_affected_host_is_the_nearest_to_its_event(home: pathlib.Path) -> None:
    save(home, "db-7", "20261115T065000Z", "10")  # the ticks begin at 06:50:59
    save(home, "db-7", "20261220T000000Z", "60")
    save(home, "db-8", "20261115T065000Z", "10")
    save(home, "db-8", "20261220T000000Z", "60")
    save(home, "db-9", "20261220T000000Z", "60")
    hosts_read = fleet.read_fleet(home, ["net.driver_reset"])
    values = {
        host.name: host.snapshot.parts["sysctl"]["vm.swappiness"] for host in hosts_read.hosts
    }
    assert values == {"db-7": "10", "db-8": "60", "db-9": "60"}
    assert [host.name for host in hosts_read.watched] == ["db-7", "db-8"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "other"}', "[" * 100_000])
def test_a_damaged_snapshot_is_reported_and_an_older_one_used(
    home: pathlib.Path, text: str
) -> None:
    save(home, "db-8", "20261115T065000Z", "10")
    (home / "snapshots/db-8/20261220T000000Z.json").write_text(text)
    hosts_read = fleet.read_fleet(home)
    assert hosts_read.hosts[1].snapshot.parts["sysctl"]["vm.swappiness"] == "10"
    assert "20261220T000000Z.json" in hosts_read.problems[0]


def test_an_empty_home_is_an_empty_fleet(tmp_path: pathlib.Path) -> None:
    hosts_read = fleet.read_fleet(tmp_path)
    assert (hosts_read.hosts, hosts_read.window_us) == ((), (0, 0))


def test_operators_label_hosts_and_the_last_value_counts(home: pathlib.Path) -> None:
    def label(second: float, host: str, kind: str = "host.labels", **labels: str) -> Event:
        event = Event(rings.us(second), kind, host=host, source=added_events.SOURCE, fields=labels)
        return dataclasses.replace(event, id=added_events.event_id(event))

    added_events.add(
        home,
        [
            label(9, "db-7", rack="r2", zone="z9"),
            label(5, "db-7", rack="r1", gpu="h100"),
            label(5, "db-8", "job.failed", gpu="a100"),  # of the job, not of the host
        ],
    )
    for kinds in (None, ["net.driver_reset"]):
        seven, eight = fleet.read_fleet(home, kinds).hosts
        assert seven.labels == {"zone": "z9", "kernel": "6.1", "driver": "ena", "rack": "r2", "gpu": "h100"}  # fmt: skip
        assert "gpu" not in eight.labels
        assert "host.labels" not in {event.kind for event in seven.events}
