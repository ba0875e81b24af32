"""Where a rehearsal happens: what the seed chooses, whether this host can, and the proof that all is undone."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Iterator

from overnight import errors
from overnight.app import record as recorder
from overnight.rehearsals import victim
from overnight.sources import cgroups, cpu
from overnight.sources.perf import events
from overnight.undo import journal, operations

__all__ = [
    "CROWDED",
    "Crowd",
    "Inventory",
    "Plan",
    "Recording",
    "alone",
    "away_from",
    "check_needs",
    "draw",
    "left_behind",
    "prune",
    "take_inventory",
]

MARKER = "rehearsal.json"
FREQUENCY = 199
SEGMENT_SECONDS = 5.0
BEGIN_SECONDS = 20.0
# Looked at by the minute in a night; a rehearsal has no such time.
EVERY = ("memory-cgroups=2", "memory-cgroup-parents=10", "units=2", "unit-restarts=2", "memory=2")
# Of every rehearsal, whatever its fault needs: without stacks the true cause cannot be told.
ALWAYS = ("cores", "stacks")
CROWDED = 0.3  # of a core that somebody else uses: the verdict may be about that


@dataclasses.dataclass(frozen=True)
class Plan:
    """One rehearsal as the seed has it. Seconds; `strikes` is how often the fault comes."""

    core: int
    spare: int
    victim: victim.Plan
    baseline: float
    strikes: int
    after: float  # the event: the fault goes on for so long
    between: float  # two strikes, after the victim has recovered
    patience: float  # for the event
    watch: float  # where nothing strikes

    @property
    def longest(self) -> float:
        """All of it, at most."""
        strike = self.patience + self.after + self.between + 60
        return self.baseline + self.watch + self.strikes * strike + 60


def draw(
    name: str, seed: int, cores: Collection[int], *, brief: bool = False, core: int | None = None
) -> Plan:
    """The same seed draws the same, on a host with the same cores."""
    chance = random.Random(f"overnight {name} {seed}")  # noqa: S311 - no secret
    allowed = sorted(cores)
    if len(allowed) < 2:
        raise errors.CannotError(
            "a rehearsal needs two cores",
            why="one is the victim's, and the recorder needs another; this process may use"
            f" {len(allowed)}",
            todo="run it on a host with two cores or more, without taskset or a CPU limit",
        )
    if core is not None and core not in allowed:
        raise errors.UsageError(
            f"core {core} cannot be used",
            why=f"this process may use {', '.join(map(str, allowed))}",
            todo="choose one of these with --core",
        )
    drawn = chance.choice(allowed)
    chosen = drawn if core is None else core
    spare = chance.choice([one for one in allowed if one != chosen])
    return Plan(
        core=chosen,
        spare=spare,
        victim=victim.plan(chance, brief=brief),
        baseline=round(chance.uniform(11, 14) if brief else chance.uniform(36, 44), 1),
        strikes=1 if brief else 2,
        after=round(chance.uniform(1.5, 2.5) if brief else chance.uniform(3, 6), 1),
        between=round(chance.uniform(12, 18), 1),
        patience=60.0 if brief else 120.0,
        watch=8.0 if brief else 40.0,
    )


def check_needs(needs: Collection[str]) -> None:
    """Raises CannotError with everything that is missing here."""
    missing = [why for need in needs if (why := _lacking(need))]
    missing = missing or [why for need in ALWAYS if (why := _lacking(need))]
    if missing:
        raise errors.CannotError(
            "this rehearsal cannot be had here",
            why="; ".join(dict.fromkeys(missing)),
            todo="run it as root on a host of yours, or see a recorded one: overnight rehearse zombies --replay",
        )


def _lacking(need: str) -> str:
    match need:
        case "root" | "realtime":
            return "" if os.geteuid() == 0 else "it needs root"
        case "cores":
            several = len(os.sched_getaffinity(0)) > 1
            return "" if several else "it needs two cores, and this process may use one"
        case "stacks":
            found = events.probe(cpu.online())
            why = next(iter(found.refused.values()), "no core to sample")
            return "" if found.cores else f"stacks cannot be sampled: perf_event_open says {why}"
        case "kmsg":
            return "" if os.access("/dev/kmsg", os.W_OK) else "/dev/kmsg cannot be written to"
        case "netns":
            return "" if shutil.which("ip") else "the program ip (iproute2) is not installed"
        case "memory-cgroups":
            return "" if cgroups.read_layout().memory else "no memory cgroups are mounted"
        case "nspawn":
            there = shutil.which("systemd-nspawn")
            return "" if there else "the program systemd-nspawn (systemd-container) is missing"
        case _:
            return f"nobody knows what {need!r} is"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One rehearsal at a time on a host: two would be each other's fault."""
    folder = journal.own_folder(journal.journal_folder())
    with (folder / "rehearse.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise errors.CannotError(
                "another rehearsal runs on this host",
                why="two at a time would be each other's fault",
                todo="wait until it has ended",
            ) from error
        yield


