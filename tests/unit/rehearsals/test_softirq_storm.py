"""The packet flood: its network is journaled before it is created, and its pace reaches the target share."""

from __future__ import annotations

import pathlib

import hypothesis
import pytest
import stages
from hypothesis import strategies as st

from overnight import errors
from overnight.machines import network
from overnight.rehearsals import softirq_storm

FAULT = softirq_storm.SoftirqStorm()


def test_the_namespaces_are_journaled_before_they_are_created(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(network, "run_ip", lambda *words: done.append(" ".join(words)))
    with stages.make_stage(tmp_path, core=1, spare=0) as stage:
        monkeypatch.setattr(
            stage.journal, "write", lambda kind, target: done.append(f"{kind} {target}")
        )
        FAULT.prepare(stage)
        truth = FAULT.truth(stage)
    run = stage.journal.run
    for name in (f"{run}-c", f"{run}-d"):
        assert done.index(f"netns {name}") < done.index(f"netns add {name}")
    assert "echo 00000002 > /sys/class/net/" in done[-1]
    assert [kind for kind, _ in truth.chain][:2] == ["net.softirq_storm", "cpu.core_saturated"]
    assert truth.chain[0][1] == {"core": 1}


def test_a_failed_ip_command_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError, match="ip netns delete"):
        network.run_ip("netns", "delete", "overnight-there-is-none")


@hypothesis.given(st.integers(0, 4095))
def test_a_mask_has_one_core(core: int) -> None:
    mask = softirq_storm.core_mask(core)
    assert int(mask.replace(",", ""), 16) == 1 << core
    assert all(len(group) == 8 for group in mask.split(","))


@hypothesis.given(cost=st.floats(2e-6, 1e-3), share=st.floats(0.5, 0.9))
def test_the_pace_reaches_the_share_at_any_packet_cost(cost: float, share: float) -> None:
    pace = softirq_storm.Pace(share)
    for _ in range(20):
        sent = int(pace.rate)
        pace.learn(sent, sent * cost)
    assert pace.rate * cost == pytest.approx(share, rel=0.05)


def test_an_interval_without_packets_or_ticks_changes_nothing() -> None:
    pace = softirq_storm.Pace(0.8)
    before = pace.rate
    pace.learn(0, 0.3)
    pace.learn(100, 0.0)
    assert pace.rate == before
