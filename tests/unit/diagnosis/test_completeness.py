from __future__ import annotations

import dataclasses

import findings
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.diagnosis import completeness
from overnight.model.finding import Evidence
from overnight.model.load import Constancy, Load
from overnight.model.selection import Window
from overnight.model.verdict import Chain, GapKind

Recording = completeness.Recording


def factor(recording: Recording | None, answers=()) -> float:
    return completeness.multiply(completeness.find_gaps(recording, answers))


def test_complete_evidence_has_no_gap() -> None:
    baseline = findings.covered(seconds=600)
    whole = Recording(
        findings.covered(), baseline, findings.covered(), signals=1.0, kernel_log=True
    )
    assert completeness.find_gaps(whole, findings.answers([])) == ()
    assert factor(whole) == 1.0


@pytest.mark.parametrize(
    ("recording", "kind", "says"),
    [
        (Recording(stacks=findings.covered(0.5)), GapKind.STACKS, "stacks for 50 % of the incident window: 20 s of 40 s recorded (no segment)"),
        (Recording(stacks=findings.covered(1, lost=0.25)), GapKind.LOST_SAMPLES, "25.0 % of the samples of the incident window"),
        (Recording(baseline=findings.covered(0, seconds=600)), GapKind.STACKS, "stacks for 100 % of the baseline: none of 10 min recorded"),
        (Recording(baseline=findings.covered(seconds=20)), GapKind.SHORT_BASELINE, "the baseline is only 20 s long"),
        (Recording(signals=0.0), GapKind.SIGNALS, "kept none of it"),
        (Recording(before_s=1.2), GapKind.LATE_START, "began 1.2 s before the event"),
        (Recording(kernel_log=False), GapKind.KERNEL_LOG, "could not be read"),
        (Recording(skew_us=-5_000_000), GapKind.CLOCK, "set by 5 s"),
        (Recording(denied=("signal interrupts",)), GapKind.PERMISSION, "permission to read signal interrupts"),
    ],
)  # fmt: skip
def test_each_gap_is_reported_and_costs(recording: Recording, kind: GapKind, says: str) -> None:
    (gap,) = completeness.find_gaps(recording, ())
    assert gap.kind is kind
    assert says in f"{gap.what}: {gap.why}"
    assert 0 < gap.factor < 1


def test_usual_losses_are_not_a_gap() -> None:
    assert (
        factor(Recording(findings.covered(0.99, lost=0.001), signals=0.99, skew_us=900_000)) == 1.0
    )


def test_a_note_is_reported_and_costs_nothing() -> None:
    (gap,) = completeness.find_gaps(Recording(notes=("perf was restarted",)), ())
    assert gap.factor == 1.0


def test_detectors_without_data_cost_little_and_never_fall_below_the_floor() -> None:
    single = factor(None, findings.answers([], no_data=("cores",)))
    failed = factor(None, findings.answers([], failed=("cores",)))
    every = factor(None, findings.answers([], no_data=[f"d{n}" for n in range(40)]))
    assert 1 > single > failed > every >= completeness.MIN_OF_DETECTORS - 1e-5
    assert len(completeness.find_gaps(None, findings.answers([], no_data=("a", "b")))) == 2


shares = st.floats(0, 1)


@given(shares, shares, shares, st.integers(0, 60_000_000))
def test_less_evidence_never_raises_confidence(
    more: float, less: float, lost: float, skew: int
) -> None:
    less, more = sorted((less, more))

    def factor_of(share: float, lost: float, skew: int) -> float:
        covered = findings.covered(share, lost)
        return factor(Recording(covered, covered, covered, signals=share, skew_us=skew))

    assert factor_of(less, lost, skew) <= factor_of(more, lost, skew) + 1e-3  # whole samples only
    assert factor_of(more, lost, skew) <= factor_of(more, 0.0, 0)
    assert completeness.MIN_FACTOR <= factor_of(less, lost, skew) <= 1


SECOND = findings.SECOND
COMPARED = Window(findings.T - 690 * SECOND, findings.T)


