"""What arms say: only decided comparisons are findings, and a finding names what the arm changes."""

from __future__ import annotations

import dataclasses

import findings
import nightreports
import pytest

from overnight.detectors.fleet import arms
from overnight.diagnosis import decision
from overnight.model.finding import Answer, Status
from overnight.model.selection import Window
from overnight.queries import contrast

KIND = nightreports.KIND
WINDOW = Window(findings.T - 20 * findings.HOUR, findings.T + findings.HOUR)
CGROUPS = arms.Treatment(("memory-cgroups",))
MASKED = arms.Treatment(("memory-cgroups",), ("mask-unit ecs.service",))


def ask(
    events: dict[str, tuple[int, ...]],
    treatments: dict[str, arms.Treatment] | None = None,
    doses: dict[str, tuple[float, ...]] | None = None,
    *,
    own_hosts: bool = False,
    kind: str = KIND,
) -> Answer:
    """Ask about arms of hosts with that many events in 8 hours each; the same hosts in all arms unless `own_hosts`."""
    given = []
    for name, counts in events.items():
        hosts = []
        for n, count in enumerate(counts):
            times = tuple((at + 0.5) * 8 / count for at in range(count))
            host = nightreports.make_host(f"{name if own_hosts else 'h'}{n}", nightreports.BEGIN, 8.0, times)  # fmt: skip
            dose = {"zombies": doses[name][n]} if doses else {}
            hosts.append(contrast.Observed(host, 8, dose))
        given.append(contrast.Arm(name, tuple(hosts)))
    compared = contrast.contrast(given, (kind,))
    return arms.Arms().ask(compared, treatments or {}, WINDOW, KIND)


def numbers(answer: Answer) -> dict[str, float]:
    return {name: value for found in answer.findings for name, value in found.magnitude.items()}


def decide(*answers: Answer, story=findings.reference):
    return decision.decide(findings.RESET, (*findings.answers(story()), *answers))


ALONE = decide()


def arguments(verdict) -> tuple[list[str], list[str]]:
    links = verdict.blamed.links
    reasons = [text for link in links for text in link.reasons if text.startswith("fleet: ")]
    return reasons, [text for link in links for text in link.against if text.startswith("fleet: ")]


def test_arms_that_cannot_tell_are_no_finding() -> None:
    assert ask({"cold": (0, 0), "hot": (1, 1)}).status is Status.NO_DATA
    assert ask({"hot": (5, 5)}).why == "no two arms were observed"


def test_arms_compared_by_a_prefix_argue_about_its_kinds() -> None:
    events = {"cold": (0, 0, 1), "hot": (6, 7, 8)}
    assert ask(events, kind="net.").findings
    assert ask(events, kind="cpu.").why == "no two arms were observed"


def test_a_finding_names_what_makes_the_arm() -> None:
    events = {"cold": (0, 0, 1), "hot": (6, 7, 8)}
    assert [*numbers(ask(events))] == ["aged_by_cold"]
    assert [*numbers(ask(events, {"hot": CGROUPS}))] == ["aged_memory_cgroups_by_cold"]
    assert [*numbers(ask(events, {"hot": arms.Treatment(("dentries",))}))] == ["aged_dentries_by_cold"]  # fmt: skip
    fixed = {"hot": (6, 7, 8), "fixed": (0, 0, 1)}
    answer = ask(fixed, {"fixed": MASKED})
    assert [*numbers(answer)] == ["changed_by_hot"]
    assert answer.findings[0].subject.unit == "ecs.service"
    both = arms.Treatment((), ("mask-unit ecs.service then purge",))
    assert [*numbers(ask(fixed, {"fixed": both}))] == ["changed_by_hot"]
    for changes in (("purge",), ("reboot",)):
        assert [*numbers(ask(fixed, {"fixed": arms.Treatment((), changes)}))] == ["purged_by_hot"]
    # Two units, an interrupt, or a name that only the host's configuration knows: nothing to argue with.
    for changes in (("mask-unit a.service", "mask-unit b.service"), ("move-irq 45 2",), ("mask-scout",), ("  ",)):  # fmt: skip
        assert numbers(ask(fixed, {"fixed": arms.Treatment((), changes)})) == {}


def test_arms_of_a_few_other_hosts_say_nothing() -> None:
    for counts in ((16, 15), (60, 61)):
        events = {"cold": (60, 61), "hot": counts}
        assert ask(events, own_hosts=True).status is Status.NO_DATA
        assert ask(events).findings
    assert ask({"cold": (0, 0, 0), "hot": (6, 7, 8)}, own_hosts=True).findings


