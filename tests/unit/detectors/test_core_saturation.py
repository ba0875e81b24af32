from __future__ import annotations

import pathlib

import captures
import casebook
import pytest
import rings

from overnight.detectors import core_saturation
from overnight.model.finding import Status

DETECTOR = core_saturation.DETECTORS[0]
AT = casebook.EVENT_SECOND


@pytest.fixture
def home(tmp_path: pathlib.Path) -> casebook.Home:
    return casebook.Home(tmp_path)


def pinned(core: int, begin: int, end: int) -> casebook.Shares:
    def shares(second: int, other: int) -> tuple[float, float, float]:
        if other == core and begin <= second < end:
            return 0.0, 1.0, 0.0
        return casebook.quiet(second, other)

    return shares


def test_a_core_hidden_by_the_mean_is_found_to_the_second(home: casebook.Home) -> None:
    home.cpu(pinned(2, AT - 6, AT))
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert (finding.kind, finding.subject.core) == ("cpu.core_saturated", 2)
    assert (finding.window.begin_us, finding.window.end_us) == (rings.us(AT - 6), rings.us(AT))
    assert finding.magnitude["seconds"] == 6
    assert finding.magnitude["kernel_percent"] == 100
    assert finding.evidence[1].values["mean_percent_of_all_cores"] == pytest.approx(35.5)
    assert finding.confidence > 0.9


def test_other_cores_rank_after_the_events_core(home: casebook.Home) -> None:
    def both(second: int, core: int) -> tuple[float, float, float]:
        begin = {1: 12, 2: 4}.get(core, 0)
        return (0.0, 1.0, 0.0) if AT - begin <= second < AT else (0.05, 0.0, 0.0)

    home.cpu(both)
    home.event(core=2)
    findings = DETECTOR.look(home.case()).findings
    assert [finding.subject.core for finding in findings] == [2, 1]
    assert findings[0].confidence > findings[1].confidence


def test_a_quiet_host_is_clear(home: casebook.Home) -> None:
    home.cpu()
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "14 %" in answer.why


def test_a_host_that_is_busy_everywhere_has_no_saturated_core(home: casebook.Home) -> None:
    home.cpu(lambda _second, _core: (0.98, 0.0, 0.0))
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "whole host" in answer.why


def test_the_events_core_is_found_when_all_cores_are_saturated_briefly(
    home: casebook.Home,
) -> None:
    home.cpu(lambda second, _: (1.0, 0.0, 0.0) if second >= AT - 8 else (0.3, 0.0, 0.0))
    home.event(core=2)
    findings = DETECTOR.look(home.case()).findings
    assert [finding.subject.core for finding in findings] == [2]
    assert findings[0].magnitude["cores_added"] == pytest.approx(0.7, abs=0.05)


def test_saturation_that_is_normal_for_the_host_is_not_a_finding(home: casebook.Home) -> None:
    def often(second: int, core: int) -> tuple[float, float, float]:
        return (1.0, 0.0, 0.0) if core == 1 and second % 30 < 5 else (0.05, 0.0, 0.0)

    home.cpu(often)
    home.event(core=2)
    answer = DETECTOR.look(home.case())
    assert answer.status is Status.CLEAR
    assert "as often" in answer.why


def test_normal_saturation_of_the_events_core_is_found_with_low_confidence(
    home: casebook.Home,
) -> None:
    def often(second: int, core: int) -> tuple[float, float, float]:
        return (1.0, 0.0, 0.0) if core == 2 and second % 30 < 5 else (0.05, 0.0, 0.0)

    home.cpu(often)
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.against
    assert finding.confidence < 0.5


def test_saturation_after_the_event_is_not_a_cause(home: casebook.Home) -> None:
    home.cpu(pinned(2, AT + 4, AT + 9))
    home.event(core=2)
    assert DETECTOR.look(home.case()).status is Status.CLEAR


def test_without_signals_samples_show_the_saturation(home: casebook.Home) -> None:
    home.stacks(casebook.busy(AT - 6, AT, 2, "dd", (captures.kernel("vfs_read"),)))
    home.event(core=2)
    (finding,) = DETECTOR.look(home.case()).findings
    assert finding.subject.core == 2
    assert finding.evidence[0].source == "profiles"
    assert finding.magnitude["seconds"] == 6
    assert finding.confidence < 0.95


def test_nothing_recorded_is_no_data(home: casebook.Home) -> None:
    home.event(core=2)
    assert DETECTOR.look(home.case()).status is Status.NO_DATA
