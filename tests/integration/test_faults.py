"""Faults of this process and its disk: each is reported as what it is, blames nobody else, and passes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import captures
import casebook
import descriptors
import exhaustion
import fakehost
import faults
import pytest
import rings

from overnight import errors
from overnight.agent import recorder_loop, schedule, signals, spool, watches
from overnight.app import diagnose, spool_ingest, spool_paths
from overnight.ingest.symbols import elf, kallsyms
from overnight.ingest.symbols import files as symbol_files
from overnight.model import clock, files, process_identity
from overnight.model.finding import Status
from overnight.model.verdict import Verdict, VerdictStatus
from overnight.queries import reader as profiles
from overnight.queries import top
from overnight.sources import cpu, kmsg, perf
from overnight.store import segments
from overnight.store.ring import reader
from overnight.undo import journal

if TYPE_CHECKING:
    from overnight.model.event import Event

pytestmark = pytest.mark.needs_root

SIGNALS = signals.discover_signals()
EVENT, END = 80, 100
BEGINS = (0, 62)  # the first fault is there when the recorder starts
SECONDS = 8


class Log:
    """The host's kernel log, with one line: a driver's reset."""

    counts: Mapping[str, int] = types.MappingProxyType({})
    lines = (1, 0, 0)
    has_moved = False

    def __init__(self, root: pathlib.Path, second: Callable[[], int]) -> None:
        self._log = kmsg.KernelLog.open(root)
        self._second = second
        self.fileno = self._log.fileno

    def sightings(self, now: clock.Clock) -> watches.Sightings:
        if self._second() == EVENT:
            yield watches.Sighting("net.driver_reset", "eth0", now, "TX q 5 is paused", core=1)

    def flush(self, now: clock.Clock) -> watches.Sightings:
        del now
        return ()

    def note_position(self, events: Iterable[Event]) -> None: ...

    def finish(self, now: clock.Clock) -> watches.Sightings:
        del now
        self._log.close()
        return ()


@dataclasses.dataclass
class Night:
    """The recorder's loop on a made-up host, with real sources, a real ring and a clock of the test."""

    disk: pathlib.Path
    root: pathlib.Path
    step: float = 0.0  # of the wall clock, at the second fault
    second: int = -1
    watches: tuple[watches.Watch, ...] = dataclasses.field(default_factory=signals.discover_watches)

    def now(self) -> clock.Clock:
        return rings.at(self.second, step=self.step if self.second >= BEGINS[1] else 0.0)

    def open_log(self) -> tuple[Log, str]:
        return Log(self.root, lambda: self.second), ""

    def _poll(self, loop: recorder_loop.RecorderLoop, plan: schedule.Schedule) -> None:
        for name in plan.due(float(self.second)):
            if errors.is_own(loop.poll(name, self.now())):
                plan.retry(name, self.second + 1.0)
                assert name not in loop.status(self.now()).rows  # nothing old is published as new
        loop.tick()

    def record(
        self, fault: Callable[[], contextlib.AbstractContextManager[object]]
    ) -> tuple[recorder_loop.RecorderLoop, Verdict]:
        ring = rings.open_writer(self.disk, block_seconds=5)
        with contextlib.ExitStack() as stack:
            stack.enter_context(fault())
            loop = recorder_loop.RecorderLoop(
                recorder_loop.Parts(
                    host=rings.HOST,
                    boot=rings.BOOT,
                    signals=SIGNALS,
                    watches=self.watches,
                    sink=ring,
                    open_log=self.open_log,
                    root=self.root,
                    read_clock=self.now,
                )
            )
            plan = schedule.Schedule({signal.name: signal.every for signal in SIGNALS}, 0.0)
            for self.second in range(END):
                if self.second in BEGINS[1:]:
                    stack.enter_context(fault())
                if self.second - SECONDS in BEGINS:
                    stack.close()
                self._poll(loop, plan)
        loop.finish()
        ring.close()
        (reset,) = reader.Reader(self.disk).events(0, rings.EVER, kinds=("net.driver_reset",))
        return loop, diagnose.diagnose_event(self.disk, reset)[0]


def seen(home: pathlib.Path, verdict: Verdict) -> tuple[set[str], set[str]]:
    """Return what was held to have happened: kinds of events, and findings."""
    events = reader.Reader(home).events(0, rings.EVER)
    return {event.kind for event in events}, {finding.kind for finding in verdict.findings}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("host")
    fakehost.FakeHost(root, cores=4, queues=4).put("dev/kmsg", "")
    return root


