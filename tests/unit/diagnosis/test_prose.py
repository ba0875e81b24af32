"""No decision reads a sentence: with all prose blanked, the verdicts stay the same."""

from __future__ import annotations

import findings
import pytest
from blanked import PROSE, blanked, decisions

from overnight.diagnosis import completeness, decision
from overnight.model.verdict import Gap, GapKind, GapWindow

RECORDINGS = {
    "whole": None,
    "no stacks": completeness.Recording(stacks=findings.covered(0.0), baseline=findings.covered(0)),
    "half": completeness.Recording(
        findings.covered(0.5, 0.3), findings.covered(0.5), findings.covered(0.5), signals=0.5
    ),
    "late": completeness.Recording(
        baseline=findings.covered(seconds=20), before_s=1.0, kernel_log=False, disturbed=True
    ),
    "denied": completeness.Recording(denied=("signal interrupts",), skew_us=40_000_000),
}


def judge(name: str, recording: completeness.Recording | None, **states):
    detected = findings.SCENARIOS[name]() if name in findings.SCENARIOS else [findings.reset()]
    return decision.decide(findings.RESET, findings.answers(detected, **states), recording)


@pytest.mark.parametrize("recording", RECORDINGS)
@pytest.mark.parametrize("name", [*findings.SCENARIOS, "nothing"])
def test_verdicts_do_not_depend_on_prose(name: str, recording: str) -> None:
    states = {"no_data": ("locks",), "failed": ("oom",)}
    expected = judge(name, RECORDINGS[recording], **states)
    with blanked():
        verdict = judge(name, RECORDINGS[recording], **states)
    assert all(gap.what == gap.why == "" for gap in verdict.gaps)
    assert decisions(verdict) == decisions(expected)


def test_prose_is_blanked_only_inside() -> None:
    with blanked():
        assert Gap(GapKind.STACKS, "a", "b", 0.5, GapWindow.INCIDENT).what == ""
    assert Gap(GapKind.STACKS, "a", "b", 0.5).what == "a"
    assert Gap in PROSE
