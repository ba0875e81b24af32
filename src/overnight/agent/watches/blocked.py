"""Find processes in uninterruptible sleep (D state) for five minutes: they wait for a disk or a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.agent import watches

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock

STATE = 5  # of a row of `processes`
UNINTERRUPTIBLE = ord("D")
SECONDS = 300.0


class Blocked:
    """Rows of `processes`, which include the blocked ones."""

    name = "blocked"
    finds = ("task.blocked",)
    needs = ("processes",)

    def __init__(self) -> None:
        self._since: dict[str, clock.Clock] = {}

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
        blocked = {key for key, row in rows.items() if row[STATE] == UNINTERRUPTIBLE}
        self._since = {key: self._since.get(key, now) for key in blocked}
        for key, since in self._since.items():
            seconds = (now.monotonic_ns - since.monotonic_ns) / 1e9
            if seconds >= SECONDS:
                pid, _, comm = key.partition(" ")
                process = f"{comm}[{pid}]"
                yield watches.Sighting(
                    "task.blocked", key, since,
                    f"{process} has been in uninterruptible sleep (D state) for {seconds / 60:.0f} min",
                    process=process, fold_seconds=60.0, fields={"seconds": round(seconds)},
                )  # fmt: skip


WATCHES = (Blocked,)
