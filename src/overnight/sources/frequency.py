"""The frequency of each core, and how often heat or power limits lowered it, from /sys/devices/system/cpu.

    cpu0/cpufreq/scaling_cur_freq               2899998    kHz
    cpu0/thermal_throttle/core_throttle_count   3          since boot; x86 with a thermal interrupt
    cpu0/thermal_throttle/package_throttle_count
    cpu0/thermal_throttle/core_power_limit_count           some models

Most virtual machines have none of them.
"""

from __future__ import annotations

import os
import pathlib
import time

from overnight import sources

# Before 5.18 a read of the frequency interrupts the core and may sleep for 10 ms (arch_freq_get_on_cpu in
# arch/x86/kernel/cpu/aperfmperf.c): 192 cores would stop the recorder for two seconds.
SLOW_SECONDS = 0.005
# The last two digits are noise that does not compress.
ROUNDED_MHZ = 100
UNKNOWN = -1
FREQUENCY = "cpufreq/scaling_cur_freq"
THROTTLES = "thermal_throttle/core_throttle_count"
PACKAGE_THROTTLES = "thermal_throttle/package_throttle_count"
POWER_LIMITS = "thermal_throttle/core_power_limit_count"
FILES = (THROTTLES, PACKAGE_THROTTLES, POWER_LIMITS)


def parse_number(text: bytes | None) -> int:
    """Parse a file of one number; -1 where it is missing or `<unknown>`.

    >>> parse_number(b"2899998\\n"), parse_number(b"<unknown>\\n"), parse_number(None)
    (2899998, -1, -1)
    """
    return int(text) if text and text.strip().isdigit() else UNKNOWN


def open_frequency(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of every online core; a column that the host does not have is -1."""
    folder = os.fspath(root / "sys/devices/system/cpu")
    online = sources.open_online(root)
    present: tuple[str, ...] | None = None
    reads_frequency = True

    def read_frequency(core: int) -> int:
        nonlocal reads_frequency
        if not reads_frequency:
            return UNKNOWN
        began = time.monotonic()
        khz = parse_number(sources.read_once(f"{folder}/cpu{core}/{FREQUENCY}", 32))
        reads_frequency = khz >= 0 and time.monotonic() - began < SLOW_SECONDS
        return round(khz / 1000 / ROUNDED_MHZ) * ROUNDED_MHZ if khz >= 0 else UNKNOWN

    def read() -> sources.Rows:
        nonlocal present
        cores = online()
        if present is None:  # files that the first core does not have are not tried again
            first = f"{folder}/cpu{cores[0]}"
            present = tuple(name for name in FILES if os.access(f"{first}/{name}", os.R_OK))
        rows = {}
        for core in cores:
            counters = (
                parse_number(sources.read_once(f"{folder}/cpu{core}/{name}", 32))
                if name in present
                else UNKNOWN
                for name in FILES
            )
            rows[str(core)] = (read_frequency(core), *counters)
        if all(number < 0 for row in rows.values() for number in row):
            raise sources.NoDataError(
                "the kernel reports neither the frequency nor the throttling of a core, as in most"
                " virtual machines"
            )
        return rows

    return read


COLUMNS = ("mhz", "throttles", "package_throttles", "power_limits")
# Cores that change it all the time: 1.2 MB a day of 96 cores, stored each time. An incident window has two.
KEEP = {"mhz": 20.0}
SIGNALS = (sources.Signal("frequency", 10.0, "core", COLUMNS, open_frequency, KEEP),)
