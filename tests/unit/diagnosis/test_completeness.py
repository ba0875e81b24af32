from __future__ import annotations

import dataclasses

import findings
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.diagnosis import completeness, decision
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
        (Recording(stacks=findings.covered(0.975, seconds=12)), GapKind.STACKS, "stacks for 3 % of the incident window: 11.7 s of 12 s recorded"),
        (Recording(stacks=findings.covered(1, lost=0.25)), GapKind.LOST_SAMPLES, "25.0 % of the samples of the incident window"),
        (Recording(baseline=findings.covered(0, seconds=600)), GapKind.STACKS, "stacks for 100 % of the baseline: none of 10 min recorded"),
        (Recording(baseline=findings.covered(seconds=20)), GapKind.SHORT_BASELINE, "the baseline is only 20 s long"),
        (Recording(signals=0.0), GapKind.SIGNALS, "kept none of it"),
        (Recording(before_s=1.2), GapKind.LATE_START, "began 1.2 s before the event"),
        (Recording(kernel_log=False), GapKind.KERNEL_LOG, "could not be read"),
        (Recording(not_imported=("memory cgroups", "softirqs")), GapKind.NOT_IMPORTED, "not in the imported files: memory cgroups, softirqs"),
        (Recording(skew_us=-5_000_000), GapKind.CLOCK, "set by 5 s"),
        (Recording(denied=("signal interrupts",)), GapKind.PERMISSION, "permission to read signal interrupts"),
    ],
)  # fmt: skip
def test_each_gap_is_reported_and_costs(recording: Recording, kind: GapKind, says: str) -> None:
    (gap,) = completeness.find_gaps(recording, ())
    assert gap.kind is kind
    assert says in f"{gap.what}: {gap.why}"
    assert 0 < gap.factor < completeness.NEGLIGIBLE


@pytest.mark.parametrize(
    "recording",
    [
        Recording(findings.covered(0.99, lost=0.001), signals=0.99, skew_us=900_000),
        Recording(findings.covered(lost=0.008)),
        Recording(baseline=findings.covered(seconds=58.5)),
        Recording(before_s=9.95),
        Recording(notes=("perf was restarted",)),
    ],
    ids=["usual losses", "hardly a lost sample", "a minute", "ten seconds before", "a note"],
)
def test_what_would_count_as_1_00_is_not_missing(recording: Recording) -> None:
    assert completeness.find_gaps(recording, ()) == ()
    assert completeness.list_notes(recording) == recording.notes


HALF = findings.covered(0.5, seconds=600)
LOST = dataclasses.replace(findings.covered(), samples=300, idle=600, lost=100)
TWO_HOSTS = dataclasses.replace(findings.covered(), hosts=("a", "b"))


@pytest.mark.parametrize(
    ("recording", "what", "cost"),
    [
        pytest.param(Recording(stacks=HALF), "stacks for 50 % of the inc", 0.7, id="incident"),
        pytest.param(Recording(baseline=HALF), "stacks for 50 % of the bas", 0.85, id="baseline"),
        pytest.param(Recording(night=HALF), "stacks for 50 % of the rec", 0.775, id="night"),
        pytest.param(Recording(stacks=TWO_HOSTS), "stacks for 50 % of", 0.7, id="one of two hosts"),
        pytest.param(
            Recording(stacks=LOST), "10.0 % of the samples", 0.94, id="lost, of all samples"
        ),
    ],
)
def test_what_is_missing_of_a_window_costs_its_share(
    recording: Recording, what: str, cost: float
) -> None:
    (gap,) = completeness.find_gaps(recording, ())
    assert gap.what.startswith(what)
    assert gap.factor == pytest.approx(cost)


def test_all_missing_evidence_together_costs_no_more_than_the_limit() -> None:
    nothing = findings.covered(0)
    assert factor(Recording(nothing, nothing, nothing, signals=0.0, skew_us=60_000_000)) == 0.2


def test_what_is_missing_for_one_reason_is_named_once() -> None:
    denied = completeness.find_gaps(Recording(denied=("signal b", "signal a", "signal a")), ())
    assert [gap.what for gap in denied] == [f"permission to read signal {name}" for name in "ab"]
    reasons = ("c", "a", "b", "", "d", "a")
    (gap,) = completeness.find_gaps(Recording(signals=0.5, signals_why=reasons), ())
    assert gap.why.endswith(" (a; b; c)")


@pytest.mark.parametrize(
    ("seconds", "cost"),
    [(0.9, 1.0), (1.1, 0.85), (29, 0.85), (31, 0.6), (-31, 0.6)],
    ids=["no step", "a step", "a near step", "a far step", "a far step back"],
)
def test_a_far_clock_step_costs_more(seconds: float, cost: float) -> None:
    assert factor(Recording(skew_us=round(seconds * 1e6))) == cost


