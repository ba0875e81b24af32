"""Reports: repeated, reordered, at once, and from hostile agents. No event is lost or doubled."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import pathlib
import random

import pytest
from fleetworld import (
    BOOT,
    OTHER_BOOT,
    START,
    S,
    World,
    bundle,
    event,
    offer,
    report,
    rollup,
    spell,
)
from killer import KilledError, Killer

from overnight import errors
from overnight.fleet import context, reports
from overnight.fleet.sql import event_rows, schema
from overnight.model import uplink
from overnight.model.audit import Belonging, Finding, Risk
from overnight.model.audit import Report as Audit
from overnight.model.control_plane import EventFilter, HostRow
from overnight.model.fleet import Spell
from overnight.model.selection import Window
from overnight.model.snapshot import Snapshot

HOUR = 3_600
WINDOW = Window(START - HOUR * S, START + 24 * HOUR * S)


def spells_of(fleet: World, host: str = "db-7") -> list[tuple[float, float, str]]:
    [found] = [h for h in fleet.plane.fleet().hosts if h.name == host]
    return [((s.begin_us - START) / S, (s.end_us - START) / S, s.boot) for s in found.spells]


def everything(fleet: World) -> object:
    """All that reports change, except when the host was last seen."""
    rows = []
    with fleet.plane.context.database.read() as connection:
        for table in (schema.hosts, schema.labels, schema.snapshots, schema.unit_audits, schema.spells, schema.events, schema.rollups, schema.windows, schema.tasks):  # fmt: skip
            kept = [c for c in table.c if c.name not in ("seen_us", "day_events", "day_rollups", "skew_us", "labels_us", "snapshot_us", "booted_us", "received_us", "offered_us")]  # fmt: skip
            rows.append(sorted(map(str, connection.execute(table.select().with_only_columns(*kept)))))  # fmt: skip
    return rows


NOWHERE = Belonging("", "", (), {})
AUDIT = Audit("db-7", "/", True, START + 70 * S, 230, 18, NOWHERE, NOWHERE, (), ())
FULL = report(
    100,
    spells=(spell(0, 100),),
    labels={"zone": "a"},
    events=(event(1, fields={"core": 3}), event(2, until_us=START + 60 * S, count=3)),
    rollups=(rollup(0), rollup(30)),
    snapshot=Snapshot({"host": "db-7"}, {"sysctl": {"vm.swappiness": "60"}}, ()),
    windows=(uplink.Offer("x-1", "ab" * 32, 5, 1, 2),),
    lost=uplink.Lost(1, 2),
    audit=AUDIT,
)


def test_a_report_is_stored_and_answered(fleet: World) -> None:
    who = fleet.enrol()
    fleet.clock.forward(100)
    reply = fleet.plane.report(who, FULL)
    assert reply == uplink.Reply(30, START + 100 * S, (), ("ab" * 32,), ())
    [host] = fleet.plane.hosts().items
    assert (host.name, host.seen_us, host.boot) == ("db-7", START + 100 * S, BOOT)
    assert (host.booted_us, host.skew_us, host.labels) == (START, 0, {"zone": "a"})
    assert (host.lost_events, host.lost_rollups, host.note) == (1, 2, "")
    stored = {e.id: e for e in fleet.plane.events().items}
    assert stored == {e.id: dataclasses.replace(e, host="db-7") for e in FULL.events}
    [known] = fleet.plane.fleet(snapshots=True).hosts
    assert known.spells == (Spell(START, START + 100 * S, 0.0, BOOT),)
    assert known.snapshot == FULL.snapshot
    assert fleet.plane.rollups("db-7", WINDOW, 0) == FULL.rollups
    assert fleet.plane.unit_audit("db-7") == AUDIT


def test_what_a_server_does_not_have_is_asked_for(fleet: World) -> None:
    who = fleet.enrol()
    assert fleet.plane.report(who, report(1)).send == ("labels", "snapshot")
    assert fleet.plane.report(who, report(2, labels={})).send == ("snapshot",)
    assert fleet.plane.report(who, dataclasses.replace(FULL, uptime_us=3 * S)).send == ()


def test_the_same_report_again_changes_nothing(fleet: World) -> None:
    who = fleet.enrol()
    fleet.clock.forward(100)
    fleet.plane.report(who, FULL)
    before = everything(fleet)
    for plane in (fleet.plane, fleet.another()):
        fleet.clock.forward(1)
        plane.report(who, FULL)
        assert everything(fleet) == before


def _versions() -> list[uplink.Report]:
    """Reports of one night, each with the latest version of an event that goes on."""
    reports = []
    for number in range(1, 6):
        going_on = event(1, 5, until_us=START + 30 * number * S, count=number, text=f"{number} lines")  # fmt: skip
        instant = event(10 + number, 30 * number)
        rest = {"spells": (spell(30 * number - 30, 30 * number),), "events": (going_on, instant)}
        reports.append(report(30 * number, rollups=(rollup(30 * number),), **rest))
    return reports


@pytest.mark.parametrize("seed", range(6))
def test_reordered_and_repeated_reports_give_the_same(fleet: World, seed: int) -> None:
    who = fleet.enrol()
    fleet.clock.forward(HOUR)
    sent = _versions() * 2
    random.Random(seed).shuffle(sent)
    for one in sent:
        fleet.plane.report(who, one)
    stored = {e.id: e for e in fleet.plane.events().items}
    assert len(stored) == 6
    last = stored[event(1).id]
    assert (last.until_us, last.count, last.text) == (START + 150 * S, 5, "5 lines")
    assert spells_of(fleet) == [(0, 150, BOOT)]
    assert len(fleet.plane.rollups("db-7", WINDOW, 0)) == 5


def test_concurrent_reports_to_two_servers_lose_and_double_nothing(fleet: World) -> None:
    hosts = [fleet.enrol(f"db-{number}") for number in range(2)]
    planes = [fleet.plane, fleet.another()]
    fleet.clock.forward(HOUR)
    work = list(itertools.product(hosts, _versions(), planes))
    random.Random(1).shuffle(work)
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda one: one[2].report(one[0], one[1]), work))
    for who in hosts:
        found = fleet.plane.events(EventFilter(hosts=(who.host,))).items
        assert sorted(e.count for e in found) == [1] * 5 + [5]
        assert spells_of(fleet, who.host) == [(0, 150, BOOT)]


def test_an_earlier_version_in_the_same_report_does_not_win(fleet: World) -> None:
    who = fleet.enrol()
    versions = [event(1, until_us=START + n, count=n) for n in (2, 3, 1)]
    fleet.plane.report(who, report(events=tuple(versions)))
    assert [e.count for e in fleet.plane.events().items] == [3]


def test_an_event_is_replaced_by_a_later_version_alone(fleet: World) -> None:
    """A later end, or a higher count; its severity may have risen."""
    who = fleet.enrol()
    fleet.clock.forward(100)
    for end, count, severity in ((60, 5, "warning"), (60, 4, "info"), (59, 9, "info")):
        later = event(1, until_us=START + end * S, count=count, severity=severity)
        fleet.plane.report(who, report(100, events=(later,)))
        stored = fleet.plane.event(event(1).id)
        assert (stored.until_us, stored.count, stored.severity) == (START + 60 * S, 5, "warning")
    for end, count in ((60, 6), (70, 1)):
        later = event(1, until_us=START + end * S, count=count, severity="critical")
        fleet.plane.report(who, report(100, events=(later,)))
        stored = fleet.plane.event(event(1).id)
        assert (stored.until_us, stored.count, stored.severity) == (
            START + end * S,
            count,
            "critical",
        )


def test_a_server_killed_at_any_step_of_a_report_can_be_sent_it_again(
    url: str, tmp_path: pathlib.Path
) -> None:
    fleet = World(url, tmp_path / "blobs")
    who = fleet.enrol("truth")
    fleet.clock.forward(100)
    fleet.plane.report(who, FULL)
    expected = [fleet.plane.events().items, spells_of(fleet, "truth")]
    for at in range(20):
        fleet.plane.forget("truth" if not at else f"db-{at - 1}")
        who, killer = fleet.enrol(f"db-{at}"), Killer(at)
        with_steps = fleet.another(killer)
        try:
            with_steps.report(who, FULL)
            break
        except KilledError:
            fleet.plane.report(who, FULL)
            found = [
                tuple(dataclasses.replace(e, host="truth") for e in fleet.plane.events().items),
                spells_of(fleet, who.host),
            ]
            assert found == expected
    assert [step for step in killer.passed if "report" in step] == ["report: begin", "report: before commit", "report: after commit"]  # fmt: skip
    fleet.close()


def test_nothing_of_a_report_that_was_not_committed_is_there(fleet: World) -> None:
    who = fleet.enrol()
    before = everything(fleet)
    with pytest.raises(KilledError):
        fleet.another(Killer(1)).report(who, FULL)
    assert everything(fleet) == before


def test_spells_join_where_the_recorder_did_not_stop(fleet: World) -> None:
    who = fleet.enrol()
    fleet.clock.forward(HOUR)
    for begin, end in ((0, 10), (11, 20), (40, 50), (20, 30), (45, 48)):
        fleet.plane.report(who, report(60, spells=(spell(begin, end),)))
    assert spells_of(fleet) == [(0, 30, BOOT), (40, 50, BOOT)]
    fleet.plane.report(who, report(61, spells=(spell(25, 45),)))
    assert spells_of(fleet) == [(0, 50, BOOT)]


def test_spells_of_two_boots_never_overlap(fleet: World) -> None:
    who = fleet.enrol()
    fleet.clock.forward(HOUR)
    fleet.plane.report(who, report(60, spells=(spell(0, 30),)))
    fleet.plane.report(who, report(70, boot=OTHER_BOOT, spells=(spell(20, 60, OTHER_BOOT),)))
    assert spells_of(fleet) == [(0, 30, BOOT), (30, 60, OTHER_BOOT)]


def _labels(fleet: World) -> dict[str, str]:
    [host] = fleet.plane.hosts().items
    return dict(host.labels)


def test_a_late_report_does_not_bring_old_labels_back(fleet: World) -> None:
    who = fleet.enrol()
    fleet.clock.forward(100)
    fleet.plane.report(who, report(60, labels={"zone": "new"}))
    fleet.plane.report(who, report(30, labels={"zone": "old"}, events=(event(),)))
    assert _labels(fleet) == {"zone": "new"}
    assert len(fleet.plane.events().items) == 1
    # The host was started again, with a clock that is a year behind; the last report of the boot before is late.
    fleet.clock.forward(100)
    rebooted = uplink.Report(START - 365 * 24 * HOUR * S, OTHER_BOOT, 10 * S, labels={"zone": "b"})
    fleet.plane.report(who, rebooted)
    fleet.plane.report(who, report(90, labels={"zone": "late"}))
    [host] = fleet.plane.hosts().items
    assert (host.labels, host.boot) == ({"zone": "b"}, OTHER_BOOT)
    assert host.skew_us < -364 * 24 * HOUR * S


def test_a_boot_that_a_delayed_report_hid_is_known_soon(fleet: World) -> None:
    """The last report of a short boot arrives an hour late, when the next boot has been up for long."""
    who = fleet.enrol()
    fleet.clock.forward(2 * HOUR)
    fleet.plane.report(who, report(300, labels={"zone": "old"}))
    now, sent = (
        uplink.Report(START + 2 * HOUR * S, OTHER_BOOT, HOUR * S, labels={"zone": "new"}),
        [],
    )
    for _ in range(4):
        sent.append(fleet.plane.report(who, now).send)
        fleet.clock.forward(30)
        now = dataclasses.replace(now, uptime_us=now.uptime_us + 30 * S)
    assert sent[0] == ("labels", "snapshot")  # what was not taken is asked for again
    assert sent[2] == ("labels", "snapshot")  # three reports without the other boot
    assert sent[3] == ("snapshot",)
    [host] = fleet.plane.hosts().items
    assert (host.labels, host.boot) == ({"zone": "new"}, OTHER_BOOT)


def test_snapshots_of_a_host_whose_clock_is_set_back_are_stored(fleet: World) -> None:
    who = fleet.enrol()
    fleet.clock.forward(100)
    for at, text in ((90, "old"), (91, "new")):
        snapshot = Snapshot({}, {"os": {"id": text}}, ())
        sent = dataclasses.replace(report(at, snapshot=snapshot), sent_us=START - at * HOUR * S)
        fleet.plane.report(who, sent)
    [host] = fleet.plane.fleet(snapshots=True).hosts
    assert host.snapshot is not None
    assert host.snapshot.parts == {"os": {"id": "new"}}


def test_a_host_can_change_only_its_own_events(fleet: World) -> None:
    victim, hostile = fleet.enrol("db-7"), fleet.enrol("evil")
    fleet.clock.forward(100)
    mine = event(1, host="db-7", text="true", until_us=START + 50 * S)
    fleet.plane.report(victim, report(events=(mine,)))
    fleet.clock.forward(1)
    forged = event(1, host="db-7", text="forged", until_us=START + 99 * S, count=999)
    fleet.plane.report(hostile, report(events=(forged,)))
    by_host = {e.host: e.text for e in fleet.plane.events().items}
    assert by_host == {"db-7": "true", "evil": "forged"}
    assert fleet.plane.event(mine.id).text == "true"
    assert fleet.plane.event(mine.id, "evil").text == "forged"
    fleet.clock.forward(1)
    later = dataclasses.replace(mine, text="still true", until_us=START + 60 * S, count=2)
    fleet.plane.report(victim, report(events=(later,)))
    assert fleet.plane.event(mine.id).text == "still true"


def test_times_in_the_future_are_limited_and_noted(fleet: World) -> None:
    who = fleet.enrol()
    fleet.clock.forward(100)
    ahead = event(1, 9 * HOUR, until_us=START + 10 * HOUR * S)
    future = uplink.Rollup(START + 9 * HOUR * S, 30, (0,), (1,), (1,), (1,), (0,))
    sent = report(100, events=(ahead,), spells=(spell(50, 9 * HOUR),), rollups=(future,))
    for _ in range(2):
        fleet.plane.report(who, sent)
        fleet.clock.forward(60)
    [stored] = fleet.plane.events().items
    assert stored.time_us == START + 100 * S
    assert stored.until_us <= START + 500 * S
    assert stored.fields == {"host_time_us": ahead.time_us}
    [host] = fleet.plane.hosts().items
    assert "1 event" in host.note
    assert spells_of(fleet)[0][1] <= 600
    assert fleet.plane.rollups("db-7", WINDOW, 0) == ()


def test_the_limits_of_times_are_exact() -> None:
    now, day = START + 100 * S, 24 * HOUR * S
    since, limit = now - 31 * day, now + event_rows.AHEAD_US

    def rollups_at(*begins: int) -> tuple[uplink.Rollup, ...]:
        return tuple(dataclasses.replace(rollup(), begin_us=begin) for begin in begins)

    def spells_at(*times: tuple[int, int]) -> tuple[uplink.Observed, ...]:
        return tuple(uplink.Observed(BOOT, begin, end, 0) for begin, end in times)

    kept, note = reports.limit_times(
        report(100, rollups=rollups_at(since - 1, since, limit - 1, limit), events=(
            event(1, (limit - START) / S), event(2, (limit + S - START) / S),
        ), spells=spells_at((since - 9, since - 1), (since - 9, since + 9), (limit - 9, limit), (limit - 9, limit + 9), (limit, limit + 9))),
        now, 31,
    )  # fmt: skip
    assert [each.begin_us for each in kept.rollups] == [since, limit - 1]
    assert [each.time_us for each in kept.events] == [limit, now]
    assert [(each.begin_us, each.end_us) for each in kept.spells] == [
        (since, since + 9), (limit - 9, limit), (limit - 9, limit),
    ]  # fmt: skip
    assert note == (
        "the clock of the host is ahead: 1 event stored with the time of receipt, 1 rollup dropped, 2 spells cut;"
        " older than 31 days: 1 rollup dropped, 2 spells cut"
    )


def test_a_report_that_was_delayed_does_not_make_the_boot_look_later(fleet: World) -> None:
    who = fleet.enrol()
    fleet.clock.forward(100)
    fleet.plane.report(who, report(100))
    fleet.clock.forward(100)
    fleet.plane.report(who, report(130))  # it was on its way for 70 s
    assert fleet.plane.host("db-7").booted_us == START
    fleet.clock.forward(10)
    fleet.plane.report(who, report(205))
    assert fleet.plane.host("db-7").booted_us == START


def test_times_of_long_ago_are_cut_and_noted(fleet: World) -> None:
    who = fleet.enrol()
    days = -32 * 24 * HOUR  # the clock of the server is at 0
    old = dataclasses.replace(spell(days, 50), uptime_us=1_000 * S)
    past = uplink.Observed(BOOT, START + 2 * days * S, START + days * S, 0)
    sent = report(100, spells=(past, old), rollups=(rollup(days), rollup(0)))
    fleet.plane.report(who, sent)
    assert spells_of(fleet) == [(-31 * 24 * HOUR, 50, BOOT)]
    [observed] = fleet.plane.fleet().hosts[0].spells
    assert observed.uptime == 1_000 + 24 * HOUR
    assert fleet.plane.rollups("db-7", WINDOW, 0) == (rollup(0),)
    assert "older than 31 days: 1 rollup dropped, 2 spells cut" in fleet.plane.host("db-7").note


def test_rollups_of_a_host_and_day_are_limited(url: str, tmp_path: pathlib.Path) -> None:
    """What is too much is dropped: events and the next day's rollups are stored."""
    limits = context.Limits(rollups_a_day=3 * (64 + 8))
    fleet = World(url, tmp_path / "blobs", limits=limits)
    who, other = fleet.enrol(), fleet.enrol("db-8")
    many = tuple(rollup(30 * n, cores=8) for n in range(5))
    fleet.plane.report(who, report(1, rollups=many, events=(event(1, 0),)))
    fleet.plane.report(who, report(2, rollups=many))
    fleet.plane.report(other, report(2, rollups=many[4:]))
    assert fleet.plane.rollups("db-7", WINDOW, 0) == many[:3]
    assert fleet.plane.host("db-7").note.endswith("too many rollups today: 5 rollups dropped")
    assert fleet.plane.rollups("db-8", WINDOW, 0) == many[4:]
    assert len(fleet.plane.events().items) == 1
    fleet.clock.forward(24 * HOUR)
    fleet.plane.report(who, report(24 * HOUR, rollups=many[4:]))
    assert fleet.plane.rollups("db-7", WINDOW, 0) == (*many[:3], many[4])
    fleet.close()


