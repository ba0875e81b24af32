"""The screen of a running rehearsal: phase, cores, the victim's lateness, events."""

from __future__ import annotations

import collections
import contextlib
import platform
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import rich.console
import rich.live
import rich.text

from overnight.interfaces.cli import live_view, terminal
from overnight.model.text import printable

if TYPE_CHECKING:
    from overnight.app import live, rehearsal

DEADLINE_MS = 5000.0  # when the victim resets
BAR = 24
KEPT_NOTES = 3
MAX_STRIPS = 12
MAX_EVENTS = 5


class Board:
    def __init__(self, title: str) -> None:
        self.title = title
        self.now: rehearsal.Progress | None = None
        self.notes: collections.deque[str] = collections.deque(maxlen=KEPT_NOTES)
        self._late: collections.deque[tuple[float, bool]] = collections.deque(maxlen=400)
        self._resets = 0

    def take(self, now: rehearsal.Progress) -> None:
        if now.note:
            self.notes.append(printable(now.note))
        if now.phase:
            self.now = now
        if now.victim is not None:
            reset = now.victim.resets > self._resets
            self._resets = now.victim.resets
            self._late.append((now.victim.late_ms, reset))

    def draw(self, view: live.View | None, width: int) -> rich.console.Group:
        """Draw all lines, none wider than `width`."""
        lines = [self._phase()]
        if view is not None and view.cores:
            lines += live_view.cores(view, width, MAX_STRIPS)
        if self._late:
            lines.append(self._lateness(width))
        if view is not None:
            census = live_view.census_line(view)
            lines += [census] if census is not None else []
            lines += live_view.event_lines(view, MAX_EVENTS)
        lines += [rich.text.Text(f"· {note}", style="dim") for note in self.notes]
        for line in lines:
            line.truncate(width)
            line.no_wrap = True
        return rich.console.Group(*lines)

    def _phase(self) -> rich.text.Text:
        line = rich.text.Text(self.title, style="bold")
        if self.now is None:
            return line
        line.append(f"  {self.now.phase} ", style="cyan")
        if self.now.whole:
            done = min(1.0, self.now.done / self.now.whole)
            line.append("━" * round(BAR * done), style="cyan")
            line.append("━" * (BAR - round(BAR * done)), style="dim")
            line.append(f" {self.now.done:.0f} of {self.now.whole:.0f} s")
        return line

    def _lateness(self, width: int) -> rich.text.Text:
        line = rich.text.Text("victim ", style="dim")
        room = max(10, min(120, width - 50))
        for late, reset in list(self._late)[-room:]:
            share = min(1.0, late / DEADLINE_MS)
            style = "bold red" if share > 0.5 else "yellow" if share > 0.1 else "green"
            level = terminal.BLOCKS[max(1, round(8 * share))]
            line.append("R" if reset else level, style="bold red" if reset else style)
        last = self._late[-1][0] / 1000
        line.append(f" {last:.1f} s late, reset at 5 s", style="bold red" if last > 2.5 else "")
        if self._resets:
            line.append(f", {self._resets} reset{'s' * (self._resets > 1)}", style="bold red")
        return line


@contextlib.contextmanager
def shown(
    title: str, console: rich.console.Console
) -> Iterator[Callable[[rehearsal.Progress], None]]:
    """Show a live screen on a terminal; elsewhere a line for each phase."""
    if not console.is_terminal:
        yield _write_lines(title, console)
        return
    from overnight.app import live

    board, cores = Board(title), live.Board(platform.node() or "host")
    stop, threads = threading.Event(), list[threading.Thread]()
    screen = rich.live.Live(console=console, auto_refresh=False, transient=True)
    with screen as on:

        def draw(now: rehearsal.Progress) -> None:
            board.take(now)
            if not threads and now.phase not in ("", "clean", "replay"):
                # By now this thread, and so the new one, is off the victim's core.
                threads.append(live.start_loop(cores, stop, every={"memory-cgroups": 2.0}))
            on.update(board.draw(cores.view(), console.width), refresh=True)

        try:
            yield draw
        finally:
            stop.set()
            for thread in threads:
                thread.join(5)


def _write_lines(title: str, console: rich.console.Console) -> Callable[[rehearsal.Progress], None]:
    last = ""

    def write(now: rehearsal.Progress) -> None:
        nonlocal last
        if now.phase and now.phase != last:
            last = now.phase
            terminal.print_line(console, f"{title}: {now.phase}", "dim")
        if now.note:
            terminal.print_line(console, f"{title}: {now.note}")

    return write
