from __future__ import annotations

import pathlib

import captures
import casebook
import pytest

from overnight.detectors import rt_hog
from overnight.model.finding import Status, Subject

DETECTOR = rt_hog.DETECTORS[0]
AT = casebook.EVENT_SECOND
POLL = (captures.user("poll_loop"),)


def pinned(second: int, core: int) -> tuple[float, float, float]:
    return (1.0, 0.0, 0.0) if core == 2 and AT - 6 <= second < AT else (0.05, 0.0, 0.0)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path).cpu(pinned)


def processes(
    home: casebook.Home,
    policy: int,
    priority: int,
    keep: int = 8,
    percent: int = 100,
    core: int = 2,
) -> casebook.Home:
    def rows(second: int) -> dict[str, tuple[int, ...]]:
        used = percent * max(0, min(6, second - AT + 6))
        row = (used, 0, 9, core, 0, 82, policy, priority)
        return {"77 ptp": row[:keep]}

    return home.numbers("processes", casebook.PROCESSES[:keep], rows, range(AT - 30, AT + 30))


@pytest.mark.parametrize(
    ("policy", "percent", "core", "event_core", "confidence"),
    [
        pytest.param(2, 100, 2, 2, 0.75, id="round robin, without samples"),
        pytest.param(6, 100, 2, 2, 0.75, id="deadline"),
        pytest.param(1, 55, 2, 2, 0.75, id="half of the core"),
        pytest.param(1, 100, 2, 1, 0.75 / 2, id="the event is on another core"),
        pytest.param(0, 100, 2, 2, None, id="ordinary"),
        pytest.param(3, 100, 2, 2, None, id="batch"),
        pytest.param(1, 5, 2, 2, None, id="5 % of the core"),
        pytest.param(1, 45, 2, 2, None, id="less than half of the core"),
        pytest.param(1, 100, 1, 2, None, id="on another core"),
    ],
)
def test_near_misses(
    home: casebook.Home,
    policy: int,
    percent: int,
    core: int,
    event_core: int,
    confidence: float | None,
) -> None:
    processes(home, policy, 80, percent=percent, core=core)
    home.event(core=event_core)
    findings = DETECTOR.look(home.case()).findings
    assert [finding.confidence for finding in findings] == (
        [] if confidence is None else [pytest.approx(confidence)]
    )


def test_a_real_time_process_that_held_the_core_is_found(home: casebook.Home) -> None:
    processes(home, 1, 80).stacks(casebook.busy(AT - 6, AT, 2, "ptp", POLL, unit="ptp.service"))
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.subject == Subject("db-7", 2, "ptp.service", "ptp")
    assert finding.magnitude["rt_priority"] == 80
    assert finding.magnitude["cores_burnt"] == pytest.approx(1.0, abs=0.2)
    assert finding.summary == "ptp, a real-time process (FIFO, priority 80), held core 2 for 6 s"
    assert [each.text for each in finding.evidence] == [
        "process 77 ptp (FIFO, priority 80) was last seen on core 2 and used 1.00 cores in those 6 s",
        "ptp has 600 of the 600 samples of core 2",
    ]
    assert finding.confidence == pytest.approx(0.95)


def test_samples_of_another_process_are_counter_evidence(home: casebook.Home) -> None:
    processes(home, 1, 80).stacks(casebook.busy(AT - 6, AT, 2, "other", POLL))
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.against
    assert finding.confidence < 0.5


def test_a_ring_without_policies_is_no_data(home: casebook.Home) -> None:
    processes(home, 0, 0, keep=6)
    home.event(core=2)
    assert DETECTOR.look(home.case()).status is Status.NO_DATA


def test_a_process_that_always_held_the_core_has_low_confidence(home: casebook.Home) -> None:
    home.numbers(
        "processes",
        casebook.PROCESSES,
        lambda second: {"77 ptp": (100 * second, 0, 9, 2, 0, 82, 1, 80)},
        range(AT - 700, AT + 30),
    )
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.confidence < 0.31
    assert "1.00 in the baseline" in finding.against[0].text


def test_a_real_time_thread_of_an_ordinary_process_is_found(home: casebook.Home) -> None:
    processes(home, 0, 0).stacks(casebook.busy(AT - 6, AT, 2, "ptp", POLL, unit="ptp.service"))

    def threads(second: int) -> dict[str, tuple[int, ...]]:
        used = 100 * max(0, min(6, second - AT + 6))
        return {"77/79 poller": (used, 0, 2, 1, 50)} if used else {}

    columns = ("utime", "stime", "core", "policy", "rt_priority")
    home.numbers("rt-threads", columns, threads, range(AT - 30, AT + 30))
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.subject == Subject("db-7", 2, "ptp.service", "ptp")
    assert finding.magnitude["rt_priority"] == 50
    assert finding.summary.startswith("poller, a real-time thread of ptp")
    assert finding.evidence[0].text.startswith("thread 77/79 poller (FIFO, priority 50) was last")
    assert finding.confidence == pytest.approx(0.95)


def test_recorded_threads_are_mentioned_when_none_is_a_hog(home: casebook.Home) -> None:
    processes(home, 0, 0)
    columns = ("utime", "stime", "core", "policy", "rt_priority")
    row = {"70/71 sleeper": (0, 0, 1, 1, 50)}
    home.numbers("rt-threads", columns, lambda _: row, range(AT - 30, AT + 30))
    home.event(core=2)
    assert DETECTOR.look(home.case()).why == "no real-time process or thread used half of the core"
