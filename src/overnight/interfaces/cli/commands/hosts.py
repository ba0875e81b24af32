from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.interfaces.cli import local_time, session, terminal
from overnight.model import times
from overnight.model.text import plural

if TYPE_CHECKING:
    from overnight.app import fleet_questions

ORDER = 33


def hosts(
    current: session.Session,
    label: list[str] | None = session.option(
        None, "Label that the host has (repeatable).", "NAME=VALUE"
    ),
) -> None:
    """List hosts with their labels and when they were seen.

    With --server, those that report to the control plane; else those recorded in the data home.
    """
    from overnight.app import added_events, fleet_questions

    wanted = dict(map(added_events.parse_label, label or ()))
    server = current.server
    with current.notes().status("reading hosts …"):
        listed = server.list_hosts() if server else fleet_questions.list_hosts(current.home)
    result = listed.having(wanted)
    if current.printed_json(result):
        return
    console, now = current.console(), times.now_us()
    rows = [_cells(host, now, is_live=current.server is not None) for host in result.hosts]
    headings = ("host", "state", "last seen", "up", "snapshot", "labels")
    none = (
        "no host has these labels"
        if wanted
        else "no host has enrolled (`overnight token create --role agent`)"
    )
    terminal.echo_columns(headings, rows, none)
    for host in result.hosts:
        lost = [(host.lost_events, "event"), (host.lost_rollups, "rollup")]
        dropped = " and ".join(plural(count, what) for count, what in lost if count)
        if dropped:
            text = f"{host.name}: its agent had to drop {dropped} while the server was away"
            terminal.print_line(console, text, "yellow")
        if host.note:
            terminal.print_line(console, f"{host.name}: {host.note}", "yellow")
    for problem in result.problems:
        terminal.print_line(console, f"not read: {problem}", "yellow")


def _cells(host: fleet_questions.HostSummary, now: int, *, is_live: bool) -> tuple[str, ...]:
    from overnight.app import fleet_windows

    online = "online" if now - host.seen_us < fleet_windows.OFFLINE_US else "offline"
    up = times.format_duration((host.seen_us - host.booted_us) / 1e6) if host.booted_us else "-"
    taken = "-" if host.snapshot_us is None else local_time.cell(host.snapshot_us)
    return (
        host.name,
        online if is_live else "recorded",
        local_time.cell(host.seen_us) if host.seen_us else "never",
        up,
        taken,
        " ".join(f"{name}={value}" for name, value in sorted(host.labels.items())),
    )


register = session.command(
    hosts, "In the morning", "hosts --label zone=b", scope=session.Scope.SERVER
)
