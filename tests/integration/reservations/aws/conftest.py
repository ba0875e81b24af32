"""A server that is as strict as AWS, in place of it."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import motoserver
import pytest
import strictaws

from overnight import reservations
from overnight.reservations.providers import ec2, ecs

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTLE = 0.3


@pytest.fixture(scope="session")
def strict_server() -> Iterator[str]:
    with strictaws.running() as url:
        yield url


@pytest.fixture(scope="session")
def shared_account(strict_server: str) -> strictaws.Account:
    """Shared, since each client takes half a second to load its model."""
    return strictaws.Account(strict_server)


@pytest.fixture
def account(
    shared_account: strictaws.Account, monkeypatch: pytest.MonkeyPatch
) -> strictaws.Account:
    """An empty account, to which every AWS tool of the test is pointed."""
    motoserver.reset(shared_account.url)
    shared_account.control(reset=True)
    for name, value in motoserver.environment(shared_account.url).items():
        monkeypatch.setenv(name, value)
    return shared_account


class Killed(BaseException):
    """The process ends here."""


class Steps:
    """Record boundaries, and kill at one."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fatal = -1

    def __call__(self, step: str) -> None:
        self.seen.append(step)
        if len(self.seen) - 1 == self.fatal:
            raise Killed(step)


@pytest.fixture
def steps() -> Steps:
    return Steps()


_clients: dict[tuple[str, str], object] = {}  # shared by the providers of all tests


def _share_clients(provider: ec2.Instances | ecs.ContainerInstances) -> None:
    provider._clients.clients = _clients


@pytest.fixture
def instances(account: strictaws.Account, steps: Steps) -> ec2.Instances:
    settings = reservations.Settings(home=pathlib.Path("/nonexistent"), steps=steps)
    provider = ec2.Instances(settings, settle=SETTLE)
    _share_clients(provider)
    return provider


@pytest.fixture
def containers(account: strictaws.Account, steps: Steps) -> ecs.ContainerInstances:
    settings = reservations.Settings(home=pathlib.Path("/nonexistent"), steps=steps)
    provider = ecs.ContainerInstances(settings, settle=SETTLE)
    _share_clients(provider)
    return provider
