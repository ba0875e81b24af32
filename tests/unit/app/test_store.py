"""`overnight store pin` keeps a window of the profiles and of every host's ring."""

from __future__ import annotations

import pathlib

import pytest
import rings

from overnight import errors
from overnight.app import store
from overnight.interfaces import cli
from overnight.model.pins import Pin, Pins
from overnight.store.ring import layout, reader


def _record(home: pathlib.Path) -> None:
    writer = rings.open_writer(home)
    rings.record(writer, range(60))
    writer.close()


def test_store_pin_pins_the_ring_and_the_profiles(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(tmp_path)
    command = ["--home", str(tmp_path), "store"]
    pinned = [*command, "pin", "reset", "-b", "10s", "-e", "+20s", "--why", "NIC reset"]
    assert cli.main(pinned) == 0
    expected = (Pin("reset", rings.us(10) * 1000, rings.us(30) * 1000, "NIC reset"),)
    assert reader.Reader(tmp_path).pins(rings.HOST) == expected
    assert Pins(tmp_path / "spool" / "pins").pins() == expected
    assert "reset" in capsys.readouterr().out
    assert cli.main([*command, "unpin", "reset"]) == 0
    assert reader.Reader(tmp_path).pins(rings.HOST) == ()
    assert Pins(tmp_path / "spool" / "pins").pins() == ()


def test_pins_that_only_the_ring_has_are_listed_and_removed(tmp_path: pathlib.Path) -> None:
    _record(tmp_path)
    layout.ring_pins(tmp_path, rings.HOST).pin(Pin("event-1", 1000, 2000, "an event"))
    assert [pin.id for pin in store.list_pins(tmp_path).pins] == ["event-1"]
    assert store.unpin(tmp_path, "event-1").pins == ()
    assert store.list_pins(tmp_path).pins == ()
    with pytest.raises(errors.CannotError):
        store.unpin(tmp_path, "event-1")


def test_an_empty_home_has_nothing_to_pin(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError):
        store.pin(tmp_path, "night", "", "", "")
