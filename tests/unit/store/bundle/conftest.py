from __future__ import annotations

import pathlib

import nights
import pytest

from overnight.app import bundles


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A real bundle of a small recording."""
    folder = tmp_path_factory.mktemp("night")
    event = nights.build(folder / "home")
    return bundles.create(folder / "home", event, folder / "reset.overnight", now_us=1).file