@pytest.fixture(scope="module")
def truth(
    host: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[set[str], set[str]]:
    """What a night without a fault shows."""
    home = tmp_path_factory.mktemp("home")
    return seen(home, Night(home, host).record(contextlib.nullcontext)[1])


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


Fault = Callable[[pathlib.Path], contextlib.AbstractContextManager[object]]
FAULTS: dict[str, tuple[Fault, float, str]] = {
    "EMFILE": (lambda _: exhaustion.no_descriptors(), 0.0, "Too many open files"),
    "ENFILE": (lambda _: faults.no_files_on_this_host(), 0.0, "Too many open files in system"),
    "ENOMEM": (lambda _: faults.no_memory(), 0.0, "Cannot allocate memory"),
    "ENOSPC": (faults.full_disk, 0.0, "No space left on device"),
    "EROFS": (faults.read_only_disk, 0.0, "Read-only file system"),
    "clock set forward": (lambda _: contextlib.nullcontext(), 3600.0, "the wall clock was set by"),
    "clock set back": (lambda _: contextlib.nullcontext(), -3600.0, "the wall clock was set by"),
}


@pytest.mark.parametrize("name", FAULTS)
@faults.on_small_disk
def test_a_fault_of_the_recorder_is_missing_evidence_and_nobody_is_blamed(
    disk: pathlib.Path, host: pathlib.Path, truth: tuple[set[str], set[str]], name: str
) -> None:
    fault, step, reason = FAULTS[name]
    loop, verdict = Night(disk, host, step).record(lambda: fault(disk))
    assert any(reason in gap.why for gap in verdict.gaps), verdict.gaps
    assert verdict.status is not VerdictStatus.CAUSE_FOUND
    assert seen(disk, verdict) == truth
    # It goes on after the fault: every signal of this host is read, and each second is kept.
    assert not [state for state in (*loop.states.values(), loop.log_state) if state.exhausted]
    assert verdict.event is not None
    since_us = verdict.event.time_us - 5_000_000
    numbers = rings.everything(reader.Reader(disk), begin_us=since_us)
    assert len({at for at, _, _ in numbers if at <= since_us + 25_000_000}) == END - EVENT + 5


def outcome(read: Callable[[], object]) -> object:
    """Return the answer, or the reason why there is none."""
    try:
        return read()
    except errors.OvernightError as error:
        return error.why
    except OSError as error:
        return str(error)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Signals, an event, stacks, gaps and a pending raw segment."""
    folder = tmp_path_factory.mktemp("recorded")
    made = casebook.Home(folder, seconds=200).cpu()
    made.stacks(casebook.busy(0, 200, 1, "trainer", (captures.user("forward"),), hertz=10))
    made.writer.facts("units", rings.at(9), {"a.service": {"state": "active"}})
    made.writer.note_gap(rings.us(20), rings.us(21), "the disk was full")
    made.event(second=150)
    made.case()
    spool_folder = spool_paths.spool_folder(folder)
    for name in ("db-7-20261115T020304.056Z-0123abcd", "db-7-20261115T020504.056Z-0123abcd"):
        files.make_folder(spool_folder)
        files.write(spool_folder / f"{name}.perf.data", b"")
    files.write(spool_folder / spool_ingest.DONE, f"{name}.perf.data\n")
    spool.Journal(spool_folder / "gaps.jsonl").add(perf.Gap(1, 2, "perf ended"))
    return folder


def read_stacks(folder: pathlib.Path) -> object:
    source = profiles.Reader(segments.Catalogue(folder))
    answer = top.top(source, source.extent())
    return answer.rows, answer.coverage.damaged


def read_verdict(folder: pathlib.Path) -> object:
    verdict = diagnose.diagnose(diagnose.Request(folder)).verdict
    failed = [answer.why for answer in verdict.answers if answer.status is Status.FAILED]
    return next((why for why in failed if "Too many open files" in why), verdict)


READERS: dict[str, Callable[[pathlib.Path], object]] = {
    "events": lambda home: reader.Reader(home).events(0, rings.EVER),
    "gaps": lambda home: reader.Reader(home).gaps(rings.HOST),
    "facts": lambda home: reader.Reader(home).facts(rings.HOST, "units", rings.us(30)),
    "numbers": lambda home: rings.everything(reader.Reader(home)),
    "extent": lambda home: reader.Reader(home).extent(rings.HOST),
    "stacks": read_stacks,
    "verdict": read_verdict,
    "pending segments": lambda home: spool_ingest.find_pending(spool_paths.spool_folder(home)),
    "gaps of the spool": lambda home: spool.Journal(
        spool_paths.spool_folder(home) / "gaps.jsonl"
    ).read(),
    "runs to undo": lambda _: [(left.run, left.state) for left in journal.runs()],
    "start of a process": lambda _: process_identity.read_start(os.getpid()),
    "runs that go on": lambda _: process_identity.is_running(
        os.getpid(), **process_identity.read_identity(os.getpid())
    ),
    "a library": lambda _: symbol_files.LiveFiles().find(sys.executable, os.getpid()),
    "its functions": lambda _: elf.read_elf_symbols(pathlib.Path(sys.executable)).nbytes,
    "kernel symbols": lambda _: len(kallsyms.read_kallsyms() or b""),
    "boot": lambda _: perf.read_identity(),
    "cores": lambda _: cpu.online(),
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_without_descriptors_never_answers_from_a_part_of_the_evidence(
    home: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    with journal.Journal("a test"):
        whole = READERS[name](home)
        for free in range(6):  # so that each of the first files that it opens is the one that fails
            with descriptors.leave_descriptors(free):
                answer = outcome(lambda: READERS[name](home))
            assert answer == whole or "Too many open files" in str(answer), (free, answer)
        assert READERS[name](home) == whole
