"""Poll times of signals."""

from __future__ import annotations

from overnight.agent import schedule


def times(every: dict[str, float], until: float, step: float = 0.25) -> dict[str, list[float]]:
    plan = schedule.Schedule(every, 100.0)
    seen: dict[str, list[float]] = {name: [] for name in every}
    for number in range(round(until / step)):
        for name in plan.due(100.0 + number * step):
            seen[name].append(number * step)
    return seen


def test_each_signal_keeps_its_interval_without_drift():
    seen = times({"cpu": 1.0, "nic": 10.0, "census": 60.0}, 300)
    assert seen["cpu"] == [float(n) for n in range(300)]
    assert len(seen["nic"]) in (30, 31)
    assert len(seen["census"]) in (5, 6)
    assert {round(b - a) for a, b in zip(seen["nic"][1:], seen["nic"][2:], strict=False)} == {10}


def test_every_signal_is_first_polled_within_two_seconds():
    seen = times({f"s{n}": 60.0 for n in range(20)}, 3)
    assert all(len(polls) == 1 for polls in seen.values())


def test_slow_signals_are_not_all_polled_in_the_same_second():
    seen = times({f"s{n}": 10.0 for n in range(10)}, 60)
    assert len({polls[3] for polls in seen.values()}) == 10


def test_a_late_loop_skips_polls_instead_of_catching_up():
    plan = schedule.Schedule({"cpu": 1.0}, 0.0)
    assert list(plan.due(0.0)) == ["cpu"]
    assert list(plan.due(5.5)) == ["cpu"]
    assert plan.next == 6.0


def test_a_failed_signal_is_postponed():
    plan = schedule.Schedule({"cpu": 1.0, "x": 1.0}, 0.0)
    for name in plan.due(0.0):
        if name == "x":
            plan.put_off("x", 60.0)
    assert [name for second in range(1, 60) for name in plan.due(second)] == ["cpu"] * 59
    assert sorted(plan.due(60.0)) == ["cpu", "x"]


def test_a_retry_comes_sooner_than_the_interval_and_does_not_shift_it():
    plan = schedule.Schedule({"census": 60.0}, 0.0)
    assert list(plan.due(0.0)) == ["census"]
    plan.retry("census", 1.0)
    assert plan.next == 1.0
    assert list(plan.due(1.0)) == ["census"]
    assert plan.next == 60.0
