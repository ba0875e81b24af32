"""The host of a rehearsal: the plan drawn from the seed, what the host must have, and proof of the undo."""

from __future__ import annotations

import contextlib
import dataclasses
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
from overnight.model import cgroups, mounts
from overnight.model import cpu as cpushares
from overnight.model.text import printable
from overnight.rehearsals import victim
from overnight.sources import cpu
from overnight.sources.perf import events
from overnight.sources.processes import table
from overnight.undo import journal, operations

MARKER = "rehearsal.json"
FREQUENCY = 199
SEGMENT_SECONDS = 5.0
BEGIN_SECONDS = 20.0
# Shorter than the defaults, which poll once a minute: a rehearsal is over by then.
EVERY = ("memory-cgroups=2", "memory-cgroup-parents=10", "units=2", "unit-restarts=2", "memory=2")
# Needed by every rehearsal: without stacks the true cause cannot be found.
ALWAYS = ("cores", "stacks")
# How often the baseline is tried while other work on the host keeps the victim from keeping up.
BASELINE_TRIES = 4
CROWDED = 0.3  # of a core used by other processes: the verdict may be about them


@dataclasses.dataclass(frozen=True)
class Plan:
    """One rehearsal as drawn from the seed; durations in seconds. `strikes`: how often the fault occurs."""

    core: int
    spare: int
    victim: victim.Plan
    baseline: float
    strikes: int
    after: float  # how long the fault lasts after the event
    between: float  # pause between two strikes, after the victim has recovered
    patience: float  # how long to wait for the event
    watch: float  # duration of a rehearsal without a fault

    @property
    def longest(self) -> float:
        strike = self.patience + self.after + self.between + 60
        return BASELINE_TRIES * self.baseline + self.watch + self.strikes * strike + 60


def draw(
    name: str,
    seed: int,
    cores: Collection[int],
    *,
    busy: Collection[int] = (),
    brief: bool = False,
    core: int | None = None,
) -> Plan:
    """Draw a plan; the same seed gives the same plan on a host with the same cores.

    Cores that are `busy` with other work are avoided where others are left.
    """
    chance = random.Random(f"overnight {name} {seed}")  # noqa: S311 - no secret
    allowed = sorted(cores)
    if len(allowed) < 2:
        raise errors.CannotError(
            "a rehearsal needs two cores",
            why=f"one for the victim and one for the recorder; this process may use {len(allowed)}",
            todo="run it on a host with at least two cores, without taskset or a CPU limit",
        )
    if core is not None and core not in allowed:
        raise errors.UsageError(
            f"core {core} is not available to this process",
            why=f"available cores: {', '.join(map(str, allowed))}",
            todo=f"choose one of them: --core {allowed[0]}",
        )
    quiet = [other for other in allowed if other not in busy]
    drawn = chance.choice(quiet or allowed)
    chosen = drawn if core is None else core
    others = [other for other in allowed if other != chosen]
    spare = chance.choice([other for other in others if other in quiet] or others)
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


def measure_busy(seconds: float = 2.0) -> dict[int, float]:
    """Return how busy each core is, including steal, from 0 to 1."""
    read = cpu.open_ticks()
    before = read()
    time.sleep(seconds)
    after = read()
    used = {}
    for core in before.keys() & after.keys():
        shares = cpushares.tick_shares(cpushares.tick_changes(before[core], after[core]))
        used[int(core)] = shares.busy + shares.steal if shares else 1.0
    return used


def check_needs(needs: Collection[str]) -> None:
    """Raise CannotError with everything that this host lacks."""
    missing = [why for need in needs if (why := _lacking(need))]
    missing = missing or [why for need in ALWAYS if (why := _lacking(need))]
    if missing:
        raise errors.CannotError(
            "this rehearsal cannot run on this host",
            why="; ".join(dict.fromkeys(missing)),
            todo="run it as root on a host of yours, or replay a recorded run: `overnight rehearse zombies --replay`",
        )


