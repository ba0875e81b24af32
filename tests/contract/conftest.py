"""The same tests on real SQLite and real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fleetworld
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
    new_world = poolworld.World(url)
    yield new_world
    new_world.close()


@pytest.fixture
def fleet(url: str, tmp_path: pathlib.Path) -> Iterator[fleetworld.World]:
    new_world = fleetworld.World(url, tmp_path / "blobs")
    yield new_world
    new_world.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def fast_world(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[poolworld.World]:
    """A world for tests that do not depend on the database: PostgreSQL only in the long tests."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'pools.db'}"
    else:
        url = pooldatabases.emptied(request.getfixturevalue("postgresql"))
    new_world = poolworld.World(url)
    yield new_world
    new_world.close()
