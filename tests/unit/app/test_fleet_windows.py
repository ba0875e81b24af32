from __future__ import annotations

import types
from typing import Any

import pytest

from overnight.app import fleet_windows
from overnight.model.control_plane import WindowRow


def row(digest: str, end_us: int, received_us: int | None) -> WindowRow:
    return WindowRow("db-7", digest * 64, "e-1", 0, end_us, 5, offered_us=1, received_us=received_us)  # fmt: skip


def plane(*rows: WindowRow) -> Any:
    return types.SimpleNamespace(windows=lambda _, **__: rows)


def test_the_newest_window_is_found_that_reaches_far_enough() -> None:
    first, whole, offered = row("a", 50, 10), row("b", 100, 20), row("c", 200, None)
    both = plane(first, whole, offered)
    assert fleet_windows.find_held(both, "db-7", "e-1") == whole
    assert fleet_windows.find_held(plane(first, offered), "db-7", "e-1") == first
    assert fleet_windows.find_held(both, "db-7", "e-1", least_end_us=100) == whole
    with pytest.raises(fleet_windows.WindowMissingError):
        fleet_windows.find_held(plane(first, offered), "db-7", "e-1", least_end_us=51)
