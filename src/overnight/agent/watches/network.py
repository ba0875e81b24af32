"""Find driver resets, device faults and dropped packets in counters.

The counters also show what the kernel log does not: a watchdog that logs once per boot, a driver whose
lines no rule knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.agent import watches
from overnight.agent.watches import rates
from overnight.model.severity import Severity

if TYPE_CHECKING:
    from overnight import sources
    from overnight.model import clock
    from overnight.model.event import Value

# What a rise of a driver's counter means. Starvation is the fault of a core, the rest of the device.
MEANINGS = {
    "total_resets": ("net.driver_reset", Severity.CRITICAL, "the driver reset the device"),
    "reset_fail": ("net.driver_reset", Severity.CRITICAL, "a reset of the device failed"),
    "tx_timeout": ("net.tx_timeout", Severity.CRITICAL, "a transmit queue timed out"),
    "suspected_poll_starvation": (
        "net.driver_starved",
        Severity.WARNING,
        "the driver's poll function did not run: a core was starved",
    ),
    "missing_tx_cmpl": (
        "net.driver_starved",
        Severity.WARNING,
        "transmit completions came too late",
    ),
    "wd_expired": ("net.device_fault", Severity.WARNING, "the device missed its keep-alive"),
    "admin_to": ("net.device_fault", Severity.WARNING, "a command to the device timed out"),
    "device_request_reset": ("net.device_fault", Severity.WARNING, "the device asked for a reset"),
}
ALLOWANCE = "_allowance_exceeded"
ALLOWANCE_BURST = 100
SQUEEZES_A_SECOND = 100.0
SLOW = 60.0  # seconds between two readings of a ten-second signal; over more, a rise says nothing


class DriverCounters:
    """Rising counters of the drivers: keys are `interface counter`, or `interface qN`."""

    name = "driver-counters"
    finds = (*(kind for kind, *_ in MEANINGS.values()), "net.allowance_exceeded")
    needs = ("ethtool", "tx-timeouts")

    def __init__(self) -> None:
        self._counters = {name: rates.Counters(SLOW) for name in self.needs}

    def check(self, signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
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
                known = (
                    "net.allowance_exceeded",
                    Severity.INFO,
                    "the instance's allowance was exceeded",
                )
            if known is None:
                continue
            kind, severity, meaning = known
            fields: dict[str, Value] = {"interface": interface}
            if queue:
                fields["queue"] = int(queue)
            fields[counter] = change[0]
            text = f"{interface}: {meaning} ({counter} rose by {change[0]})"
            yield watches.Sighting(
                kind, interface, now, text, severity, fold_seconds=30.0, fields=fields
            )


class Softnet:
    """Received packets that a core dropped (full backlog) or deferred (budget used up)."""

    name = "softnet"
    finds = ("net.softnet_drops", "net.softnet_squeezed")
    needs = ("softnet",)

    def __init__(self) -> None:
        self._counters = rates.Counters()

    def check(self, _signal: str, now: clock.Clock, rows: sources.Rows) -> watches.Sightings:
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
                    f"core {core} ran out of receive budget {squeezed} times in {seconds:.0f} s",
                    Severity.INFO, core=int(core), fields={"squeezed": squeezed},
                )  # fmt: skip


WATCHES = (DriverCounters, Softnet)
