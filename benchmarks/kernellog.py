"""A kernel log flood: 20,000 lines per second, one of them a reset.

As root another process really writes the lines to /dev/kmsg. The kernel lets one descriptor write ten lines in
five seconds (`printk_devkmsg` is `ratelimit`, and stays so), so the writer reopens it every ten lines. Level 7, so
that no console slows it down.

The cost of the rules alone is measured on lines in memory.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks import Result
from overnight.agent import kernel_events
from overnight.model import clock
from overnight.sources import kmsg
from overnight.sources.kernelrules import rulefiles

__all__ = ["measure"]

LINES_A_SECOND = 20_000
SECONDS = 4.0
RESET = "ena 0000:ff:03.0 bench0: TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1"
NOISE = (
    "smpboot: CPU 1 is now offline after a while of being on-line, and nothing else",
    "audit: type=1400 audit(1794734954.101:3): apparmor=STATUS operation=profile_load name=x",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth1234: link becomes ready, as it did before",
    "docker0: port 3(veth8a91bc2) entered blocking state and then forwarding state",
    "EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode. Opts: (null)",
)
WRITER = """
import os, sys, time
rate, seconds, reset, *noise = sys.argv[1:]
rate, total = int(rate), int(int(rate) * float(seconds))
begin, sent, late = time.monotonic(), 0, 0.0
while sent < total:
    descriptor = os.open("/dev/kmsg", os.O_WRONLY)
    for _ in range(10):
        text = reset if sent == total // 2 else noise[sent % len(noise)]
        os.write(descriptor, b"<7>overnight bench: " + text.encode() + b"\\n")
        sent += 1
    os.close(descriptor)
    ahead = begin + sent / rate - time.monotonic()
    if ahead > 0.002:
        time.sleep(ahead)
print(sent / (time.monotonic() - begin))
"""


def measure() -> list[Result]:
    return [*_flood(), *_rules_alone()] if os.geteuid() == 0 else _rules_alone()


def _now() -> clock.Clock:
    return clock.Clock(time.time_ns(), time.monotonic_ns())


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _flood() -> list[Result]:
    watch = kernel_events.KernelWatch(rulefiles.built_in())
    resets = 0
    with contextlib.closing(kmsg.KernelLog.open()) as log:
        waiting = select.poll()
        waiting.register(log.fileno(), select.POLLIN)
        arguments = [str(LINES_A_SECOND), str(SECONDS), RESET, *NOISE]
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, *arguments], stdout=subprocess.PIPE, text=True
        )
        before = _cpu()
        while writer.poll() is None or not log.drained:
            if not waiting.poll(100):
                log.drained = True
                continue
            records = log.read(wanted=watch.wanted)
            resets += sum(
                sighting.kind == "net.driver_reset" and sighting.fields.get("queue") == 5
                for sighting in watch.check(records, _now())
            )
            # No pause: the kernel's buffer holds 1,200 such lines, and with 10 ms between reads half of
            # them were lost on a busy machine.
        used = _cpu() - before
        assert writer.stdout is not None
        rate = float(writer.stdout.read())
        writer.wait()
    return [
        Result("kernel log flood: lines written per second", rate, "1/s"),
        Result(
            "flood: lines read", log.lines, "lines", f">= {LINES_A_SECOND * SECONDS:.0f}",
            log.lines >= LINES_A_SECOND * SECONDS,
        ),
        Result("flood: lost", log.lost, "lines", "0", log.lost == 0),
        Result("flood: resets seen, of one", resets, "", "1", resets == 1),
        Result("flood: the agent's CPU for a million lines", 1e6 * used / log.lines, "CPU s"),
        Result("flood: of a core, while it lasts", 100 * used / SECONDS, "% of a core"),
    ]  # fmt: skip


def _rules_alone() -> list[Result]:
    rules = rulefiles.built_in()
    watch = kernel_events.KernelWatch(rules)
    raw = [f"7,{n},{n},-;{NOISE[n % len(NOISE)]}\n".encode() for n in range(100_000)]
    filtered = _cpu_of(lambda: sum(1 for data in raw if watch.wanted(data)))
    hits = [f"3,{n},{n},-;{RESET}\n".encode() for n in range(20_000)]

    def fold() -> None:
        records = (kmsg.parse_record(data, _now()) for data in hits)
        watch.check((record for record in records if record is not None), _now())

    loaded = _cpu_of(rulefiles.built_in)
    return [
        Result("rules: lines per second that match no rule", len(raw) / filtered, "1/s"),
        Result("rules: lines per second that are resets, all folded", len(hits) / _cpu_of(fold), "1/s"),
        Result(f"rules: loading {len(rules)} of them", 1000 * loaded, "ms"),
    ]  # fmt: skip


def _cpu_of(run: Callable[[], object]) -> float:
    before = _cpu()
    run()
    return max(1e-9, _cpu() - before)
