from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable

import pytest

from overnight.model import stop_signals


@pytest.mark.parametrize(
    "handling", [stop_signals.stop_on_signals, stop_signals.stop_then_interrupt]
)
def test_a_signal_in_the_middle_of_a_wait_sets_the_event(
    handling: Callable[[threading.Event], contextlib.AbstractContextManager[None]],
) -> None:
    """The handler runs in the thread that waits; `overnight pool events --follow` hung on Ctrl-C."""
    stop = threading.Event()
    with handling(stop):
        with vars(stop)["_cond"]:  # as `stop.wait()` does for a moment
            signal.raise_signal(signal.SIGINT)
        assert stop.wait(10)
