"""`overnight rehearse`: make a real incident here, record it, diagnose it, undo it, and compare with the truth.

`event_to_verdict_s` is wall-clock time from the instant of the event that is diagnosed to the verdict: the
seconds that the fault goes on after the event, the end of the recording and the diagnosis are all in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from overnight import app, errors, rehearsals
from overnight.app import home as homes
from overnight.app import rehearsal_host, scoreboard
from overnight.rehearsals import processes
from overnight.rehearsals import victim as victims
from overnight.store.ring import reader as rings
from overnight.undo import journal

if TYPE_CHECKING:
    from overnight.model.event import Event
    from overnight.model.truth import Truth
    from overnight.model.verdict import Verdict
    from overnight.reports import diagnosis

__all__ = ["Progress", "clean", "discover", "find", "rehearse"]

EVENT = "net.driver_reset"
LOOK_SECONDS = 0.25
RECOVERED_MS = 500.0
RECOVER_SECONDS = 30.0
END_SECONDS = 20.0
KEEP = 20


@dataclasses.dataclass(frozen=True)
class Progress:
    """How it goes: `done` of `whole` seconds of a phase, and how the victim does."""

    phase: str
    done: float = 0.0
    whole: float = 0.0
    victim: victims.Status | None = None
    note: str = ""


def discover() -> tuple[rehearsals.Rehearsal, ...]:
    """Every rehearsal there is: what the modules name in REHEARSALS."""
    found: list[rehearsals.Rehearsal] = []
    for module in app.discover(rehearsals):
        found += getattr(module, "REHEARSALS", ())
    return tuple(sorted(found, key=lambda one: one.name))


def find(name: str) -> rehearsals.Rehearsal:
    """The rehearsal of that name."""
    known = {one.name: one for one in discover()}
    if name not in known:
        raise errors.UsageError(
            f"there is no rehearsal {name!r}",
            why=f"there are {', '.join(known)}",
            todo="overnight rehearse --list   tells what each does",
        )
    return known[name]


def clean() -> list[str]:
    """Undo what runs that died have left; which these were."""
    cleaned, wrong = journal.clean()
    if wrong:
        raise errors.CannotError(
            "what an earlier run left cannot be undone",
            why="; ".join(wrong),
            todo="undo it by hand, then overnight rehearse --clean",
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
    """One rehearsal from the empty stage to the undone one. Whatever ends it, all is undone."""
    for one in clean():
        on_progress(Progress("clean", note=f"undone what a run that died had left: {one}"))
    rehearsal_host.check_needs(rehearsal.needs)
    homes.need_writable(home)
    plan = rehearsal_host.draw(
        rehearsal.name, seed, os.sched_getaffinity(0), brief=brief, core=core
    )
    with _interruptible(), rehearsal_host.alone(), rehearsal_host.away_from(plan.core):
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
        on_progress(Progress("check that all is undone"))
        ours, others = rehearsal_host.left_behind(
            run_journal.run,
            run.stage.folder,
            run.targets(),
            before,
            rehearsal_host.take_inventory(),
        )
    outcome = run.outcome(time.monotonic() - began, (*run_journal.problems, *ours), others)
    (run.home / "outcome.json").write_text(json.dumps(outcome.as_json(), indent=2) + "\n")
    rehearsal_host.prune(home / "rehearsals", keep)
    return outcome


class _Run:
    """The acts of one rehearsal, in their order."""

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
        self._tell = on_progress
        self.home = home / "rehearsals" / f"{rehearsal.name}-{seed}-{run_journal.run}"
        self.stage = rehearsals.Stage(
            seed=seed,
            core=plan.core,
            spare=plan.spare,
            home=self.home,
            folder=self.home / "stage",
            journal=run_journal,
            chance=random.Random(f"{rehearsal.name} {seed}"),  # noqa: S311 - no secret
            stop=threading.Event(),
            say=lambda text: on_progress(Progress("", note=text)),
            brief=brief,
            interface=plan.victim.interface,
            queue=plan.victim.queue,
        )
        self._victim = victims.Victim(self.stage, plan.victim)
        self._last = victims.Status()
        self._recording: rehearsal_host.Recording | None = None
        self._events: tuple[Event, ...] = ()
        self._verdict: Verdict | None = None
        self._truth: Truth | None = None
        self._material: diagnosis.Material | None = None
        self._took: float | None = None
        self._report: pathlib.Path | None = None
        self._problems: list[str] = []

    def play(self) -> None:
        """All of it."""
        self.home.mkdir(parents=True, mode=0o700)
        (self.home / rehearsal_host.MARKER).write_text(
            json.dumps({"run": self._journal.run}) + "\n"
        )
        self._journal.write("folder", self.stage.folder)
        self.stage.folder.mkdir()
        self._tell(Progress("prepare"))
        self._rehearsal.prepare(self.stage)
        self._truth = self._rehearsal.truth(self.stage)
        # The recorder first: cores may share their execution units, and the victim's work is measured.
        self._tell(Progress("start recording"))
        self._recording = rehearsal_host.Recording(self.home, self._plan.longest)
        self._recording.wait()
        self._tell(Progress("calibrate the victim"))
        self._victim.start()
        self._baseline()
        if self._rehearsal.has_event:
            for number in range(1, self._plan.strikes + 1):
                self._strike(number)
        else:
            self._rehearsal.strike(self.stage)
            self._wait("watch", self._plan.watch)
            self._stop_fault()
        self._last = self._victim.status()
        self._victim.stop()
        self._diagnose()

    def _baseline(self) -> None:
        crowd = rehearsal_host.Crowd(self._journal.run)
        late = [one.late_p50_ms for one in self._seconds("baseline", self._plan.baseline)]
        usual = sorted(late)[len(late) // 2]
        if usual < victims.KEEPS_UP_MS and self._victim.status().resets == 0:
            return
        who = crowd.told(core=self._plan.core) or ["nobody for long"]
        raise errors.CannotError(
            "this machine is too busy for a rehearsal",
            why=f"the victim fell {usual / 1000:.1f} s behind on core {self._plan.core} before anything struck;"
            f" beside it ran {', '.join(who[:3])}",
            todo="try again when less runs here, or with another --core",
        )

    def _strike(self, number: int) -> None:
        of = f" {number} of {self._plan.strikes}" if self._plan.strikes > 1 else ""
        self.stage.stop.clear()
        began_us = time.time_ns() // 1000
        crowd = rehearsal_host.Crowd(self._journal.run)
        self._tell(Progress(f"strike{of}", note="the fault begins"))
        self._rehearsal.strike(self.stage)
        for _ in self._seconds(f"strike{of}", self._plan.patience):
            found = self._resets(began_us)
            if found:
                break
            processes.check(self.stage)
        else:
            self._stop_fault()
            self._problems.append(self._nothing_came())
            return
        self._events = (*self._events, found[0])
        if others := crowd.told(rehearsal_host.CROWDED):
            self._problems.append(
                f"others used this host during the strike: {', '.join(others[:3])}"
            )
        self._tell(Progress(f"strike{of}", note=found[0].text))
        self._wait(f"after the event{of}", self._plan.after)
        self._stop_fault()
        if number < self._plan.strikes:
            self._recover()

    def _nothing_came(self) -> str:
        now = self._victim.status()
        seen = rings.Reader(self.home).events(0, 1 << 62)
        kinds = ", ".join(sorted({one.kind for one in seen})) or "none"
        return (
            f"no reset came in {self._plan.patience:.0f} s: the victim was {now.late_ms / 1000:.1f} s late at last,"
            f" {now.worst_ms / 1000:.1f} s at most, with {now.resets} resets; events seen: {kinds}"
        )

    def _recover(self) -> None:
        for status in self._seconds("recover", RECOVER_SECONDS):
            if status.late_ms < RECOVERED_MS:
                break
        self._wait("rest", self._plan.between)

    def _resets(self, since_us: int) -> list[Event]:
        told = rings.Reader(self.home).events(since_us, 1 << 62, kinds=[EVENT])
        return [
            one
            for one in told
            if one.fields.get("rehearsal") == self._journal.run and one.time_us >= since_us
        ]

    def _wait(self, phase: str, seconds: float) -> None:
        for _ in self._seconds(phase, seconds):
            pass

    def _seconds(self, phase: str, seconds: float) -> Iterator[victims.Status]:
        """How the victim does, again and again, for so long; told, too."""
        begin = time.monotonic()
        while (done := time.monotonic() - begin) < seconds:
            self._victim.check()
            status = self._victim.status()
            self._tell(Progress(phase, done, seconds, status))
            yield status
            time.sleep(LOOK_SECONDS)

    def _stop_fault(self) -> None:
        self.stage.stop.set()
        deadline = time.monotonic() + END_SECONDS
        for thread in self.stage.ending:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self.stage.ending):
            self._problems.append(f"the fault did not end in {END_SECONDS:.0f} s")
        self.stage.ending.clear()

    def _diagnose(self) -> None:
        from overnight.app import event_diagnosis, report_material
        from overnight.reports import diagnosis
        from overnight.reports.diagnosis import html
        from overnight.reports.diagnosis import json as documents

        self._tell(Progress("stop recording"))
        assert self._recording is not None
        self._problems += self._recording.stop()
        self._tell(Progress("diagnose"))
        told = self._events[-1] if self._events else event_diagnosis.choose_event(self.home)
        if self._events:  # it may have grown since
            told = event_diagnosis.choose_event(self.home, self._events[-1].id)
        self._verdict, case = event_diagnosis.diagnose(self.home, told)
        if told is not None:
            self._took = time.time() - told.time_us / 1e6
        self._material = (
            report_material.gather(case, self._verdict) if case is not None else diagnosis.EMPTY
        )
        self._report = self.home / "report.html"
        with self._report.open("wb") as file:
            html.write(self._verdict, file, self._material)
        with (self.home / "verdict.json").open("wb") as file:
            documents.write(self._verdict, file)

    def end(self) -> None:
        """Whatever happened: no fault, no victim, no recorder."""
        self._tell(Progress("undo"))
        self._stop_fault()
        self._victim.stop()
        if self._recording is not None:
            self._recording.stop()

    def targets(self) -> list[str]:
        """What the ledger says was made."""
        return self._journal.targets()

    def outcome(
        self, seconds: float, left: tuple[str, ...], others: list[str]
    ) -> scoreboard.Outcome:
        """Compared with the truth."""
        assert self._truth is not None
        assert self._verdict is not None
        wrong = self._truth.problems(self._verdict)
        if not self._rehearsal.has_event and self._resets(0):
            wrong.append("the victim was reset, and nothing had struck")
        if self._rehearsal.has_event and not self._events:
            wrong.append("no event came")
        claimed = (
            {step.kind for step in self._verdict.chain.steps} if self._verdict.chain else set()
        )
        return scoreboard.Outcome(
            scenario=self._rehearsal.name,
            seed=self.stage.seed,
            brief=self.stage.brief,
            run=self._journal.run,
            correct=not wrong,
            rank=self._truth.rank(self._verdict) if not wrong or self._events else 0,
            event_to_verdict_s=round(self._took, 2) if self._took is not None else None,
            seconds=round(seconds, 1),
            verdict=self._verdict,
            problems=(*wrong, *self._problems, *left),
            missed=tuple(kind for kind, _ in self._truth.chain if kind not in claimed),
            expected=self._truth,
            facts={
                "core": self._plan.core,
                "spare": self._plan.spare,
                **self._plan.victim.as_json(),
                **self.stage.facts,
            },
            victim=self._last,
            events=len(self._events),
            leftovers=left,
            others=tuple(others),
            home=self.home,
            report=self._report,
            material=self._material,
        )


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: with everything undone."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    try:
        before = {number: signal.signal(number, stop) for number in numbers}
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _marked(run_journal: journal.Journal) -> Iterator[None]:
    """All that is started meanwhile carries the mark, the recorder's processes, too."""
    before = os.environ.get(journal.MARK)
    os.environ[journal.MARK] = run_journal.run
    try:
        yield
    finally:
        os.environ.pop(journal.MARK)
        if before is not None:
            os.environ[journal.MARK] = before
