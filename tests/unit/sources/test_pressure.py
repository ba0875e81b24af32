from __future__ import annotations

import pathlib

import fakehost
import pytest

from overnight import sources
from overnight.sources import pressure


def test_a_real_text() -> None:
    text = b"""some avg10=2.76 avg60=3.23 avg300=12.75 total=1663749378
full avg10=0.00 avg60=0.00 avg300=0.00 total=12
"""
    assert pressure.parse_pressure(text) == (1663749378, 12)


def test_resources_that_this_kernel_does_not_account_have_no_row(captured: pathlib.Path) -> None:
    assert list(pressure.open_pressure(captured)()) == ["cpu", "memory", "io"]


def test_all_four_resources(large: fakehost.FakeHost) -> None:
    rows = pressure.open_pressure(large.root)()
    assert rows == {
        name: (0 if name == "irq" else some, full) for name, (some, full) in large.psi.items()
    }


def test_pressure_that_is_switched_off_is_no_data(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.NoDataError, match="psi=1"):
        pressure.open_pressure(fakehost.FakeHost(tmp_path, 2, pressure=()).root)()
