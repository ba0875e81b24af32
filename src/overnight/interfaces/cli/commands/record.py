from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from overnight import errors
from overnight.interfaces.cli import local_time, session, terminal
from overnight.model import sizes, stop_signals, times
from overnight.model.text import percent, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import rich.console

    from overnight.app import record as recorder
    from overnight.model.event import Event
    from overnight.model.recording import Cost, Failure, Profile, Recording, Signals

ORDER = 20


def record(
    current: session.Session,
    lasting: str = session.option("12h", "Duration: 30s, 10m20s, 12h.", "DURATION", "--for"),
    frequency: int = session.option(97, "Stack samples per second and core.", min=1, max=10000),
    segment: str = session.option("2m", "Length of a segment.", "DURATION"),
    budget: str = session.option("20GiB", "Disk budget; the oldest data is removed first.", "SIZE"),
    keep: str = session.option("2h", "Minimum age of data that may be removed.", "DURATION"),
    kind: Literal["auto", "perf", "native"] = session.option(
        "auto", "Recorder; auto is native, which needs no perf binary.", None, "--recorder"
    ),
    signals_only: bool = session.flag("Record signals and events, no stacks."),
    profiles_only: bool = session.flag("Record stacks, no signals and events."),
    metrics: str = session.option("", "Address to serve OpenMetrics on.", "[ADDRESS:]PORT"),
    rules: list[str] | None = session.option(
        None, "Folder with more kernel-log rules (repeatable).", "DIR"
    ),
    every: list[str] | None = session.option(
        None, "Seconds between two readings of a signal (repeatable).", "SIGNAL=SECONDS"
    ),
    allow_partial: bool = session.flag("Record the rest if a part cannot be recorded."),
    cloud: bool = session.flag("Read labels from the cloud's metadata service.", "--cloud-labels"),
    print_unit: bool = session.flag("Print a systemd unit that records without root."),
) -> int:
    """Record signals, events and stacks of every core.

    Ctrl-C ends the recording early and shows the result. Even after kill -9, everything but the last seconds
    can be read. Exits with 3 if a part of the recording failed, and immediately if one cannot be recorded.
    """
    from overnight.app import record as recorder
    from overnight.app import units

    if print_unit:
        terminal.echo(units.render("record"), keep="\n", nl=False)
        return errors.ExitCode.DONE
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
            metrics=metrics, rules=tuple(rules or ()), every=tuple(every or ()), cloud_labels=cloud
        ),
    )
    if signals_only and profiles_only:
        raise errors.UsageError(
            "--signals-only and --profiles-only are mutually exclusive",
            why="together they leave nothing to record",
            todo="leave one of them out, or both to record both",
        )
    if profiles_only and options.agent:
        raise errors.UsageError(
            "--metrics, --rules, --every and --cloud-labels cannot be combined with --profiles-only",
            why="they belong to the flight recorder, which does not run then",
            todo="leave --profiles-only out",
        )
    if missing := recorder.find_missing(options):
        what = f"cannot record {' and '.join(missing)}"
        if not allow_partial:
            raise errors.MissingPermissionError(
                what,
                why="this user has no permission",
                todo=f"`sudo overnight {current.words_elsewhere}`, or `overnight doctor` for other fixes; --allow-partial records the rest",
            )
        terminal.echo(f"warning: {what}; recording the rest", err=True)
    with stop_signals.stop_on_signals() as stop, _progress(current, options) as show_progress:
        recording = recorder.record(options, stop, show_progress)
    if not current.printed_json(recording):
        _show(recording, current)
    return errors.ExitCode.CANNOT if recording.failures else errors.ExitCode.DONE


def _positive(option: str, text: str) -> float:
    seconds = times.parse_duration(text)
    if not seconds:
        raise errors.UsageError(
            f"{option} must be greater than 0 (got {text})",
            why="a recording needs a duration",
            todo=f"for example {option} 30s",
        )
    return seconds


@contextlib.contextmanager
def _progress(
    current: session.Session, options: recorder.Options
) -> Iterator[Callable[[recorder.Progress], None]]:
    shown: set[Failure] = set()
    with current.progress("recording", options.seconds) as update:

        def show(now: recorder.Progress) -> None:
            fresh = [failure for failure in now.failures if failure not in shown]
            shown.update(fresh)
            text = f"busiest core {now.busiest[0]}: {now.busiest[1]:.0f} %"
            if now.status is not None:
                s = now.status
                text += (
                    f" · {plural(s.segments, 'segment')}, {sizes.format_size(s.written_bytes)}, {s.lost} lost"
                    f" · costs {s.cpu_percent:.1f} % of a core, {sizes.format_size(s.rss_bytes)}"
                )
                if s.why:
                    text += f" · {s.mode}: {s.why}"
            update(min(now.seconds, options.seconds), text, *map(_describe, fresh))

        yield show