def test_arms_that_agree_support_the_chain() -> None:
    hot = ask({"cold": (0, 0, 1), "hot": (6, 7, 8)}, {"hot": CGROUPS})
    assert decide(hot).score > ALONE.score
    reasons, doubts = arguments(decide(hot))
    assert "hosts that were given dying memory cgroups have more" in reasons[0]
    assert doubts == []
    fixed = ask({"hot": (6, 7, 8), "fixed": (0, 0, 0)}, {"fixed": MASKED})
    assert decide(fixed).score > ALONE.score


@pytest.mark.parametrize(
    ("events", "treatments", "doubt"),
    [
        ({"cold": (30, 31), "hot": (30, 29)}, {"hot": CGROUPS}, "do not have more"),
        ({"cold": (30, 31), "hot": (2, 3)}, {"hot": CGROUPS}, "do not have more"),
        ({"cold": (30, 31), "hot": (30, 29)}, {}, "have been up for long do not have more"),
        ({"hot": (30, 31), "purged": (30, 29)}, {}, "is not rarer once"),
        ({"hot": (30, 31), "fixed": (30, 29)}, {"fixed": MASKED}, "is not rarer where this unit"),
        ({"hot": (3, 3), "fixed": (30, 29)}, {"fixed": MASKED}, "is not rarer where this unit"),
    ],
)
def test_arms_that_contradict_the_chain_are_a_doubt(
    events: dict[str, tuple[int, ...]], treatments: dict[str, arms.Treatment], doubt: str
) -> None:
    verdict = decide(ask(events, treatments))
    assert verdict.score < ALONE.score
    assert verdict.confidence <= ALONE.confidence
    reasons, doubts = arguments(verdict)
    assert reasons == []
    # The chain that the arm contradicts may lose to one without that step, and says why.
    lost = [chain.why_not for chain in verdict.alternatives]
    assert any(doubt in text for text in (*doubts, *lost))


def test_a_fix_of_another_unit_says_nothing_about_this_chain() -> None:
    other = {"fixed": arms.Treatment((), ("mask-unit other.service",))}
    for counts in ((0, 0), (30, 29)):
        assert decide(ask({"hot": (30, 31), "fixed": counts}, other)).score == ALONE.score


def test_a_fix_of_a_unit_in_the_middle_of_the_chain_counts_there() -> None:
    fixed = {"fixed": arms.Treatment((), ("cap-cpu audiod.service 20%",))}
    before = decide(story=findings.rt_hog)
    after = decide(ask({"hot": (9, 9), "fixed": (0, 0)}, fixed), story=findings.rt_hog)
    assert after.score > before.score


def test_age_by_other_state_says_nothing_about_dying_cgroups() -> None:
    dentries = {"hot": arms.Treatment(("dentries",))}
    assert decide(ask({"cold": (0, 0, 1), "hot": (6, 7, 8)}, dentries)).score == ALONE.score


def test_a_dose_supports_or_contradicts() -> None:
    rising = {"hot": (0, 2, 5, 7, 11, 16)}
    doses = {"hot": (0.0, 1e4, 2e4, 3e4, 4e4, 5e4)}
    answer = ask(rising, doses=doses)
    assert [*numbers(answer)] == ["zombies_ratio"]
    assert decide(answer).score > ALONE.score
    flat = ask({"hot": (60, 61, 60, 59, 60, 61)}, doses=doses)
    assert decide(flat).score < ALONE.score
    falling = ask({"hot": (16, 11, 7, 5, 2, 0)}, doses=doses)
    assert decide(falling).score < ALONE.score
    few = ask({"hot": (0, 40)}, doses={"hot": (0.0, 1e4)})
    assert decide(few).score == ALONE.score


def test_arms_alone_are_never_a_cause() -> None:
    answer = ask({"cold": (0, 0, 1), "hot": (6, 7, 8), "fixed": (0, 0, 0)}, {"fixed": MASKED})
    verdict = decision.decide(findings.RESET, (*findings.answers([findings.reset()]), answer))
    assert verdict.blamed is None
    assert verdict.confidence == 0
    assert not [each for each in verdict.ruled_out if each.kind.startswith("arm.")]


def test_arguments_stay_within_what_the_root_explains() -> None:
    events = {"cold": (0, 0, 1), "hot": (6, 7, 8), "purged": (0, 0, 0), "fixed": (0, 0, 0)}
    verdict = decide(ask(events, {"hot": CGROUPS, "fixed": MASKED}))
    assert ALONE.score < verdict.score <= 1
    assert all(dataclasses.asdict(found)["confidence"] <= 1 for found in verdict.findings)
