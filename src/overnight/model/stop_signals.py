"""SIGINT and SIGTERM for work that has something to finish."""

from __future__ import annotations

import _thread
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event | None = None) -> Iterator[threading.Event]:
    """Set `stop` on SIGINT and SIGTERM instead of ending the process.

    Only the main thread may install handlers; elsewhere the caller of that thread stops it. A handler is
    installed even where SIGINT is ignored, as in a background job of a shell.
    """
    event = stop or threading.Event()
    with _handle(STOP_SIGNALS, lambda *_: _set(event)):
        yield event


def stop_then_interrupt(stop: threading.Event) -> contextlib.AbstractContextManager[None]:
    """Set `stop` on the first SIGINT or SIGTERM, and raise KeyboardInterrupt on the second."""
    was_asked = False

    def handle(*_: object) -> None:
        nonlocal was_asked
        if was_asked or stop.is_set():
            raise KeyboardInterrupt
        was_asked = True
        _set(stop)

    return _handle(STOP_SIGNALS, handle)


def _set(stop: threading.Event) -> None:
    """Set an event from a signal handler.

    In a thread without locks of its own: `stop.wait()` holds the event's lock for moments, and a handler that runs in
    one of them would wait for it for ever.
    """
    try:
        _thread.start_new_thread(stop.set, ())
    except RuntimeError:  # no thread can be started
        stop.set()


def interrupt_on_signals() -> contextlib.AbstractContextManager[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that `finally` runs; those that nohup(1) ignores stay so."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (number for number in END_SIGNALS if signal.getsignal(number) != signal.SIG_IGN)
    return _handle(tuple(numbers), interrupt)


def ignore_signals() -> contextlib.AbstractContextManager[None]:
    """Ignore signals, also in new processes: a second Ctrl-C must not interrupt an undo."""
    return _handle(IGNORED, signal.SIG_IGN)


@contextlib.contextmanager
def _handle(
    numbers: tuple[signal.Signals, ...],
    handler: Callable[[int, FrameType | None], object] | signal.Handlers,
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)
