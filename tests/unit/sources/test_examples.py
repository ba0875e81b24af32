"""Docstring examples of the sources that consist of several modules."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from overnight import model
from overnight.model import cgroups
from overnight.sources import memorycgroups, processes, systemd

MODULES = [
    importlib.import_module(f"{package.__name__}.{info.name}")
    for package in (memorycgroups, processes, systemd)
    for info in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("module", [model, cgroups, *MODULES], ids=lambda module: module.__name__)
def test_examples_are_true(module: object) -> None:
    assert doctest.testmod(module).failed == 0
