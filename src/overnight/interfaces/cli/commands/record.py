"""`overnight record`."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import rich.console

    from overnight.model import recording

__all__ = ["ORDER", "register"]

ORDER = 20
BLOCKS = " ▁▂▃▄▅▆▇█"


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(rich_help_panel="During the night", epilog="Example: overnight record --for 30s")(
        record
    )


def record(
    context: typer.Context,
    lasting: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long: 30s, 10m20s, 12h.")
    ] = "10s",
    frequency: Annotated[
        int, typer.Option(min=1, max=10000, help="Stack samples a second on each core.")
    ] = 97,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Record every core of this host for a while, and show what was seen.

    Ctrl-C ends it early; what was recorded until then is kept and shown.
    """
    from overnight.app import record as recorder
    from overnight.model import times

    seconds = times.parse_duration(lasting)
    if not seconds:
        raise errors.UsageError(
            "a recording of no length",
            why="--for is zero",
            todo="say how long, like --for 30s",
        )
    current: session.Session = context.obj
    stop = threading.Event()
    with _stopped_by_signals(stop), _progress(current, seconds) as progress:
        made = recorder.record(
            current.home, seconds=seconds, frequency=frequency, stop=stop, progress=progress
        )
    if output is session.Output.JSON:
        current.print_json(made.as_json())
    else:
        _show(made, current.console())
    return errors.ExitCode.DONE


@contextlib.contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM end the recording instead of the process."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def _progress(current: session.Session, seconds: float) -> Iterator[Callable[[float], None]]:
    """A bar on a terminal, nothing in a pipe."""
    import rich.progress

    with rich.progress.Progress(
        rich.progress.TextColumn("recording every core"),
        rich.progress.BarColumn(),
        rich.progress.TimeRemainingColumn(),
        console=current.notes(),
        transient=True,
        disable=not current.notes().is_terminal,
    ) as bar:
        task = bar.add_task("", total=seconds)
        yield lambda done: bar.update(task, completed=done)


def strip(percents: tuple[float, ...], width: int) -> str:
    """One character a second; where they do not fit, each shows its busiest second.

    >>> strip((0.0, 50.0, 100.0), 8)
    ' ▄█'
    """
    each = max(1, -(-len(percents) // width))
    peaks = [max(percents[i : i + each]) for i in range(0, len(percents), each)]
    return "".join(BLOCKS[round(min(100.0, max(0.0, p)) * 8 / 100)] for p in peaks)


def _show(made: recording.Recording, console: rich.console.Console) -> None:
    import rich.table
    from rich.markup import escape

    console.print(f"[bold]{escape(made.host)}[/]  {made.started}  {made.seconds:.1f} s recorded\n")
    cores = rich.table.Table(box=None, pad_edge=False, title_justify="left")
    for heading in ("core", "busy mean", "busiest second", "kernel, at most"):
        cores.add_column(heading, justify="right")
    cores.add_column("each second")
    width = max(10, console.width - 50)
    for core in made.cores:
        colour = "red" if core.busy_peak >= 95 else "default"
        cores.add_row(
            str(core.core),
            f"{core.busy_mean:.0f} %",
            f"[{colour}]{core.busy_peak:.0f} %[/]",
            f"{core.kernel_peak:.0f} %",
            strip(core.busy, width),
        )
    console.print(cores)
    if made.profile:
        _show_profile(made.profile, console)
    for gap in made.gaps:
        console.print(f"\n[yellow]gap:[/] {escape(session.printable(gap))}")
    console.print(f"\nkept in {escape(made.folder)}")


def _show_profile(profile: recording.Profile, console: rich.console.Console) -> None:
    import rich.table
    from rich.markup import escape

    table = rich.table.Table(box=None, pad_edge=False)
    table.add_column("process")
    for heading in ("share of samples", "share of capacity", "cores"):
        table.add_column(heading, justify="right")
    for row in profile.processes[:8]:
        table.add_row(
            escape(session.printable(row.process)),
            f"{100 * row.share_of_samples:.1f} %",
            f"{100 * row.share_of_capacity:.1f} %",
            f"{row.cores:.2f}",
        )
    console.print()
    console.print(table)
    console.print(
        f"\n{profile.samples} samples at {profile.frequency} Hz a core, {profile.lost} lost, "
        f"{profile.idle_samples} of them idle; shares of samples leave the idle ones out"
    )
