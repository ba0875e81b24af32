"""Lists with cursors, single things, the fleet as a value, and the audit log."""

from __future__ import annotations

import dataclasses
import time

import pytest
from fleetworld import BOOT, START, S, World, event, report, spell

from overnight import errors
from overnight.fleet import context
from overnight.model.control_plane import EventFilter, HostFilter, encode_cursor
from overnight.model.fleet import Spell
from overnight.model.selection import Window
from overnight.model.snapshot import Snapshot

KIND = "net.driver_reset"


@pytest.fixture
def filled(fleet: World) -> World:
    """Six hosts in two zones; those of zone a have two events each."""
    fleet.clock.forward(1_000)
    for number in range(6):
        zone = "ab"[number % 2]
        who = fleet.enrol(f"db-{number}")
        seen = [event(number, 100 + number, KIND, severity="critical"), event(10 + number, 200, severity="info")]  # fmt: skip
        snapshot = Snapshot({"host": who.host}, {"os": {"id": zone}}, ())
        fleet.plane.report(
            who,
            report(
                900,
                labels={"zone": zone, "n": str(number)},
                events=tuple(seen) if zone == "a" else (),
                spells=(spell(0, 500), spell(600, 900)),
                snapshot=snapshot,
            ),
        )
        fleet.clock.forward(10)
    return fleet


def test_hosts_are_listed_in_pages(filled: World) -> None:
    names, cursor = [], ""
    for _ in range(3):
        page = filled.plane.hosts(cursor=cursor, limit=2)
        names += [host.name for host in page.items]
        cursor = page.next
    assert (names, cursor) == ([f"db-{n}" for n in range(6)], "")


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        (HostFilter({"zone": "a"}), [0, 2, 4]),
        (HostFilter({"zone": "a", "n": "2"}), [2]),
        (HostFilter({"zone": "\0"}), []),
        (HostFilter(prefix="db-3"), [3]),
        (HostFilter(prefix="d%"), []),
        (HostFilter(prefix="\ud800"), []),
        (HostFilter(seen_since_us=START + 1_040 * S), [4, 5]),
        (HostFilter(seen_before_us=START + 1_010 * S), [0]),
        (HostFilter(seen_before_us=START + 1_011 * S), [0, 1]),
        (HostFilter(seen_since_us=1 << 80, seen_before_us=-(1 << 80)), []),
    ],
)
def test_hosts_are_filtered(filled: World, chosen: HostFilter, numbers: list[int]) -> None:
    assert [host.name for host in filled.plane.hosts(chosen).items] == [f"db-{n}" for n in numbers]


def test_one_host_is_shown(filled: World) -> None:
    assert filled.plane.host("db-3").labels == {"zone": "b", "n": "3"}
    for name in ("db-9", "", "\0", "\ud800"):
        with pytest.raises(errors.NotFoundError):
            filled.plane.host(name)


def test_events_are_listed_newest_first_in_pages(filled: World) -> None:
    found, cursor = [], ""
    while True:
        page = filled.plane.events(cursor=cursor, limit=2)
        found += page.items
        cursor = page.next
        if not cursor:
            break
    assert len({(e.host, e.id) for e in found}) == len(found) == 6
    assert [e.time_us for e in found] == sorted((e.time_us for e in found), reverse=True)


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        (EventFilter((KIND,)), 3),
        (EventFilter(("net.", "cpu.core_pinned")), 6),
        (EventFilter(("n%.",)), 0),
        (EventFilter(hosts=("db-0", "db-1")), 2),
        (EventFilter(severity="warning"), 3),
        (EventFilter(severity="critical"), 3),
        (EventFilter(severity="info"), 6),
        (EventFilter(begin_us=START + 150 * S), 3),
        (EventFilter(begin_us=START + 200 * S), 3),
        (EventFilter(end_us=START + 200 * S), 3),
        (EventFilter(end_us=START + 102 * S), 1),
        (EventFilter(("\0",), ("\ud800",)), 0),
    ],
)
def test_events_are_filtered(filled: World, chosen: EventFilter, count: int) -> None:
    assert len(filled.plane.events(chosen).items) == count


