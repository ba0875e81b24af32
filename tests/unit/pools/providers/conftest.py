"""Fixtures for the tests of providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ec2played
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give AWS tools an account at an address where nothing listens."""
    for name, value in ec2played.NOWHERE.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def clients() -> ec2played.Played:
    """Shared, since loading botocore's model of EC2 is slow."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ec2played.NOWHERE.items():
            patch.setenv(name, value)
        return ec2played.Played()


@pytest.fixture
def played(clients: ec2played.Played) -> Iterator[ec2played.Played]:
    clients.provider._ended.clear()
    yield clients
    clients.check_all_used()
