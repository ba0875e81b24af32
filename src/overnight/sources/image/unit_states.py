"""What a running systemd says of its units: `systemctl show` and the journal.

    Id=ecs.service
    ActiveState=activating
    SubState=auto-restart
    NRestarts=1834
    ActiveEnterTimestampMonotonic=0

The journal's line, of the manager itself:

    ecs.service: Scheduled restart job, restart counter is at 1834.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping

from overnight import sources

__all__ = ["PROPERTIES", "parse_journal", "parse_show", "read_journal", "read_show"]

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "NRestarts",
    "ActiveEnterTimestampMonotonic",
    "ConditionResult",
    "ConditionTimestampMonotonic",
    "ExecMainStatus",
)
SECONDS = 20
LINES = 20_000
BATCH = 200  # names a call: far below the limit of a command line
RESTART = re.compile(
    r"^(\S+): Scheduled restart job, restart counter is at (\d{1,12})\.", re.MULTILINE
)


def parse_show(text: str) -> dict[str, dict[str, str]]:
    """Properties by unit; units stand apart by an empty line.

    >>> parse_show("Id=a.service\\nNRestarts=3\\n\\nId=b.service\\nNRestarts=0\\n")["a.service"]
    {'Id': 'a.service', 'NRestarts': '3'}
    """
    found = {}
    for block in text.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if name := properties.get("Id"):
            found[name] = properties
    return found


def parse_journal(text: str) -> dict[str, int]:
    """The highest restart counter that the manager told, by unit.

    >>> parse_journal("a.service: Scheduled restart job, restart counter is at 7.\\n")
    {'a.service': 7}
    """
    found: dict[str, int] = {}
    for unit, count in RESTART.findall(text):
        found[unit] = max(found.get(unit, 0), int(count))
    return found


def read_show(names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
    """Properties of these units; NoDataError where no manager answers."""
    wanted = list(names)
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        command = ["systemctl", "show", "--no-pager", "-p", ",".join(PROPERTIES), "--", *batch]
        found.update(parse_show(_ask(command)))
    return found


def read_journal() -> Mapping[str, int]:
    """Restart counters of this boot's last lines of the manager; NoDataError without a journal."""
    lines = ["-b", "-o", "cat", "-q", "--no-pager", "-n", str(LINES)]
    return parse_journal(_ask(["journalctl", *lines, "_PID=1"]))


def _ask(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        raise sources.NoDataError(f"there is no {command[0]}")
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise sources.NoDataError(f"{command[0]} did not answer: {error}") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise sources.NoDataError(f"{command[0]}: {said[0] if said else 'failed'}")
    return done.stdout
