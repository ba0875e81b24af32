"""How links and chains are weighed, on knowledge made for it."""

from __future__ import annotations

import findings

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


def kinds_of(told: str, many: list) -> list[list[str]]:
    known = knowledge.parse_knowledge(told)
    built = chain.build(many, findings.reset(), known)
    return [[step.kind for step in one.steps] for one in built.chains]


def test_what_causes_each_other_makes_no_circle() -> None:
    many = [findings.make_finding(kind, core=n) for kind in "ab" for n in range(3)]
    found = kinds_of(TEXT, many)
    assert {tuple(one[:-1]) for one in found} == {("a",), ("b",), ("a", "b"), ("b", "a")}


def test_with_equal_support_the_shorter_chain_wins() -> None:
    found = kinds_of(TEXT, [findings.make_finding("a"), findings.make_finding("b")])
    assert [len(one) for one in found] == [2, 2, 3, 3]


def test_a_root_that_explains_more_is_worth_a_longer_chain_if_its_link_holds() -> None:
    deeper = TEXT.replace("explains = 0.9", "explains = 0.7", 1)  # a says less, so b -> a is better
    many = [findings.make_finding("a"), findings.make_finding("b")]
    assert kinds_of(deeper, [many[0]])[0] == ["a", "net.driver_reset"]
    only = deeper.replace('cause = ["a", "b"]', 'cause = "a"')
    assert kinds_of(only, many)[0] == ["b", "a", "net.driver_reset"]
    weak = only.replace('why = "b makes a"\nbase = 0.9', 'why = "b makes a"\nbase = 0.45')
    assert kinds_of(weak, many)[0] == ["a", "net.driver_reset"]


def test_a_link_of_which_too_little_is_known_is_none() -> None:
    rule = next(
        one
        for one in knowledge.known().rules
        if one.cause == "cpu.core_saturated" and "net.tx_timeout" in one.effects
    )
    full = findings.without(findings.saturated(core=None), "seconds")
    told = chain.link(rule, full, findings.reset(core=None), conditions.Surroundings())
    assert isinstance(told, chain.Refusal)
    assert told.reason is RuledOutReason.WEAK


def test_who_reclaims_is_not_blamed_where_nobody_saw_who_ran_on_the_core() -> None:
    many = [one for one in findings.reclaim() if one.kind != "cpu.culprit"]
    built = chain.build(many, findings.reset())
    assert all(one.steps[0].kind != "memory.reclaim" for one in built.chains)
    (refusal,) = [one for name, one in built.refused.items() if name.startswith("memory.reclaim")]
    assert refusal.reason is RuledOutReason.NOT_TIED
    assert refusal.effect == "cpu.core_saturated"


def test_a_finding_that_begins_after_the_event_is_refused() -> None:
    late = findings.culprit("late", begin=4)
    built = chain.build([late, findings.saturated()], findings.reset())
    assert built.refused[late.id].reason is RuledOutReason.AFTER_EVENT
