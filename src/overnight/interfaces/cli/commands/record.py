"""`overnight record`."""

from __future__ import annotations

import contextlib
import enum
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import rich.console

    from overnight.app import record as recorder
    from overnight.model.event import Event
    from overnight.model.recording import Cost, Profile, Recording, Signals

__all__ = ["ORDER", "register"]

ORDER = 20


class Recorder(enum.StrEnum):
    """What takes the samples."""

    AUTO = "auto"
    PERF = "perf"
    NATIVE = "native"


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(rich_help_panel="During the night", epilog="Example: overnight record --for 12h")(
        record
    )


def record(
    context: typer.Context,
    lasting: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long: 30s, 10m20s, 12h.")
    ] = "12h",
    frequency: Annotated[
        int, typer.Option(min=1, max=10000, help="Stack samples a second on each core.")
    ] = 97,
    segment: Annotated[str, typer.Option(metavar="DURATION", help="How long a segment is.")] = "2m",
    budget: Annotated[
        str, typer.Option(metavar="SIZE", help="Disk to use; the oldest goes first.")
    ] = "20GiB",
    keep: Annotated[
        str, typer.Option(metavar="DURATION", help="Never remove anything younger than this.")
    ] = "2h",
    kind: Annotated[
        Recorder,
        typer.Option(
            "--recorder", help="perf, or native: perf_event_open without the perf binary."
        ),
    ] = Recorder.AUTO,
    signals_only: Annotated[
        bool, typer.Option("--signals-only", help="Signals and events alone, no stack samples.")
    ] = False,
    profiles_only: Annotated[
        bool, typer.Option("--profiles-only", help="Stack samples alone, no signals and events.")
    ] = False,
    metrics: Annotated[
        str, typer.Option(metavar="[ADDRESS:]PORT", help="Serve OpenMetrics there meanwhile.")
    ] = "",
    rules: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="More kernel-log rules; again for more.")
    ] = None,
    cloud: Annotated[
        bool, typer.Option("--cloud-labels", help="Ask the cloud's metadata service for labels.")
    ] = False,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Record signals, events and the stacks of every core of this host, and show what was seen.

    Ctrl-C ends it early; what was recorded until then is kept and shown. Whatever ends it, all but
    the last seconds can be read afterwards.
    """
    from overnight.app import record as recorder
    from overnight.model import sizes, stop_signals, times

    current: session.Session = context.obj
    options = recorder.Options(
        home=current.home,
        seconds=_positive("--for", lasting),
        frequency=frequency,
        segment_seconds=_positive("--segment", segment),
        budget_bytes=sizes.parse_size(budget),
        keep_seconds=times.parse_duration(keep),
        recorder=kind,
        profiles=not signals_only,
        signals=not profiles_only,
        agent=recorder.flight_recorder_arguments(
            metrics=metrics, rules=tuple(rules or ()), cloud_labels=cloud
        ),
    )
    if signals_only and profiles_only:
        raise errors.UsageError(
            "nothing to record",
            why="--signals-only and --profiles-only exclude each other",
            todo="leave one of them out, or both for both",
        )
    stop = threading.Event()
    with stop_signals.stop_on_signals(stop), _progress(current, options) as progress:
        made = recorder.record(options, stop, progress)
    if output is session.Output.JSON:
        current.print_json(made.as_json())
    else:
        _show(made, current.console())
    return errors.ExitCode.DONE


def _positive(option: str, text: str) -> float:
    from overnight.model import times

    seconds = times.parse_duration(text)
    if not seconds:
        raise errors.UsageError(
            "a recording of no length",
            why=f"{option} is zero",
            todo=f"say how long, like {option} 30s",
        )
    return seconds


@contextlib.contextmanager
def _progress(
    current: session.Session, options: recorder.Options
) -> Iterator[Callable[[recorder.Progress], None]]:
    """A bar on a terminal with how it goes and what it costs; nothing in a pipe."""
    import rich.progress

    from overnight.model import sizes

    with rich.progress.Progress(
        rich.progress.TextColumn("recording"),
        rich.progress.BarColumn(bar_width=20),
        rich.progress.TimeRemainingColumn(),
        rich.progress.TextColumn("{task.description}"),
        console=current.notes(),
        transient=True,
        disable=not current.notes().is_terminal,
    ) as bar:
        task = bar.add_task("", total=options.seconds)

        def tell(now: recorder.Progress) -> None:
            text = f"busiest core {now.busiest[0]}: {now.busiest[1]:.0f} %"
            if now.status is not None:
                s = now.status
                text += (
                    f" · {s.segments} segments, {sizes.format_size(s.written_bytes)}, {s.lost} lost"
                    f" · costs {s.cpu_percent:.1f} % of a core, {sizes.format_size(s.rss_bytes)}"
                )
                if s.why:
                    text += f" · {s.mode}: {s.why}"
            bar.update(
                task,
                completed=min(now.seconds, options.seconds),
                description=session.printable(text),
            )

        yield tell


def _show(made: Recording, console: rich.console.Console) -> None:
    import rich.table
    from rich.markup import escape

    from overnight.interfaces.cli import terminal
    from overnight.model import times

    console.print(
        f"[bold]{escape(made.host)}[/]  {times.format_instant(made.begin_us)}  "
        f"{times.format_duration(made.seconds)} recorded\n"
    )
    cores = rich.table.Table(box=None, pad_edge=False)
    for heading in ("core", "busy mean", "busiest second", "kernel, at most"):
        cores.add_column(heading, justify="right")
    cores.add_column("each second, at last", no_wrap=True)
    width = max(10, console.width - 52)
    # The fullest first: on 96 cores nobody reads them all.
    for core in sorted(made.cores, key=lambda c: -c.busy_peak)[:16]:
        colour = "red" if core.busy_peak >= 95 else "default"
        cores.add_row(
            str(core.core),
            f"{core.busy_mean:.0f} %",
            f"[{colour}]{core.busy_peak:.0f} %[/]",
            f"{core.kernel_peak:.0f} %",
            terminal.strip([value / 100 for value in core.busy], width),
        )
    console.print(cores)
    if len(made.cores) > 16:
        console.print(f"[dim]and {len(made.cores) - 16} less busy cores (overnight heatmap)[/]")
    if made.profile:
        _show_profile(made.profile, console)
    if made.events:
        _show_events(made.events, console)
    if made.cost:
        _show_cost(made.cost, console)
    if made.signals:
        _show_signals(made.signals, console)
    for gap in made.gaps:
        console.print(f"[yellow]gap:[/] {escape(session.printable(gap))}")
    console.print(
        f"\nkept in {escape(made.home)}; look closer with: overnight heatmap · flame · top · diff"
    )


def _show_profile(profile: Profile, console: rich.console.Console) -> None:
    import rich.table
    from rich.markup import escape

    from overnight.interfaces.cli import terminal

    table = rich.table.Table(box=None, pad_edge=False)
    table.add_column("process")
    for heading in ("share of samples", "share of capacity", "cores"):
        table.add_column(heading, justify="right")
    for row in profile.processes[:8]:
        table.add_row(
            escape(session.printable(row.process)),
            terminal.percent(row.share_of_samples),
            terminal.percent(row.share_of_capacity),
            f"{row.cores:.2f}",
        )
    console.print()
    console.print(table)
    console.print(
        f"\n{profile.samples} samples at {profile.frequency} Hz a core in {profile.segments} segments, "
        f"{profile.lost} lost, {profile.idle_samples} more were idle ({profile.recorder} recorder)"
    )


def _show_events(events: tuple[Event, ...], console: rich.console.Console) -> None:
    from overnight.interfaces.cli.commands import events as listing
    from overnight.model.severity import Severity

    console.print()
    worst = sorted(events, key=lambda e: (-Severity.of(e.severity).rank, e.time_us))
    listing.show_table(sorted(worst[:10], key=lambda e: e.time_us), console)
    if len(events) > 10:
        console.print(
            f"[dim]and {len(events) - 10} more, less severe or later: overnight events[/]"
        )


def _show_signals(signals: Signals, console: rich.console.Console) -> None:
    from overnight.model import sizes

    console.print(
        f"{signals.signals} signals and {signals.events} event{'s' * (signals.events != 1)}; "
        f"the flight recorder cost "
        f"{signals.cpu_percent:.2f} % of one core and {sizes.format_size(signals.rss_bytes)}"
    )
    for missing in signals.missing:
        console.print(f"not here: {session.printable(missing)}", style="dim", markup=False)


def _show_cost(cost: Cost, console: rich.console.Console) -> None:
    from overnight.model import sizes

    console.print(
        f"recording cost {cost.cpu_percent:.1f} % of one core and {sizes.format_size(cost.rss_bytes)}, "
        f"ingest {cost.ingest_cpu_percent:.1f} %; {sizes.format_size(cost.raw_bytes)} raw, "
        f"{sizes.format_size(cost.stored_bytes)} stored"
    )
