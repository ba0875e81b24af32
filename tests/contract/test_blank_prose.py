"""Provider failures are handled the same with the prose of the errors blanked."""

from __future__ import annotations

import pathlib

import blankprose
import pytest

globals().update(blankprose.tests_of(pathlib.Path(__file__).with_name("test_failures.py")))


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    return f"sqlite:///{tmp_path / 'pools.db'}"


@pytest.fixture(autouse=True)
def _blank_prose(monkeypatch: pytest.MonkeyPatch) -> None:
    blankprose.blank(monkeypatch)
