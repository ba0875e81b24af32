from __future__ import annotations

from typing import TYPE_CHECKING

import findings
import hypothesis
import pytest
from hypothesis import strategies as st

from overnight.agent import task_config
from overnight.app import experiments
from overnight.diagnosis import knowledge
from overnight.model.host_changes import Builtin
from overnight.model.investigation import Answer, ArmRun, Occurrence
from overnight.model.plan import ArmKind
from overnight.model.verdict import Chain, Verdict, VerdictStatus
from overnight.queries import rates

if TYPE_CHECKING:
    from overnight.model.finding import Finding

HOUR_US = 3_600_000_000
ALL = tuple(Builtin)
OFFERED: experiments.Offered = {
    "tidy": task_config.Command(("/bin/true",), 60, ("/bin/true",)),
    "mask-others": task_config.BuiltinChange(Builtin.MASK_UNIT, ("cedar-*.service",)),
    "mask-ember": task_config.BuiltinChange(Builtin.MASK_UNIT, ("ember-*.service",)),
    "purge": task_config.BuiltinChange(Builtin.PURGE),
    "cap": task_config.BuiltinChange(Builtin.CAP_CPU, ("ember-*.service",)),
    "irq": task_config.BuiltinChange(Builtin.MOVE_IRQ, ("eth0:*",)),
}


def verdict(*steps: Finding) -> Verdict:
    return Verdict(None, VerdictStatus.CAUSE_FOUND, 0.8, Chain(steps, (), 0.8))


def root(kind: str, **subject: str | int) -> Verdict:
    return verdict(findings.make_finding(kind, **subject), findings.starved(), findings.reset())


@pytest.mark.parametrize(
    ("kind", "subject", "change", "names"),
    [
        ("unit.hidden_crash_loop", {"unit": "ember-a.service"}, "mask-unit ember-a.service then purge", ["mask-ember", "purge"]),
        ("unit.crash_loop", {"unit": "cedar-a.service"}, "mask-unit cedar-a.service", ["mask-others"]),
        ("memory.zombie_cgroups", {}, "purge", ["purge"]),
        ("cpu.culprit", {"unit": "ember-a.service"}, "cap-cpu ember-a.service 50%", ["cap"]),
        ("cpu.culprit", {"unit": "cedar-a.service"}, "mask-unit cedar-a.service", ["mask-others"]),
        ("net.softirq_storm", {"core": 0}, "move-irq eth0:5 1", ["irq"]),
        ("net.softirq_storm", {"core": 7}, "move-irq eth0:5 0", ["irq"]),
    ],
)  # fmt: skip
def test_the_change_tests_the_root(
    kind: str, subject: dict[str, str], change: str, names: list[str]
) -> None:
    choice = experiments.choose(root(kind, **subject), ALL, OFFERED)
    assert choice.change == change
    steps = [step.partition(" ") for step in choice.steps]
    assert [name for name, _, _ in steps] == names
    assert choice.why.startswith("it tests this cause: ")
    for name, _, target in steps:
        listed = OFFERED[name]
        assert isinstance(listed, task_config.BuiltinChange)
        listed.check(target)


@pytest.mark.parametrize(
    ("found", "allowed", "offered", "why"),
    [
        (Verdict(None, VerdictStatus.NO_CAUSE), ALL, OFFERED, "blames nothing"),
        (root("io.wait"), ALL, OFFERED, "no built-in change tests"),
        (root("unit.crash_loop", unit=""), ALL, OFFERED, "target is not known"),
        (root("unit.crash_loop", unit="a;b.service"), ALL, OFFERED, "target is not known"),
        (root("unit.crash_loop", unit="-a.service"), ALL, OFFERED, "target is not known"),
        (root("unit.hidden_crash_loop", unit="containerd.service"), ALL, OFFERED, "no built-in change"),
        (root("memory.zombie_cgroups"), (), OFFERED, "the plan does not allow purge; the plan does not allow reboot"),
        (root("unit.hidden_crash_loop", unit="ember-a.service"), ("mask-unit",), OFFERED, "but the plan does not allow purge"),
        (root("unit.crash_loop", unit="b.service"), ALL, OFFERED, "lists no mask-unit b.service"),
        (root("memory.zombie_cgroups"), ALL, {}, "lists no purge; agent.toml of the host lists no reboot"),
    ],
)  # fmt: skip
def test_without_a_change_there_is_a_reason(
    found: Verdict, allowed: tuple[str, ...], offered: experiments.Offered, why: str
) -> None:
    choice = experiments.choose(found, allowed, offered)
    assert not choice.steps
    assert why in choice.why


def test_without_its_configuration_a_host_is_asked_by_the_name_of_the_builtin() -> None:
    choice = experiments.choose(root("unit.crash_loop", unit="a.service"), ALL, None)
    assert choice.steps == ("mask-unit a.service",)
    assert not experiments.choose(root("unit.crash_loop", unit="a.service"), (), None).steps


def test_a_change_of_the_built_in_knowledge_is_one_place() -> None:
    roots = [each.root for each in knowledge.known().experiments if each.change]
    assert len(roots) > 9
    assert "unit.hidden_crash_loop" in roots


