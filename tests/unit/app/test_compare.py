"""`overnight compare`: sides, exposure, answers, and what is not counted."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
import rings

from overnight import errors
from overnight.app import added_events, compare
from overnight.model import clock
from overnight.model.event import Event
from overnight.model.times import HOUR_US, format_instant
from overnight.queries import rates
from overnight.store.ring import writer

Outcome = rates.Outcome
BEGIN_US = 1_793_491_200_000_000  # 2026-11-01
HOURS = 240  # recorded of each host
FIX = 120  # the hour of the fix
HOSTS = ("db-1", "db-2", "db-3", "db-4")


def stamp(hour: float) -> str:
    return format_instant(BEGIN_US + round(hour * HOUR_US))


def add(home: pathlib.Path, host: str, hours: list[float], kind: str = "job.failed", **more: object) -> None:  # fmt: skip
    entries = ({"kind": kind, "host": host, "at": stamp(hour), **more} for hour in hours)
    added_events.add(home, [added_events.make_event(entry) for entry in entries])


def record(home: pathlib.Path, host: str, begin: int = 0, end: int = HOURS) -> None:
    ring = writer.Writer(home, host, rings.BOOT, budget_bytes=1 << 30, age_seconds=1e9)
    for hour in range(begin, end + 1, 12):
        now = clock.Clock((BEGIN_US + hour * HOUR_US) * 1000, (1 + hour) * HOUR_US * 1000)
        ring.numbers("cpu", ("user",), now, {"0": (hour,)})
    ring.close()


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    for host in HOSTS:
        record(tmp_path, host)
    return tmp_path


def ask(home: pathlib.Path, request: compare.Request) -> compare.Result:
    return compare.QUESTION.ask_home(home, request)


def only(home: pathlib.Path, **request: object) -> compare.Row:
    # Fields of several types come by name; the dataclass itself checks the names.
    (row,) = ask(home, compare.Request(**request)).rows  # type: ignore[arg-type]
    return row


def check(row: compare.Row, events: tuple[int, int], exposure: tuple[float, float]) -> None:
    """Check that the sides have these sums, and the interval that follows from them."""
    expected = dataclasses.asdict(rates.compare(events, exposure))
    for name, value in dataclasses.asdict(row.compared).items():
        assert value == (None if expected[name] is None else pytest.approx(expected[name])), name


def test_a_fix_that_works_is_called_one_with_its_interval(home: pathlib.Path) -> None:
    for number, host in enumerate(HOSTS):
        add(home, host, [5 + number, 30 + number, 61 + number, 100 + number])
    add(home, "db-1", [200])
    row = only(home, at=stamp(FIX))
    check(row, (16, 1), (480.0, 480.0))
    assert row.compared.outcome is Outcome.FELL
    assert row.answer == (
        "the fix worked (0.05 per host-day after, 0.8 before; ratio 0.062, 95 % interval 0.0015 to 0.4)"
    )
    # Windows of their own.
    few = only(
        home, before=f"{stamp(50)}..+40h", after=f"{stamp(190)}..{stamp(200)}", kinds=("job.",)
    )
    check(few, (4, 0), (160.0, 40.0))
    check(only(home, at=stamp(FIX), begin=stamp(50), end=stamp(190)), (8, 0), (280.0, 280.0))
    none = only(home, before=f"{stamp(110)}..{stamp(190)}", after=stamp(201), kinds=("job.",))
    assert none.answer == "no event on either side; the rate is at most 0.57 per host-day"


def test_with_few_events_the_answer_is_how_long_to_wait(home: pathlib.Path) -> None:
    for host in HOSTS[:3]:
        add(home, host, [50])
    row = only(home, at=stamp(FIX), kinds=("job.failed",))
    assert row.compared.outcome is Outcome.CANNOT_TELL
    assert row.compared.wait == pytest.approx(480 * (2 * 2.42 - 1), rel=0.01)
    assert row.answer == (
        "cannot tell yet (0 per host-day after, 0.15 before; ratio 0, 95 % interval 0 to 2.4): "
        "wait 19 d 4 h (1,843 host-hours on 4 hosts) without an event to be 95 % sure that the rate has halved"
    )
    nothing = only(home, at=stamp(20), kinds=("job.failed",))
    assert nothing.answer == (
        "cannot tell yet (0.082 per host-day after, 0 before; 95 % interval 0.038 to ∞): "
        "there was no event before to compare with"
    )


def test_events_outside_of_recorded_time_are_not_counted_but_named(home: pathlib.Path) -> None:
    record(home, "db-5", 0, 60)
    add(home, "db-5", [10, 20, 100, 200])
    result = ask(home, compare.Request(at=stamp(FIX)))
    (row,) = result.rows
    assert (row.compared.before.events, row.compared.after.events, row.outside) == (2, 0, 2)
    assert row.compared.before.exposure == pytest.approx(4 * 120 + 60)
    assert result.notes == (
        "not counted: 2 events job.failed in time that was not recorded",
        "recorded only before: db-5",
    )


def test_a_bad_host_that_was_off_after_the_fix_does_not_make_it_work(home: pathlib.Path) -> None:
    record(home, "db-5", 0, 120)
    record(home, "db-6", 0, 132)
    add(home, "db-5", [*range(1, 120, 4)])
    row = only(home, at=stamp(FIX), kinds=("job.failed",))
    assert row.compared.outcome is Outcome.CANNOT_TELL
    assert "no host that was recorded on both sides had an event before" in row.answer
    # One that was on for half a day after it fails as often as before.
    add(home, "db-6", [*range(1, 132, 4)])
    result = ask(home, compare.Request(at=stamp(FIX), kinds=("job.failed",)))
    assert result.rows[0].compared.ratio == pytest.approx(1, rel=0.1)
    assert result.notes[0] == (
        "job.failed: the ratio compares each host with itself; of all hosts together it is 0.073"
    )


def test_a_mistyped_kind_is_answered_with_the_kinds_that_there_are(home: pathlib.Path) -> None:
    add(home, "db-1", [5])
    asked = compare.Request(at=stamp(FIX), kinds=("job.fail", "job."))
    assert ask(home, asked).notes[0] == (
        "these hosts have never had an event job.fail; they had job.failed"
    )
    assert ask(home, dataclasses.replace(asked, kinds=("job.",))).notes == ()


def test_a_burst_is_one_piece_of_evidence(home: pathlib.Path) -> None:
    add(home, "db-1", [10 + minute / 60 for minute in range(16)])
    result = ask(home, compare.Request(at=stamp(FIX)))
    assert result.rows[0].compared.outcome is Outcome.CANNOT_TELL
    assert "job.failed comes in bursts: 16.0 events count as one" in result.notes[0]


def test_jobs_started_are_an_exposure_without_recorded_hours(home: pathlib.Path) -> None:
    for day in range(10):
        hours = [day * 24 + number / 10 for number in range(20)]
        add(home, "cloud-1", hours, "job.started", severity="info", labels={"gpu": "h100"})
        add(home, "cloud-1", hours[:10], "job.started", severity="info", labels={"gpu": "a100"})
    add(home, "cloud-1", [day * 12 + 1 for day in range(20)], labels={"gpu": "h100"})
    add(home, "cloud-1", [31], labels={"gpu": "a100"})
    row = only(home, group="gpu=h100", per="job.started", kinds=("job.failed",))
    check(row, (1, 20), (100.0, 200.0))
    assert row.compared.outcome is Outcome.ROSE
    assert row.answer.startswith(
        "higher rate (100 per 1,000 job.started for gpu=h100, 10 for other values of gpu; ratio 10, "
    )
    of_label = only(home, at=stamp(FIX), per="job.started", labels=("gpu=a100",), kinds=("job.failed",))  # fmt: skip
    assert (of_label.compared.before.events, of_label.compared.before.exposure) == (1, 50.0)
    assert ": wait for 3,850 job.started without an event" in of_label.answer


def test_labels_of_hosts_form_groups_and_the_host_is_the_unit(home: pathlib.Path) -> None:
    for host in HOSTS:
        add(home, host, [1], "host.labels", labels={"rack": "r1" if host < "db-3" else "r2"})
    # Events of one host alone: rack r1 has a higher rate, and a third of the ways to choose two hosts, too.
    add(home, "db-1", [10 * number for number in range(1, 21)])
    row = only(home, group="rack=r1")
    assert row.compared.ratio_low > 1
    assert row.compared.outcome is Outcome.CANNOT_TELL
    assert ": hosts assigned to the groups at random differ as much in " in row.answer
    few = only(home, group="rack=r1", end=stamp(15))  # one event: also too short
    assert few.answer.endswith(": compare a longer time or more hosts")
    other = only(home, group="rack=r2", against="rack=r1").compared
    assert other.ratio_high == pytest.approx(1 / row.compared.ratio_low)
    with pytest.raises(errors.CannotError) as refused:
        only(home, group="rack=r3")
    assert refused.value.why == "no host has that label; values of rack: r1, r2"


def test_hosts_without_the_label_are_in_no_group(home: pathlib.Path) -> None:
    for host, rack in zip(HOSTS, ("r1", "r1", "r2"), strict=False):
        add(home, host, [1], "host.labels", labels={"rack": rack})
    for host in HOSTS:
        add(home, host, [10, 20])
    compared = only(home, group="rack=r1").compared
    assert (compared.before.events, compared.before.exposure) == (2, HOURS)  # db-3 alone
    assert (compared.after.events, compared.after.exposure) == (4, 2 * HOURS)


def test_fields_of_recorded_events_are_no_labels_of_a_group(home: pathlib.Path) -> None:
    for host in HOSTS:
        add(home, host, [1], "host.labels", labels={"driver": "ice" if host < "db-3" else "mlx5"})
    ring = writer.Writer(home, "db-1", rings.BOOT, budget_bytes=1 << 30, age_seconds=1e9)
    at_us = BEGIN_US + 50 * HOUR_US
    fields: dict[str, str | int] = {"driver": "ice 1.12", "queue": 4}
    ring.event(Event(at_us, "net.driver_reset", host="db-1", id="x", fields=fields))
    ring.close()
    row = only(home, group="driver=ice", labels=("queue=4",))
    assert (row.compared.before.events, row.compared.after.events, row.outside) == (0, 1, 0)


def test_several_kinds_share_the_error(home: pathlib.Path) -> None:
    for host in HOSTS:
        add(home, host, [50])
        add(home, host, [60], "request.timeout")
        add(home, host, [70], "job.started", severity="info")
    result = ask(home, compare.Request(at=stamp(FIX)))
    assert [row.kind for row in result.rows] == ["job.failed", "request.timeout"]
    assert {row.compared.confidence for row in result.rows} == {0.975}
    assert result.notes == ("2 kinds are compared; all intervals together hold with 95 %",)
    both = only(home, at=stamp(FIX), kinds=("job.",))
    assert both.compared.before.events == 8


USAGE = [
    ({}, "give --at"),
    ({"before": "1h ago"}, "give --at"),
    ({"at": "1h ago", "group": "rack=r1"}, "give --at"),
    ({"at": "1h ago", "before": "2h ago", "after": "1h ago"}, "give --at"),
    ({"at": "1h ago", "against": "rack=r1"}, "give --at"),
    ({"before": "1h ago", "after": "2h ago"}, "--after begins before --before ends"),
    ({"group": "rack"}, "'rack' is not a label"),
    ({"group": "rack=r1", "against": "rack=r1"}, "cannot compare rack=r1 with rack=r1"),
    ({"group": "rack=r1", "against": "host=db-1"}, "cannot compare rack=r1 with host=db-1"),
    ({"at": "soon"}, "'soon' is not a time"),
]


def test_invalid_requests(home: pathlib.Path) -> None:
    for request, says in USAGE:
        with pytest.raises(errors.UsageError) as refused:
            only(home, **request)
        assert says in refused.value.what, request
    with pytest.raises(errors.CannotError, match="no host 'x' is recorded"):
        only(home, at="1h ago", hosts=("x",))
    with pytest.raises(errors.CannotError, match="nothing was recorded after the fix"):
        only(home, at=stamp(HOURS + 1))
    with pytest.raises(errors.CannotError) as empty:
        only(home, at=stamp(FIX), per="job.started")
    assert empty.value.why == "it has no event job.started"
