"""The bell rings at once, then seldom, and never not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from overnight.pools import bell

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable


def until(true: Callable[[], object], seconds: float = 8) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(autouse=True)
def _not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell, "LINGER", 0.05)


@pytest.fixture
def heard() -> list[float]:
    return []


@pytest.fixture
def rhythm(heard: list[float]) -> bell._Rhythm:
    return bell._Rhythm(lambda: heard.append(time.monotonic()))


def test_the_first_is_heard_before_it_returns(rhythm: bell._Rhythm, heard: list[float]) -> None:
    rhythm.ring()
    assert len(heard) == 1
    assert not rhythm._ringer


def test_many_are_few_and_the_last_is_heard(rhythm: bell._Rhythm, heard: list[float]) -> None:
    begin = time.monotonic()
    rings = 0
    while time.monotonic() < begin + 0.3:
        rhythm.ring()
        rings += 1
    last = time.monotonic()
    until(lambda: heard[-1] > last - bell.RINGING)
    assert len(heard) < rings
    assert len(heard) <= 1 + (heard[-1] - begin) / bell.RINGING


def test_what_rang_before_it_was_sent_is_heard(rhythm: bell._Rhythm, heard: list[float]) -> None:
    """Whenever it rings, something is sent after that moment."""
    for _ in range(40):
        now = time.monotonic()
        rhythm.ring(hurry=False)
        rhythm.ring()
        until(lambda now=now: heard[-1] >= now)


def test_a_claim_is_in_no_hurry_and_others_overtake_it(
    rhythm: bell._Rhythm, heard: list[float]
) -> None:
    begin = time.monotonic()
    rhythm.ring(hurry=False)
    rhythm.ring(hurry=False)
    rhythm.ring()
    until(lambda: len(heard) == 2)
    assert heard[1] >= begin + bell.RINGING
    rhythm.ring(hurry=False)
    until(lambda: len(heard) == 3)
    assert heard[2] >= begin + bell.RINGING + bell.RINGING_OF_CLAIMS


def test_one_thread_that_ends(rhythm: bell._Rhythm, heard: list[float]) -> None:
    before = set(threading.enumerate())

    def ringers() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name == "bell"} - before

    for _ in range(100):
        rhythm.ring()
        assert len(ringers()) <= 1
    until(lambda: len(heard) >= 2)
    until(lambda: not ringers())
    known = len(heard)
    rhythm.ring()
    rhythm.ring()
    until(lambda: len(heard) == known + 2)


def test_a_process_that_ends_rings_before(tmp_path: pathlib.Path) -> None:
    """What it did last would else wait for the reaper's clock."""
    file = tmp_path / "rings"
    script = (
        "from overnight.pools import bell; import pathlib;"
        f"file = pathlib.Path({str(file)!r}).open('a');"
        "rhythm = bell._Rhythm(lambda: print('!', file=file, flush=True));"
        "rhythm.ring(hurry=False); rhythm.ring(hurry=False)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert file.read_text() == "!\n!\n"
