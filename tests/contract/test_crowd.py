"""Many processes claim from one pool as fast as they can: every member once, and all of it written down."""

from __future__ import annotations

import poolcrowd
import pytest

CLIENTS = 16


def crowd(url: str, each: int) -> None:
    count = CLIENTS * each
    poolcrowd.members(url, count)
    got = poolcrowd.claims(url, CLIENTS, each, poolcrowd.claim_from_pool)
    assert len(set(got.names)) == len(got.names) == count
    books = poolcrowd.read_totals(url)
    assert books.ready == 0
    assert books.open_claims == books.members_claimed == books.events == count
    # On a server those who come at the same moment pass by what another one holds.
    assert books.in_order or not url.startswith("sqlite")


def test_each_member_goes_to_one_of_them(url: str) -> None:
    crowd(url, 25)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_hundred_thousand(url: str) -> None:
    """A million: `python -m benchmarks.pools 1000000`."""
    crowd(url, 6250)
