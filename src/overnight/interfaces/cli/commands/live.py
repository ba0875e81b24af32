from __future__ import annotations

import contextlib
import json
import select
import sys
import threading
import time
from typing import TYPE_CHECKING

from overnight.interfaces.cli import session
from overnight.model import times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from overnight.app import live as board

ORDER = 25


def live(
    current: session.Session,
    lasting: str = session.option(
        "", "Duration: 30s, 10m. Default: until q or Ctrl-C.", "DURATION", "--for"
    ),
) -> None:
    """Show cores, events and top processes of this host now.

    Stores nothing; q or Ctrl-C ends it. Without a terminal it prints one screen after --for (default: 3 s). With
    -O json it prints a JSON document a second, one per line.
    """
    import platform

    from overnight.app import live as board
    from overnight.interfaces.cli import live_view

    seconds = times.parse_duration(lasting) if lasting else 0.0
    stop = threading.Event()
    shown = board.Board(platform.node() or "host")
    thread = board.start_loop(shown, stop)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            if current.output is session.Output.JSON:
                _lines(shown, thread, seconds)
            elif sys.stdout.isatty():
                _screen(current, shown, thread, seconds)
            else:
                thread.join(seconds or 3.0)
                view, console = shown.view(), current.console()
                console.print(live_view.draw(view, console.width, 20 + len(view.cores)))
    finally:
        stop.set()
        thread.join(5)


def _lines(shown: board.Board, thread: threading.Thread, seconds: float) -> None:
    until = time.monotonic() + seconds if seconds else float("inf")
    printed = -1
    while time.monotonic() < until and thread.is_alive():
        thread.join(0.2)
        view = shown.view()
        if view.seconds != printed and view.cores:
            printed = view.seconds
            sys.stdout.write(json.dumps(view.as_json()) + "\n")
            sys.stdout.flush()


def _screen(
    current: session.Session, shown: board.Board, thread: threading.Thread, seconds: float
) -> None:
    import rich.live

    from overnight.interfaces.cli import live_view

    console = current.console()
    until = time.monotonic() + seconds if seconds else float("inf")
    drawn = (-1, 0, 0)
    screen = rich.live.Live(console=console, screen=True, auto_refresh=False)
    with _keys() as pressed, screen as on:
        while time.monotonic() < until and thread.is_alive():
            view = shown.view()
            size = console.size
            if (view.seconds, size.width, size.height) != drawn:
                drawn = (view.seconds, size.width, size.height)
                on.update(live_view.draw(view, size.width, size.height), refresh=True)
            if pressed(0.2) in ("q", "Q", "\x03"):
                return


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a key; restore the terminal afterwards."""
    keyboard = [sys.stdin.fileno()] if sys.stdin.isatty() else []

    def pressed(wait: float) -> str:
        return sys.stdin.read(1) if select.select(keyboard, [], [], wait)[0] else ""

    if not keyboard:
        yield pressed
        return
    import termios
    import tty

    before = termios.tcgetattr(keyboard[0])
    try:
        tty.setcbreak(keyboard[0])
        yield pressed
    finally:
        termios.tcsetattr(keyboard[0], termios.TCSADRAIN, before)


register = session.command(live, "During the night", "live")