def _describe(failure: Failure) -> str:
    from overnight.model.recording import Part

    name, effect = {
        Part.FLIGHT_RECORDER: ("the flight recorder", "signals and events are not recorded"),
        Part.PROFILER: ("the profiler", "stacks are not recorded"),
        Part.INGEST: ("ingest", "stacks stay in the spool: `overnight store ingest`"),
    }[failure.part]
    when = local_time.cell(failure.time_us)
    return f"error: {name} failed at {when}: {failure.why}; {effect}"


def _show(recording: Recording, current: session.Session) -> None:
    console = current.console()
    console.print(
        f"[bold]{terminal.cell(recording.host)}[/]  {local_time.format_instant(recording.begin_us)}  "
        f"{times.format_duration(recording.seconds)} recorded\n"
    )
    cores = terminal.table(right=("core", "busy mean", "busy peak", "kernel peak"))
    cores.add_column("last seconds", no_wrap=True)
    width = max(10, console.width - 52)
    # The busiest cores first; 96 rows are too many to read.
    for core in sorted(recording.cores, key=lambda c: -c.busy_peak)[:16]:
        colour = "red" if core.busy_peak >= 95 else "default"
        cores.add_row(
            str(core.core),
            f"{core.busy_mean:.0f} %",
            f"[{colour}]{core.busy_peak:.0f} %[/]",
            f"{core.kernel_peak:.0f} %",
            terminal.strip([value / 100 for value in core.busy], width),
        )
    console.print(cores)
    if len(recording.cores) > 16:
        more = plural(len(recording.cores) - 16, "less busy core")
        terminal.print_line(console, f"and {more} (`overnight heatmap`)", "dim")
    if recording.profile:
        _show_profile(recording.profile, console)
    if recording.events:
        _show_events(recording.events, console)
    if recording.cost:
        _show_cost(recording.cost, console)
    if recording.signals:
        _show_signals(recording.signals, console)
    for failure in recording.failures:
        terminal.print_line(console, _describe(failure), "bold red")
    for gap in recording.gaps:
        console.print(f"[yellow]not recorded:[/] {terminal.cell(gap)}", soft_wrap=True)
    console.print(f"\nstored in {terminal.cell(recording.home)}", soft_wrap=True)
    terminal.print_line(console, "next: `overnight events` lists the events")
    terminal.print_line(console, "next: `overnight diagnose` finds the cause of the worst one")
    if recording.profile:
        terminal.print_line(console, "also: heatmap, flame and top show the stacks", "dim")


def _show_profile(profile: Profile, console: rich.console.Console) -> None:
    table = terminal.table("process", right=("share of samples", "share of capacity", "cores"))
    for row in profile.processes[:8]:
        table.add_row(
            terminal.cell(row.process),
            percent(row.share_of_samples),
            percent(row.share_of_capacity),
            f"{row.cores:.2f}",
        )
    console.print()
    console.print(table)
    console.print(
        f"\n{plural(profile.samples, 'sample')} at {profile.frequency} Hz per core in {plural(profile.segments, 'segment')}, "
        f"{profile.lost} lost, {profile.idle_samples} idle ({profile.recorder} recorder)"
    )


def _show_events(events: tuple[Event, ...], console: rich.console.Console) -> None:
    from overnight.interfaces.cli.commands import events as listing
    from overnight.model.severity import Severity

    console.print()
    worst = sorted(events, key=lambda e: (-Severity.of(e.severity).rank, e.time_us))
    listing.show_table(sorted(worst[:10], key=lambda e: e.time_us), console)
    if len(events) > 10:
        console.print(f"[dim]and {len(events) - 10} more[/]")


def _show_signals(signals: Signals, console: rich.console.Console) -> None:
    console.print(
        f"{plural(signals.signals, 'signal')} and {plural(signals.events, 'event')}; "
        f"the flight recorder used "
        f"{signals.cpu_percent:.2f} % of one core and {sizes.format_size(signals.rss_bytes)}"
    )
    for missing in signals.missing:
        terminal.print_line(console, f"not available: {missing}", "dim")


def _show_cost(cost: Cost, console: rich.console.Console) -> None:
    console.print(
        f"the recorder used {cost.cpu_percent:.1f} % of one core and {sizes.format_size(cost.rss_bytes)}, "
        f"ingest {cost.ingest_cpu_percent:.1f} %; {sizes.format_size(cost.raw_bytes)} raw, "
        f"{sizes.format_size(cost.stored_bytes)} stored"
    )


register = session.command(record, "During the night", "record --for 12h")
