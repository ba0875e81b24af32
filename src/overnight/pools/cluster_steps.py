"""The next step of a cluster: what its pool holds and the clock in, a step out. Pure."""

from __future__ import annotations

import dataclasses

from overnight.model.cluster import Cluster, ClusterState
from overnight.model.pool import Reason
from overnight.pools import decisions

# Failures of a provider that may be over in a minute.
PASSING = (Reason.THROTTLED, Reason.TIMEOUT, Reason.UNREACHABLE, Reason.ERROR, Reason.INVALID_ANSWER)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Hold:
    """Claim this many members, and launch no more."""

    count: int


@dataclasses.dataclass(frozen=True)
class End:
    """End every claim, and terminate the members."""

    reason: str


@dataclasses.dataclass(frozen=True)
class Forget:
    """Delete the pool of a cluster that has ended and has no members left."""


Step = Hold | End | Forget


def decide(
    cluster: Cluster, view: decisions.View, ready: int, *, expired: bool = False
) -> Step | None:
    """Return the next step of a cluster of which `ready` members can be claimed; None if none is due.

    `expired`: the lease of a claim has ended it. Otherwise each was returned, or lost its machine.
    """
    pool = view.pool
    if cluster.state is ClusterState.ENDED:
        return None if view.members else Forget()
    if cluster.state is ClusterState.HELD:
        if view.claims:
            return None
        return End("lease_expired" if expired else "claims_ended")
    if ready >= cluster.count:
        return Hold(cluster.count)
    # With the breaker open for a lasting reason no more will come, and what is ready costs money meanwhile.
    broken = pool.breaker_opened_us is not None and pool.last_failure not in PASSING
    stuck = broken and not decisions.is_warming(view)
    if not stuck and view.now_us < (pool.assemble_until_us or 0):
        return None
    if ready >= cluster.at_least:
        return Hold(ready)
    return End(pool.last_failure or "assembly_timeout")
