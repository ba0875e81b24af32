"""Unit states and restart counters from a running systemd: `systemctl show` and the journal.

    Id=ecs.service
    ActiveState=activating
    SubState=auto-restart
    NRestarts=1834
    ActiveEnterTimestampMonotonic=0

The manager's line in the journal:

    ecs.service: Scheduled restart job, restart counter is at 1834.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from overnight import sources

PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "NRestarts", "Type", "WantedBy", "RequiredBy", "TriggeredBy",
    "ActiveEnterTimestampMonotonic", "ConditionResult", "ConditionTimestampMonotonic", "ExecMainStatus",
    "ExecMainStartTimestampMonotonic",
)  # fmt: skip
LOADED = (
    "*.service",
    "*.socket",
    "*.timer",
    "*.path",
    "*.mount",
    "*.swap",
)  # patterns of `read_show`
SECONDS = 20
LINES = 20_000
BATCH = 200  # names per call: far below the limit of a command line
RESTART = re.compile(
    r"^(\S+): Scheduled restart job, restart counter is at (\d{1,12})\.", re.MULTILINE
)


def parse_show(text: str) -> dict[str, dict[str, str]]:
    """Parse properties by unit; an empty line separates units.

    >>> parse_show("Id=a.service\\nNRestarts=3\\n\\nId=b.service\\nNRestarts=0\\n")["a.service"]
    {'Id': 'a.service', 'NRestarts': '3'}
    """
    units = {}
    for block in text.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if name := properties.get("Id"):
            units[name] = properties
    return units


def parse_journal(text: str) -> dict[str, int]:
    """Parse the highest restart counter that the manager logged, by unit.

    >>> parse_journal("a.service: Scheduled restart job, restart counter is at 7.\\n")
    {'a.service': 7}
    """
    restarts: dict[str, int] = {}
    for unit, count in RESTART.findall(text):
        restarts[unit] = max(restarts.get(unit, 0), int(count))
    return restarts


def read_show(names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """Read the properties of these units, or of loaded ones by a pattern; raise NoDataError where no manager answers."""
    wanted = list(names)
    units: dict[str, dict[str, str]] = {}
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        command = ["systemctl", "show", "--no-pager", "-p", ",".join(PROPERTIES), "--", *batch]
        units.update(parse_show(_ask(command)))
    return units


def read_journal() -> Mapping[str, int]:
    """Read restart counters from the manager's last lines of this boot; NoDataError without a journal."""
    lines = ["-b", "-o", "cat", "-q", "--no-pager", "-n", str(LINES)]
    return parse_journal(_ask(["journalctl", *lines, "_PID=1"]))


def _ask(command: list[str]) -> str:
    completed = sources.run_command(command, SECONDS)
    if completed.returncode:
        messages = completed.stderr.strip().splitlines()
        raise sources.NoDataError(f"{command[0]}: {messages[0] if messages else 'failed'}")
    return completed.stdout
