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
def _short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "LINGER_SECONDS", 0.05)


@pytest.fixture
def sent() -> list[float]:
    return []


@pytest.fixture
def throttle(sent: list[float]) -> wakeups._Throttle:
    return wakeups._Throttle(lambda: sent.append(time.monotonic()))


def test_the_first_notification_is_sent_before_notify_returns(
    throttle: wakeups._Throttle, sent: list[float]
) -> None:
    throttle.notify()
    assert len(sent) == 1
    assert not throttle._has_sender


def test_many_notifications_are_throttled_and_the_last_is_sent(
    throttle: wakeups._Throttle, sent: list[float]
) -> None:
    begin = time.monotonic()
    notifications = 0
    while time.monotonic() < begin + 0.3:
        throttle.notify()
        notifications += 1
    last = time.monotonic()
    until(lambda: sent[-1] > last - wakeups.NOTIFY_SECONDS)
    assert len(sent) < notifications
    assert len(sent) <= 1 + (sent[-1] - begin) / wakeups.NOTIFY_SECONDS


def test_every_notify_is_followed_by_a_send(throttle: wakeups._Throttle, sent: list[float]) -> None:
    for _ in range(40):
        now = time.monotonic()
        throttle.notify(urgent=False)
        throttle.notify()
        until(lambda now=now: sent[-1] >= now)


def test_a_claim_is_not_urgent_and_others_overtake_it(
    throttle: wakeups._Throttle, sent: list[float]
) -> None:
    begin = time.monotonic()
    throttle.notify(urgent=False)
    throttle.notify(urgent=False)
    throttle.notify()
    until(lambda: len(sent) == 2)
    assert sent[1] >= begin + wakeups.NOTIFY_SECONDS
    throttle.notify(urgent=False)
    until(lambda: len(sent) == 3)
    assert sent[2] >= begin + wakeups.NOTIFY_SECONDS + wakeups.CLAIM_NOTIFY_SECONDS


def test_at_most_one_sender_thread_and_it_ends(
    throttle: wakeups._Throttle, sent: list[float]
) -> None:
    before = set(threading.enumerate())

    def senders() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name == "wakeups"} - before

    for _ in range(100):
        throttle.notify()
        assert len(senders()) <= 1
    until(lambda: len(sent) >= 2)
    until(lambda: not senders())
    known = len(sent)
    throttle.notify()
    throttle.notify()
    until(lambda: len(sent) == known + 2)


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
