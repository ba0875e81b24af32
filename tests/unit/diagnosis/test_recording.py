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
from overnight.store import loads, segments


def test_an_empty_home_has_all_gaps(tmp_path: pathlib.Path) -> None:
    event = dataclasses.replace(findings.RESET, skew_us=40_000_000)
    recorded = recording.read_recording(case.Case(tmp_path, event))
    assert (recorded.signals, recorded.night, recorded.stacks.recorded_seconds) == (0.0, None, 0.0)
    gaps = completeness.find_gaps(recorded, ())
    assert {(gap.kind, gap.window) for gap in gaps} == {
        (GapKind.STACKS, GapWindow.INCIDENT), (GapKind.STACKS, GapWindow.BASELINE), (GapKind.SIGNALS, None), (GapKind.CLOCK, None),
    }  # fmt: skip
    verdict = decision.decide(event, findings.answers([findings.reset()]), recorded)
    assert verdict.status == "inconclusive"


def test_a_stored_load_at_the_same_time_is_a_gap(tmp_path: pathlib.Path) -> None:
    begin = findings.T - 1000 * findings.SECOND
    for host in (findings.HOST, "another"):
        writer = loads.LoadWriter(tmp_path, host, "cpu", (1,), begin, {})
        status = {"status": "not constant", "says": "", "crossed": ["cpu CV 12 %"]}
        writer.verdict(findings.T + findings.SECOND, status, ended=True)
        writer.close()
    later = loads.LoadWriter(
        tmp_path, findings.HOST, "memory", (1,), findings.T + 3600 * findings.SECOND, {}
    )
    later.close()
    recorded = recording.read_recording(case.Case(tmp_path, findings.RESET))
    assert [load.workload for load in recorded.loads] == ["cpu"]
    (gap,) = [gap for gap in completeness.find_gaps(recorded, ()) if gap.kind is GapKind.LOAD]
    assert "the load cpu was not constant: cpu CV 12 %" in gap.why


@pytest.mark.parametrize(("second", "status"), [(1, "inconclusive"), (900, "no-cause")])
def test_a_recording_that_began_a_second_before_cannot_exclude_causes(
    tmp_path: pathlib.Path, second: int, status: str
) -> None:
    home = casebook.Home(tmp_path).cpu()
    home.stacks(casebook.busy(0, 950, 1, "trainer", (captures.user("forward"),), hertz=10))
    event = home.event("net.link_down", second=second, severity="critical")
    verdict = decision.decide(event, findings.answers([]), recording.read_recording(home.case()))
    assert verdict.status == status


@pytest.mark.parametrize(("kept", "share"), [((), 0.0), (("pressure",), 1.0)])
def test_the_share_of_signals_counts_only_recorded_signals(
    tmp_path: pathlib.Path, kept: tuple[str, ...], share: float
) -> None:
    home = casebook.Home(tmp_path)
    for signal in ("load", *kept):
        home.numbers(signal, ("some",), lambda second: {"io": (second,)}, range(960))
    home.event()
    assert recording.read_recording(home.case()).signals == pytest.approx(share, abs=0.03)


def test_sources_the_recorder_could_not_read_are_missing_evidence(tmp_path: pathlib.Path) -> None:
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
    recorded = recording.read_recording(home.case())
    assert (recorded.kernel_log, recorded.denied) == (False, ("signal interrupts",))
    kinds = {gap.kind: gap for gap in completeness.find_gaps(recorded, ())}
    assert kinds[GapKind.KERNEL_LOG].factor == 0.9
    assert kinds[GapKind.PERMISSION].what == "permission to read signal interrupts"


@pytest.mark.parametrize(
    ("seconds", "names"),
    [
        ((860, 863), ("ethtool", "interrupts")),  # over before the event
        ((865, 965), ("ethtool", "interrupts")),
        ((200, 300), ()),  # long before the incident window
    ],
)
def test_readings_that_the_recorder_failed_to_take_are_missing_evidence(
    tmp_path: pathlib.Path, seconds: tuple[int, int], names: tuple[str, ...]
) -> None:
    home = casebook.Home(tmp_path, seconds=970).cpu()
    failed = {"problem": "Too many open files", "exhausted": True}
    absent = {"problem": "no such interface"}
    for second, rows in (
        (60, {"nic-drivers": absent}),
        (seconds[0], {"nic-drivers": absent, "ethtool": failed, "interrupts": failed}),
        (seconds[1], {"nic-drivers": absent}),
    ):
        home.writer.facts("agent-problems", rings.at(second), rows)
    home.event(second=890)
    recorded = recording.read_recording(home.case())
    assert {name for name, _ in recorded.exhausted} == set(names)
    gaps = [gap for gap in completeness.find_gaps(recorded, ()) if gap.kind is GapKind.RECORDER]
    assert bool(gaps) == bool(names)
    for gap in gaps:
        assert gap.what == "some readings of the signals ethtool, interrupts"
        assert "Too many open files" in gap.why
        assert gap.factor == pytest.approx(0.92**2)


def test_a_recorder_without_problems_reports_no_kernel_log_gap(tmp_path: pathlib.Path) -> None:
    home = casebook.Home(tmp_path).cpu()
    home.writer.facts("agent-problems", rings.at(60), {})
    home.event()
    recorded = recording.read_recording(home.case())
    assert (recorded.kernel_log, recorded.denied) == (None, ())


@pytest.mark.parametrize("second", [casebook.EVENT_SECOND - 10, casebook.EVENT_SECOND - 300])
def test_a_damaged_segment_is_missing_evidence(tmp_path: pathlib.Path, second: int) -> None:
    home = casebook.Home(tmp_path).cpu()
    home.stacks(casebook.busy(0, 950, 1, "trainer", (captures.user("forward"),), hertz=10))
    home.event()
    moment = casebook.moment(second) // 1000
    (segment,) = segments.Catalogue(tmp_path).segments(rings.HOST, moment, moment + 1)
    (segment.path / "samples.parquet").write_bytes(b"PAR1 no more")
    recorded = recording.read_recording(home.case())
    gaps = completeness.find_gaps(recorded, ())
    (note,) = completeness.list_notes(recorded)
    assert segment.path.name in note
    assert "samples.parquet has 12 bytes instead of" in note
    window = GapWindow.INCIDENT if second > casebook.EVENT_SECOND - 60 else GapWindow.BASELINE
    (gap,) = [gap for gap in gaps if gap.kind is GapKind.STACKS and gap.window is window]
    assert "damaged segment" in gap.why
