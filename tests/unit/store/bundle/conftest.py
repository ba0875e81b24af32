from __future__ import annotations

import pathlib

import nights
import pytest

from overnight.app import bundles


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A real bundle of a small night."""
    place = tmp_path_factory.mktemp("night")
    told = nights.build(place / "home")
    return bundles.create(place / "home", told, place / "reset.overnight", now_us=1).file
