from __future__ import annotations

import pathlib

import fakehost
import pytest

TESTS = pathlib.Path(__file__).parents[2]


@pytest.fixture
def captured() -> pathlib.Path:
    """The root of a captured host: 2 cores, Linux 6.18, virtio_net."""
    return TESTS / "fixtures/hosts/2-cores-6.18"


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> fakehost.FakeHost:
    """A host with 192 of 256 possible cores, two of them offline. Read-only."""
    root = tmp_path_factory.mktemp("large")
    return fakehost.FakeHost(root, 192, possible=256, offline=(3, 97))