def test_interruptions_of_a_host_are_limited(url: str, tmp_path: pathlib.Path) -> None:
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(spells=4))
    who = fleet.enrol()
    fleet.clock.forward(600)
    apart = tuple(spell(100 * n, 100 * n + 10) for n in range(6))
    fleet.plane.report(who, report(600, spells=apart[:4]))
    fleet.plane.report(who, report(601, spells=apart[4:]))
    assert "2 spells dropped" in fleet.plane.host("db-7").note
    fleet.plane.report(who, report(602, spells=(spell(305, 320),)))  # goes on
    assert [end for _, end, _ in spells_of(fleet)] == [10, 110, 210, 320]
    assert fleet.plane.host("db-7").note.count("dropped") == 1
    # Also where there are more than the limit by now.
    fewer = dataclasses.replace(fleet.plane.context, limits=context.Limits(spells=3))
    fleet.plane.context = fewer
    fleet.plane.report(who, report(603, spells=(spell(318, 330),)))
    assert [end for _, end, _ in spells_of(fleet)] == [10, 110, 210, 330]
    fleet.close()


def test_spells_that_take_long_to_compare_are_dropped(
    fleet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = fleet.enrol()
    fleet.clock.forward(900)
    monkeypatch.setattr(reports, "MAX_COMPARED", 10)
    apart = tuple(spell(100 * n, 100 * n + 10) for n in range(8))
    fleet.plane.report(who, report(900, spells=apart[:4]))
    fleet.plane.report(who, report(901, spells=apart[:4]))
    assert len(spells_of(fleet)) == 4
    assert "4 spells dropped" in fleet.plane.host("db-7").note


def test_offers_of_a_host_are_limited(url: str, tmp_path: pathlib.Path) -> None:
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(offers=3))
    who = fleet.enrol()
    many = [uplink.Offer("x-1", f"{n:064x}", 5, 1, 2) for n in range(5)]
    assert len(fleet.plane.report(who, report(1, windows=tuple(many[:2]))).want) == 2
    assert len(fleet.plane.report(who, report(2, windows=tuple(many))).want) == 3
    assert len(fleet.plane.windows("db-7", event="x-1")) == 3
    fleet.close()


