"""`overnight live`."""

from __future__ import annotations

import contextlib
import json
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from overnight.app import live as board

__all__ = ["ORDER", "register"]

ORDER = 25


def register(cli: typer.Typer) -> None:
    cli.command(rich_help_panel="During the night", epilog="Example: overnight live")(live)


def live(
    context: typer.Context,
    lasting: Annotated[
        str,
        typer.Option(
            "--for", metavar="DURATION", help="Duration: 30s, 10m. Default: until q or Ctrl-C."
        ),
    ] = "",
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Show cores, events and top processes of this host now.

    Stores nothing; q or Ctrl-C ends it. Without a terminal it prints one screen after --for (default
    3 s). With -O json it prints one line a second, each a JSON document.
    """
    import platform

    from overnight.app import live as board
    from overnight.model import times

    current: session.Session = context.obj
    seconds = times.parse_duration(lasting) if lasting else 0.0
    stop = threading.Event()
    shown = board.Board(platform.node() or "host")
    thread = board.start_loop(shown, stop)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            if output is session.Output.JSON:
                _lines(shown, thread, seconds)
            elif sys.stdout.isatty():
                _screen(current, shown, thread, seconds)
            else:
                thread.join(seconds or 3.0)
                _once(current, shown)
    finally:
        stop.set()
        thread.join(5)
    return errors.ExitCode.DONE


def _once(current: session.Session, shown: board.Board) -> None:
    from overnight.interfaces.cli import live_view

    console = current.console()
    view = shown.view()
    console.print(live_view.draw(view, console.width, 20 + len(view.cores)))


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


def _no_key(wait: float) -> str:
    time.sleep(wait)
    return ""


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for a key; restore the terminal afterwards."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(wait: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], wait)
        return sys.stdin.read(1) if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
