from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import casebook
import pytest

from overnight.detectors import diagnosed_event
from overnight.model.finding import Finding, Status, Subject

if TYPE_CHECKING:
    from overnight.queries import case

DETECTOR = diagnosed_event.DETECTORS[0]


def find_event(opened: case.Case) -> Finding:
    answer = DETECTOR.look(opened)
    assert answer.status is Status.FOUND
    return answer.findings[0]


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path)


def test_the_core_of_a_queue_is_the_one_known_before_the_event(home: casebook.Home) -> None:
    home.queues({5: 3}).queues({5: 1}, second=casebook.EVENT_SECOND + 5)
    home.event(fields={"interface": "eth0", "queue": 5}, source="ena-tx-paused")
    finding = find_event(home.case())
    assert finding.subject == Subject("db-7", 3, interface="eth0", queue=5)
    assert "core 3" in finding.evidence[1].text


def test_an_event_from_a_counter_may_be_ten_seconds_old(home: casebook.Home) -> None:
    home.queues({5: 3}).queues({5: 1}, second=casebook.EVENT_SECOND - 5)
    home.event(fields={"interface": "eth0", "queue": 5}, source="driver-counters")
    assert find_event(home.case()).subject.core == 3


def test_a_core_named_by_the_event_is_used(home: casebook.Home) -> None:
    home.queues({5: 3})
    home.event(fields={"interface": "eth0", "queue": 5, "cpu": 2})
    assert find_event(home.case()).subject.core == 2


def test_a_queue_counter_identifies_the_queue_when_the_driver_does_not(home: casebook.Home) -> None:
    home.queues({4: 1, 5: 3})
    late = casebook.EVENT_SECOND + 4
    home.numbers(
        "tx-timeouts",
        ("timeouts",),
        lambda second: {"eth0 q4": (7,), "eth0 q5": (int(second > late),)},
        range(0, 960, 10),
    )
    home.event(fields={"interface": "eth0"})
    assert find_event(home.case()).subject == Subject("db-7", 3, interface="eth0", queue=5)


def test_an_unknown_core_is_reported_as_unknown(home: casebook.Home) -> None:
    home.event(fields={"interface": "eth0", "queue": 5})
    answer = DETECTOR.look(home.case())
    assert answer.findings[0].subject.core is None
    assert "nic-queues was not recorded" in answer.why


@pytest.mark.parametrize(
    ("fields", "waited"),
    [
        ({}, None),
        ({"since_napi_us": 5_100_000, "napi_scheduled": 1}, 5.1),
        ({"since_napi_us": 4_000, "napi_scheduled": 1}, 0.004),
        ({"since_napi_us": 5_100_000, "napi_scheduled": 0}, 0.0),  # nothing waited for the core
    ],
)
def test_the_drivers_report_of_its_wait_is_used(
    home: casebook.Home, fields: dict[str, int], waited: float | None
) -> None:
    home.queues({5: 3})
    home.event(fields={"interface": "eth0", "queue": 5, **fields})
    finding = find_event(home.case())
    assert finding.magnitude.get("waited_seconds") == waited
    assert any("no poll was scheduled" in entry.text for entry in finding.evidence) == (
        waited == 0.0
    )