def arm(events: int, hours: float, hosts: int = 1, kind: str = "net.driver_reset") -> ArmRun:
    """Return an arm whose events are evenly distributed over its hosts and hours."""
    names = tuple(f"host-{number}" for number in range(hosts))
    found = tuple(
        Occurrence(names[n % hosts], f"e{n}", kind, round((n + 0.5) / events * hours * HOUR_US))
        for n in range(events)
    )
    return ArmRun(kind=ArmKind.HOT, hosts=names, ended_us=round(hours * HOUR_US), occurrences=found)


@pytest.mark.parametrize(
    ("before", "after", "answer", "says"),
    [
        (arm(12, 4), arm(0, 4), Answer.CONFIRMED, "the event became rarer: 12 events in 4 host-hours before the change, 0 events in 4 host-hours after it; ratio of the rates 0, 95 % interval 0 to 0.36"),
        (arm(40, 4), arm(42, 4), Answer.REFUTED, "the event did not become rarer by half: 40 events in 4 host-hours before the change, 42 events in 4 host-hours after it; ratio of the rates 1.1, 95 % interval 0.66 to 1.7"),
        (arm(3, 4), arm(0, 4), Answer.UNDECIDED, "3 events in 4 host-hours before the change, 0 events in 4 host-hours after it; ratio of the rates 0, 95 % interval 0 to 2.4; 5.7 host-hours more without an event would confirm it"),
        (arm(2, 8, 4), arm(0, 8, 4), Answer.UNDECIDED, "2 events in 32 host-hours before"),
        (arm(0, 4), arm(2, 4), Answer.UNDECIDED, "there was no event before it to compare with"),
        (arm(3, 4), arm(0, 0), Answer.UNDECIDED, "nothing was observed after the change"),
        (arm(0, 0), arm(3, 4), Answer.UNDECIDED, "nothing was observed before the change"),
        (arm(400, 100), arm(300, 100), Answer.UNDECIDED, "it became rarer, but by less than half, so this is at most a part of the cause"),
        (arm(12, 4, kind="oom"), arm(0, 4), Answer.UNDECIDED, "0 events in 4 host-hours before"),
    ],
)  # fmt: skip
def test_an_outcome_names_counts_hours_and_intervals(
    before: ArmRun, after: ArmRun, answer: Answer, says: str
) -> None:
    judged = experiments.judge(before, after, ("net.driver_reset",))
    assert judged.answer is answer
    assert says in judged.says
    if judged.needs_hours is not None:
        assert judged.answer is Answer.UNDECIDED
        assert judged.needs_hours > 0


def test_a_burst_is_one_piece_of_evidence() -> None:
    burst = tuple(Occurrence("host-0", f"e{n}", "x", 1_000_000 * (n + 1)) for n in range(12))
    before = ArmRun(kind=ArmKind.HOT, hosts=("host-0",), ended_us=4 * HOUR_US, occurrences=burst)
    judged = experiments.judge(before, arm(0, 4))
    assert judged.answer is Answer.UNDECIDED
    assert judged.needs_hours is not None
    assert judged.needs_hours > 4


counts, exposures = st.integers(0, 300), st.floats(0.1, 500)
RANK = (Answer.REFUTED, Answer.UNDECIDED, Answer.CONFIRMED)


def rank(events: list[int], hours: list[float]) -> int:
    return RANK.index(experiments.judge_rates(rates.compare(events, hours)).answer)


@hypothesis.given(st.integers(1, 300), counts, exposures, exposures)
def test_the_answer_is_monotone_in_the_evidence(
    before: int, after: int, first: float, second: float
) -> None:
    """More events after, or in less time, never speak for the cause; more before never against it."""
    here = rank([before, after], [first, second])
    assert rank([before, after + 1], [first, second]) <= here
    assert rank([before, after], [first, second / 2]) <= here
    assert rank([before + 1, after], [first, second]) >= here


@hypothesis.given(st.integers(1, 9), st.integers(0, 5), st.floats(1, 20), st.floats(1, 20))
@hypothesis.example(100, 58, 10.0, 10.0)  # it fell, but by half only with more time
def test_the_needed_hours_decide_and_fewer_do_not(
    before: int, after: int, first: float, second: float
) -> None:
    judged = experiments.judge_rates(rates.compare([before, after], [first, second]))
    if (needed := judged.needs_hours) is None:
        return
    assert rank([before, after], [first, (second + needed) * 1.001]) == 2
    assert rank([before, after], [first, (second + needed) * 0.999]) < 2


@hypothesis.given(counts, counts, exposures, exposures)
def test_an_experiment_is_never_confirmed_without_a_fall(
    before: int, after: int, first: float, second: float
) -> None:
    compared = rates.compare([before, after], [first, second])
    judged = experiments.judge_rates(compared)
    if judged.answer is Answer.CONFIRMED:
        assert compared.outcome is rates.Outcome.FELL
        assert after / second <= before / first / 2 * 1.0001
    if judged.answer is Answer.REFUTED:
        assert compared.outcome is not rates.Outcome.FELL
