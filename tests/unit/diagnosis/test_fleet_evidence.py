"""Many hosts agree with a chain, contradict it, or say nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import findings
import pytest

from overnight.diagnosis import decision

if TYPE_CHECKING:
    from overnight.model.finding import Finding


def uptime(rate_ratio: float) -> Finding:
    magnitude = {"rate_ratio": rate_ratio}
    return findings.make_finding("fleet.uptime_hazard", -3600, 0, 0.9, magnitude, host="")


def drift(unit: str) -> Finding:
    return findings.make_finding("fleet.drift", -3600, 0, 0.9, host="", unit=unit)


def judged(*more: Finding, story=findings.reference):
    return decision.decide(findings.RESET, findings.answers([*story(), *more]))


ALONE = judged()
ROOT = ALONE.chain.steps[0]


def test_a_hazard_that_rises_with_uptime_speaks_for_what_accumulates() -> None:
    said = judged(uptime(8.0))
    assert ALONE.confidence < said.confidence <= 1
    reasons = [reason for link in said.chain.links for reason in link.reasons]
    assert any(reason.startswith("fleet: the event is more frequent") for reason in reasons)


def test_one_that_falls_is_a_doubt() -> None:
    said = judged(uptime(0.2))
    assert said.confidence < ALONE.confidence
    doubts = [doubt for link in said.chain.links for doubt in link.against]
    assert any(doubt.startswith("fleet: the event comes soon after boot") for doubt in doubts)


def test_drift_that_names_the_roots_unit_speaks_for_it_and_of_another_says_nothing() -> None:
    assert judged(drift(ROOT.subject.unit)).confidence > ALONE.confidence
    assert judged(drift("other.service")).confidence == pytest.approx(ALONE.confidence)


def test_a_root_never_explains_more_than_it_can() -> None:
    everything = judged(uptime(50.0), drift(ROOT.subject.unit))
    assert everything.chain.score <= 1.0
    generic = judged(drift("postgresql.service"), story=findings.unknown)
    before = judged(story=findings.unknown)
    assert before.chain.score < generic.chain.score <= 0.6


def test_what_the_fleet_says_is_no_cause_that_was_ruled_out() -> None:
    said = judged(uptime(8.0), drift("other.service"))
    assert not [one for one in said.ruled_out if one.kind.startswith("fleet.")]
