"""A moto server in place of AWS, shared by all tests of pools, and a pool of its instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ec2world
import motoserver
import pytest

from overnight.pools.providers import ec2

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    with motoserver.running() as url:
        yield url


@pytest.fixture
def moto(moto_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Point every AWS tool of the test to an empty account; return its URL."""
    motoserver.reset(moto_server)
    for name, value in motoserver.environment(moto_server).items():
        monkeypatch.setenv(name, value)
    return moto_server


@pytest.fixture(scope="session")
def clients(moto_server: str) -> tuple[motoserver.Account, ec2.Instances]:
    """Shared, since each client takes half a second to load its model of EC2."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in motoserver.environment(moto_server).items():
            patch.setenv(name, value)
        instances = ec2.Instances()
        instances.inventory("nobody", [motoserver.REGION, motoserver.ELSEWHERE])
    return motoserver.Account(moto_server), instances


@pytest.fixture
def account(moto: str, clients: tuple[motoserver.Account, ec2.Instances]) -> motoserver.Account:
    """An account with a launch template in each of two regions, and nothing else."""
    motoserver.template(clients[0].ec2)
    motoserver.template(clients[0].elsewhere)
    return clients[0]


@pytest.fixture
def provider(
    account: motoserver.Account, clients: tuple[motoserver.Account, ec2.Instances]
) -> ec2.Instances:
    return clients[1]


@pytest.fixture
def world(
    account: motoserver.Account, provider: ec2.Instances, tmp_path: pathlib.Path
) -> Iterator[ec2world.World]:
    new_world = ec2world.World(account, provider, tmp_path)
    yield new_world
    new_world.close()
