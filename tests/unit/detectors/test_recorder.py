from __future__ import annotations

import pathlib

import captures
import casebook
import pytest

from overnight.detectors import recorder
from overnight.model.finding import Answer, Status, Subject

DETECTOR = recorder.DETECTORS[0]
AT = casebook.EVENT_SECOND
WORK = (captures.user("work"),)
OURS = (captures.user("decode", "/usr/lib/python3/dist-packages/overnight/sources/perf/_x.so"),)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path)


def run_detector(home: casebook.Home, *samples: list[captures.Sample]) -> Answer:
    home.stacks(
        [
            *casebook.busy(AT - 40, AT + 20, 1, "trainer", WORK, hertz=20),
            *(sample for group in samples for sample in group),
        ]
    )
    home.event(core=2)
    return DETECTOR.look(home.case())


def test_a_cheap_recorder_is_clear_with_its_figure(home: casebook.Home) -> None:
    answer = run_detector(home, casebook.busy(AT - 30, AT + 10, 0, "perf", WORK, hertz=1))
    assert answer.status is Status.CLEAR
    assert "0.0100 cores" in answer.why


@pytest.mark.parametrize(
    ("process", "unit", "path"),
    [("perf", "", WORK), ("python3", "overnight.service", WORK), ("python3.11", "", OURS)],
)
def test_an_expensive_recorder_is_found_by_name_unit_or_code(
    home: casebook.Home, process: str, unit: str, path: tuple[captures.Function, ...]
) -> None:
    (finding,) = run_detector(
        home, casebook.busy(AT - 30, AT + 10, 0, process, path, unit=unit, hertz=10)
    ).findings
    assert finding.magnitude["cores_burnt"] == pytest.approx(0.1, abs=0.005)
    assert finding.subject == Subject("db-7")
    assert finding.confidence < 0.5
    assert finding.against[0].text == "no core was saturated"


def test_a_recorder_that_saturated_a_core_names_the_core(home: casebook.Home) -> None:
    (finding,) = run_detector(home, casebook.busy(AT - 6, AT, 2, "perf", WORK)).findings
    assert finding.subject.core == 2
    assert finding.confidence == pytest.approx(0.9)
    assert not finding.against
    assert finding.magnitude["share_of_core_samples"] == 1.0


def test_other_python_programs_are_not_counted_and_are_mentioned(
    home: casebook.Home,
) -> None:
    answer = run_detector(home, casebook.busy(AT - 30, AT + 10, 0, "python3", WORK, hertz=10))
    assert answer.status is Status.CLEAR
    assert "400 samples of other Python programs" in answer.why


def test_no_samples_is_no_data(home: casebook.Home) -> None:
    home.event(core=2)
    assert DETECTOR.look(home.case()).status is Status.NO_DATA
