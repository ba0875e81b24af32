"""Examples in the modules of those sources that take more than one file."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from overnight import model
from overnight.model import cgroups
from overnight.sources import memorycgroups, processes, systemd

MODULES = [
    importlib.import_module(f"{package.__name__}.{found.name}")
    for package in (memorycgroups, processes, systemd)
    for found in pkgutil.iter_modules(package.__path__)
]


@pytest.mark.parametrize("module", [model, cgroups, *MODULES], ids=lambda one: one.__name__)
def test_examples_are_true(module: object) -> None:
    assert doctest.testmod(module).failed == 0
