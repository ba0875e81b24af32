"""The definitions that every layer shares."""

from __future__ import annotations

import os
import pathlib
import signal
import threading

import pytest

from overnight.model import cpu, files, pins, severity, stop_signals


def test_severities_are_ordered() -> None:
    assert [s.rank for s in severity.Severity] == [0, 1, 2]


def test_steal_is_not_busy() -> None:
    shares = cpu.tick_shares([0, 0, 0, 0, 0, 0, 0, 100])
    assert shares == cpu.Shares(busy=0.0, kernel=0.0, steal=1.0)


def test_ticks_that_went_backwards_count_as_zero() -> None:
    assert cpu.tick_changes([5] * 10, [9, 5, 5, 4, 1, 5, 5, 5, 5, 5]) == [4, 0, 0, 0, 0, 0, 0, 0]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    files.write_atomically(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pin_that_cannot_be_read_pins_everything(tmp_path: pathlib.Path) -> None:
    kept = pins.Pins(tmp_path)
    kept.pin(pins.Pin("good", 1000, 2001, "why"))
    (tmp_path / "bad.json").write_text("{")
    bad, good = kept.pins()
    assert (good.begin_us, good.end_us) == (1, 3)
    assert (bad.begin_ns, bad.end_ns) == (0, pins.EVER_NS)
    assert kept.unpin("good")
    assert not kept.unpin("good")


def test_signals_set_the_event_and_the_old_handlers_are_restored() -> None:
    stop = threading.Event()
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals.stop_on_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(5)
    assert signal.getsignal(signal.SIGTERM) is before
