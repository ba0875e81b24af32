"""The same tests on real SQLite and real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pooldatabases
import poolworld
import pytest

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    with pooldatabases.server() as running:
        yield running.get_uri()


@pytest.fixture(params=pooldatabases.KINDS)
def url(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'pools.db'}"
    return pooldatabases.emptied(request.getfixturevalue("postgresql"))


@pytest.fixture
def world(url: str) -> Iterator[poolworld.World]:
    made = poolworld.World(url)
    yield made
    made.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def mostly(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[poolworld.World]:
    """A world for what asks nothing of its database: PostgreSQL only with the long tests."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'pools.db'}"
    else:
        url = pooldatabases.emptied(request.getfixturevalue("postgresql"))
    made = poolworld.World(url)
    yield made
    made.close()