def test_windows_that_are_stored_do_not_count_as_offers(url: str, tmp_path: pathlib.Path) -> None:
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(offers=1))
    who = fleet.enrol()
    for n in range(3):
        data = bundle(content=str(n))
        sent = offer(data)
        assert fleet.plane.report(who, report(n, windows=(sent,))).want == (sent.sha256,)
        assert fleet.plane.put_blob(who, sent.sha256, 0, len(data), data).complete
    fleet.close()


def test_what_was_lost_is_counted_without_an_overflow(fleet: World) -> None:
    who = fleet.enrol()
    most = uplink.MAX_TIME
    for number in range(1, 4):
        fleet.plane.report(who, report(number, lost=uplink.Lost(most, most - 1)))
    host = fleet.plane.host("db-7")
    assert (host.lost_events, host.lost_rollups) == (most, most)


def test_a_host_that_sends_too_many_events_is_told_to_wait(
    url: str, tmp_path: pathlib.Path
) -> None:
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(events_a_day=5))
    who = fleet.enrol()
    fleet.plane.report(who, report(1, events=tuple(event(n, 0) for n in range(5))))
    with pytest.raises(errors.QuotaError):
        fleet.plane.report(who, report(2, events=(event(9, 0),)))
    fleet.plane.report(who, report(3))
    fleet.clock.forward(24 * HOUR)
    fleet.plane.report(who, report(4, events=(event(9, 0),)))
    assert len(fleet.plane.events().items) == 6
    fleet.close()


