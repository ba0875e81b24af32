"""`overnight compare`: sides, exposure, answers, and what is not counted."""

from __future__ import annotations

import pathlib

import pytest
import rings

from overnight import errors
from overnight.app import added_events, compare
from overnight.model import clock
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


def only(home: pathlib.Path, **request: object) -> compare.Row:
    # Fields of several types come by name; the dataclass itself checks the names.
    (row,) = compare.compare(compare.Request(home, **request)).rows  # type: ignore[arg-type]
    return row


def test_a_fix_that_works_is_called_one_with_its_interval(home: pathlib.Path) -> None:
    for number, host in enumerate(HOSTS):
        add(home, host, [5 + number, 30 + number, 61 + number, 100 + number])
    add(home, "db-1", [200])
    row = only(home, at=stamp(FIX))
    expected = rates.compare((16, 480.0), (1, 480.0))
    assert row.compared == expected
    assert row.outcome is Outcome.FELL
    assert row.answer == (
        "the rate fell from 0.8 to 0.05 a host-day; 95 % interval of the ratio 0.0015 to 0.4: the fix worked"
    )
    # Windows of their own.
    few = only(
        home, before=f"{stamp(50)}..+40h", after=f"{stamp(190)}..{stamp(200)}", kinds=("job.",)
    )
    assert few.compared == rates.compare((4, 160.0), (0, 40.0))
    none = only(home, before=f"{stamp(110)}..{stamp(190)}", after=stamp(201), kinds=("job.",))
    assert none.answer == "no event on either side; the rate is at most 0.57 a host-day"


def test_with_few_events_the_answer_is_how_long_to_wait(home: pathlib.Path) -> None:
    for host in HOSTS[:3]:
        add(home, host, [50])
    row = only(home, at=stamp(FIX), kinds=("job.failed",))
    assert row.outcome is Outcome.CANNOT_TELL
    wait, high = row.compared.wait, row.compared.high
    assert high is not None
    assert wait == pytest.approx(480 * (2 * high - 1))
    assert f"wait {wait:,.0f} more host-hours (" in row.answer
    assert "with 4 hosts) without an event to be 95 % sure that the rate halved" in row.answer
    nothing = only(home, at=stamp(20), kinds=("job.failed",))
    assert nothing.answer.endswith("there was no event to compare with")


def test_events_outside_of_recorded_time_are_not_counted_but_named(home: pathlib.Path) -> None:
    record(home, "db-5", 0, 60)
    add(home, "db-5", [10, 20, 100, 200])
    result = compare.compare(compare.Request(home, at=stamp(FIX)))
    (row,) = result.rows
    assert (row.compared.before.events, row.compared.after.events, row.outside) == (2, 0, 2)
    assert row.compared.before.exposure == pytest.approx(4 * 120 + 60)
    assert result.notes == (
        "not counted: 2 events job.failed in time that was not recorded",
        "recorded only before: db-5",
    )


def test_a_burst_is_one_piece_of_evidence(home: pathlib.Path) -> None:
    add(home, "db-1", [10 + minute / 60 for minute in range(16)])
    result = compare.compare(compare.Request(home, at=stamp(FIX)))
    assert result.rows[0].outcome is Outcome.CANNOT_TELL
    assert "job.failed comes in bursts: 16.0 events count as one" in result.notes[0]


def test_jobs_started_are_an_exposure_without_recorded_hours(home: pathlib.Path) -> None:
    for day in range(10):
        hours = [day * 24 + number / 10 for number in range(20)]
        add(home, "cloud-1", hours, "job.started", severity="info", labels={"gpu": "h100"})
        add(home, "cloud-1", hours[:10], "job.started", severity="info", labels={"gpu": "a100"})
    add(home, "cloud-1", [day * 12 + 1 for day in range(20)], labels={"gpu": "h100"})
    add(home, "cloud-1", [31], labels={"gpu": "a100"})
    row = only(home, group="gpu=h100", per="job.started", kinds=("job.failed",))
    assert row.compared == rates.compare((1, 100.0), (20, 200.0))
    assert row.outcome is Outcome.ROSE
    assert row.answer.startswith("the rate is higher: 100 against 10 per 1,000 job.started; ")
    of_label = only(home, at=stamp(FIX), per="job.started", labels=("gpu=a100",), kinds=("job.failed",))  # fmt: skip
    assert (of_label.compared.before.events, of_label.compared.before.exposure) == (1, 50.0)
    assert "wait for 3,850 more job.started without an event" in of_label.answer


def test_labels_of_hosts_form_groups_and_the_host_is_the_unit(home: pathlib.Path) -> None:
    for host in HOSTS:
        add(home, host, [1], "host.labels", labels={"rack": "r1" if host < "db-3" else "r2"})
    # Events of one host alone: rack r1 has a higher rate, and a third of the ways to choose two hosts, too.
    add(home, "db-1", [10 * number for number in range(1, 21)])
    row = only(home, group="rack=r1")
    assert row.compared.outcome is Outcome.ROSE
    assert row.outcome is Outcome.CANNOT_TELL
    assert "but hosts of one group differ as much (p = " in row.answer
    assert only(home, group="rack=r2", against="rack=r1").compared.outcome is Outcome.FELL
    with pytest.raises(errors.CannotError) as refused:
        only(home, group="rack=r3")
    assert refused.value.why == "no host here has that label; values of rack: r1, r2"


def test_several_kinds_share_the_error(home: pathlib.Path) -> None:
    for host in HOSTS:
        add(home, host, [50])
        add(home, host, [60], "request.timeout")
        add(home, host, [70], "job.started", severity="info")
    result = compare.compare(compare.Request(home, at=stamp(FIX)))
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
    with pytest.raises(errors.CannotError, match="no signals of host 'x'"):
        only(home, at="1h ago", hosts=("x",))
    with pytest.raises(errors.CannotError) as empty:
        only(home, at=stamp(FIX), per="job.started")
    assert empty.value.why == "it has no event job.started"
