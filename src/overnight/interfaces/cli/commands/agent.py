from __future__ import annotations

import math
import pathlib
from typing import TYPE_CHECKING, Literal

from overnight import errors
from overnight.interfaces.cli import session, terminal, unit_options
from overnight.model import sizes, stop_signals

if TYPE_CHECKING:
    from overnight.app import record as recorder
    from overnight.model.recording import Failure

ORDER = 22


def run_agent(
    current: session.Session,
    server: str = session.option("", "URL of the server.", "URL", envvar="OVERNIGHT_SERVER"),
    token_file: pathlib.Path | None = session.option(
        None, "File with a single-use token, or -; it is removed after its use.", "FILE"
    ),
    ca: pathlib.Path | None = session.option(
        None, "PEM file with the authority of the server. Default: the system's.", "FILE"
    ),
    insecure: bool = session.flag("Allow plain HTTP to another host."),
    config: pathlib.Path | None = session.option(
        None, "Allowed tasks. Default: /etc/overnight/agent.toml.", "FILE"
    ),
    default_config: pathlib.Path | None = session.option(
        None, "Allowed tasks where that file does not exist.", "FILE"
    ),
    spool: str = session.option("16MiB", "Disk budget for reports not sent yet.", "SIZE"),
    windows: str = session.option("1GiB", "Disk budget for bundles to upload.", "SIZE"),
    rate: str = session.option("1MB", "Upload limit per second.", "SIZE", "--upload-rate"),
    frequency: int = session.option(97, "Stack samples per second and core.", min=1, max=10000),
    budget: str = session.option("20GiB", "Disk budget of the recording.", "SIZE"),
    kind: Literal["auto", "perf", "native"] = session.option(
        "auto", "Recorder, as in record.", None, "--recorder"
    ),
    signals_only: bool = session.flag("Record signals and events, no stacks."),
    metrics: str = session.option("", "Address to serve OpenMetrics on.", "[ADDRESS:]PORT"),
    rules: list[str] | None = session.option(
        None, "Folder with more kernel-log rules (repeatable).", "DIR"
    ),
    cloud: bool = session.flag("Read labels from the cloud's metadata service.", "--cloud-labels"),
    print_unit: bool = session.flag(unit_options.UNIT),
) -> int:
    """Record this host until stopped, and report to a server.

    Reports events at once, and every 30 s the CPU use of each core. Uploads the window around each event, and
    runs the tasks that /etc/overnight/agent.toml allows. The recording goes on without the server.
    """
    from overnight.app import agent
    from overnight.app import record as recorder

    if print_unit:
        unit_options.print_unit(current, "agent", secrets=("--token-file",))
        return errors.ExitCode.DONE
    if not server:
        raise errors.UsageError(
            "no server was given",
            why="an agent reports to one",
            todo="add --server URL, or set OVERNIGHT_SERVER",
        )
    options = agent.Options(
        record=recorder.Options(
            home=current.home,
            seconds=math.inf,
            frequency=frequency,
            budget_bytes=sizes.parse_size(budget),
            recorder=kind,
            profiles=not signals_only,
            agent=recorder.flight_recorder_arguments(
                metrics=metrics, rules=tuple(rules or ()), cloud_labels=cloud
            ),
            summarize=False,
        ),
        server=server,
        token=agent.read_token(token_file),
        token_file=None if str(token_file) == "-" else token_file,
        ca=ca,
        insecure=insecure,
        config=config or agent.CONFIG,
        default_config=default_config,
        spool_bytes=sizes.parse_size(spool),
        window_bytes=sizes.parse_size(windows),
        upload_rate=max(1.0, float(sizes.parse_size(rate))),
    )
    shown: set[Failure] = set()

    def show(now: recorder.Progress) -> None:
        for failure in now.failures:
            if failure not in shown:
                shown.add(failure)
                terminal.echo(f"error: {failure.part} failed: {failure.why}", err=True)

    def log(line: str) -> None:
        terminal.echo(line, err=True)

    with stop_signals.stop_on_signals() as stop:
        recording = agent.run(options, stop, show, log)
    current.printed_json(recording)
    return errors.ExitCode.CANNOT if recording.failures else errors.ExitCode.DONE


register = session.command(
    run_agent,
    "During the night",
    "agent --server https://centre:8416 --token-file /run/overnight.token",
)
