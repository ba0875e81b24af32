from __future__ import annotations

import contextlib
import pathlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.interfaces.cli import local_time, session, terminal
from overnight.model import sizes, stop_signals, times
from overnight.model.load import Constancy
from overnight.model.text import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import rich.console
    import rich.table

    from overnight.app import load
    from overnight.model.load import Load

ORDER = 16
# Stored state: label and colour.
PASS, FAIL, TOO_SHORT = ("pass", "green"), ("fail", "red"), ("too short", "yellow")
STATES = {"kept": PASS, "crossed": FAIL, "cannot tell": TOO_SHORT}
STATUS = {
    Constancy.CONSTANT: PASS,
    Constancy.REPLAYED: PASS,
    Constancy.NOT_CONSTANT: FAIL,
    Constancy.UNKNOWN: TOO_SHORT,
}


def run_load(
    current: session.Session,
    workload: str = session.argument(
        "", "Workload: trials, cpu, replay, memory, network or stress-ng.", "WORKLOAD"
    ),
    duration: str = session.option(
        "", "Duration: 10m, 12h. Default: 10m; replay: the profile's.", "DURATION", "--for"
    ),
    cores: str = session.option("", "Cores: 0-3 or 1,3. Default: all but the first.", "CORES"),
    duty: str = session.option("", "trials, cpu, stress-ng: share of each core: 60%.", "SHARE"),
    rate: str = session.option(
        "", "memory: bytes written per second; network: packets per second.", "RATE"
    ),
    size: str = session.option(
        "", "memory: resident set, all cores together; network: packet size.", "SIZE"
    ),
    trials: int | None = session.option(None, "trials: number of trials.", "N"),
    steps: int | None = session.option(None, "trials: steps per trial. Default: 20000.", "N"),
    backend: str | None = session.option(None, "trials: numpy, torch or cuda.", "NAME"),
    orchestrator: str | None = session.option(None, "trials: own or ray.", "NAME"),
    address: str | None = session.option(
        None, "ray: existing cluster, one trial on each of its hosts.", "HOST:PORT"
    ),
    hosts: str = session.option("", "ray: hosts of the cluster. Default: all.", "NAMES"),
    profile: pathlib.Path | None = session.option(
        None, "replay: document of `overnight cpu -O json`.", "FILE"
    ),
    veth: bool = session.flag("network: veth pair in private namespaces (needs root)."),
    stressor: str | None = session.option(None, "stress-ng: stressor. Default: cpu.", "NAME"),
    seed: int = session.option(1, "Seed of data and weights.", "N", min=0),
    name: str = session.option("", "Name of the worker processes.", "NAME"),
    warm_up: str = session.option("5s", "Initial time that is not judged.", "DURATION"),
    listed: bool = session.flag("List workloads and past loads.", "--list"),
) -> int:
    """Run a load and measure whether it was constant.

    Shows and stores the measurements every second, so that a diagnosis of the same time can rule the load
    in or out. Exits with 1 if the load was not constant. Ctrl-C ends it.
    """
    from overnight.app import load

    if listed:
        _list(current)
        return errors.ExitCode.DONE
    if not workload:
        raise errors.UsageError(
            "no workload was given",
            why=f"workloads: {', '.join(load.list_loads(current.home).workloads)}",
            todo="`overnight load cpu --for 1m`, or `overnight load --list`",
        )
    seconds = times.parse_duration(duration) if duration else (None if trials or profile else 600.0)
    options = load.Options(
        name=name,
        seed=seed,
        duty=load.parse_share("--duty", duty) if duty else None,
        rate=float(sizes.parse_size(rate)) if rate else None,
        size=sizes.parse_size(size) if size else None,
        trials=trials,
        steps=steps,
        backend=backend,
        orchestrator=orchestrator,
        address=address,
        hosts=tuple(hosts.split(",")) if hosts else None,
        veth=veth,
        stressor=stressor,
    )
    request = load.Request(
        workload, options, cores, current.home, seconds, times.parse_duration(warm_up), profile
    )
    with stop_signals.stop_on_signals() as stop, _screen(current, request) as show:
        outcome = load.run(request, stop, show)
    if not current.printed_json(outcome):
        _show(outcome, current.console())
    constant = outcome.verdict.status is not Constancy.NOT_CONSTANT
    return errors.ExitCode.DONE if constant else errors.ExitCode.FOUND


def _list(current: session.Session) -> None:
    from overnight.app import load

    listing = load.list_loads(current.home)
    if current.printed_json(listing):
        return
    console = current.console()
    table = terminal.table("workload", "footprint")
    for name, about in listing.workloads.items():
        table.add_row(name, terminal.cell(about))
    console.print(table)
    if not listing.loads:
        console.print("\nNo load has run yet")
        return
    past_loads = terminal.table(
        local_time.heading(), "host", "workload", "for", "verdict", "measured"
    )
    for past in listing.loads:
        past_loads.add_row(*_format_load(past))
    console.print()
    console.print(past_loads)


