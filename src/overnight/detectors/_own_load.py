"""Processes of overnight's own loads and of a rehearsal's victim: context of an event, and not its culprits."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from overnight.detectors import _core_shares
from overnight.model.actor import Actor
from overnight.model.times import SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from overnight.model.load import Load
    from overnight.queries import case as cases

# The clocks of samples and of the load were set to the epoch by different readings.
START_US = 2 * SECOND_US
MOST = 0.5  # of an actor: others may have the same name


def find_actors(case: cases.Case) -> Mapping[Actor, Load]:
    """Return the actors of the incident window that are workers of a load, by pid and start."""
    found: dict[Actor, Load] = {}
    for load in case.loads():
        if load.until_us < case.window.begin_us and not load.running:
            continue  # the pids of its workers may be those of others by now
        starts = {worker.pid: worker.started_us for worker in load.workers}
        own, every = collections.Counter[Actor](), collections.Counter[Actor]()
        for actor, pid, started_us, weight in _list_processes(case) if starts else ():
            every[actor] += weight
            if pid in starts and abs((started_us or starts[pid]) - starts[pid]) <= START_US:
                own[actor] += weight
        found |= {actor: load for actor in own if own[actor] > MOST * every[actor]}
    return found


def _list_processes(case: cases.Case) -> Iterator[tuple[Actor, int, int, int]]:
    """Yield actor, pid, start and weight of each process; without samples the start is not known: 0."""
    if case.has_profile(case.window):
        for actor, processes in case.actors(case.window).items():
            yield from ((actor, p.pid, p.started_us or 0, p.samples) for p in processes)
        return
    for key in case.rates("processes", case.window, columns=("utime",)).keys:
        pid = key.partition(" ")[0]
        yield Actor(_core_shares.process_name(key)), int(pid) if pid.isdecimal() else 0, 0, 1
