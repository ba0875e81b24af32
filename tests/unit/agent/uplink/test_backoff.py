from __future__ import annotations

import time

import pytest

from overnight.agent.uplink import backoff


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, with the least jitter."""
    at = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    monkeypatch.setattr(backoff, "random_share", lambda: 0.0)
    return at


def delay(pause: backoff.Backoff, now: list[float]) -> float:
    """Return how long the next attempt waits, to a hundredth of a second."""
    begin = now[0]
    while not pause.is_over():
        now[0] += 0.01
    waited, now[0] = now[0] - begin, begin
    return round(waited, 1)


def test_each_failure_doubles_the_delay_up_to_five_minutes(now: list[float]) -> None:
    pause = backoff.Backoff()
    delays = []
    for _ in range(9):
        pause.fail("away", 0.0)
        delays.append(delay(pause, now))
    assert delays == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 150.0]
    pause.failures = 5000  # a server that is away for weeks
    pause.fail("away", 0.0)
    assert delay(pause, now) == backoff.MAX_DELAY_SECONDS / 2


def test_the_server_may_ask_for_more_time_never_for_less(now: list[float]) -> None:
    pause = backoff.Backoff()
    pause.fail("busy", 10.0)
    assert delay(pause, now) == 10.0
    pause.fail("busy", 0.5)
    assert delay(pause, now) == 2.0


def test_a_success_forgets_the_failures_and_their_problem() -> None:
    """So that the same problem is logged again when it comes back."""
    pause = backoff.Backoff()
    pause.fail("away", 0.0)
    pause.succeed()
    assert (pause.failures, pause.problem) == (0, "")


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_jitter_makes_a_delay_shorter_than_twice_the_last_and_never_than_was_asked_for(
    now: list[float], monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(backoff, "random_share", lambda: share)
    pause = backoff.Backoff()
    pause.fail("away", 0.0)
    assert delay(pause, now) == pytest.approx(1.0 + share, abs=0.1)
    pause.failures = 50
    pause.fail("away", 0.0)
    assert delay(pause, now) == pytest.approx(backoff.MAX_DELAY_SECONDS * (1 + share) / 2, abs=0.1)
    pause.fail("busy", 400.0)
    assert delay(pause, now) == pytest.approx(400.0 + 40.0 * share, abs=0.1)


def test_a_share_is_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for byte, share in ((b"\0", 0.0), (b"\xff", 1.0)):
        monkeypatch.setattr(backoff.os, "urandom", lambda size: byte * size)  # noqa: B023
        assert backoff.random_share() == pytest.approx(share, abs=1e-6)
