"""Weights of links and chains, on a small knowledge file of these tests."""

from __future__ import annotations

import dataclasses

import findings
import pytest

from overnight.diagnosis import chain, conditions, knowledge
from overnight.model.verdict import RuledOutReason

TEXT = """
[[kind]]
kind = "a"
name = "a"
explains = 0.9
[[kind]]
kind = "b"
name = "b"
explains = 0.9
[[link]]
cause = "a"
effect = "b"
why = "a makes b"
base = 0.9
[[link]]
cause = "b"
effect = "a"
why = "b makes a"
base = 0.9
[[link]]
cause = ["a", "b"]
effect = ["net.*"]
why = "either makes it"
base = 0.9
to_event = true
"""


def kinds_of(text: str, detected: list) -> list[list[str]]:
    known = knowledge.parse_knowledge(text)
    built = chain.build(detected, findings.reset(), known)
    return [[step.kind for step in path.steps] for path in built.chains]


def test_causes_of_each_other_make_no_cycle() -> None:
    detected = [findings.make_finding(kind, core=n) for kind in "ab" for n in range(3)]
    paths = kinds_of(TEXT, detected)
    assert {tuple(path[:-1]) for path in paths} == {("a",), ("b",), ("a", "b"), ("b", "a")}


def test_with_equal_support_the_shorter_chain_wins() -> None:
    paths = kinds_of(TEXT, [findings.make_finding("a"), findings.make_finding("b")])
    assert [len(path) for path in paths] == [2, 2, 3, 3]


def test_a_root_that_explains_more_wins_with_a_longer_chain_if_its_link_is_strong() -> None:
    deeper = TEXT.replace(
        "explains = 0.9", "explains = 0.7", 1
    )  # a explains less, so b -> a is better
    detected = [findings.make_finding("a"), findings.make_finding("b")]
    assert kinds_of(deeper, [detected[0]])[0] == ["a", "net.driver_reset"]
    only = deeper.replace('cause = ["a", "b"]', 'cause = "a"')
    assert kinds_of(only, detected)[0] == ["b", "a", "net.driver_reset"]
    weak = only.replace('why = "b makes a"\nbase = 0.9', 'why = "b makes a"\nbase = 0.45')
    assert kinds_of(weak, detected)[0] == ["a", "net.driver_reset"]


def test_a_link_with_too_little_evidence_is_refused() -> None:
    rule = next(
        candidate
        for candidate in knowledge.known().rules
        if candidate.cause == "cpu.core_saturated" and "net.tx_timeout" in candidate.effects
    )
    saturated = findings.without(findings.saturated(core=None), "seconds")
    refusal = chain.link(rule, saturated, findings.reset(core=None), conditions.Surroundings())
    assert isinstance(refusal, chain.Refusal)
    assert refusal.reason is RuledOutReason.WEAK


def test_reclaim_is_not_a_cause_when_the_processes_on_the_core_are_unknown() -> None:
    detected = [finding for finding in findings.reclaim() if finding.kind != "cpu.culprit"]
    built = chain.build(detected, findings.reset())
    assert all(path.steps[0].kind != "memory.reclaim" for path in built.chains)
    (refusal,) = [
        refused for name, refused in built.refused.items() if name.startswith("memory.reclaim")
    ]
    assert refusal.reason is RuledOutReason.NOT_TIED
    assert refusal.effect == "cpu.core_saturated"


def test_a_finding_whose_effect_leads_nowhere_names_that_effect() -> None:
    """The event reports that nothing waited for the core: neither the saturated core nor its culprit is a cause."""
    polled = dataclasses.replace(findings.reset(), magnitude={"waited_seconds": 0.1})
    culprit = findings.culprit("postgres")
    refusal = chain.build([culprit, findings.saturated()], polled).refused[culprit.id]
    assert (refusal.reason, refusal.effect) == (
        RuledOutReason.NO_EFFECT_FOUND,
        "cpu.core_saturated",
    )
    assert refusal.text == "its effect, a saturated core, does not lead to the event"


@pytest.mark.parametrize(("begin", "is_late"), [(2.9, False), (3.1, True)])
def test_a_finding_that_begins_after_the_event_is_refused(begin: float, is_late: bool) -> None:
    """Clocks and readings differ by up to three seconds."""
    late = findings.culprit("late", begin=begin)
    built = chain.build([late, findings.saturated()], findings.reset())
    refusal = built.refused.get(late.id)
    assert (refusal is not None and refusal.reason is RuledOutReason.AFTER_EVENT) is is_late
