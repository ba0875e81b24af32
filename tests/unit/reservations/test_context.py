"""Who is asked about the agent of a host."""

from __future__ import annotations

from typing import Any

import pytest

from overnight.model.reservation import Order
from overnight.reservations import Heard, context

FLEET = Heard(agent_us=7)


class Provider:
    """Answers as it is told."""

    def __init__(self, answer: Heard | None) -> None:
        self._answer = answer

    def hear(self, host: str, order: Order) -> Heard | None:
        return self._answer


@pytest.mark.parametrize(
    ("provider", "heard"),
    [
        (Provider(Heard(agent_us=5)), Heard(agent_us=5)),
        # It looked, and no agent runs: the fleet may have heard one that has ended since.
        (Provider(Heard()), Heard()),
        (Provider(None), FLEET),
        (object(), FLEET),
    ],
)
def test_the_fleet_is_asked_only_where_the_provider_cannot_look(
    provider: Any, heard: Heard
) -> None:
    database: Any = None
    hooks = context.Hooks(heard=lambda _: FLEET)
    asked = context.Context(database, {"x": provider}, hooks=hooks)
    assert asked.hear("a", Order(provider="x")) == heard
