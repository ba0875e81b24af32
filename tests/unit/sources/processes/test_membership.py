from __future__ import annotations

import os

import pytest

from overnight.sources import processes


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/system.slice/ecs.service/task", "ecs.service"),
        ("/user.slice/user-0.slice/session-1.scope", "session-1.scope"),
        ("/user.slice", "/user.slice"),
        ("/kubepods/pod7f", "/kubepods/pod7f"),
        ("/.service", "/.service"),
        ("", ""),
    ],
)
def test_the_innermost_unit(path: str, unit: str) -> None:
    assert processes.unit_of(path) == unit


def test_an_ended_process_has_no_unit() -> None:
    assert processes.read_unit(2**22 + 1) == ""
    assert isinstance(processes.read_unit(os.getpid()), str)
