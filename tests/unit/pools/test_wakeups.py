"""The first notification is sent at once, later ones are throttled, and none is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from overnight.pools import wakeups

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
    monkeypatch.setattr(wakeups, "LINGER_SECONDS", 0.05)


@pytest.fixture
def heard() -> list[float]:
    return []


@pytest.fixture
def throttle(heard: list[float]) -> wakeups._Throttle:
    return wakeups._Throttle(lambda: heard.append(time.monotonic()))


def test_the_first_is_heard_before_it_returns(
    throttle: wakeups._Throttle, heard: list[float]
) -> None:
    throttle.notify()
    assert len(heard) == 1
    assert not throttle._has_sender


def test_many_are_few_and_the_last_is_heard(
    throttle: wakeups._Throttle, heard: list[float]
) -> None:
    begin = time.monotonic()
    rings = 0
    while time.monotonic() < begin + 0.3:
        throttle.notify()
        rings += 1
    last = time.monotonic()
    until(lambda: heard[-1] > last - wakeups.NOTIFY_SECONDS)
    assert len(heard) < rings
    assert len(heard) <= 1 + (heard[-1] - begin) / wakeups.NOTIFY_SECONDS


def test_every_notify_is_followed_by_a_send(
    throttle: wakeups._Throttle, heard: list[float]
) -> None:
    for _ in range(40):
        now = time.monotonic()
        throttle.notify(urgent=False)
        throttle.notify()
        until(lambda now=now: heard[-1] >= now)


def test_a_claim_is_not_urgent_and_others_overtake_it(
    throttle: wakeups._Throttle, heard: list[float]
) -> None:
    begin = time.monotonic()
    throttle.notify(urgent=False)
    throttle.notify(urgent=False)
    throttle.notify()
    until(lambda: len(heard) == 2)
    assert heard[1] >= begin + wakeups.NOTIFY_SECONDS
    throttle.notify(urgent=False)
    until(lambda: len(heard) == 3)
    assert heard[2] >= begin + wakeups.NOTIFY_SECONDS + wakeups.CLAIM_NOTIFY_SECONDS


def test_one_thread_that_ends(throttle: wakeups._Throttle, heard: list[float]) -> None:
    before = set(threading.enumerate())

    def senders() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name == "wakeups"} - before

    for _ in range(100):
        throttle.notify()
        assert len(senders()) <= 1
    until(lambda: len(heard) >= 2)
    until(lambda: not senders())
    known = len(heard)
    throttle.notify()
    throttle.notify()
    until(lambda: len(heard) == known + 2)


def test_a_process_sends_what_is_pending_before_it_exits(tmp_path: pathlib.Path) -> None:
    """Otherwise its last change would wait for the next tick of the reaper."""
    file = tmp_path / "rings"
    script = (
        "from overnight.pools import wakeups; import pathlib;"
        f"file = pathlib.Path({str(file)!r}).open('a');"
        "throttle = wakeups._Throttle(lambda: print('!', file=file, flush=True));"
        "throttle.notify(urgent=False); throttle.notify(urgent=False)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert file.read_text() == "!\n!\n"
