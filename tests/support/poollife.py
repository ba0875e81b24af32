"""A pool's days through the real control plane: a clock that is moved, machines that boot after a warm-up,
claims at their times, and a reaper that is woken by each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import math
import threading
from typing import TYPE_CHECKING

from poolworld import START, S, State, World

from overnight.pools import pool_errors, reaper

if TYPE_CHECKING:
    from collections.abc import Iterable

    from overnight.model.pool import Grant

# A pool in which only the size changes: no heartbeats are simulated, and no member gets too old.
LASTING = {"heartbeat_stale_after_seconds": 10**7, "ready_ttl_seconds": 10**7}


@dataclasses.dataclass
class Life:
    """The outcome; times are seconds since the start."""

    world: World
    warm_up_s: float
    served: int = 0
    missed: int = 0
    sizes: list[tuple[float, int]] = dataclasses.field(default_factory=list)

    @property
    def now_s(self) -> float:
        return (self.world.clock.now_us - START) / S

    @property
    def target(self) -> int:
        return self.sizes[-1][1]

    def run(self, claims: Iterable[float], until_s: float, *, tick_s: float = 60) -> None:
        """Run claims at their times, with ticks and boots between them. A claim that finds no ready host gives up."""
        plane = self.world.plane
        a_reaper = reaper.Reaper(plane)
        pool = plane.show("ci").pool
        events = [(when, "claim") for when in claims]
        ticks = math.floor((until_s - self.now_s) / tick_s)
        events += [(self.now_s + tick_s * number, "tick") for number in range(1, ticks + 1)]
        if not self.sizes:
            self.sizes.append((self.now_s, plane.show("ci", recent=1).pool.target_size))
        heapq.heapify(events)
        coming: set[str] = set()
        while events:
            when, action = heapq.heappop(events)
            self.world.clock.now_us = START + round(when * S)
            if action == "tick":
                assert a_reaper.tick() == {}
            elif action == "claim":
                self._claim()
                a_reaper._maintain(pool, full=False)
            else:
                self._boot(action)
            shown = plane.show("ci", recent=1)
            for member in shown.members:
                if member.state is State.WARMING and member.id not in coming:
                    coming.add(member.id)
                    heapq.heappush(events, (when + self.warm_up_s, member.id))
            if self.target != shown.pool.target_size:
                self.sizes.append((when, shown.pool.target_size))
        self.world.clock.now_us = START + round(until_s * S)

    def _claim(self) -> None:
        try:
            [grant] = self.world.plane.acquire("ci")
        except pool_errors.NoReadyMembersError:
            self.missed += 1
        else:
            self.served += 1
            self.world.plane.give_back(grant.claim.id)

    def _boot(self, member_id: str) -> None:
        # The pool may have shrunk meanwhile.
        with contextlib.suppress(pool_errors.EnrolmentRefusedError):
            self.world.boot(member_id)

    def claim_cold(self) -> Grant:
        """Make a claim that waits for its machine, while another thread boots the machine."""
        stop, other = threading.Event(), self.world.another()

        def boots() -> None:
            while not stop.wait(0.005):
                for member in other.show("ci").members:
                    if member.state is State.WARMING and member.machine_id:
                        self.world.clock.forward(
                            10
                        )  # less than the limit for a silent waiting caller
                        self._boot(member.id)

        booting = threading.Thread(target=boots)
        booting.start()
        try:
            [grant] = self.world.plane.acquire("ci", cold=True, wait_seconds=20)
        finally:
            stop.set()
            booting.join()
        return grant
