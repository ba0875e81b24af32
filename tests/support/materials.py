"""Charts and tables of a report: cores, stacks and differences of one made-up night."""

from __future__ import annotations

import random

import folding
import numpy as np

from overnight.model.flame import Folded, Frame, FrameKind
from overnight.model.selection import Coverage, Window
from overnight.queries import diff, signals

SECOND = 1_000_000
EVENT_US = 1_794_712_447 * SECOND  # 2026-11-15 03:14:07 UTC
HOST = "gpu-96-07"
HOT = Window(EVENT_US - 7 * SECOND, EVENT_US)
BEFORE = Window(EVENT_US - 690 * SECOND, EVENT_US - 90 * SECOND)
NIGHT = Window(EVENT_US - 11 * 3600 * SECOND, EVENT_US)


def change(name: str, now: int, before: int, status: str = "more") -> diff.Change:
    rate, base = now / 679, before / 58200
    return diff.Change(name, "[kernel]", True, now, before, rate, base, rate - base, rate - base - 0.02, rate - base + 0.02, status, rate - base)  # fmt: skip


def cores(count: int = 96, seconds: int = 70, *, missing: bool = False) -> signals.Cores:
    chance = random.Random(7)
    begin = EVENT_US - 50 * SECOND
    busy = np.array([[max(1.0, chance.gauss(19, 7)) for _ in range(count)] for _ in range(seconds)])
    kernel = busy * 0.25
    for second in range(43, 50):
        busy[second, 39 % count], kernel[second, 39 % count] = 100.0, 99.7
    busy[20, 7 % count], kernel[20, 7 % count] = 98.0, 3.0
    gaps: tuple[tuple[int, int, str], ...] = ()
    if missing:
        busy[8:19] = kernel[8:19] = np.nan
        gaps = ((begin + 8 * SECOND, begin + 19 * SECOND, "the agent was not running"),)
    starts = np.array([begin + n * SECOND for n in range(seconds)], np.int64)
    window = Window(begin, begin + seconds * SECOND)
    return signals.Cores(
        HOST, "the ticks that /proc/stat counted for the core between two looks", tuple(range(count)),
        starts, starts + SECOND, {"busy": busy, "kernel": kernel},
        signals.Coverage(window, float(seconds), gaps, ()),
    )  # fmt: skip


def stacks() -> tuple[Folded, Folded]:
    def path(process: str, *names: str) -> tuple[Frame, ...]:
        kernel = [Frame(name, "[kernel]", FrameKind.KERNEL) for name in names]
        return (Frame(process), *kernel)

    call = ("entry_SYSCALL_64_after_hwframe", "do_syscall_64", "ksys_read", "vfs_read")
    walk = (*call, "seq_read", "cgroup_seqfile_show", "memcg_numa_stat_show")
    incident = (
        (path("kubelet", *walk, "mem_cgroup_nr_lru_pages"), 505),
        (path("kubelet", *walk, "mem_cgroup_iter", "css_next_descendant_pre"), 143),
        (path("python3", *call, "sock_read_iter"), 9),
        (path("swapper", "handle_softirqs", "net_rx_action"), 5),
    )
    baseline = (
        (path("python3", *call, "sock_read_iter"), 9100),
        (path("python3"), 1400),
        (path("kubelet", *walk, "mem_cgroup_nr_lru_pages"), 61),
        (path("ray::IDLE", *call, "pipe_read"), 240),
        (path("swapper", "handle_softirqs", "net_rx_action"), 400),
    )

    def folded(window: Window, counted: tuple[tuple[tuple[Frame, ...], int], ...]) -> Folded:  # fmt: skip
        return folding.fold(
            counted, title=f"{HOST} core 39", host=HOST, begin_ns=window.begin_us * 1000,
            end_ns=window.end_us * 1000, frequency=97, cores=(39,), event="cpu-clock",
        )  # fmt: skip

    return folded(HOT, incident), folded(BEFORE, baseline)


def coverage(window: Window, samples: int, lost: int = 0) -> Coverage:
    seconds = window.seconds
    return Coverage((HOST,), window, seconds, seconds, 97 * seconds, samples, 3, lost, 2, ())  # fmt: skip