def ran(begin_s: float = -3600, until_s: float = 60, **more) -> Recording:
    """Return a recording with one load: constant, unless `more` overrides it."""
    fields = {
        "ended": True, "running": False, "status": Constancy.CONSTANT,
        "says": "cpu CV 0.3 %; steal 0 %", "crossed": (),
    } | more  # fmt: skip
    begin, until = (findings.T + round(s * SECOND) for s in (begin_s, until_s))
    load = Load("1a", findings.HOST, "trials", (1,), begin, until, **fields)
    return Recording(loads=(load,), compared=COMPARED)


@pytest.mark.parametrize(
    ("recording", "says"),
    [
        (ran(status=Constancy.NOT_CONSTANT, crossed=("cpu CV 12 %",)), "the load trials was not constant: cpu CV 12 %, so the load may explain what differs between the windows"),
        (ran(ended=False, until_s=-20), "the load trials was cut off after 59 min 40 s"),
        (ran(begin_s=-100), "began between the baseline and the event"),
        (ran(until_s=-20), "ended between the baseline and the event"),
    ],
)  # fmt: skip
def test_a_load_that_changed_is_reported_and_costs(recording: Recording, says: str) -> None:
    (gap,) = completeness.find_gaps(recording, ())
    assert gap.kind is GapKind.LOAD
    assert says in gap.why
    assert 0.5 < gap.factor < 1
    assert completeness.select_around_event([gap]) == ()


@pytest.mark.parametrize(
    ("recording", "says"),
    [
        (ran(), "the load trials was constant: cpu CV 0.3 %; steal 0 %"),
        (ran(ended=False, running=True), "was constant"),
        (ran(status=Constancy.UNKNOWN), "crossed no limit; not all limits can be judged yet"),
        (ran(begin_s=-688), "was constant"),
    ],
)
def test_a_load_that_did_not_change_is_reported_and_costs_nothing(
    recording: Recording, says: str
) -> None:
    (gap,) = completeness.find_gaps(recording, ())
    assert says in gap.why
    assert gap.factor == 1.0


def test_a_disturbed_or_short_baseline_is_reported() -> None:
    (gap,) = completeness.find_gaps(Recording(disturbed=True), ())
    assert gap.kind is GapKind.DISTURBED_BASELINE
    assert gap.factor == 0.7
    assert completeness.select_around_event([gap]) == ()
    short = findings.covered(1.0, 0.0)
    window = Window(short.window.begin_us, short.window.begin_us + 25 * SECOND)
    covered = dataclasses.replace(short, window=window)
    for cut, why in ((False, "the recording began shortly"), (True, "earlier events")):
        gaps = completeness.find_gaps(Recording(baseline=covered, cut=cut), ())
        (gap,) = [gap for gap in gaps if gap.kind is GapKind.SHORT_BASELINE]
        assert why in gap.why
        assert "the baseline is only 25 s long" in gap.why


@pytest.mark.parametrize(
    ("source", "counted", "cost"),
    [("softirqs", True, 0.4**0.5), ("profiles", True, 0.4), ("softirqs", False, 0.4)],
)
def test_stacks_that_a_chain_does_not_rest_on_cost_it_less(
    source: str, counted: bool, cost: float
) -> None:
    step = findings.saturated()
    step = dataclasses.replace(step, evidence=(Evidence("it was full", source),))
    known = Recording(stacks=findings.covered(0), signals=0.5, before_s=2.0)
    gaps = completeness.find_gaps(known, ())
    counted = completeness.weigh_for_chain(
        gaps, Chain((step, findings.reset()), (), 1.0), counted=counted
    )
    by_kind = {gap.kind: gap.factor for gap in counted}
    assert by_kind[GapKind.STACKS] == pytest.approx(cost, abs=1e-6)
    assert by_kind[GapKind.SIGNALS] == pytest.approx(0.7)
    assert by_kind[GapKind.LATE_START] == 1.0  # the chain does not need the time before