@contextlib.contextmanager
def away_from(core: int) -> Iterator[None]:
    """Leave a core to the victim: for this thread, and for all that it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before - {core} or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclasses.dataclass(frozen=True)
class Inventory:
    """What there is of the things that a rehearsal may make."""

    cgroups: frozenset[str]
    netns: frozenset[str]
    links: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str] = (
        frozenset()
    )  # named as ours are, where programs leave their locks and pages


def take_inventory() -> Inventory:
    """Now."""
    return Inventory(
        cgroups=frozenset(folder for folder, _, _ in os.walk("/sys/fs/cgroup")),
        netns=_names(pathlib.Path("/run/netns")),
        links=_names(pathlib.Path("/sys/class/net")),
        mounts=frozenset(
            line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()
        ),
        files=frozenset(
            f"{place}/{name}"
            for place in (tempfile.gettempdir(), "/dev/shm")  # noqa: S108 - only looked at
            for name in _names(pathlib.Path(place))
            if operations.MACHINES in name
        ),
    )


def _names(folder: pathlib.Path) -> frozenset[str]:
    with contextlib.suppress(OSError):
        return frozenset(entry.name for entry in folder.iterdir())
    return frozenset()


def left_behind(
    run: str, folder: pathlib.Path, changes: Collection[str], before: Inventory, after: Inventory
) -> tuple[list[str], list[str]]:
    """What the run left, and what else is new: on a busy host others make cgroups and mounts, too."""
    ours: list[str] = []
    others: list[str] = []
    words = {"cgroups": "cgroup", "netns": "netns", "links": "link", "mounts": "mount", "files": "file"}  # fmt: skip
    for kind, word in words.items():
        for name in sorted(getattr(after, kind) - getattr(before, kind)):
            mine = run in name or any(name == one or name.startswith(f"{one}/") for one in changes)
            # /run/netns becomes a mount with the first namespace of a boot, and stays one.
            known = kind == "mounts" and name == "/run/netns"
            if not known:
                (ours if mine else others).append(f"{word} {name}")
    ours += [f"process {pid}" for pid in journal.processes_of(run)]
    if folder.exists():
        ours.append(f"folder {folder}")
    return ours, others


class Crowd:
    """Who else uses the cores of this host since it was made."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._before, self._began = _ticks(), time.monotonic()

    def told(self, least: float = 0.05, core: int | None = None) -> list[str]:
        """Those that used more than that of a core, and were last on `core`; the most first, in words."""
        seconds = max(0.01, time.monotonic() - self._began) * os.sysconf("SC_CLK_TCK")
        ours = {*journal.processes_of(self._run), os.getpid()}
        used = []
        for pid, (name, ticks, last) in _ticks().items():
            share = (ticks - self._before.get(pid, ("", 0, 0))[1]) / seconds
            if share >= least and core in (None, last) and pid not in ours:
                used.append((share, f"{name} [{pid}] {100 * share:.0f} % of a core"))
        return [text for _, text in sorted(used, reverse=True)]


def _ticks() -> dict[int, tuple[str, int, int]]:
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            head, _, tail = (entry / "stat").read_text().rpartition(")")
            words = tail.split()
            name = head.partition("(")[2]
            found[int(entry.name)] = (name, int(words[11]) + int(words[12]), int(words[36]))
    return found


def prune(folder: pathlib.Path, keep: int) -> None:
    """Of the runs in a folder the newest stay."""
    made = sorted(folder.glob(f"*/{MARKER}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in made[keep:]:
        shutil.rmtree(path.parent, ignore_errors=True)


class Recording:
    """The flight recorder and the profiler on the run's own data home, in a thread."""

    def __init__(self, home: pathlib.Path, seconds: float) -> None:
        self._stop = threading.Event()
        self._going = threading.Event()
        self._problems: list[str] = []
        self._told: list[str] = []
        self._options = recorder.Options(
            home=home,
            seconds=seconds,
            frequency=FREQUENCY,
            segment_seconds=SEGMENT_SECONDS,
            agent=tuple(word for one in EVERY for word in ("--every", one)),
        )
        self._thread = threading.Thread(target=self._record, name="recorder", daemon=True)
        self._thread.start()

    def _record(self) -> None:
        try:
            made = recorder.record(self._options, self._stop, lambda _: self._going.set())
            self._problems += made.gaps
        except errors.OvernightError as error:
            self._problems.append(f"the recording failed: {error.what}: {error.why}")
        except Exception as error:  # told in the outcome; the run goes on to its undoing
            self._problems.append(f"the recording failed: {type(error).__name__}: {error}")

    def wait(self) -> None:
        """Until it records."""
        deadline = time.monotonic() + BEGIN_SECONDS
        while not self._going.wait(0.1):
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise errors.RecordingError(
                    "the rehearsal could not be recorded",
                    why="; ".join(self._problems) or "the recorder did not begin",
                    todo="overnight doctor   says what is missing",
                )

    def stop(self) -> list[str]:
        """Until all is in the store; what went wrong, told once."""
        self._stop.set()
        self._thread.join()
        told, self._problems = self._problems, []
        return [f"recording: {one}" for one in told]
