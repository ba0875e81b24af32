from __future__ import annotations

import dataclasses
import pathlib

import findings

from overnight.diagnosis import completeness, recorded, verdict
from overnight.queries import case


def test_a_home_with_nothing_in_it_is_all_gaps(tmp_path: pathlib.Path) -> None:
    told = dataclasses.replace(findings.RESET, skew_us=40_000_000)
    found = recorded.read_recorded(case.Case(tmp_path, told), denied=("no kernel log",))
    assert (found.signals, found.night, found.stacks.recorded_seconds) == (0.0, None, 0.0)
    gaps = completeness.find_gaps(found, ())
    assert {gap.what for gap in gaps} == {
        "stacks around the event", "stacks of the baseline", "signals around the event", "clock", "permission",
    }  # fmt: skip
    said = verdict.decide(told, findings.answers([findings.reset()]), found)
    assert said.status == "inconclusive"
