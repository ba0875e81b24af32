"""One rehearsal: cause a real incident, record it, diagnose it, undo it, and compare with the truth.

`event_to_verdict_s` is wall-clock time from the diagnosed event to the verdict. It includes the time that the
fault continues after the event, the end of the recording, and the diagnosis.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from overnight import app, errors, load, rehearsals
from overnight.app import home as homes
from overnight.app import rehearsal_host, scoreboard
from overnight.model import files, stop_signals, times
from overnight.model.text import plural
from overnight.rehearsals import processes
from overnight.rehearsals import victim as victims
from overnight.store import loads
from overnight.store.ring import reader as rings
from overnight.undo import journal

if TYPE_CHECKING:
    from overnight.app import diagnose
    from overnight.model.event import Event
    from overnight.model.truth import Truth

EVENT = "net.driver_reset"
POLL_SECONDS = 0.25
RECOVERED_MS = 500.0
RECOVER_SECONDS = 30.0
END_SECONDS = 20.0
KEEP = 20


@dataclasses.dataclass(frozen=True)
class Progress:
    """`done` of `whole` seconds of a phase, and the victim's status."""

    phase: str
    done: float = 0.0
    whole: float = 0.0
    victim: victims.Status | None = None
    note: str = ""


def discover() -> tuple[rehearsals.Rehearsal, ...]:
    """Return every rehearsal: REHEARSALS of all modules."""
    modules = app.discover(rehearsals)
    known = [known for module in modules for known in getattr(module, "REHEARSALS", ())]
    return tuple(sorted(known, key=lambda rehearsal: rehearsal.name))


def find(name: str) -> rehearsals.Rehearsal:
    known = {rehearsal.name: rehearsal for rehearsal in discover()}
    if name not in known:
        raise errors.UsageError(
            f"there is no rehearsal {name!r}",
            why=f"rehearsals: {', '.join(known)}",
            todo="`overnight rehearse --list` describes them",
        )
    return known[name]


def clean() -> list[str]:
    """Undo what killed runs left; return which runs these were."""
    cleaned, problems = journal.clean()
    with contextlib.suppress(errors.CannotError), rehearsal_host.alone():
        pass  # removes the lock of a killed rehearsal
    if problems:
        raise errors.CannotError(
            "cannot undo what an earlier run left",
            why="; ".join(problems),
            todo="undo it by hand, then `overnight rehearse --clean`",
        )
    return cleaned


