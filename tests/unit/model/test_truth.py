"""A truth survives being written down."""

from __future__ import annotations

import json

from overnight.model.truth import FOUND, Expected, Truth, forbidden


def test_a_truth_is_the_same_after_json() -> None:
    chain: tuple[Expected, ...] = (
        ("cpu.rt_hog", {"core": 3, "process": frozenset({"a", "b"})}),
        ("net.driver_reset", {}),
    )
    made = Truth(FOUND, chain, forbidden(chain))
    assert Truth.from_json(json.loads(json.dumps(made.as_json()))) == made
