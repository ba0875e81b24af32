from __future__ import annotations

import pathlib

import captures
import casebook
import pytest
import rings

from overnight.detectors import lift
from overnight.model.finding import Status, Subject

DETECTOR = lift.DETECTORS[0]
EVENTS = (300, 600, casebook.EVENT_SECOND)
WALK = (captures.user("main"), captures.kernel("vfs_read"), captures.kernel("walk"))


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path)


def baseline_samples() -> list[captures.Sample]:
    """Return samples of a trainer at 10 Hz and a poller at 1 Hz, for the whole recording."""
    return [
        *casebook.busy(0, 960, 1, "trainer", (captures.user("forward"),), hertz=10),
        *casebook.busy(0, 960, 0, "poller", (captures.user("poll"),), unit="p.service", hertz=1),
    ]


def test_a_process_that_runs_before_each_event_is_found_with_its_function(
    home: casebook.Home,
) -> None:
    walks = [
        sample
        for at in EVENTS
        for sample in casebook.busy(at - 5, at, 2, "kubelet", WALK, unit="kubelet.service")
    ]
    home.stacks(baseline_samples() + walks)
    for at in EVENTS:
        home.event(second=at)
    answer = DETECTOR.look(home.case())
    (finding,) = answer.findings
    assert finding.subject == Subject("db-7", None, "kubelet.service", "kubelet", "walk")
    assert finding.magnitude["recurrences"] == 3
    assert finding.magnitude["cores_more"] == pytest.approx(0.5, abs=0.01)
    assert finding.magnitude["q_value"] < 0.01
    assert finding.magnitude["low"] > 3
    assert finding.evidence[1].values["items_tested"] == 8
    assert "of 8 processes and functions" in answer.why


def test_a_single_recurrence_is_reported_as_such(home: casebook.Home) -> None:
    home.stacks(baseline_samples() + casebook.busy(casebook.EVENT_SECOND - 5, casebook.EVENT_SECOND, 2, "kubelet", WALK))  # fmt: skip
    home.event()
    answer = DETECTOR.look(home.case())
    (finding,) = answer.findings
    assert finding.magnitude["recurrences"] == 1
    assert finding.confidence <= 0.4
    assert "with one recurrence" in answer.why
    assert "only 1 recurrence" in finding.against[0].text


@pytest.mark.parametrize(
    ("events", "usual", "before", "confidence"),
    [
        pytest.param(EVENTS, 20, 60, 0.75, id="three times as much"),
        pytest.param(EVENTS, 20, 27, None, id="a third more"),
        pytest.param(EVENTS, 1, 3, 0.75 * 0.7, id="a fiftieth of a core more"),
        pytest.param(EVENTS[1:], 20, 60, 0.6, id="two recurrences"),
        pytest.param(EVENTS[2:], 20, 60, 0.4, id="one recurrence"),
    ],
)
def test_near_misses(
    home: casebook.Home,
    events: tuple[int, ...],
    usual: int,
    before: int,
    confidence: float | None,
) -> None:
    """Samples a second of a process, all the time and in the ten seconds before each event."""
    samples = casebook.busy(0, 960, 2, "kubelet", WALK, hertz=usual)
    for at in events:
        samples += casebook.busy(at - 10, at, 2, "kubelet", WALK, hertz=before - usual)
        home.event(second=at)
    home.stacks(baseline_samples() + samples)
    findings = DETECTOR.look(home.case()).findings
    assert [finding.confidence for finding in findings] == (
        [] if confidence is None else [pytest.approx(confidence, abs=0.01)]
    )


def test_activity_before_one_of_three_events_is_not_enough(home: casebook.Home) -> None:
    home.stacks(baseline_samples() + casebook.busy(595, 600, 2, "backup", WALK))
    for at in EVENTS:
        home.event(second=at)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "none of" in answer.why


def test_baselines_keep_a_distance_from_every_event(home: casebook.Home) -> None:
    home.stacks(baseline_samples())
    for at in EVENTS[:2]:
        home.event(second=at)
    home.event("storage.timeout", second=820, severity="warning")
    home.event(second=EVENTS[2])
    plan = lift.plan_windows(home.case())
    assert [(event.time_us - rings.us(0)) // 1_000_000 for event in plan.events] == [900, 600, 300]
    for event, (before, *quiet) in zip(plan.events, plan.windows, strict=True):
        assert before.end_us == event.time_us
        assert len(quiet) >= 8
        for window in quiet:
            assert window.seconds == 10
            for at in EVENTS:
                assert window.end_us <= rings.us(at - 60) or window.begin_us >= rings.us(at + 60)
            assert window.end_us <= rings.us(810) or window.begin_us >= rings.us(850)


def test_a_state_that_lasts_all_night_leaves_baselines(home: casebook.Home) -> None:
    """A core that a process polls on is such an event, and it never ends."""
    home.stacks(baseline_samples())
    home.event("cpu.core_pinned", second=100, until_us=rings.us(950), core=0)
    home.event("cpu.core_pinned", core=2)
    assert len(lift.plan_windows(home.case()).events) == 1


def test_events_of_one_burst_are_one_recurrence(home: casebook.Home) -> None:
    home.stacks(baseline_samples())
    for at in (860, 880, 890, 900):
        home.event(second=at)
    assert len(lift.plan_windows(home.case()).events) == 1


def test_without_samples_before_the_event_there_is_no_data(home: casebook.Home) -> None:
    home.stacks(casebook.busy(0, 100, 1, "trainer", WALK, hertz=10), end=100)
    home.event()
    assert DETECTOR.look(home.case()).status is Status.NO_DATA
