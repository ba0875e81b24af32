"""Each shipped plan runs until its events, which the real rules and watches find in a host's evidence."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING

import investigated
import pytest

from overnight.agent import event_tracker, kernel_events
from overnight.agent.watches import cores
from overnight.investigations import plan_file
from overnight.model import clock
from overnight.model.investigation import Outcome, Phase
from overnight.model.plan import HostsPlan
from overnight.sources import kmsg
from overnight.sources.kernelrules import rulefiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight.model.event import Event

EXAMPLES = {name: plan_file.parse(text.encode()) for name, text in plan_file.examples().items()}
KINDS = [(name, kind) for name, plan in EXAMPLES.items() for kind in plan.wait.events]
LINES = {
    "net.driver_reset": "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1",
    "cpu.soft_lockup": "watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [dd:1234]",
}
TICKS = len(("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "nice"))  # fmt: skip


def record(host: str, kind: str, now_us: int) -> list[Event]:
    """Return the events of a host on which something happened that an operator would call by this kind."""

    def at(second: int) -> clock.Clock:
        return clock.Clock(now_us * 1000 + second * 10**9, (100 + second) * 10**9)

    tracker = event_tracker.EventTracker(host, "boot", at(0))
    if kind in LINES:
        log = kernel_events.KernelWatch(rulefiles.built_in())
        line = kmsg.Record(1, at(0).monotonic_ns // 1000, 3, 0, LINES[kind], read_at=at(0))
        return tracker.track(log.check([line], at(0)), at(0))
    watch = cores.CorePinned()
    events: list[Event] = []
    for second in range(6):
        idle, system = (0, 0, 0, 100 * second), (0, 0, 100 * second, 0)
        rows = {str(core): (system if core == 1 else idle) + (0,) * (TICKS - 4) for core in range(4)}  # fmt: skip
        events += tracker.track(watch.check("cpu", at(second), rows), at(second), watch.name)
    return events


class Recorded(investigated.Hosts):
    kind, recorded = "", False

    def list_events(self, hosts: Sequence[str], begin_us: int, end_us: int) -> Sequence[Event]:
        if not self.recorded:
            self.recorded = True
            self.events = record(hosts[0], self.kind, begin_us)
        return super().list_events(hosts, begin_us, end_us)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_an_example_runs_until_its_event(name: str, kind: str, tmp_path: pathlib.Path) -> None:
    plan = EXAMPLES[name]
    arms = tuple(dataclasses.replace(arm, seconds=120.0) for arm in plan.arms)  # of hours
    plan = dataclasses.replace(plan, hosts=HostsPlan(provider="played"), arms=arms, rehearsal=None)
    world = investigated.World(f"sqlite:///{tmp_path / 'db'}", plan)
    hosts = world.hosts = Recorded(world.clock)
    hosts.kind, hosts.fault = kind, None
    made = world.create()
    run = world.run(made)
    assert (run.phase, run.outcome) == (Phase.ENDED, Outcome.REPRODUCED)
    first = run.arms[0]
    assert {seen.kind for seen in first.occurrences} == {kind}
    if plan.wait.count == 1:
        assert (first.ended_us - first.began_us) / 1e6 < plan.observed_seconds(plan.arms[0])
    world.close()
