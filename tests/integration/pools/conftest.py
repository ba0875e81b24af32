"""A moto server in place of AWS, shared by all tests of pools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import motoserver
import pytest

if TYPE_CHECKING:
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