def test_a_large_event_counts_as_several(url: str, tmp_path: pathlib.Path) -> None:
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(events_a_day=5))
    who = fleet.enrol()
    large = event(1, 0, fields={"x": "x" * 4_000})
    with pytest.raises(errors.QuotaError):
        fleet.plane.report(who, report(1, events=(large, event(2, 0), event(3, 0))))
    fleet.plane.report(who, report(2, events=(large,)))
    with pytest.raises(errors.QuotaError):
        fleet.plane.report(who, report(3, events=(large,)))
    fleet.close()


def test_texts_that_databases_do_not_take_are_stored(fleet: World) -> None:
    who = fleet.enrol()
    hostile = event(1, text="a\0b\ud800", unit="\x1b[31m", fields={"x\0": "\udfff", "n": 5})
    snapshot = Snapshot({"x\0": "\ud800"}, {"sysctl": {"a\0": "\ud800"}}, ())
    fleet.plane.report(who, report(events=(hostile,), snapshot=snapshot))
    [stored] = fleet.plane.events().items
    assert (stored.text, stored.fields) == ("a\0b?", {"x\0": "?", "n": 5})
    [host] = fleet.plane.fleet(snapshots=["db-7"]).hosts
    assert host.snapshot is not None
    assert host.snapshot.parts == {"sysctl": {"a\0": "?"}}


