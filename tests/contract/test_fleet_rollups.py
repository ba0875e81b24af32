"""Rollups: rows first, then a file of each day; nothing is lost or counted twice on the way."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from typing import TYPE_CHECKING

import pytest
from fleetworld import DAY, START, S, World, report, rollup
from killer import KilledError, Killer

from overnight import errors
from overnight.fleet import context, rollups
from overnight.fleet.sql import schema
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.fleet import control
    from overnight.model.uplink import Rollup

TODAY = START // DAY
WINDOW = Window((TODAY - 2) * DAY, (TODAY + 2) * DAY)
SENT = tuple(rollup(30 * number, busy=number % 90) for number in range(60))


def send(fleet: World, *sent: Rollup) -> None:
    who = fleet.plane.agents.authenticate(fleet.credential)  # type: ignore[attr-defined]
    assert who is not None
    fleet.plane.report(who, report(1, rollups=sent))


@pytest.fixture(autouse=True)
def _enrolled(fleet: World) -> None:
    fleet.credential = "c" * 40  # type: ignore[attr-defined]
    fleet.enrol("db-7", "c" * 40)
    fleet.clock.forward(7_200)


def rows(fleet: World) -> int:
    with fleet.plane.context.database.read() as connection:
        return len(connection.execute(schema.rollups.select()).all())


def compact(plane: control.ControlPlane, least_level: int = 0) -> bool:
    return plane.compact(plane.host("db-7").id, "db-7", TODAY, least_level)


def read(fleet: World, level: int = 0) -> tuple[Rollup, ...]:
    return fleet.plane.rollups("db-7", WINDOW, level)


def test_a_compacted_day_is_read_as_it_was_sent(fleet: World) -> None:
    send(fleet, *SENT)
    assert read(fleet) == SENT
    before = [read(fleet, level) for level in range(3)]
    assert compact(fleet.plane)
    assert rows(fleet) == 0
    assert [read(fleet, level) for level in range(3)] == before
    [file] = fleet.folder.glob("rollups/v1/db-7/*.parquet")
    assert file.name.startswith("20270115-")
    part = Window(START + 60 * S, START + 120 * S)
    assert fleet.plane.rollups("db-7", part) == SENT[2:4]


def test_an_answer_and_a_step_of_a_compaction_are_limited(
    fleet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "MAX_ROWS", 100)  # of 2 cores: 50 intervals
    part = Window(START, START + 30 * 49 * S)
    send(fleet, *SENT)
    for expected in (11, 0, 0):
        with pytest.raises(errors.UsageError, match="too many intervals of db-7"):
            read(fleet)
        compact(fleet.plane)
        assert rows(fleet) == max(0, expected - 2)
    assert fleet.plane.rollups("db-7", part, 0) == SENT[:49]
    monkeypatch.undo()
    assert read(fleet) == SENT


def test_levels_keep_the_greatest_value_and_its_time(fleet: World) -> None:
    peak = dataclasses.replace(rollup(90, busy=10), max=(10, 100), worst_ms=(0, 17_000))
    send(fleet, rollup(60), peak, rollup(660))
    assert compact(fleet.plane)
    for level, slot in ((1, 600), (2, 3_600)):
        first = read(fleet, level)[0]
        assert first.begin_us == START // (slot * S) * slot * S
        assert first.max == (10, 100)
        assert first.begin_us + first.worst_ms[1] * 1_000 == START + 107 * S
        assert first.mean == (5, 5)


def test_a_day_is_compacted_again_and_again(fleet: World) -> None:
    for part in (SENT[:20], SENT[20:40], SENT[10:60]):
        send(fleet, *part)
        compact(fleet.plane)
    assert read(fleet) == SENT
    send(fleet, rollup(5_000, busy=77))
    assert [r.max for r in read(fleet)] == [r.max for r in SENT] + [(77, 77)]
    levels = [read(fleet, level) for level in range(3)]
    compact(fleet.plane)
    assert [read(fleet, level) for level in range(3)] == levels
    assert len([*fleet.folder.glob("rollups/v1/db-7/*")]) == 1


def test_rollups_that_are_sent_again_count_once(fleet: World) -> None:
    send(fleet, *SENT)
    levels = [read(fleet, level) for level in range(3)]
    for _ in range(2):
        compact(fleet.plane)
        send(fleet, *SENT)
        assert [read(fleet, level) for level in range(3)] == levels


def test_a_server_killed_at_any_step_of_a_compaction_loses_nothing(fleet: World) -> None:
    send(fleet, *SENT[:30])
    compact(fleet.plane)
    send(fleet, *SENT[30:])
    levels = [read(fleet, level) for level in range(3)]
    for at in range(20):
        killer = Killer(at)
        try:
            plane = fleet.another(killer)
            assert compact(plane)
            break
        except KilledError:
            assert [read(fleet, level) for level in range(3)] == levels
            fleet.clock.forward(rollups.LOCK_US // S + 1)  # the lock of the dead ends
    assert "compact: file written" in killer.passed
    assert rows(fleet) == 0
    assert [read(fleet, level) for level in range(3)] == levels


def test_one_of_two_servers_compacts_a_day(fleet: World) -> None:
    send(fleet, *SENT)
    planes = [fleet.plane, fleet.another()]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        work = [threads.submit(compact, planes[n % 2]) for n in range(6)]
        while not all(one.done() for one in work):
            assert read(fleet) == SENT  # at every moment
    assert any(one.result() for one in work)
    assert read(fleet) == SENT
    assert len([*fleet.folder.glob("rollups/v1/db-7/*")]) == 1


def test_a_server_that_lost_its_lock_changes_nothing(fleet: World) -> None:
    send(fleet, *SENT[:30])

    def overtaken(step: str) -> None:
        if step == "compact: file written":
            fleet.clock.forward(rollups.LOCK_US // S + 1)
            send(fleet, *SENT[30:])
            assert compact(fleet.plane)

    assert not compact(fleet.another(overtaken))
    assert read(fleet) == SENT
    assert len([*fleet.folder.glob("rollups/v1/db-7/*")]) == 1


def test_a_server_that_lost_its_lock_to_one_that_died_deletes_nothing(fleet: World) -> None:
    send(fleet, *SENT)

    def die(step: str) -> None:
        if step == "compact: file written":
            raise KilledError

    def overtaken(step: str) -> None:
        if step == "compact: file written":
            fleet.clock.forward(rollups.LOCK_US // S + 1)
            with pytest.raises(KilledError):
                compact(fleet.another(die))

    assert not compact(fleet.another(overtaken))
    assert (rows(fleet), read(fleet)) == (len(SENT), SENT)


def test_a_slot_at_the_end_of_the_window_is_whole(fleet: World) -> None:
    """Its peak is after the end: it is shown before the day is compacted as afterwards."""
    slot = START // (600 * S) * 600 * S
    sent = [dataclasses.replace(rollup(0, busy), begin_us=slot + at * S) for at, busy in ((0, 10), (300, 90))]  # fmt: skip
    send(fleet, *sent)
    window = Window(slot, slot + 200 * S)
    before = fleet.plane.rollups("db-7", window, 1)
    assert [each.max for each in before] == [(90, 90)]
    compact(fleet.plane)
    assert fleet.plane.rollups("db-7", window, 1) == before


def test_what_arrives_during_a_compaction_stays(fleet: World) -> None:
    send(fleet, *SENT[:30])

    def more(step: str) -> None:
        if step == "compact: file written":
            send(fleet, *SENT[30:])

    assert compact(fleet.another(more))
    assert (rows(fleet), read(fleet)) == (30, SENT)


def test_maintenance_compacts_what_is_due(fleet: World) -> None:
    send(fleet, *SENT)
    assert fleet.plane.maintain() == 0  # few, and of today
    fleet.clock.forward(86_400)
    assert fleet.plane.maintain() == 1
    assert (rows(fleet), read(fleet)) == (0, SENT)


def test_old_levels_and_days_are_removed(fleet: World) -> None:
    limits = context.Limits(rollup_days=(2, 4, 6))
    fleet.plane.context = fleet.plane._rollups._control = dataclasses.replace(
        fleet.plane.context, limits=limits
    )
    send(fleet, *SENT)
    levels = [read(fleet, level) for level in range(3)]
    for day in range(9):
        fleet.plane.maintain()
        kept = [level for level, days in enumerate((2, 4, 6)) if day <= days]
        expected = [level if number in kept else () for number, level in enumerate(levels)]
        assert [read(fleet, level) for level in range(3)] == expected, day
        assert fleet.plane.maintain() == 0  # it is done
        fleet.clock.forward(86_400)
    assert not [*fleet.folder.glob("rollups/v1/db-7/*")]


def test_late_rollups_of_a_day_without_its_fine_level_are_added(fleet: World) -> None:
    send(fleet, *SENT[:20])
    compact(fleet.plane, least_level=1)
    assert read(fleet) == ()
    [*coarse] = read(fleet, 1)
    late = dataclasses.replace(rollup(60), max=(99, 99), begin_us=SENT[0].begin_us + 7)
    send(fleet, late)
    compact(fleet.plane)
    assert read(fleet) == ()
    after = read(fleet, 1)
    assert len(after) == len(coarse)
    assert after[0].max == (99, 99)
    assert after[1:] == tuple(coarse[1:])


def test_other_hosts_and_times_have_none(fleet: World) -> None:
    for unknown in ("db-8", "db-\0"):
        with pytest.raises(errors.NotFoundError):
            fleet.plane.rollups(unknown, WINDOW)
    assert compact(fleet.plane)
    assert read(fleet) == ()
    assert fleet.plane.rollups("db-7", Window(0, DAY)) == ()
    assert not [*fleet.folder.glob("rollups/v1/*/*")]


@pytest.mark.parametrize(
    ("seconds", "level"), [(6 * 3_600, 0), (6 * 3_600 + 1, 1), (7 * 86_400, 1), (7 * 86_400 + 1, 2)]
)
def test_a_longer_window_has_a_coarser_level(
    fleet: World, monkeypatch: pytest.MonkeyPatch, seconds: int, level: int
) -> None:
    levels: list[int] = []
    monkeypatch.setattr(fleet.plane._rollups, "_read", lambda *given: levels.append(given[2]))
    fleet.plane.rollups("db-7", Window(START, START + seconds * S))
    assert levels == [level]


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(
    fleet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(fleet, *SENT[:30])
    compact(fleet.plane)
    load = fleet.plane._rollups._load
    loads: list[str] = []

    def replace_first(name: str, *given: int) -> object:
        loads.append(name)
        if len(loads) == 1:
            send(fleet, *SENT[30:])
            compact(fleet.another())
        return load(name, *given)

    monkeypatch.setattr(fleet.plane._rollups, "_load", replace_first)
    assert read(fleet) == SENT
    assert len({*loads}) == 2


def test_a_file_that_stays_away_is_an_error(fleet: World) -> None:
    send(fleet, *SENT)
    compact(fleet.plane)
    [file] = fleet.folder.glob("rollups/v1/db-7/*.parquet")
    file.unlink()
    with pytest.raises((errors.CannotError, OSError)):
        read(fleet)


@pytest.mark.parametrize(("most", "files"), [(len(SENT), 1), (len(SENT) + 1, 0)])
def test_a_day_with_many_rows_is_compacted_before_it_is_over(
    fleet: World, most: int, files: int
) -> None:
    limits = context.Limits(rollup_rows=most)
    own = dataclasses.replace(fleet.plane.context, limits=limits)
    fleet.plane.context = fleet.plane._rollups._control = own
    send(fleet, *SENT)
    assert fleet.plane.maintain() == files
    assert read(fleet) == SENT


def test_a_forgotten_host_leaves_no_file_and_takes_none_of_another(fleet: World) -> None:
    send(fleet, *SENT)
    compact(fleet.plane)
    other = fleet.enrol("db-8")
    fleet.plane.report(other, report(1, rollups=SENT))
    fleet.plane.compact(other.host_id, "db-8", TODAY)
    fleet.plane.forget("db-7")
    assert [path.parent.name for path in fleet.folder.glob("rollups/v1/*/*")] == ["db-8"]
    assert fleet.plane.rollups("db-8", WINDOW, 0) == SENT


def test_maintenance_sweeps_what_the_database_does_not_know_once_a_day(
    fleet: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(fleet, *SENT)
    compact(fleet.plane)
    monotonic, wall, ahead = time.monotonic, time.time(), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + ahead[0])
    monkeypatch.setattr(time, "time", lambda: wall + 8 * 86_400)
    left = fleet.folder / "rollups/v1/db-7/20270115-0.parquet"
    for hours, is_there in ((0, True), (25, False), (26, True), (50, False)):
        left.touch()
        ahead[0] = hours * 3_600.0
        fleet.plane.maintain()
        assert left.exists() == is_there, hours
        assert read(fleet) == SENT