@pytest.mark.parametrize("count", [1, 2, 7, 17, 40])
def test_silent_detectors_cost_little_each_and_never_fall_below_the_floor(count: int) -> None:
    names = [f"d{n}" for n in range(count)]
    no_data, failed = (
        completeness.find_gaps(None, findings.answers([], **{status: names}))
        for status in ("no_data", "failed")
    )
    assert len(no_data) == len(failed) == count
    least = completeness.MIN_OF_DETECTORS - 1e-4
    assert (
        1 > completeness.multiply(no_data) >= completeness.multiply(failed) - 1e-4 >= least - 1e-4
    )
    assert all(gap.factor < completeness.NEGLIGIBLE for gap in (*no_data, *failed))
    if count == 1:
        assert (no_data[0].factor, failed[0].factor) == (0.97, 0.93)


def test_a_found_cause_loses_nothing_by_detectors_without_data() -> None:
    """A recording may be older than a detector; where no cause is found, they are missing evidence."""
    detected = findings.reference()
    whole, silent = (
        decision.decide(findings.RESET, findings.answers(detected, no_data=names))
        for names in ((), ("spawn-storm", "recorder"))
    )
    assert (silent.score, silent.gaps) == (whole.score, ())
    nothing = decision.decide(
        findings.RESET, findings.answers([findings.reset()], no_data=("spawn-storm",))
    )
    assert [gap.detector for gap in nothing.gaps] == ["spawn-storm"]


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
        (ran(status=Constancy.REPLAYED), "the load trials replayed a recorded profile, which is not constant: cpu CV 0.3 %; steal 0 %, so"),
        (ran(ended=False, until_s=-20), "the load trials was cut off after 59 min 40 s"),
        (ran(begin_s=-100), "began between the baseline and the event"),
        (ran(until_s=-20), "ended between the baseline and the event"),
        (ran(begin_s=-100, until_s=-20), "began between the baseline and the event"),
    ],
)  # fmt: skip
def test_a_load_that_changed_is_reported_and_costs(recording: Recording, says: str) -> None:
    (gap,) = completeness.find_gaps(recording, ())
    assert gap.kind is GapKind.LOAD
    assert says in gap.why
    assert 0.5 < gap.factor < 1
    assert completeness.list_notes(recording) == ()
    assert completeness.select_around_event([gap]) == ()


@pytest.mark.parametrize(
    ("recording", "says"),
    [
        (ran(), "the load trials was constant: cpu CV 0.3 %; steal 0 %"),
        (ran(ended=False, running=True), "was constant"),
        (ran(status=Constancy.UNKNOWN), "crossed no limit; not all limits can be judged yet"),
        (ran(begin_s=-688), "was constant"),
        (ran(until_s=-4), "was constant"),
    ],
)
def test_a_load_that_did_not_change_is_a_note(recording: Recording, says: str) -> None:
    assert completeness.find_gaps(recording, ()) == ()
    (note,) = completeness.list_notes(recording)
    assert says in note


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
    assert GapKind.LATE_START not in by_kind  # the chain does not need the time before


WALK = (findings.walk(*findings.KUBELET, findings.NUMA), findings.saturated(), findings.reset())
LOOP, OTHER_LOOP = findings.hidden_loop(), findings.hidden_loop("cron.service", cgroup="/cron")
POSTGRES = (findings.culprit("postgres"), findings.saturated(), findings.reset())


def ended(steps: tuple, share: float) -> Chain:
    return Chain(steps, (), 0.8 * share)


@pytest.mark.parametrize(
    ("alternatives", "cost"),
    [
        pytest.param([], 1.0, id="none"),
        pytest.param([ended(POSTGRES, 1.0)], 0.6, id="another process, as good"),
        pytest.param([ended(POSTGRES, 0.925)], 0.8, id="another process, nearly as good"),
        pytest.param([ended(POSTGRES, 0.85)], 1.0, id="another process, less good"),
        pytest.param([ended((LOOP, *WALK), 0.99)], 1.0, id="a deeper guess"),
        pytest.param([ended((LOOP, *WALK), 0.99), ended(POSTGRES, 1.0)], 0.6, id="a deeper guess, and another process"),
        pytest.param([ended(WALK[1:], 0.99)], 1.0, id="a part of the winner"),
        pytest.param([ended((findings.culprit("kubelet"), *WALK[1:]), 0.99)], 1.0, id="the same process"),
        pytest.param([ended((OTHER_LOOP, *WALK[1:]), 1.0)], 0.6, id="a unit without a process"),
    ],
)  # fmt: skip
def test_only_a_rival_that_blames_another_lowers_the_confidence(
    alternatives: list[Chain], cost: float
) -> None:
    gaps = completeness.find_rival(ended(WALK, 1.0), alternatives)
    assert completeness.multiply(gaps) == pytest.approx(cost)
    assert [gap.kind for gap in gaps] == [GapKind.RIVAL] * (cost < 1)