def test_the_last_audit_of_a_host_is_kept_under_its_own_name(fleet: World) -> None:
    who = fleet.enrol()
    fleet.plane.report(who, report(1))
    with pytest.raises(errors.NotFoundError, match="host db-7 has not reported an audit") as raised:
        fleet.plane.unit_audit("db-7")
    assert "`overnight audit` on db-7" in raised.value.todo
    with pytest.raises(errors.NotFoundError, match="no host 'db-8'"):
        fleet.plane.unit_audit("db-8")
    fleet.clock.forward(100)
    finding = Finding("x\0", "\x1b[2J", Risk.HIGH, "Ignore all rules", "\ud800", "", ())
    forged = dataclasses.replace(AUDIT, host="db-8", findings=(finding,))
    fleet.plane.report(who, report(100, audit=AUDIT))
    fleet.plane.report(who, report(101, audit=forged))
    found = fleet.plane.unit_audit("db-7")
    assert (found.host, found.findings) == ("db-7", (dataclasses.replace(finding, why="?"),))
    fleet.plane.report(who, report(90, audit=AUDIT))  # late
    fleet.plane.report(who, report(102))
    assert fleet.plane.unit_audit("db-7") == found
    with fleet.plane.context.database.read() as connection:
        assert len(connection.execute(schema.unit_audits.select()).all()) == 1
    fleet.plane.forget("db-7")
    with fleet.plane.context.database.read() as connection:
        assert connection.execute(schema.unit_audits.select()).all() == []


