from __future__ import annotations

import pathlib

import captures
import casebook
import pytest

from overnight.detectors import recorder
from overnight.model.finding import Answer, Need, Status, Subject

DETECTOR = recorder.DETECTORS[0]
AT = casebook.EVENT_SECOND
WORK = (captures.user("work"),)
PERF, AGENT, OTHER = 4000, 4001, 4711
# The interpreter and a C extension of the environment in which overnight is installed.
INTERPRETER = (captures.user("_PyEval_EvalFrameDefault", "/srv/overnight/.venv/bin/python3.11"),)
EXTENSION = (captures.user("decode", "/usr/lib/python3/dist-packages/overnight/sources/_x.so"),)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path)


def measure(home: casebook.Home, cores: float = 0.004) -> None:
    """Record the CPU time of the recorder's two processes: together that many cores."""
    home.numbers(
        "recorder",
        ("utime", "stime"),
        lambda second: {
            f"{PERF} perf": (round(75 * cores * second), 0),
            f"{AGENT} python3": (0, round(25 * cores * second)),
        },
        range(0, home.seconds, 5),
    )


def run_detector(home: casebook.Home, *samples: list[captures.Sample]) -> Answer:
    home.stacks(
        [
            *casebook.busy(AT - 40, AT + 20, 1, "trainer", WORK, hertz=20),
            *(sample for group in samples for sample in group),
        ]
    )
    home.event(core=2)
    return DETECTOR.look(home.case())


def test_a_cheap_recorder_is_clear_with_its_measured_cost(home: casebook.Home) -> None:
    measure(home, 0.01)
    sampled = casebook.busy(AT - 30, AT + 10, 0, "perf", WORK, pid=PERF, hertz=1)
    answer = run_detector(home, sampled)
    assert answer.status is Status.CLEAR
    assert "used 0.0100 cores" in answer.why
    assert "40 of 840 busy samples" in answer.why


@pytest.mark.parametrize(
    ("process", "unit", "path"),
    [
        ("python3.11", "user.slice", INTERPRETER),  # a worker of the same environment
        ("overnight", "overnight-load.service", EXTENSION),  # `overnight load`
        ("perf", "session-2.scope", WORK),  # somebody else's perf
    ],
    ids=["worker", "load", "perf"],
)
def test_another_program_of_the_same_environment_is_not_the_recorder(
    home: casebook.Home, process: str, unit: str, path: tuple[captures.Function, ...]
) -> None:
    measure(home)
    answer = run_detector(
        home, casebook.busy(AT - 30, AT + 10, 2, process, path, pid=OTHER, unit=unit)
    )
    assert answer.status is Status.CLEAR, answer.findings
    assert "used 0.0040 cores" in answer.why
    assert "0 of 4800 busy samples" in answer.why


def test_an_expensive_recorder_that_saturates_no_core_is_a_weak_finding(
    home: casebook.Home,
) -> None:
    measure(home, 0.1)
    (finding,) = run_detector(
        home, casebook.busy(AT - 30, AT + 10, 0, "perf", WORK, pid=PERF, hertz=10)
    ).findings
    assert finding.magnitude["cores_burnt"] == pytest.approx(0.1, abs=0.005)
    assert finding.subject == Subject("db-7")
    assert finding.confidence < 0.5
    assert finding.against[0].text == "no core was saturated"
    assert finding.magnitude["share_of_core_samples"] == pytest.approx(0.1, abs=0.005)
    assert finding.evidence[0].text == (
        f"its processes ({PERF} perf, {AGENT} python3) used 0.10 cores;"
        " 400 of 1200 busy samples of the incident window (0 lost)"
    )


@pytest.mark.parametrize(
    ("sampled", "why"),
    [
        (True, "it had 10 % of the samples of core 2, the saturated core"),
        (False, "its share of core 2, the saturated core, is not known"),
    ],
)
def test_an_expensive_recorder_on_other_cores_is_not_blamed_for_the_saturated_one(
    home: casebook.Home, sampled: bool, why: str
) -> None:
    measure(home, 0.1)
    home.cpu(lambda second, core: (float(core == 2 and AT - 6 <= second < AT), 0.0, 0.0))
    if sampled:
        hog = casebook.busy(AT - 6, AT, 2, "hog", WORK, pid=OTHER, hertz=90)
        own = casebook.busy(AT - 6, AT, 2, "python3", WORK, pid=AGENT, hertz=10)
        (finding,) = run_detector(home, hog, own).findings
    else:
        home.event(core=2)
        (finding,) = DETECTOR.look(home.case()).findings
    assert finding.subject == Subject("db-7")
    assert (finding.confidence, [each.text for each in finding.against]) == (0.4, [why])
    held = finding.magnitude["share_of_core_samples"]
    assert held == pytest.approx(0.1 if sampled else 0.0)


def test_a_recorder_that_saturated_a_core_names_the_core(home: casebook.Home) -> None:
    measure(home, 0.2)
    (finding,) = run_detector(home, casebook.busy(AT - 6, AT, 2, "perf", WORK, pid=PERF)).findings
    assert finding.subject.core == 2
    assert finding.confidence == pytest.approx(0.9)
    assert not finding.against
    assert finding.magnitude["share_of_core_samples"] == 1.0


@pytest.mark.parametrize(
    ("cores", "percent", "confidence"),
    [
        pytest.param(0.028, 0, None, id="3 % of a core at most"),
        pytest.param(0.035, 0, 0.4, id="more than 3 % of a core"),
        pytest.param(0.01, 24, None, id="less than a quarter of the saturated core"),
        pytest.param(0.01, 26, 0.9, id="a quarter of the saturated core"),
    ],
)
def test_near_misses(
    home: casebook.Home, cores: float, percent: int, confidence: float | None
) -> None:
    """Another process has the rest of the saturated core."""
    measure(home, cores)
    rest = casebook.busy(AT - 6, AT, 2, "hog", WORK, pid=OTHER, hertz=100 - percent)
    own = casebook.busy(AT - 6, AT, 2, "perf", WORK, pid=PERF, hertz=percent) if percent else []
    findings = run_detector(home, rest, own).findings
    assert [finding.confidence for finding in findings] == (
        [] if confidence is None else [pytest.approx(confidence)]
    )


def test_the_measured_cost_needs_no_stacks(home: casebook.Home) -> None:
    measure(home)
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "used 0.0040 cores" in answer.why


def test_a_recording_that_does_not_name_the_recorder_has_no_data(home: casebook.Home) -> None:
    answer = run_detector(home, casebook.busy(AT - 30, AT + 10, 2, "perf", EXTENSION))
    assert answer.status is Status.NO_DATA
    assert answer.missing == (Need.RECORDER,)