def _format_load(past: Load) -> tuple[str, ...]:
    lasted = times.format_duration((past.until_us - past.began_us) / 1e6)
    status = past.status or Constancy.UNKNOWN
    known = status in list(Constancy)
    label, colour = STATUS[Constancy(status)] if known else (terminal.cell(status), "default")
    ending = "" if past.ended else " (running)" if past.running else " (cut off)"
    return (
        local_time.cell(past.began_us)[:19].replace("T", " "),
        terminal.cell(past.host),
        terminal.cell(past.workload),
        f"{lasted}{ending}",
        f"[{colour}]{label}[/]",
        terminal.cell(past.says),
    )


@contextlib.contextmanager
def _screen(
    current: session.Session, request: load.Request
) -> Iterator[Callable[[load.Progress], None]]:
    """Show a live table on a terminal, else a line per second on standard error."""
    notes = current.notes()
    if not notes.is_terminal:

        def write_line(now: load.Progress) -> None:
            second = now.second
            figures = (f"{second.at:7.1f} s", "  ".join(now.figures), _host(second))
            host = (now.host,) if now.host else ()
            terminal.print_line(notes, "  ".join((*host, *figures, _state(now))))

        yield write_line
        return
    import rich.live

    with rich.live.Live(console=notes, auto_refresh=False, transient=True) as screen:

        def draw(now: load.Progress) -> None:
            screen.update(_table(request, now), refresh=True)

        screen.update("Starting the workers…", refresh=True)
        yield draw


def _host(second: load.Second) -> str:
    """Format steal, pressure, and the kernel time of the core with most of it."""
    kernel = ""
    if second.sys:
        core, share = max(second.sys.items(), key=lambda item: item[1])
        kernel = f"sys {share:.1%} on core {core}  "
    psi = " ".join(f"{name} {share:.0%}" for name, share in second.pressure.items())
    return f"{kernel}steal {second.steal:.1%}" + (f"  PSI {psi}" if psi else "")


def _state(now: load.Progress) -> str:
    return STATUS[now.verdict.status][0] if now.second.warm else "warm-up"


def _table(request: load.Request, now: load.Progress) -> rich.table.Table:
    import rich.table
    import rich.text

    until = f" of {times.format_duration(request.seconds)}" if request.seconds else ""
    table = rich.table.Table(
        title=f"{request.workload}{f' on {now.host}' if now.host else ''}: {times.format_duration(now.second.at)}{until}, {_state(now)}",
        title_justify="left",
        box=None,
        show_header=False,
    )
    table.add_row("now", rich.text.Text("  ".join(now.figures)))
    table.add_row("host", rich.text.Text(_host(now.second)))
    for check in now.verdict.checks:
        label, colour = STATES[check.state]
        table.add_row(f"[{colour}]{label}[/]", rich.text.Text(check.says))
    for figure in now.verdict.figures:
        table.add_row("[dim]info[/]", rich.text.Text(figure, style="dim"))
    return table


def _show(outcome: load.Outcome, console: rich.console.Console) -> None:
    verdict = outcome.verdict
    lasted = times.format_duration((outcome.ended_us - outcome.began_us) / 1e6)
    cores = ", ".join(map(str, outcome.cores))
    label, colour = STATUS[verdict.status]
    console.print(
        f"[bold {colour}]{label}[/]: {outcome.workload} for {lasted} on "
        f"core{'s' if len(outcome.cores) > 1 else ''} {cores}, {verdict.seconds} s judged",
        soft_wrap=True,
    )
    for check in verdict.checks:
        label, colour = STATES[check.state]
        limit = "" if check.state == "kept" else _limit(check)
        says = terminal.cell(check.says)
        console.print(f"  [{colour}]{label:9}[/] {says}{limit}", soft_wrap=True)
    for figure in verdict.figures:
        terminal.print_line(console, f"  info      {figure}", "dim")
    if outcome.trials:
        loss = "differs" if outcome.loss is None else f"{outcome.loss!r} in every one"
        terminal.print_line(
            console, f"  info      {plural(outcome.trials, 'trial')}, loss {loss}", "dim"
        )
    if verdict.status is Constancy.UNKNOWN and verdict.needs_s and verdict.can_estimate:
        needs = times.format_duration(60 * -(-verdict.needs_s // 60))
        terminal.print_line(console, f"A run of about {needs} would decide it.")
    for stored in (outcome, *outcome.hosts):
        if stored.path is not None:
            terminal.print_line(console, f"stored: {stored.path}")


def _limit(check: load.Check) -> str:
    if check.limit is None or check.name.endswith("identical trials") or check.value is None:
        return ""
    unit = "%/h" if check.name.endswith("drift") else "%"
    unit = "points" if check.name.endswith(("kernel time", "profile error")) else unit
    return f" (limit {100 * check.limit:g} {unit})"


register = session.command(
    run_load, "Before the night", "load trials --cores 1-7 --duty 60% --for 12h"
)
