"""Many processes claim from one pool as fast as they can: each member once, all of it recorded."""

from __future__ import annotations

import poolcrowd
import pytest

CLIENTS = 16


def crowd(url: str, each: int) -> None:
    count = CLIENTS * each
    poolcrowd.members(url, count)
    claims = poolcrowd.claims(url, CLIENTS, each, poolcrowd.claim_from_pool)
    assert len(set(claims.names)) == len(claims.names) == count
    totals = poolcrowd.read_totals(url)
    assert totals.ready == 0
    assert totals.open_claims == totals.members_claimed == totals.events == count
    # On a server, concurrent claims skip members that another claim has locked.
    assert totals.in_order or not url.startswith("sqlite")


def test_each_member_goes_to_one_process(url: str) -> None:
    crowd(url, 25)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_hundred_thousand_claims(url: str) -> None:
    """For a million: `python -m benchmarks.pools 1000000`."""
    crowd(url, 6250)
