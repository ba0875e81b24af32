"""A truth survives being written down."""

from __future__ import annotations

import json

from overnight.model import truth


def test_a_truth_is_the_same_after_json() -> None:
    chain: tuple[truth.Expected, ...] = (
        ("cpu.rt_hog", {"core": 3, "process": frozenset({"a", "b"})}),
        ("net.driver_reset", {}),
    )
    made = truth.Truth(truth.FOUND, chain, truth.forbidden(chain))
    assert truth.Truth.from_json(json.loads(json.dumps(made.as_json()))) == made