def _lacking(need: str) -> str:
    match need:
        case "root" | "realtime":
            return "" if os.geteuid() == 0 else "it needs root"
        case "cores":
            several = len(os.sched_getaffinity(0)) > 1
            return "" if several else "it needs two cores, and this process may use one"
        case "stacks":
            probed = events.probe(cpu.online())
            why = next(iter(probed.refused.values()), "no core to sample")
            return (
                "" if probed.cores else f"it cannot sample stacks: perf_event_open fails with {why}"
            )
        case "kmsg":
            return "" if os.access("/dev/kmsg", os.W_OK) else "it cannot write to /dev/kmsg"
        case "netns":
            return "" if shutil.which("ip") else "the program ip (iproute2) is not installed"
        case "memory-cgroups":
            return "" if cgroups.read_layout().memory else "no memory cgroups are mounted"
        case "nspawn":
            installed = shutil.which("systemd-nspawn")
            return "" if installed else "the program systemd-nspawn (systemd-container) is missing"
        case _:
            return f"{need!r} is not a known requirement"


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Allow one rehearsal at a time on a host: two would disturb each other."""
    with journal.lock("rehearse.lock") as is_taken:
        if not is_taken:
            raise errors.CannotError(
                "another rehearsal is running on this host",
                why="two at a time would disturb each other",
                todo="wait until it has ended",
            )
        yield


@dataclasses.dataclass(frozen=True)
class Inventory:
    cgroups: frozenset[str]
    netns: frozenset[str]
    links: frozenset[str]
    mounts: frozenset[str]
    # With overnight's prefix, in the folders for temporary files.
    files: frozenset[str] = frozenset()


def take_inventory() -> Inventory:
    return Inventory(
        cgroups=frozenset(folder for folder, _, _ in os.walk("/sys/fs/cgroup")),
        netns=_names(pathlib.Path("/run/netns")),
        links=_names(pathlib.Path("/sys/class/net")),
        mounts=frozenset(printable(mount.path) for mount in mounts.read_mounts()),
        files=frozenset(
            f"{place}/{name}"
            for place in (tempfile.gettempdir(), "/dev/shm")  # noqa: S108 - only listed
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
    """Return what the run left, and what else is new: other programs create cgroups and mounts, too."""
    ours: list[str] = []
    others: list[str] = []
    words = {"cgroups": "cgroup", "netns": "netns", "links": "link", "mounts": "mount", "files": "file"}  # fmt: skip
    for kind, word in words.items():
        for name in sorted(getattr(after, kind) - getattr(before, kind)):
            of_run = run in name or any(
                name == target or name.startswith(f"{target}/") for target in changes
            )
            # The first namespace of a boot makes /run/netns a mount, which stays.
            known = kind == "mounts" and name == "/run/netns"
            if not known:
                (ours if of_run else others).append(f"{word} {name}")
    ours += [f"process {pid}" for pid in journal.processes_of(run)]
    if folder.exists():
        ours.append(f"folder {folder}")
    return ours, others


class Crowd:
    """Other processes that used this host's cores since this object was created."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._before, self._began = _ticks(), time.monotonic()

    def describe(self, least: float = 0.05, core: int | None = None) -> list[str]:
        """Describe those that used at least `least` of a core and last ran on `core`, top consumer first."""
        seconds = max(0.01, time.monotonic() - self._began) * os.sysconf("SC_CLK_TCK")
        ours = {*journal.processes_of(self._run), os.getpid()}
        used = []
        for pid, (name, ticks, last) in _ticks().items():
            share = (ticks - self._before.get(pid, ("", 0, 0))[1]) / seconds
            if share >= least and core in (None, last) and pid not in ours:
                used.append((share, f"{name} [{pid}] {100 * share:.0f} % of a core"))
        return [text for _, text in sorted(used, reverse=True)]


def _ticks() -> dict[int, tuple[str, int, int]]:
    """Return the name, the CPU ticks and the last core of each process."""
    by_pid = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            comm, _, _, user, system, _, _, core, *_ = table.parse_stat(path.read_bytes())
            by_pid[int(path.parent.name)] = (table.display_name(comm), user + system, core)
    return by_pid


def prune(folder: pathlib.Path, keep: int) -> None:
    """Delete all but the newest runs in a folder."""
    runs = sorted(folder.glob(f"*/{MARKER}"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in runs[keep:]:
        shutil.rmtree(path.parent, ignore_errors=True)


class Recording:
    """The flight recorder and the profiler on the run's data home, in a thread."""

    def __init__(self, home: pathlib.Path, seconds: float, kind: str = "auto") -> None:
        self._stop = threading.Event()
        self._going = threading.Event()
        self._problems: list[str] = []
        self._options = recorder.Options(
            home=home,
            seconds=seconds,
            frequency=FREQUENCY,
            segment_seconds=SEGMENT_SECONDS,
            recorder=kind,
            agent=tuple(word for interval in EVERY for word in ("--every", interval)),
        )
        self._thread = threading.Thread(target=self._record, name="recorder", daemon=True)
        self._thread.start()

    def _record(self) -> None:
        try:
            result = recorder.record(self._options, self._stop, lambda _: self._going.set())
            self._problems += result.gaps
            self._problems += [f"{failed.part} failed: {failed.why}" for failed in result.failures]
        except errors.OvernightError as error:
            self._problems.append(f"the recording failed: {error.what}: {error.why}")
        except Exception as error:  # reported in the outcome; the run continues with its undo
            self._problems.append(f"the recording failed: {type(error).__name__}: {error}")

    def wait(self) -> None:
        """Wait until it records; raises RecordingError."""
        deadline = time.monotonic() + BEGIN_SECONDS
        while not self._going.wait(0.1):
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise errors.RecordingError(
                    "cannot record the rehearsal",
                    why="; ".join(self._problems) or "the recorder did not start",
                    todo="`overnight doctor` shows what is missing",
                )

    def stop(self) -> list[str]:
        """Stop, wait until everything is stored, and return the problems once."""
        self._stop.set()
        self._thread.join()
        problems, self._problems = self._problems, []
        return [f"recording: {problem}" for problem in problems]
