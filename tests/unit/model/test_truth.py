from __future__ import annotations

import json

from overnight.model.truth import Expected, Truth, forbidden
from overnight.model.verdict import VerdictStatus


def test_a_truth_is_the_same_after_json() -> None:
    chain: tuple[Expected, ...] = (
        ("cpu.rt_hog", {"core": 3, "process": frozenset({"a", "b"})}),
        ("net.driver_reset", {}),
    )
    truth = Truth(VerdictStatus.CAUSE_FOUND, chain, forbidden(chain))
    assert Truth.from_json(json.loads(json.dumps(truth.as_json()))) == truth
