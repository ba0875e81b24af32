"""Who is asked about the agent of a host."""

from __future__ import annotations

from typing import Any

import pytest

from overnight.model.reservation import (
    HostState,
    Order,
    Reservation,
    ReservationState,
    ReservedHost,
)
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


class Near:
    """Reaches the hosts of one place."""

    def reaches(self, host: str) -> bool:
        return host.startswith("near-")


@pytest.mark.parametrize(
    ("hosts", "obstacle"),
    [
        ({"near-1": HostState.HELD, "near-2": HostState.PLANNED}, ""),
        ({"near-1": HostState.HELD, "far-1": HostState.RELEASED}, ""),  # it was replaced
        ({"near-1": HostState.HELD, "far-1": HostState.PLANNED, "far-2": HostState.HELD}, "this machine does not reach far-1"),
    ],
)  # fmt: skip
def test_every_host_that_may_have_marks_must_be_reached(
    hosts: dict[str, HostState], obstacle: str
) -> None:
    provider: Any = Near()
    database: Any = None
    reservation = Reservation(
        id="r-0123456789ab", order=Order(provider="x"), state=ReservationState.ACTIVE,
        made_us=0, until_us=0, cap_us=0,
        hosts=tuple(ReservedHost(name=name, state=state) for name, state in hosts.items()),
    )  # fmt: skip
    asked = context.Context(database, {"x": provider})
    assert asked.find_obstacle(reservation) == obstacle
