"""The network driver resets itself, or the kernel drops what it could not take in time.

The counters tell also what the kernel log does not: a watchdog that prints once per boot, a driver
whose lines no rule knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.agent.watches import rates

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock

__all__ = ["WATCHES", "DriverCounters", "Softnet"]

# What a rise of a driver's counter means. Starvation is a core's fault, the others the device's.
MEANINGS = {
    "total_resets": ("net.driver_reset", "critical", "the driver reset the device"),
    "reset_fail": ("net.driver_reset", "critical", "a reset of the device failed"),
    "tx_timeout": ("net.tx_timeout", "critical", "a transmit queue timed out"),
    "suspected_poll_starvation": (
        "net.driver_starved",
        "warning",
        "the driver's poll was not scheduled: a core was starved",
    ),
    "missing_tx_cmpl": ("net.driver_starved", "warning", "transmit completions came too late"),
    "wd_expired": ("net.device_fault", "warning", "the device's keep-alive did not come"),
    "admin_to": ("net.device_fault", "warning", "a command to the device timed out"),
    "device_request_reset": ("net.device_fault", "warning", "the device asked for a reset"),
}
ALLOWANCE = "_allowance_exceeded"
ALLOWANCE_BURST = 100
SQUEEZES_A_SECOND = 100.0
SLOW = 60.0  # seconds between two looks of a ten-second signal before a rise says nothing


class DriverCounters:
    """Rising counters of the drivers: keys are `interface counter`, or `interface qN`."""

    name = "driver-counters"
    needs = ("ethtool", "tx-timeouts")

    def __init__(self) -> None:
        self._counters = {name: rates.Counters(SLOW) for name in self.needs}

    def look(self, signal: str, now: clock.Clock, rows: sources.Rows) -> Iterator[watches.Sighting]:
        """One reading."""
        _, rose = self._counters[signal].since(now, rows)
        for key, change in rose.items():
            if not change or change[0] <= 0:
                continue
            interface, _, counter = key.partition(" ")
            queue = counter[1:] if counter[:1] == "q" and counter[1:].isdigit() else ""
            if signal == "tx-timeouts":
                counter = "tx_timeout"
            known = MEANINGS.get(counter)
            if known is None and counter.endswith(ALLOWANCE) and change[0] >= ALLOWANCE_BURST:
                known = ("net.allowance_exceeded", "info", "the instance's allowance was exceeded")
            if known is None:
                continue
            kind, severity, meaning = known
            fields: dict[str, str | int | float | bool] = {"interface": interface}
            if queue:
                fields["queue"] = int(queue)
            fields[counter] = change[0]
            text = f"{interface}: {meaning} ({counter} rose by {change[0]})"
            yield watches.Sighting(
                kind, interface, now, text, severity, fold_seconds=30.0, fields=fields
            )


class Softnet:
    """Packets that a core dropped because its backlog was full, or had to leave for later."""

    name = "softnet"
    needs = ("softnet",)

    def __init__(self) -> None:
        self._counters = rates.Counters()

    def look(self, signal: str, now: clock.Clock, rows: sources.Rows) -> Iterable[watches.Sighting]:
        """One reading."""
        del signal
        seconds, rose = self._counters.since(now, rows)
        for core, (_, dropped, squeezed, *_) in rose.items():
            if dropped:
                yield watches.Sighting(
                    "net.softnet_drops", core, now,
                    f"core {core} dropped {dropped} received packets: its backlog was full",
                    core=int(core), fields={"dropped": dropped, "squeezed": squeezed},
                )  # fmt: skip
            elif squeezed >= SQUEEZES_A_SECOND * seconds:
                yield watches.Sighting(
                    "net.softnet_squeezed", core, now,
                    f"core {core} left receive work for later {squeezed} times in a second",
                    "info", core=int(core), fields={"squeezed": squeezed},
                )  # fmt: skip


WATCHES = (DriverCounters, Softnet)
