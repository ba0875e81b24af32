"""Captures built in code, and the expected answer to every query, computed in the slow, obvious way."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import random
import re
from collections.abc import Iterable, Sequence

import numpy as np

from overnight.model.selection import Selection, Window
from overnight.queries import reader
from overnight.store import capture, segments, writer

US, SECOND = 1_000, 1_000_000_000
NIGHT = 1_794_725_400 * SECOND  # a multiple of two minutes

Function = tuple[str, str, int]


def user(name: str, module: str = "/opt/app") -> Function:
    return name, module, 0


def kernel(name: str, module: str = "[kernel]") -> Function:
    return name, module, 1


IDLE = (kernel("do_idle"), kernel("pv_native_safe_halt"))
IRQ_ON_IDLE = (*IDLE, kernel("asm_common_interrupt"), kernel("handle_softirqs"), kernel("net_rx"))


@dataclasses.dataclass(frozen=True)
class Sample:
    """One row of a capture, with names instead of indexes."""

    time: int  # ns
    path: tuple[Function, ...] = (user("main"),)
    cpu: int = 0
    process: str = "app"
    thread: str = ""
    pid: int = 100
    tid: int = 100
    unit: str = ""
    event: int = 0
    count: int = 1
    period: int = 0

    @property
    def time_us(self) -> int:
        return self.time // US

    @property
    def idle(self) -> bool:
        resting = self.path and self.path[-1] in IDLE
        return bool(resting) and self.process == "swapper"

    @property
    def in_kernel(self) -> bool:
        return bool(self.path) and self.path[-1][2] == 1

    @property
    def softirq(self) -> bool:
        return kernel("handle_softirqs") in self.path


def build(
    samples: Iterable[Sample],
    *,
    host: str = "alpha",
    begin: int | None = None,
    end: int | None = None,
    cores: tuple[int, ...] = (0, 1),
    frequency: int = 100,
    events: tuple[str, ...] = ("cpu-clock",),
    **fields: object,
) -> capture.Capture:
    """Build a capture of these samples, sorted by time."""
    rows = sorted(samples, key=lambda sample: sample.time)
    tasks: dict[tuple[int, int, str, str, str], int] = {}
    frames: dict[Function, int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    task, stack = [], []
    for row in rows:
        key = (row.pid, row.tid, row.thread, row.process, row.unit)
        task.append(tasks.setdefault(key, len(tasks)))
        path = tuple(frames.setdefault(frame, len(frames)) for frame in row.path)
        stack.append(stacks.setdefault(path, len(stacks)))
    first = rows[0].time if rows else NIGHT
    last = rows[-1].time + 1 if rows else NIGHT + SECOND
    return capture.Capture(
        host=host,
        begin=first if begin is None else begin,
        end=last if end is None else end,
        frequency=frequency,
        cores=cores,
        events=events,
        time=np.array([row.time for row in rows], np.int64),
        cpu=np.array([row.cpu for row in rows], np.int32),
        task=np.array(task, np.uint32),
        stack=np.array(stack, np.uint32),
        event=np.array([row.event for row in rows], np.uint8),
        count=np.array([row.count for row in rows], np.uint32),
        period=np.array([row.period for row in rows], np.uint64),
        tasks=capture.Tasks(
            pid=np.array([key[0] for key in tasks], np.int32),
            tid=np.array([key[1] for key in tasks], np.int32),
            thread=[key[2] for key in tasks],
            process=[key[3] for key in tasks],
            unit=[key[4] for key in tasks],
        ),
        stacks=capture.Stacks(
            offset=np.cumsum([0, *map(len, stacks)]).astype(np.uint32),
            frame=np.array([frame for path in stacks for frame in path], np.uint32),
        ),
        frames=capture.Frames(
            name=[frame[0] for frame in frames],
            module=[frame[1] for frame in frames],
            kind=np.array([frame[2] for frame in frames], np.uint8),
        ),
        **fields,  # type: ignore[arg-type]
    )


CODE = (
    user("main"), user("parse"), user("operator+(X, Y)"), user("malloc", "/lib/libc.so"),
    user("malloc"), kernel("do_syscall_64"), kernel("tcp_sendmsg"), user("[unknown]", "/lib/a.so"),
    kernel("handle_softirqs"), kernel("list_lru_count_one"),
)  # fmt: skip
TASKS = (
    ("nginx", "worker 1", 10, 11, "nginx.service"),
    ("nginx", "worker 2", 10, 12, "nginx.service"),
    ("cc1plus", "cc1plus", 20, 20, "build.slice"),
    ("kswapd0", "kswapd0", 30, 30, ""),
)


def random_samples(
    seed: int, count: int, *, begin: int, end: int, cores: Sequence[int] = (0, 1), events: int = 1
) -> list[Sample]:
    """Return random samples: work, idle, and interrupts on top of idle."""
    chance = random.Random(seed)
    samples = []
    for _ in range(count):
        draw = chance.random()
        process, thread, pid, tid, unit = chance.choice(TASKS)
        path = tuple(chance.choice(CODE) for _ in range(chance.randrange(6)))
        if draw < 0.3:
            process, thread, pid, tid, unit = "swapper", "swapper", 0, 0, ""
            path = IDLE[: chance.randint(1, 2)] if draw < 0.25 else IRQ_ON_IDLE
        elif draw < 0.35:
            path = (user("main"), IDLE[0])  # another task in a function of that name works
        samples.append(
            Sample(
                chance.randrange(begin, end),
                path,
                chance.choice(cores),
                process,
                thread,
                pid,
                tid,
                unit,
                chance.randrange(events),
                chance.choice((1, 1, 1, 7)),
                chance.randrange(9),
            )
        )
    return samples


def store(
    home: pathlib.Path, *captures: capture.Capture, segment_seconds: int = 120
) -> reader.Reader:
    """Write the captures to a store and return its reader."""
    for recording in captures:
        writer.write_capture(home, recording, segment_seconds=segment_seconds)
    return reader.Reader(segments.Catalogue(home))


def window(begin: int, end: int) -> Window:
    """Return the window between two times in ns."""
    return Window(begin // US, end // US)


def passes(sample: Sample, within: Window, chosen: Selection) -> bool:
    """Return whether a sample matches; the caller handles idle samples."""
    return (
        within.begin_us <= sample.time_us < within.end_us
        and sample.event == (0 if chosen.event == "cpu-clock" else chosen.event)
        and (not chosen.cores or sample.cpu in chosen.cores)
        and re.search(chosen.process, sample.process) is not None
        and re.search(chosen.thread, sample.thread) is not None
        and re.search(chosen.unit, sample.unit) is not None
        and (not chosen.function or any(re.search(chosen.function, f[0]) for f in sample.path))
        and (not chosen.side or sample.in_kernel == (chosen.side == "kernel"))
    )


def chosen_samples(samples: Iterable[Sample], within: Window, chosen: Selection) -> list[Sample]:
    """Return the samples that match."""
    return [s for s in samples if passes(s, within, chosen) and (chosen.idle or not s.idle)]


def paths(samples: Iterable[Sample]) -> collections.Counter[tuple[Function, ...]]:
    """Count samples by stack; the process is the first frame."""
    counted: collections.Counter[tuple[Function, ...]] = collections.Counter()
    for sample in samples:
        counted[((sample.process or sample.thread, "", 2), *sample.path)] += sample.count
    return counted


BEGIN = NIGHT + 37 * SECOND + 250_000_000
END = BEGIN + 300 * SECOND + 123_456_789


@dataclasses.dataclass(frozen=True)
class Night:
    source: reader.Reader
    samples: dict[str, list[Sample]]
    cores: dict[str, int]
    frequency: int

    def of(self, hosts: tuple[str, ...] = ()) -> list[Sample]:
        return [s for host in hosts or self.samples for s in self.samples[host]]

    def windows(self, seed: int, count: int = 6) -> list[Window]:
        """The whole night, parts of segments, whole segments, the moment of one sample."""
        chance = random.Random(seed)
        two = 120 * SECOND
        sample_us = self.of()[seed].time_us
        windows = [
            window(BEGIN - SECOND, END + SECOND),
            window(NIGHT + two, NIGHT + 2 * two),
            Window(sample_us, sample_us + 1),
        ]
        for _ in range(count):
            begin = chance.randrange(BEGIN, END)
            windows.append(window(begin, begin + chance.randrange(10**6, two)))
        return windows
