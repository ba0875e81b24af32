"""The control plane against a small model: all guarantees hold for any operations in any order."""

from __future__ import annotations

import hypothesis
import poolmodel
import pytest
from hypothesis import stateful


class OnServer(poolmodel.Machine):
    """The same on PostgreSQL."""


PLAIN = {
    "deadline": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
    "print_blob": True,
}


def test_guarantees_hold_on_sqlite() -> None:
    stateful.run_state_machine_as_test(
        poolmodel.Machine,
        settings=hypothesis.settings(max_examples=16, stateful_step_count=40, **PLAIN),
    )


def test_guarantees_hold_on_postgresql(postgresql: str) -> None:
    OnServer.url = postgresql
    stateful.run_state_machine_as_test(
        OnServer,
        settings=hypothesis.settings(max_examples=8, stateful_step_count=20, **PLAIN),
    )


@pytest.mark.long
@pytest.mark.timeout(900)
def test_guarantees_hold_in_many_long_runs() -> None:
    stateful.run_state_machine_as_test(
        poolmodel.Machine,
        settings=hypothesis.settings(max_examples=300, stateful_step_count=50, **PLAIN),
    )
