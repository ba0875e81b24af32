"""The seed's choices for the victim, and the victim's lines in the kernel log."""

from __future__ import annotations

import random

import hypothesis
from hypothesis import strategies as st

from overnight.agent import kernel_events
from overnight.model import clock
from overnight.rehearsals import victim, victim_worker
from overnight.sources import kmsg
from overnight.sources.kernelrules import rulefiles

USER = 1  # the facility of lines that a process writes


@hypothesis.given(st.integers(0, 10**6), st.booleans())
def test_a_victim_needs_most_of_its_core_and_never_all(seed: int, brief: bool) -> None:
    plan = victim.plan(random.Random(seed), brief=brief)
    assert 0.55 <= plan.share <= 0.75
    assert plan == victim.plan(random.Random(seed), brief=brief)
    # The sender must stay cheap, and the kernel's names are short.
    assert plan.rate * (plan.payload + 16) < 1 << 20
    assert len(plan.name) <= 15
    assert len(plan.sender) <= 15
    assert len(plan.interface) <= 15


def test_names_rates_and_queues_vary_with_the_seed() -> None:
    plans = [victim.plan(random.Random(seed)) for seed in range(50)]
    for part in ("interface", "bus", "queue", "rate", "payload", "share", "name", "sender"):
        assert len({getattr(plan, part) for plan in plans}) > 3, part


def test_the_reset_is_an_event_with_its_queue_and_core_marked_as_a_rehearsal() -> None:
    parameters = {
        "run": "overnight-0123abcd", "bus": "0000:20:03.0", "interface": "ens5", "queue": 3, "late_ms": 5000,
        "core": 1, "driver": "2.17.0g",
    }  # fmt: skip
    now = clock.Clock(10**18, 10**11)
    records = [
        kmsg.Record(n, 10**8, 4, USER, text, read_at=now)
        for n, text in enumerate(victim_worker.lines(parameters, 5_340_000))
    ]
    (seen,) = kernel_events.KernelWatch(rulefiles.built_in()).check(records, now)
    assert (seen.kind, seen.severity, seen.core, seen.count) == (
        "net.driver_reset",
        "critical",
        1,
        2,
    )
    assert seen.fields["interface"] == "ens5"
    assert seen.fields["queue"] == 3
    assert seen.fields["since_napi_us"] == 5_340_000
    assert seen.fields["driver_version"] == "2.17.0g"
    assert seen.fields["written_by_process"] is True
    assert seen.fields["rehearsal"] == "overnight-0123abcd"
    assert "[overnight rehearsal overnight-0123abcd]" in seen.text


def test_only_lines_of_a_process_can_be_a_rehearsal() -> None:
    now = clock.Clock(10**18, 10**11)
    text = "ena 0000:20:03.0 ens5: Trigger reset is on [overnight rehearsal overnight-1]"
    (seen,) = kernel_events.KernelWatch(rulefiles.built_in()).check(
        [kmsg.Record(1, 10**8, 4, 0, text, read_at=now)], now
    )
    assert "rehearsal" not in seen.fields
