from __future__ import annotations

import dataclasses
import pathlib

import captures
import casebook
import findings
import pytest
import rings

from overnight.diagnosis import completeness, decision, recording
from overnight.model.verdict import GapKind, GapWindow
from overnight.queries import case
from overnight.store import loads


def test_a_home_with_nothing_in_it_is_all_gaps(tmp_path: pathlib.Path) -> None:
    told = dataclasses.replace(findings.RESET, skew_us=40_000_000)
    found = recording.read_recording(case.Case(tmp_path, told))
    assert (found.signals, found.night, found.stacks.recorded_seconds) == (0.0, None, 0.0)
    gaps = completeness.find_gaps(found, ())
    assert {(gap.kind, gap.window) for gap in gaps} == {
        (GapKind.STACKS, GapWindow.INCIDENT), (GapKind.STACKS, GapWindow.BASELINE), (GapKind.SIGNALS, None), (GapKind.CLOCK, None),
    }  # fmt: skip
    said = decision.decide(told, findings.answers([findings.reset()]), found)
    assert said.status == "inconclusive"


def test_a_stored_load_of_the_same_time_is_a_gap(tmp_path: pathlib.Path) -> None:
    begin = findings.T - 1000 * findings.SECOND
    for host in (findings.HOST, "another"):
        book = loads.LoadWriter(tmp_path, host, "cpu", (1,), begin, {})
        said = {"status": "not constant", "says": "", "crossed": ["cpu CV 12 %"]}
        book.verdict(findings.T + findings.SECOND, said, ended=True)
        book.close()
    later = loads.LoadWriter(
        tmp_path, findings.HOST, "memory", (1,), findings.T + 3600 * findings.SECOND, {}
    )
    later.close()
    found = recording.read_recording(case.Case(tmp_path, findings.RESET))
    assert [one.workload for one in found.loads] == ["cpu"]
    (gap,) = [one for one in completeness.find_gaps(found, ()) if one.kind is GapKind.LOAD]
    assert "the load cpu was not constant: cpu CV 12 %" in gap.why


@pytest.mark.parametrize(("second", "status"), [(1, "inconclusive"), (900, "no-cause")])
def test_nobody_can_say_that_nothing_was_there_who_began_a_second_before(
    tmp_path: pathlib.Path, second: int, status: str
) -> None:
    home = casebook.Home(tmp_path).cpu()
    home.stacks(casebook.busy(0, 950, 1, "trainer", (captures.user("forward"),), hertz=10))
    told = home.event("net.link_down", second=second, severity="critical")
    said = decision.decide(told, findings.answers([]), recording.read_recording(home.case()))
    assert said.status == status


@pytest.mark.parametrize(("kept", "share"), [((), 0.0), (("pressure",), 1.0)])
def test_one_signal_that_is_missing_is_not_all_of_them(
    tmp_path: pathlib.Path, kept: tuple[str, ...], share: float
) -> None:
    home = casebook.Home(tmp_path)
    for signal in ("load", *kept):
        home.numbers(signal, ("some",), lambda second: {"io": (second,)}, range(960))
    home.event()
    assert recording.read_recording(home.case()).signals == pytest.approx(share, abs=0.03)


def test_what_the_recorder_could_not_read_is_missing_evidence(tmp_path: pathlib.Path) -> None:
    home = casebook.Home(tmp_path).cpu()
    home.writer.facts(
        "agent-problems",
        rings.at(60),
        {
            "kernel-log": {"problem": "/dev/kmsg cannot be read"},
            "interrupts": {"problem": "PermissionError: [Errno 13]", "denied": True},
            "ethtool": {"problem": "the host has no such interface"},
        },
    )
    home.event()
    found = recording.read_recording(home.case())
    assert (found.kernel_log, found.denied) == (False, ("signal interrupts",))
    kinds = {gap.kind: gap for gap in completeness.find_gaps(found, ())}
    assert kinds[GapKind.KERNEL_LOG].factor == 0.9
    assert kinds[GapKind.PERMISSION].what == "permission to read signal interrupts"


def test_a_recorder_without_problems_lacks_no_kernel_log(tmp_path: pathlib.Path) -> None:
    home = casebook.Home(tmp_path).cpu()
    home.writer.facts("agent-problems", rings.at(60), {})
    home.event()
    found = recording.read_recording(home.case())
    assert (found.kernel_log, found.denied) == (None, ())