def test_one_event_is_found_by_its_id_or_a_part_of_it(filled: World) -> None:
    wanted = event(2, 102, KIND, severity="critical", host="db-2")
    assert filled.plane.event(wanted.id) == wanted
    assert filled.plane.event("00000002") == wanted
    assert filled.plane.event(wanted.id, "db-2") == wanted
    for text, host in (("x", ""), ("", ""), ("\0" * 9, ""), ("%%%%%", ""), (wanted.id, "db-3")):
        with pytest.raises(errors.NotFoundError):
            filled.plane.event(text, host)
    for text in ("net.", "net.driver_reset-0", wanted.id[:-1]):
        assert filled.plane.event(text, "db-2") == wanted
    with pytest.raises(errors.NotFoundError):
        filled.plane.event("net", "db-2")  # too short
    with pytest.raises(errors.UsageError, match="several"):
        filled.plane.event("0000000")
    with pytest.raises(errors.UsageError, match="several") as raised:  # also two
        filled.plane.event("0000000", "db-2")
    assert f"{wanted.id} on db-2" in raised.value.why


@pytest.mark.parametrize("cursor", ["x", "\0", "\ud800", encode_cursor(5), encode_cursor("a\0", 1)])
def test_other_cursors_are_refused(filled: World, cursor: str) -> None:
    for ask in (filled.plane.hosts, filled.plane.events):
        with pytest.raises(errors.UsageError, match="cursor"):
            ask(cursor=cursor)
    with pytest.raises(errors.UsageError, match="cursor"):
        filled.plane.audit_log(cursor if cursor != encode_cursor(5) else "x")


def test_the_fleet_is_a_value_for_detectors(filled: World) -> None:
    fleet = filled.plane.fleet([KIND])
    assert [host.name for host in fleet.hosts] == [f"db-{n}" for n in range(6)]
    first = fleet.hosts[0]
    assert first.labels == {"zone": "a", "n": "0"}
    assert first.spells == (
        Spell(START, START + 500 * S, 0.0, BOOT),
        Spell(START + 600 * S, START + 900 * S, 600.0, BOOT),
    )
    assert [e.kind for e in first.events] == [KIND]
    assert [len(host.events) for host in fleet.hosts] == [1, 0] * 3
    assert [host.snapshot for host in fleet.hosts] == [None] * 6
    assert first.places(KIND) == [(0, 100.0)]


def test_the_fleet_in_a_window_and_with_snapshots(filled: World) -> None:
    window = Window(START + 150 * S, START + 700 * S)
    fleet = filled.plane.fleet(None, window, snapshots=["db-1"])
    first, second = fleet.hosts[:2]
    assert [e.kind for e in first.events] == ["cpu.core_pinned"]
    assert [(s.begin_us, s.end_us) for s in first.spells] == [
        (START + 150 * S, START + 500 * S),
        (START + 600 * S, START + 700 * S),
    ]
    assert first.snapshot is None
    assert second.snapshot is not None
    assert second.snapshot.parts == {"os": {"id": "b"}}
    assert all(host.snapshot for host in filled.plane.fleet(snapshots=True).hosts)


def test_the_snapshot_is_the_one_nearest_to_the_last_event(filled: World) -> None:
    who = filled.plane.agents.enrol(filled.token(), "x" * 40, "web-1")
    for at, text in ((100, "before"), (900, "repaired")):
        snapshot = Snapshot({}, {"os": {"id": text}}, ())
        filled.plane.report(who, report(at, snapshot=snapshot))
        filled.clock.forward(800)
    filled.plane.report(who, report(901, events=(event(99, 1_200, KIND),)))
    [host] = [h for h in filled.plane.fleet([KIND], snapshots=["web-1"]).hosts if h.name == "web-1"]
    assert host.snapshot is not None
    assert host.snapshot.parts == {"os": {"id": "before"}}
    filled.plane.report(who, report(902, events=(event(98, 2_000, KIND),)))
    [host] = [h for h in filled.plane.fleet([KIND], snapshots=["web-1"]).hosts if h.name == "web-1"]
    assert host.snapshot is not None
    assert host.snapshot.parts == {"os": {"id": "repaired"}}
    assert filled.plane.fleet(["a.b"], snapshots=["web-1"]).hosts[0].snapshot is None
    [host] = [h for h in filled.plane.fleet(["a.b"], snapshots=True).hosts if h.name == "web-1"]
    assert host.snapshot is not None
    assert host.snapshot.parts == {"os": {"id": "repaired"}}  # without such events: the latest


