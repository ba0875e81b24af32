"""Mechanisms in chains: they raise the confidence in a culprit, and never displace a specific finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import findings
import pytest

from overnight.diagnosis import decision, knowledge
from overnight.model.verdict import GapKind, Verdict, VerdictStatus

if TYPE_CHECKING:
    from overnight.model.finding import Finding

CULPRIT = {"process": "postgres", "unit": "postgresql.service", "core": findings.CORE}


def mechanism(
    name: str = "smaps-reading", confidence: float = 0.9, share: float = 0.8, **subject: str | int
) -> Finding:
    numbers = {"mechanism_share": share, "cores_burnt": share, "samples": 400.0}
    return findings.make_finding(
        f"mechanism.{name}", -6, 1, confidence, numbers, **{**CULPRIT, **subject}
    )


def decide(*found: Finding) -> Verdict:
    return decision.decide(findings.RESET, findings.answers(found))


def kinds(verdict: Verdict) -> list[str]:
    assert verdict.chain is not None
    return [step.kind for step in verdict.chain.steps]


def test_a_mechanism_raises_the_confidence_in_the_culprit() -> None:
    generic = decide(*findings.unknown())
    explained = decide(*findings.unknown(), mechanism())
    assert kinds(explained) == ["mechanism.smaps-reading", *kinds(generic)]
    assert explained.score > generic.score + 0.15
    assert explained.score > 0.65
    assert "unknown mechanism" in generic.narrative.root_cause
    assert "not known" not in explained.narrative.root_cause
    assert [gap for gap in explained.gaps if gap.kind is GapKind.RIVAL] == []


def test_a_contradicted_mechanism_is_worth_less() -> None:
    sure, doubtful = (decide(*findings.unknown(), mechanism(confidence=c)) for c in (0.9, 0.36))
    assert doubtful.score < sure.score - 0.05
    assert kinds(decide(*findings.unknown(), mechanism(confidence=0.21)))[0] == "cpu.culprit"


def test_a_mechanism_of_another_process_or_core_is_not_used() -> None:
    for subject in ({"process": "other"}, {"core": 3}, {"process": ""}):
        verdict = decide(*findings.unknown(), mechanism(**subject))
        assert kinds(verdict)[0] == "cpu.culprit", subject


def test_of_two_mechanisms_the_first_is_the_cause_and_the_other_no_rival() -> None:
    both = (mechanism("shrinkers", 0.78, 0.21), mechanism("negative-dentries", 0.58, 0.4))
    verdict = decide(*findings.unknown(), *both)
    assert kinds(verdict)[0] == "mechanism.shrinkers"
    assert [each.root.kind for each in verdict.alternatives][:1] == ["mechanism.negative-dentries"]
    assert [gap for gap in verdict.gaps if gap.kind is GapKind.RIVAL] == []


# A mechanism that resembles what the specific detector found, for the same process.
@pytest.mark.parametrize(
    ("scenario", "name", "process", "unit", "root"),
    [
        ("reference", "proc-scan", *findings.KUBELET, "unit.hidden_crash_loop"),
        ("modern", "page-cache-reclaim", "python3", "kubepods.slice", "unit.hidden_crash_loop"),
        ("rt_hog", "spin-loop", "audiod", "audiod.service", "cpu.rt_hog"),
        ("softirq_storm", "receive-softirq", "ksoftirqd/39", "", "net.softirq_storm"),
        ("reclaim", "direct-reclaim", "loader", "batch.service", "memory.reclaim"),
        ("lock_convoy", "futex-convoy", "java", "app.service", "kernel.lock_contention"),
        ("decoy", "busy-polling", "audiod", "audiod.service", "cpu.rt_hog"),
    ],
)
def test_a_specific_detector_wins(
    scenario: str, name: str, process: str, unit: str, root: str
) -> None:
    found = findings.SCENARIOS[scenario]()
    before = decide(*found)
    after = decide(*found, mechanism(name, process=process, unit=unit))
    assert kinds(before)[0] == kinds(after)[0] == root
    assert after.status is VerdictStatus.CAUSE_FOUND
    assert after.score == pytest.approx(before.score)


def test_every_mechanism_has_texts_a_fix_and_an_experiment() -> None:
    known = knowledge.known()
    for kind in (kind for kind in known.kinds if kind.startswith("mechanism.")):
        verdict = decide(*findings.unknown(), mechanism(kind.partition(".")[2]))
        text = verdict.narrative
        assert kinds(verdict)[0] == kind
        assert text.headline.startswith("Cause found: postgres (postgresql.service) ")
        assert "<" not in text.headline + text.root_cause + text.fix + text.proof
        assert text.fix.endswith(".")
        assert text.proof.endswith("on one host, leave another alone. See the experiment below.")
        assert len(verdict.fix) >= 1
        assert [step.expect for step in verdict.next[-2:]] == ["confirmed", "refuted"]


def test_a_program_named_with_its_interpreter_is_filtered_for_literally() -> None:
    name = "collect_metrics.py (python3)"
    found = [findings.reset(), findings.saturated(), findings.starved(), findings.culprit(name)]
    verdict = decide(*found, mechanism(process=name, unit=""))
    commands = [step.command for step in verdict.next]
    assert r"overnight top functions --process 'collect_metrics.py \(python3\)'" in commands


def test_a_users_file_can_replace_the_fix_of_all_mechanisms() -> None:
    text = '[[fix]]\nroot = "mechanism.*"\ntitle = "call us about <name>"\nsteps = [{ what = "call" }]\n'
    known = knowledge.parse_knowledge(text, "mine.toml", knowledge.known())
    answers = findings.answers([*findings.unknown(), mechanism()])
    verdict = decision.decide(findings.RESET, answers, known=known)
    assert verdict.narrative.fix == "Call us about smaps-reading."
