from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import casebook
import pytest
import rings

from overnight.agent import kernel_events
from overnight.detectors import _kernel_events, diagnosed_event
from overnight.detectors._event_location import read_waits
from overnight.diagnosis import decision
from overnight.model.event import Event
from overnight.model.finding import Finding, Status, Subject
from overnight.model.selection import Window
from overnight.sources import kmsg
from overnight.sources.kernelrules import rulefiles

if TYPE_CHECKING:
    from overnight.queries import case

DETECTOR = diagnosed_event.DETECTORS[0]
PAUSED = (
    "ena 0000:00:05.0 eth0: TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec."
    " napi scheduled: 1"
)


def test_an_older_line_has_its_own_state_of_the_poll() -> None:
    fields = {"missed_since_napi_us": 6_000_000, "missed_napi_scheduled": 0}
    for scheduled in ({}, {"napi_scheduled": 1}):
        assert read_waits(Event(1, "net.driver_reset", fields={**fields, **scheduled})) == (
            0.0,
            6.0,
        )


def find_event(opened: case.Case) -> Finding:
    answer = DETECTOR.look(opened)
    assert answer.status is Status.FOUND
    return answer.findings[0]


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path)


def test_the_core_of_a_queue_is_the_one_known_before_the_event(home: casebook.Home) -> None:
    home.cpu(first=860).queues({5: 3}).queues({5: 1}, second=casebook.EVENT_SECOND + 5)
    home.event(fields={"interface": "eth0", "queue": 5}, source="ena-tx-paused")
    finding = find_event(home.case())
    assert finding.subject == Subject("db-7", 3, interface="eth0", queue=5)
    assert "core 3" in finding.evidence[1].text


@pytest.mark.parametrize(("count", "says"), [(1, False), (3, True)])
def test_an_event_is_as_long_as_its_sightings(home: casebook.Home, count: int, says: bool) -> None:
    until = rings.us(casebook.EVENT_SECOND + 4)
    home.event("cpu.core_pinned", core=2, count=count, until_us=until)
    finding = find_event(home.case())
    assert finding.magnitude == {"count": count, "seconds": 4}
    assert finding.window == Window(rings.us(casebook.EVENT_SECOND), until)
    (fact,) = finding.evidence  # that the event names its core is not further evidence
    assert (", 3 log lines or sightings" in fact.text) is says
    assert ("log lines or sightings" in fact.text) is says


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


@pytest.mark.parametrize(
    ("kind", "fields", "rising", "place"),
    [
        pytest.param("net.tx_timeout", {}, ("eth0 q5",), ("eth0", 5, 3), id="one queue"),
        pytest.param(
            "net.tx_timeout", {}, ("eth0 q4", "eth0 q5"), ("", None, None), id="two queues"
        ),
        pytest.param(
            "net.tx_timeout",
            {"interface": "eth0"},
            ("eth1 q5",),
            ("eth0", None, None),
            id="another interface",
        ),
        pytest.param(
            "net.tx_timeout",
            {"interface": "eth0"},
            ("eth0 q5", "eth1 q5"),
            ("eth0", 5, 3),
            id="its own queue",
        ),
        pytest.param(
            "cpu.core_pinned", {}, ("eth0 q5",), ("", None, None), id="not of the network"
        ),
        pytest.param(
            "net.tx_timeout", {"device": "0000:05", "queue": 5}, (), ("eth0", 5, 3), id="a device"
        ),
        pytest.param(
            "net.tx_timeout",
            {"device": "0000:06", "queue": 5},
            (),
            ("", 5, None),
            id="a device of two interfaces",
        ),
        pytest.param(
            "storage.timeout",
            {"device": "0000:05"},
            (),
            ("", None, None),
            id="a device of another kind",
        ),
    ],
)
def test_the_place_of_an_event_is_that_of_its_own_queue(
    home: casebook.Home,
    kind: str,
    fields: dict[str, str | int],
    rising: tuple[str, ...],
    place: tuple[str, int | None, int | None],
) -> None:
    """The driver gives its device another interface when it resets."""
    home.queues({4: 1, 5: 3})
    buses = {"eth0": "0000:05", "eth1": "0000:06", "eth2": "0000:06"}
    home.writer.facts(
        "nic-drivers", rings.at(1), {name: {"bus": bus} for name, bus in buses.items()}
    )
    home.writer.facts("nic-drivers", rings.at(casebook.EVENT_SECOND), {"eth9": {"bus": "0000:05"}})
    keys = ("eth0 q4", "eth0 q5", "eth1 q5")
    home.numbers(
        "tx-timeouts",
        ("timeouts",),
        lambda s: {key: (int(key in rising and s > 904),) for key in keys},
        range(0, 960, 10),
    )
    home.event(kind, fields=fields)
    subject = find_event(home.case()).subject
    assert (subject.interface, subject.queue, subject.core) == place


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


def test_the_line_of_the_reset_has_the_wait_not_an_older_one_of_the_same_driver() -> None:
    head = "ena 0000:00:05.0 eth0: "
    missed = "TX hasn't completed, qid 3, index 12. 4000 usecs from last napi execution, napi scheduled: 0"
    paused = "TX q 3 is paused for too long (threshold 5000000). usecs since napi 6596000. napi scheduled: 1"
    records = [
        kmsg.parse_record(f"3,{n},{second}000000,-;{head}{text}\n".encode(), rings.at(second))
        for n, (second, text) in enumerate([(5, missed), (7, paused)])
    ]
    sightings = kernel_events.KernelWatch(rulefiles.built_in()).check(
        filter(None, records), rings.at(7)
    )
    waits = {each.kind: read_waits(Event(0, each.kind, fields=each.fields)) for each in sightings}
    assert waits["net.driver_reset"] == (6.596, None)


@pytest.mark.parametrize(("head", "says"), [("3", False), ("11", True)])
def test_a_line_that_a_process_wrote_is_not_presented_as_the_kernels(
    home: casebook.Home, head: str, says: bool
) -> None:
    """The kernel gives facility 1 (8 in the number) to what a process writes, whatever the process claims."""
    home.queues({5: 3}).cpu()
    record = kmsg.parse_record(f"{head},1,5000000,-;{PAUSED}\n".encode(), rings.at(5))
    (seen, *_) = kernel_events.KernelWatch(rulefiles.built_in()).check(
        filter(None, [record]), rings.at(5)
    )
    home.event(seen.kind, text=seen.text, fields=seen.fields)
    case = home.case()
    answers = (DETECTOR.look(case),)
    verdict = decision.decide(case.event, answers)
    for text in (verdict.narrative.event, verdict.summary, find_event(case).evidence[0].text):
        assert ("a process wrote this line to /dev/kmsg" in text) is says
    assert (_kernel_events.event_evidence(case.event).text != case.event.text) is says
