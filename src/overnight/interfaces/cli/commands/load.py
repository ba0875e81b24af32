"""`overnight load`."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from overnight import errors
from overnight.interfaces.cli import session
from overnight.model import stop_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    import rich.console
    import rich.table

    from overnight.load import constancy, measurement, runner
    from overnight.model.load import Load

__all__ = ["ORDER", "register"]

ORDER = 16
STATES = {"kept": "green", "crossed": "red", "cannot tell": "yellow"}
STATUS = {"constant": "green", "not constant": "red", "cannot tell": "yellow"}


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command(
        "load",
        rich_help_panel="Before the night",
        epilog="Example: overnight load trials --cores 1-7 --duty 60% --for 12h",
    )(run_load)


def run_load(
    context: typer.Context,
    workload: Annotated[
        str,
        typer.Argument(metavar="WORKLOAD", help="trials, cpu, memory, network or stress-ng."),
    ] = "",
    duration: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long: 10m, 12h. Default 10m.")
    ] = "",
    cores: Annotated[
        str, typer.Option(metavar="CORES", help="Where: 0-3 or 1,3. Default: all but the first.")
    ] = "",
    duty: Annotated[
        str, typer.Option(metavar="SHARE", help="trials, cpu, stress-ng: of each core, 60%.")
    ] = "",
    rate: Annotated[
        str,
        typer.Option(metavar="RATE", help="memory: bytes written a second; network: packets."),
    ] = "",
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="memory: held in all; network: of a packet.")
    ] = "",
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="trials: end after so many.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="trials: steps of each. Default 20000.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(metavar="NAME", help="trials: numpy, torch or cuda.")
    ] = None,
    orchestrator: Annotated[
        str | None, typer.Option(metavar="NAME", help="trials: own or ray.")
    ] = None,
    veth: Annotated[
        bool, typer.Option("--veth", help="network: in own namespaces, needs root.")
    ] = False,
    stressor: Annotated[
        str | None, typer.Option(metavar="NAME", help="stress-ng: which. Default cpu.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of data and weights.")] = 1,
    name: Annotated[str, typer.Option(metavar="NAME", help="What the processes are called.")] = "",
    warm_up: Annotated[
        str, typer.Option(metavar="DURATION", help="Not looked at by the gate.")
    ] = "5s",
    listed: Annotated[
        bool, typer.Option("--list", help="Loads that ran here, and whether they were constant.")
    ] = False,
    output: session.OutputOption = session.Output.TEXT,
) -> int:
    """Run a load of constant footprint, and measure whether it was constant.

    The figures are shown every second and stored: a diagnosis of the same time says whether the load can
    have been what changed. Leaves with 1 when the footprint was not constant. Ctrl-C ends it in order.
    """
    from overnight import load as loads
    from overnight.app import load
    from overnight.load import runner
    from overnight.model import sizes, times

    current: session.Session = context.obj
    if listed or not workload:
        return _list(current, output, listed=listed)
    seconds = times.parse_duration(duration) if duration else (None if trials else 600.0)
    options = loads.Options(
        cores=runner.choose_cores(cores),
        name=name,
        seed=seed,
        duty=load.parse_share("--duty", duty) if duty else None,
        rate=float(sizes.parse_size(rate)) if rate else None,
        size=sizes.parse_size(size) if size else None,
        trials=trials,
        steps=steps,
        backend=backend,
        orchestrator=orchestrator,
        veth=veth,
        stressor=stressor,
    )
    plan = runner.Plan(workload, options, seconds, times.parse_duration(warm_up))
    stop = threading.Event()
    with stop_signals.stop_on_signals(stop), _screen(current, plan) as show:
        made = load.make(plan, current.home, stop, show)
    if output is session.Output.JSON:
        current.print_json(made.as_json())
    else:
        _show(made, current.console())
    constant = made.verdict.status != "not constant"
    return errors.ExitCode.DONE if constant else errors.ExitCode.FOUND


def _list(current: session.Session, output: session.Output, *, listed: bool) -> int:
    from overnight.load import workloads
    from overnight.store import loads

    known = {one.name: one.about for one in workloads.discover().values()}
    if not listed:
        raise errors.UsageError(
            "no workload was named",
            why=f"there are {', '.join(known)}",
            todo="overnight load cpu --for 1m, or overnight load --list for what ran",
        )
    found = loads.read_loads(current.home)
    if output is session.Output.JSON:
        current.print_json(
            {
                "schema": "overnight.loads/1",
                "workloads": [{"name": name, "about": about} for name, about in known.items()],
                "loads": [one.as_json() for one in found],
            }
        )
        return errors.ExitCode.DONE
    console = current.console()
    for name, about in known.items():
        console.print(f"{name:10} {about}", soft_wrap=True, markup=False)
    console.print("\nLoads that ran here" if found else "\nNo load ran here yet")
    for one in found:
        console.print(_line(one), soft_wrap=True)
    return errors.ExitCode.DONE


def _line(one: Load) -> str:
    from rich.markup import escape

    from overnight.model import times

    lasted = times.format_duration((one.until_us - one.began_us) / 1e6)
    status = one.status or "cannot tell"
    ending = "" if one.ended else " (runs)" if one.running else " (was cut off)"
    says = escape(session.printable(f"{one.host} {one.workload} for {lasted}{ending}: "))
    figures = escape(session.printable(one.says))
    when = times.format_instant(one.began_us)
    return f"{when} {says}[{STATUS.get(status, 'white')}]{escape(status)}[/] {figures}"


@contextlib.contextmanager
def _screen(current: session.Session, plan: runner.Plan) -> Iterator[runner.OnSecond]:
    """A table that is kept up to date on a terminal; a line a second in a pipe, on standard error."""
    from overnight.load import workloads

    notes = current.notes()
    workload = workloads.find(plan.workload)
    units = {one.name: one.unit for one in workload.metrics(plan.options)}
    if not notes.is_terminal:

        def tell(second: measurement.Second, verdict: constancy.Verdict) -> None:
            said = (f"{second.at:7.1f} s", _figures(second, units), _host(second))
            notes.print("  ".join((*said, _state(second, verdict))), soft_wrap=True, markup=False)

        yield tell
        return
    import rich.live

    with rich.live.Live(console=notes, auto_refresh=False, transient=True) as screen:

        def draw(second: measurement.Second, verdict: constancy.Verdict) -> None:
            screen.update(_table(plan, second, verdict, units), refresh=True)

        screen.update("starting the workers …", refresh=True)
        yield draw


def _figures(second: measurement.Second, units: dict[str, str]) -> str:
    from overnight.load import constancy

    return "  ".join(
        f"{name} {constancy.format_figure(value, units[name])}"
        for name, value in second.values.items()
    )


def _host(second: measurement.Second) -> str:
    """What the host did meanwhile: of its cores the one with most time in the kernel."""
    core, share = max(second.sys.items(), key=lambda one: one[1], default=(-1, 0.0))
    sys = f"sys {share:.1%} on core {core}  " if core >= 0 else ""
    psi = " ".join(f"{name} {one:.0%}" for name, one in second.pressure.items())
    return f"{sys}steal {second.steal:.1%}" + (f"  PSI {psi}" if psi else "")


def _state(second: measurement.Second, verdict: constancy.Verdict) -> str:
    return verdict.status if second.warm else "warm-up"


def _table(
    plan: runner.Plan,
    second: measurement.Second,
    verdict: constancy.Verdict,
    units: dict[str, str],
) -> rich.table.Table:
    import rich.table
    import rich.text

    from overnight.model import times

    until = f" of {times.format_duration(plan.seconds)}" if plan.seconds else ""
    table = rich.table.Table(
        title=f"{plan.workload}: {times.format_duration(second.at)}{until}, {_state(second, verdict)}",
        title_justify="left",
        box=None,
        show_header=False,
    )
    table.add_row("now", rich.text.Text(_figures(second, units)))
    table.add_row("host", rich.text.Text(_host(second)))
    for one in verdict.checks:
        table.add_row(f"[{STATES[one.state]}]{one.state}[/]", rich.text.Text(one.says))
    for told in verdict.told:
        table.add_row("[dim]told[/]", rich.text.Text(told, style="dim"))
    return table


def _show(made: runner.Outcome, console: rich.console.Console) -> None:
    from rich.markup import escape

    from overnight.load import constancy
    from overnight.model import times

    verdict = made.verdict
    lasted = times.format_duration((made.ended_us - made.began_us) / 1e6)
    cores = ", ".join(map(str, made.cores))
    console.print(
        f"[bold {STATUS[verdict.status]}]{verdict.status}[/]: {made.workload} for {lasted} on "
        f"core{'s' if len(made.cores) > 1 else ''} {cores}, {verdict.seconds} second{'s' * (verdict.seconds != 1)} judged",
        soft_wrap=True,
    )
    for one in verdict.checks:
        limit = "" if one.limit is None or one.state == "kept" else _limit(one)
        says = escape(session.printable(one.says))
        console.print(f"  [{STATES[one.state]}]{one.state:11}[/] {says}{limit}", soft_wrap=True)
    for told in verdict.told:
        console.print(f"  [dim]told        {escape(told)}[/]", soft_wrap=True)
    if made.trials:
        loss = "not the same in all" if made.loss is None else f"{made.loss!r} in every one"
        console.print(f"  [dim]told        {made.trials} trials, loss {loss}[/]", soft_wrap=True)
    # With fewer seconds nobody knows how long the drift needs.
    enough = verdict.seconds >= constancy.LEAST_SECONDS
    if verdict.status == "cannot tell" and verdict.needs_s and enough:
        needs = times.format_duration(60 * -(-verdict.needs_s // 60))
        console.print(f"A run of about {needs} would tell.", soft_wrap=True)
    if made.path is not None:
        console.print(f"stored: {escape(str(made.path))}", soft_wrap=True)


def _limit(one: constancy.Check) -> str:
    if one.limit is None or one.name == "identical trials" or one.value is None:
        return ""
    unit = "%/h" if one.name.endswith("drift") else "points" if one.name == "kernel time" else "%"
    return f" (limit {100 * one.limit:g} {unit})"
