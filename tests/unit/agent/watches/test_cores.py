"""Synthetic loads on 2 to 192 cores, checked second by second."""

from __future__ import annotations

import pytest

from overnight.agent.watches import cores
from overnight.model import clock

SECOND = 1_000_000_000
WALL = 1_700_000_000 * SECOND


def at(second: float) -> clock.Clock:
    return clock.Clock(WALL + round(second * SECOND), round(second * SECOND))


class Host:
    """Counters that rise by the ticks spent in each second."""

    def __init__(self, count: int) -> None:
        self.ticks = {str(core): [0] * 10 for core in range(count)}
        self.watch = cores.CorePinned()
        self.now = 0

    def poll(self) -> list:
        rows = {core: tuple(row) for core, row in self.ticks.items()}
        return list(self.watch.check("cpu", at(self.now), rows))

    def second(self, spent: dict[int, dict[str, int]] | None = None, idle: int = 80) -> list:
        """Every core is `100 - idle` % busy in user space, except those in `spent`."""
        modes = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
        for core, row in self.ticks.items():
            used = (spent or {}).get(int(core), {"user": 100 - idle, "idle": idle})
            for mode, ticks in used.items():
                row[modes.index(mode)] += ticks
        self.now += 1
        return self.poll()


@pytest.mark.parametrize("count", [2, 96, 192])
def test_one_core_pinned_in_the_kernel_is_seen_after_three_seconds(count):
    host = Host(count)
    host.poll()
    pinned = {count - 1: {"system": 99, "idle": 1}}
    assert host.second(pinned) == []
    assert host.second(pinned) == []
    (seen,) = host.second(pinned)
    assert (seen.kind, seen.core, seen.severity) == ("cpu.core_pinned", count - 1, "warning")
    assert seen.begin == at(0)
    assert seen.fields["kernel_percent"] == 99.0
    assert seen.fields["others_percent"] == 20.0
    others = "the other core" if count == 2 else f"the other {count - 1} cores"
    assert seen.text == (
        f"core {count - 1} was 99 % busy for 3 s, 100 % of it in the kernel, while {others} averaged 20 %"
    )
    host.second(pinned)
    (seen,) = host.second(pinned)
    assert seen.severity == "critical"
    assert seen.begin == at(0)


def test_a_busy_host_has_no_pinned_core():
    host = Host(4)
    host.poll()
    for _ in range(10):
        assert host.second({0: {"user": 100}}, idle=45) == []


def test_a_host_with_all_cores_busy_has_no_pinned_core():
    host = Host(2)
    host.poll()
    for _ in range(10):
        assert host.second(idle=0) == []


def test_two_pinned_cores_of_many_are_two_sightings():
    host = Host(8)
    host.poll()
    both = {1: {"user": 100}, 6: {"softirq": 92, "idle": 8}}
    host.second(both)
    host.second(both)
    assert [sighting.core for sighting in host.second(both)] == [1, 6]


def test_an_idle_second_restarts_the_count():
    host = Host(2)
    host.poll()
    pinned = {0: {"user": 100}}
    host.second(pinned)
    host.second(pinned)
    assert host.second() == []
    host.second(pinned)
    host.second(pinned)
    (seen,) = host.second(pinned)
    assert seen.begin == at(3)


def test_steal_is_not_busy():
    """A core that the hypervisor takes most of is stolen, not pinned."""
    host = Host(2)
    host.poll()
    for _ in range(5):
        seen = host.second({0: {"user": 40, "steal": 60}})
    assert [sighting.kind for sighting in seen] == ["cpu.core_stolen"]


def test_waiting_for_a_disk_is_not_busy():
    host = Host(2)
    host.poll()
    for _ in range(5):
        assert host.second({0: {"iowait": 100}}) == []


def test_stolen_time_is_reported_separately():
    host = Host(2)
    host.poll()
    stolen = {0: {"steal": 60, "user": 40}}
    host.second(stolen)
    host.second(stolen)
    (seen,) = host.second(stolen)
    assert (seen.kind, seen.core) == ("cpu.core_stolen", 0)


def test_a_pause_of_the_agent_is_not_evidence():
    host = Host(2)
    host.poll()
    pinned = {0: {"user": 100}}
    host.second(pinned)
    host.second(pinned)
    host.now += 10
    assert host.second({0: {"user": 1000}}) == []
    assert host.second(pinned) == []


def test_a_core_that_goes_off_line_is_forgotten():
    host = Host(3)
    host.poll()
    pinned = {2: {"user": 100}}
    host.second(pinned)
    host.second(pinned)
    row = host.ticks.pop("2")
    assert host.second() == []
    host.ticks["2"] = row
    assert host.second(pinned) == []
    assert host.second(pinned) == []


def test_idle_time_that_decreases_is_not_load():
    host = Host(2)
    host.ticks["0"][3] = 1000
    host.poll()
    for _ in range(5):
        assert host.second({0: {"idle": -1, "user": 0}}) == []


def test_a_pinned_core_with_all_receive_work_reports_skew_and_process():
    host = Host(4)
    host.poll()
    pinned = {3: {"softirq": 100}}
    for second in range(1, 3):
        host.watch.check(
            "softirqs", at(second), {str(c): (0, 0, 0, 9000 * second * (c == 3)) for c in range(4)}
        )
        host.watch.check(
            "processes", at(second), {"7 a b:c": (0, 50 * second, 1, 3, 0), "8 x": (5, 0, 1, 3, 0)}
        )
        host.second(pinned)
    pinned_core, skew = host.second(pinned)
    assert pinned_core.process == "a b:c[7]"
    assert skew.kind == "net.interrupt_skew"
    assert skew.fields["receive_percent"] == 100.0
