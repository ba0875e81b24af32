"""Kinds of events that a plan may wait for."""

from __future__ import annotations

import ast
import importlib
import pathlib
import pkgutil

import pytest

from overnight.agent import signals, watches
from overnight.app import event_kinds


@pytest.mark.parametrize("name", [each.name for each in pkgutil.iter_modules(watches.__path__)])
def test_a_watch_names_every_kind_that_it_finds(name: str) -> None:
    module = importlib.import_module(f"overnight.agent.watches.{name}")
    tree = ast.parse(pathlib.Path(str(module.__file__)).read_text())
    for each in ast.walk(tree):
        if not isinstance(each, ast.ClassDef):
            continue
        calls = [
            call.args[0]
            for call in ast.walk(each)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "Sighting"
        ]
        finds = getattr(getattr(module, each.name), "finds", ())
        assert bool(calls) == bool(finds), each.name
        written = {call.value for call in calls if isinstance(call, ast.Constant)}
        assert written <= {*finds}, each.name
    assert all(watch.finds for watch in signals.discover_watches())


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("kernel.soft_lockup", "unknown kind kernel.soft_lockup; did you mean cpu.soft_lockup?"),
        ("net.driver_rest", "unknown kind net.driver_rest; did you mean net.driver_reset?"),
        ("cpu.core_pined", "unknown kind cpu.core_pined; did you mean cpu.core_pinned?"),
        ("memory.xyz", "unknown kind memory.xyz; kinds: memory.allocation_failure, memory.oom_kill"),
        ("net", "'net' is not a dotted name in lower case"),
        ("Net.driver_reset", "is not a dotted name in lower case, such as net.driver_reset"),
        ("NET.DRIVER_RESET", "is not a dotted name in lower case, such as net.driver_reset"),
        ("net.driver_reset ", "is not a dotted name in lower case, such as net.driver_reset"),
        ("", "is not a dotted name in lower case, such as job.failed"),
        ("x" * 200_000, "is not a dotted name in lower case, such as job.failed"),
    ],
)  # fmt: skip
def test_a_kind_that_never_comes_is_a_mistake(kind: str, says: str) -> None:
    assert says in event_kinds.find_mistake(kind)


@pytest.mark.parametrize("kind", ["net.driver_reset", "net.", "host.panic", "pressure.io", "limit.near", "unit.crash_loop"])  # fmt: skip
def test_kinds_that_overnight_finds(kind: str) -> None:
    assert (event_kinds.find_mistake(kind), event_kinds.is_found(kind)) == ("", True)


@pytest.mark.parametrize("kind", ["invoice.late", "job.failed", "job.", "npd.disk", "netx.driver_rest"])  # fmt: skip
def test_other_kinds_are_outcomes(kind: str) -> None:
    assert (event_kinds.find_mistake(kind), event_kinds.is_found(kind)) == ("", False)