def rehearse(
    rehearsal: rehearsals.Rehearsal,
    *,
    seed: int,
    home: pathlib.Path,
    brief: bool = False,
    core: int | None = None,
    keep: int = KEEP,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> scoreboard.Outcome:
    """Run one rehearsal and undo it, whatever ends it."""
    for left in clean():
        on_progress(Progress("clean", note=f"undid what a killed run had left: {left}"))
    rehearsal_host.check_needs(rehearsal.needs)
    homes.need_writable(home)
    used = rehearsal_host.measure_busy(1.0)
    plan = rehearsal_host.draw(
        rehearsal.name,
        seed,
        os.sched_getaffinity(0),
        busy=[core for core, share in used.items() if share > rehearsal_host.CROWDED],
        brief=brief,
        core=core,
    )
    with (
        stop_signals.interrupt_on_signals(),
        rehearsal_host.alone(),
        load.keep_off((plan.core,)),
    ):
        began = time.monotonic()
        before = rehearsal_host.take_inventory()
        with (
            journal.Journal(f"rehearse {rehearsal.name} --seed {seed}") as run_journal,
            _marked(run_journal),
        ):
            run = _Run(rehearsal, plan, seed, brief, home, run_journal, on_progress)
            try:
                run.play()
            finally:
                run.end()
        on_progress(Progress("verify the undo"))
        ours, others = rehearsal_host.left_behind(
            run_journal.run,
            run.stage.folder,
            run_journal.targets(),
            before,
            rehearsal_host.take_inventory(),
        )
    outcome = run.outcome(time.monotonic() - began, (*run_journal.problems, *ours), others)
    files.write(run.home / "outcome.json", json.dumps(outcome.as_json(), indent=2) + "\n")
    rehearsal_host.prune(home / "rehearsals", keep)
    return outcome


class _Run:
    def __init__(
        self,
        rehearsal: rehearsals.Rehearsal,
        plan: rehearsal_host.Plan,
        seed: int,
        brief: bool,
        home: pathlib.Path,
        run_journal: journal.Journal,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._rehearsal, self._plan, self._journal = rehearsal, plan, run_journal
        self._on_progress = on_progress
        self.home = home / "rehearsals" / f"{rehearsal.name}-{seed}-{run_journal.run}"
        self.report = self.home / "report.html"
        self.stage = rehearsals.Stage(
            seed=seed,
            core=plan.core,
            spare=plan.spare,
            home=self.home,
            folder=self.home / "stage",
            journal=run_journal,
            chance=random.Random(f"{rehearsal.name} {seed}"),  # noqa: S311 - no secret
            stop=threading.Event(),
            report=lambda text: on_progress(Progress("", note=text)),
            brief=brief,
            interface=plan.victim.interface,
            queue=plan.victim.queue,
        )
        self._victim = victims.Victim(self.stage, plan.victim)
        self._last = victims.Status()
        self._recording: rehearsal_host.Recording | None = None
        self._events: tuple[Event, ...] = ()
        self._truth: Truth | None = None
        self._diagnosis: diagnose.Diagnosis | None = None
        self._took: float | None = None
        self._ready_us = 0  # when the baseline began
        self._problems: list[str] = []
        self._disturbances: list[str] = []

    def play(self) -> None:
        files.make_folder(self.home)
        marker = self.home / rehearsal_host.MARKER
        files.write(marker, json.dumps({"run": self._journal.run}) + "\n")
        self._journal.write("folder", self.stage.folder)
        self.stage.folder.mkdir()
        self._on_progress(Progress("prepare"))
        self._rehearsal.prepare(self.stage)
        self._truth = self._rehearsal.truth(self.stage)
        # The recorder first: cores may share execution units, which would change the victim's calibration.
        self._on_progress(Progress("start recording"))
        self._recording = rehearsal_host.Recording(self.home, self._plan.longest)
        self._recording.wait()
        self._on_progress(Progress("calibrate the victim"))
        self._victim.start()
        with loads.note_victim(self.home, self._plan.core, self._victim.pids):
            self._play_strikes()
        self._last = self._victim.status()
        self._victim.stop()
        self._diagnose()

    def _play_strikes(self) -> None:
        self._baseline()
        if self._rehearsal.has_event:
            for number in range(1, self._plan.strikes + 1):
                self._strike(number)
        else:
            self._rehearsal.strike(self.stage)
            self._wait("watch", self._plan.watch)
            self._stop_fault()

    def _baseline(self) -> None:
        for attempt in range(1, rehearsal_host.BASELINE_TRIES + 1):
            self._ready_us = times.now_us()
            crowd = rehearsal_host.Crowd(self._journal.run)
            resets = self._victim.status().resets
            late = [status.late_p50_ms for status in self._poll("baseline", self._plan.baseline)]
            median = sorted(late)[len(late) // 2]
            if median < victims.KEEPS_UP_MS and self._victim.status().resets == resets:
                return
            others = crowd.describe(core=self._plan.core) or ["no long-running process"]
            why = (
                f"the victim fell {median / 1000:.1f} s behind on core {self._plan.core} before the fault;"
                f" other processes there: {', '.join(others[:3])}"
            )
            if attempt < rehearsal_host.BASELINE_TRIES:
                self._on_progress(
                    Progress("baseline", note=f"the host is busy, trying again: {why}")
                )
        raise errors.CannotError(
            "this host is too busy for a rehearsal",
            why=why,
            todo="retry when the host is less busy, or choose another --core",
        )

    def _strike(self, number: int) -> None:
        of = f" {number} of {self._plan.strikes}" if self._plan.strikes > 1 else ""
        self.stage.stop.clear()
        began_us = times.now_us()
        crowd = rehearsal_host.Crowd(self._journal.run)
        self._on_progress(Progress(f"strike{of}", note="the fault starts"))
        self._rehearsal.strike(self.stage)
        for _ in self._poll(f"strike{of}", self._plan.patience):
            resets = self._resets(began_us)
            if resets:
                break
            processes.check(self.stage)
        else:
            self._stop_fault()
            self._problems.append(self._describe_no_reset())
            return
        self._events = (*self._events, resets[0])
        if others := crowd.describe(rehearsal_host.CROWDED):
            self._disturbances.append(
                f"other processes used this host during the fault: {', '.join(others[:3])}"
            )
        self._on_progress(Progress(f"strike{of}", note=resets[0].text))
        self._wait(f"after the event{of}", self._plan.after)
        self._stop_fault()
        if number < self._plan.strikes:
            self._recover()

    def _describe_no_reset(self) -> str:
        now = self._victim.status()
        events = rings.Reader(self.home).events(0, 1 << 62)
        kinds = ", ".join(sorted({event.kind for event in events})) or "none"
        return (
            f"no reset within {self._plan.patience:.0f} s: the victim is {now.late_ms / 1000:.1f} s late,"
            f" {now.worst_ms / 1000:.1f} s at most, with {plural(now.resets, 'reset')}; recorded events: {kinds}"
        )

    def _recover(self) -> None:
        for status in self._poll("recover", RECOVER_SECONDS):
            if status.late_ms < RECOVERED_MS:
                break
        self._wait("rest", self._plan.between)

    def _resets(self, since_us: int) -> list[Event]:
        events = rings.Reader(self.home).events(since_us, 1 << 62, kinds=[EVENT])
        return [
            event
            for event in events
            if event.fields.get("rehearsal") == self._journal.run and event.time_us >= since_us
        ]

    def _wait(self, phase: str, seconds: float) -> None:
        for _ in self._poll(phase, seconds):
            pass

    def _poll(self, phase: str, seconds: float) -> Iterator[victims.Status]:
        """Yield the victim's status for `seconds`, and report progress."""
        begin = time.monotonic()
        while (done := time.monotonic() - begin) < seconds:
            self._victim.check()
            status = self._victim.status()
            self._on_progress(Progress(phase, done, seconds, status))
            yield status
            time.sleep(POLL_SECONDS)

    def _stop_fault(self) -> None:
        self.stage.stop.set()
        deadline = time.monotonic() + END_SECONDS
        for thread in self.stage.ending:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self.stage.ending):
            self._problems.append(f"the fault did not end in {END_SECONDS:.0f} s")
        self.stage.ending.clear()

    def _diagnose(self) -> None:
        from overnight.app import diagnose

        self._on_progress(Progress("stop recording"))
        assert self._recording is not None
        self._problems += self._recording.stop()
        self._on_progress(Progress("diagnose"))
        # By its id: the event may have grown since.
        event_id = self._events[-1].id if self._events else diagnose.LAST
        event = diagnose.choose_event(self.home, event_id)
        if event is not None and not self._events and event.time_us < self._ready_us:
            event = None  # other work on this host, before the baseline
        verdict, case = diagnose.diagnose_event(self.home, event)
        if event is not None:
            self._took = time.time() - event.time_us / times.SECOND_US
        self._diagnosis = diagnose.add_material(verdict, case)
        with files.replace(self.report) as file:
            self._diagnosis.write("html", file)
        with files.replace(self.home / "verdict.json") as file:
            self._diagnosis.write("json", file)

    def end(self) -> None:
        """Stop the fault, the victim and the recorder, whatever happened."""
        self._on_progress(Progress("undo"))
        self._stop_fault()
        self._victim.stop()
        if self._recording is not None:
            self._recording.stop()

    def outcome(
        self, seconds: float, left: tuple[str, ...], others: list[str]
    ) -> scoreboard.Outcome:
        assert self._truth is not None
        assert self._diagnosis is not None
        verdict = self._diagnosis.verdict
        problems = self._truth.problems(verdict)
        if not self._rehearsal.has_event and self._resets(self._ready_us):
            problems.append("the victim was reset without a fault")
        if self._rehearsal.has_event and not self._events:
            problems.append("no event occurred")
        return scoreboard.Outcome(
            scenario=self._rehearsal.name,
            seed=self.stage.seed,
            brief=self.stage.brief,
            run=self._journal.run,
            correct=not problems,
            rank=self._truth.rank(verdict) if not problems or self._events else 0,
            event_to_verdict_s=round(self._took, 2) if self._took is not None else None,
            seconds=round(seconds, 1),
            diagnosis=self._diagnosis,
            problems=(*problems, *self._problems, *left),
            disturbances=tuple(self._disturbances),
            missed=self._truth.missed(verdict),
            expected=self._truth,
            facts={
                "core": self._plan.core,
                "spare": self._plan.spare,
                **dataclasses.asdict(self._plan.victim),
                **self.stage.facts,
            },
            victim=self._last,
            events=len(self._events),
            leftovers=left,
            others=tuple(others),
            home=self.home,
            report=self.report,
        )


@contextlib.contextmanager
def _marked(run_journal: journal.Journal) -> Iterator[None]:
    """Mark every process started meanwhile, including the recorder's."""
    before = os.environ.get(journal.MARK)
    os.environ[journal.MARK] = run_journal.run
    try:
        yield
    finally:
        os.environ.pop(journal.MARK)
        if before is not None:
            os.environ[journal.MARK] = before