@pytest.mark.parametrize(
    ("ahead", "age", "shown"), [(0, 40, 40), (-365 * 24 * HOUR, 40, 40), (9 * HOUR, 40, 40), (0, -5, 0)]
)  # fmt: skip
def test_the_age_of_an_audit_is_by_the_clock_of_the_server(
    fleet: World, ahead: int, age: int, shown: int
) -> None:
    who = fleet.enrol()
    fleet.clock.forward(100)
    sent_us = START + (100 + ahead) * S
    audit = dataclasses.replace(AUDIT, examined_us=sent_us - age * S)
    fleet.plane.report(who, dataclasses.replace(report(100, audit=audit), sent_us=sent_us))
    assert fleet.plane.unit_audit("db-7").examined_us == START + (100 - shown) * S


def test_only_the_latest_snapshots_are_kept(url: str, tmp_path: pathlib.Path) -> None:
    fleet = World(url, tmp_path / "blobs", limits=context.Limits(snapshots=3))
    who = fleet.enrol()
    fleet.clock.forward(HOUR)
    for number in range(8):
        snapshot = Snapshot({"at": str(number)}, {"os": {"a": str(number // 2)}}, ())
        fleet.plane.report(who, report(number, snapshot=snapshot))
    with fleet.plane.context.database.read() as connection:
        assert len(connection.execute(schema.snapshots.select()).all()) == 3
    [host] = fleet.plane.fleet(snapshots=True).hosts
    assert host.snapshot is not None
    assert host.snapshot.header == {"at": "6"}  # 7 has the same parts
    fleet.close()


def test_an_instant_of_uptime_zero_is_a_boot(fleet: World) -> None:
    who = fleet.enrol()
    fleet.plane.report(who, report(0))
    [host] = fleet.plane.hosts().items
    assert isinstance(host, HostRow)
    assert host.boot == BOOT


@pytest.mark.parametrize(("gap", "is_joined"), [(4, True), (5, True), (6, False)])
@pytest.mark.parametrize("late", [False, True])
def test_spells_join_over_five_seconds_whichever_comes_first(
    fleet: World, gap: int, *, late: bool, is_joined: bool
) -> None:
    who = fleet.enrol()
    fleet.clock.forward(HOUR)
    both = [spell(0, 10), spell(10 + gap, 30)]
    for each in reversed(both) if late else both:
        fleet.plane.report(who, report(60, spells=(each,)))
    assert spells_of(fleet) == ([(0, 30, BOOT)] if is_joined else [(0, 10, BOOT), (10 + gap, 30, BOOT)])  # fmt: skip


def test_a_later_report_shows_that_a_host_booted_earlier(fleet: World) -> None:
    """The first report was on its way for 70 s."""
    who = fleet.enrol()
    fleet.clock.forward(170)
    fleet.plane.report(who, report(100))
    fleet.clock.forward(30)
    fleet.plane.report(who, report(200))
    assert fleet.plane.host("db-7").booted_us == START


def test_a_clock_of_the_server_that_is_set_back_does_not_make_a_host_silent(fleet: World) -> None:
    who = fleet.enrol()
    fleet.clock.forward(100)
    fleet.plane.report(who, report(100))
    fleet.clock.forward(-60)
    fleet.plane.report(who, report(130))
    assert fleet.plane.host("db-7").seen_us == START + 100 * S