def test_labels_of_operators_are_labels_of_the_host(filled: World) -> None:
    who = filled.plane.agents.enrol(filled.token(), "x" * 40, "web-1")
    given = dataclasses.replace(event(1, 10, "host.labels"), fields={"rack": "r1", "zone": "z"})
    filled.plane.report(who, report(20, labels={"zone": "a"}, events=(given,)))
    [host] = [h for h in filled.plane.fleet([KIND]).hosts if h.name == "web-1"]
    assert (host.labels, host.events) == ({"zone": "z", "rack": "r1"}, ())
    for begin, zone in ((60, "z"), (-60, "a")):  # given before a window, they hold in it
        window = Window(START + begin * S, START + (begin + 30) * S)
        assert filled.plane.fleet([KIND], window).hosts[-1].labels["zone"] == zone


def test_the_audit_log_has_pages(fleet: World) -> None:
    for number in range(5):
        fleet.plane.confirmations.audit("ann\0", "pool.create", f"ci-{number}", "why\ud800")
    first = fleet.plane.audit_log(limit=3)
    second = fleet.plane.audit_log(first.next, limit=3)
    assert [row.target for row in (*first.items, *second.items)] == [f"ci-{n}" for n in (4, 3, 2, 1, 0)]  # fmt: skip
    assert (second.next, first.items[0].at_us) == ("", START)


def test_what_is_too_old_is_removed(filled: World) -> None:
    filled.clock.forward(500 * 86_400)
    filled.plane.maintain()
    assert filled.plane.events().items == ()
    assert all(host.spells == () for host in filled.plane.fleet().hosts)
    assert len(filled.plane.hosts().items) == 6


def test_hosts_are_counted(filled: World) -> None:
    assert filled.plane.count_hosts(START + 1_040 * S) == (6, 2)
    assert filled.plane.count_hosts(START + 1_041 * S) == (6, 1)


def test_a_page_has_at_least_one_and_at_most_a_thousand(
    filled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [host.name for host in filled.plane.hosts(limit=0).items] == ["db-0"]
    assert context.MAX_PAGE == 1_000
    monkeypatch.setattr(context, "MAX_PAGE", 4)
    page = filled.plane.hosts(limit=10**9)
    assert [host.name for host in page.items] == [f"db-{n}" for n in range(4)]
    assert len(filled.plane.hosts(cursor=page.next).items) == 2


def test_an_event_that_goes_on_ends_shortly_after_its_last_report(filled: World) -> None:
    """Not after its first: a host whose clock is right may report an event for hours."""
    who = filled.plane.agents.enrol(filled.token(), "x" * 40, "web-1")
    for seconds in (0, 3_600):
        filled.clock.forward(seconds)
        end_us = filled.clock()
        going_on = event(77, 50, KIND, until_us=end_us, count=1 + seconds)
        filled.plane.report(who, report(900 + seconds, events=(going_on,)))
        assert filled.plane.event(going_on.id, "web-1").until_us == end_us


def test_what_is_too_old_is_removed_each_hour(
    fleet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    who, monotonic, ahead = fleet.enrol(), time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + ahead[0])
    fleet.plane.maintain()
    fleet.plane.report(who, report(1, events=(event(1, 0),)))
    fleet.clock.forward(401 * 86_400)
    fleet.plane.maintain()
    assert len(fleet.plane.events().items) == 1
    ahead[0] = 3_601
    fleet.plane.maintain()
    assert fleet.plane.events().items == ()


def test_the_events_of_a_host_are_in_order_of_their_times(fleet: World) -> None:
    """Whatever their ids and kinds, and the order in which they arrived."""
    who = fleet.enrol()
    fleet.clock.forward(1_000)
    for number, (at, kind) in enumerate(((900, "a.b"), (100, KIND), (500, "a.b"))):
        fleet.plane.report(who, report(901 + number, events=(event(number, at, kind),)))
    for kinds in (None, ["a.b", KIND], ["a.", "net."]):
        [host] = fleet.plane.fleet(kinds).hosts
        assert [(e.time_us - START) // S for e in host.events] == [100, 500, 900]
