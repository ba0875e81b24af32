"""Fleet evidence supports a chain, contradicts it, or does not concern it."""

from __future__ import annotations

import dataclasses
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


def decide(*more: Finding, story=findings.reference):
    return decision.decide(findings.RESET, findings.answers([*story(), *more]))


ALONE = decide()
ROOT = ALONE.chain.steps[0]


def test_a_hazard_that_rises_with_uptime_supports_an_accumulating_cause() -> None:
    verdict = decide(uptime(8.0))
    assert ALONE.score < verdict.score <= 1
    reasons = [reason for link in verdict.chain.links for reason in link.reasons]
    assert any(reason.startswith("fleet: the event is more frequent") for reason in reasons)


def test_a_hazard_that_falls_with_uptime_is_a_doubt() -> None:
    verdict = decide(uptime(0.2))
    assert verdict.score < ALONE.score
    doubts = [doubt for link in verdict.chain.links for doubt in link.against]
    assert any(doubt.startswith("fleet: the event comes soon after boot") for doubt in doubts)


def test_drift_supports_only_the_root_whose_unit_it_names() -> None:
    assert decide(drift(ROOT.subject.unit)).score > ALONE.score
    assert decide(drift("other.service")).score == pytest.approx(ALONE.score)


def test_a_root_without_a_unit_is_not_that_of_a_drift_without_one() -> None:
    def story() -> list[Finding]:
        return [
            dataclasses.replace(each, subject=dataclasses.replace(each.subject, unit=""))
            for each in findings.unknown()
        ]

    assert decide(drift(""), story=story).score == decide(story=story).score


def test_fleet_evidence_counts_by_its_confidence() -> None:
    unsure, sure = (dataclasses.replace(uptime(8.0), confidence=part) for part in (0.3, 0.9))
    assert ALONE.score < decide(unsure).score < decide(sure).score


def test_fleet_evidence_never_lifts_a_score_over_its_limit() -> None:
    everything = decide(uptime(50.0), drift(ROOT.subject.unit))
    assert everything.chain.score <= 1.0
    generic = decide(drift("postgresql.service"), story=findings.unknown)
    before = decide(story=findings.unknown)
    assert before.chain.score < generic.chain.score <= 0.6


def test_fleet_findings_are_not_listed_as_ruled_out() -> None:
    verdict = decide(uptime(8.0), drift("other.service"))
    assert not [candidate for candidate in verdict.ruled_out if candidate.kind.startswith("fleet.")]
