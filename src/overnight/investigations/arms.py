"""One arm: prepare its hosts, observe them, measure them, and undo what was done to them.

A task is written with its id before a host is asked for it, and asked for with the same id until the host has it. A
host on which something fails leaves the arm; the others go on.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import TYPE_CHECKING, Any

from overnight import errors
from overnight.investigations import decisions
from overnight.model.investigation import ArmRun, ArmState, HostTask, Note, Occurrence
from overnight.model.load import Constancy
from overnight.model.protocol import TaskKind, TaskState
from overnight.model.text import printable
from overnight.model.times import MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from overnight.investigations import driver
    from overnight.model.investigation import Investigation

Stage = decisions.Stage
PIN_US = 10 * MINUTE_US  # after an event: then every host was asked for its window
LOST = "no answer"
DETAIL = 300


class Arm:
    """An arm as its driver sees it; `at` is its position in the plan, None that of the experiment."""

    def __init__(self, driven: driver.Driver, at: int | None) -> None:
        self._driver, self._at = driven, at
        self._hosts, self._hooks = driven.hosts, driven.control.hooks

    @property
    def _investigation(self) -> Investigation:
        return self._driver.investigation

    @property
    def _run(self) -> ArmRun:
        return decisions.find_arm(self._investigation, self._at)[1]

    @property
    def _touched(self) -> Iterable[str]:
        """The hosts that were asked for tasks, also those that have left the arm."""
        return dict.fromkeys(task.host for task in self._run.tasks)

    @property
    def _left(self) -> float:
        return decisions.arm_left(self._investigation, self._at, self._driver.now_us)

    def step(self, why_end: str) -> None:
        """Do what is due; `why_end`: the investigation ends, and so does this arm."""
        state = self._run.state
        if state is ArmState.ENDING:
            self._find_events()  # hosts report them with a delay
            self._diagnose()
            self._close()
        elif why_end:
            self._end(why_end)
        elif state is ArmState.WAITING:
            self._begin()
        elif state is ArmState.PREPARING:
            self._prepare()
        elif state is ArmState.RUNNING:
            self._observe()

    # the record

    def _save(self, *notes: Note, **changes: object) -> None:
        now = self._investigation
        changed = dataclasses.replace(self._run, **changes)  # type: ignore[arg-type]  # its fields
        if self._at is None:
            assert now.experiment is not None
            self._driver.save(*notes, experiment=dataclasses.replace(now.experiment, arm=changed))
        else:
            every = (*now.arms[: self._at], changed, *now.arms[self._at + 1 :])
            self._driver.save(*notes, arms=every)

    def _note(self, text: str, host: str = "") -> Note:
        of = "experiment" if self._at is None else f"arm {self._run.kind}"
        return self._driver.note(f"{of}: {printable(text)}", host)

    # tasks

    def _add_tasks(self, new: Iterable[HostTask]) -> bool:
        """Write new tasks; return whether there are any."""
        tasks = tuple(new)
        if tasks:
            self._save(tasks=(*self._run.tasks, *tasks))
        return bool(tasks)

    def _advance(self, *stages: Stage) -> None:
        """Start tasks that are due and note how the others go; save only what changed."""
        due = [task for stage in stages for task in decisions.list_due(self._run, stage)]
        asked = [self._ask(task) if task.state is TaskState.PENDING else task for task in due]
        found = self._hosts.look([task.id for task in due])
        changed: dict[str, HostTask] = {}
        for before, task in zip(due, asked, strict=True):
            status = None if task.is_over else found.get(task.id)
            now = _set_state(task, status.state, status.detail) if status else task
            if now != before:
                changed[now.id] = now
        if not changed:
            return
        tasks: list[HostTask] = []
        for task in self._run.tasks:
            tasks.append(changed.get(task.id, task))
            if task.id in changed and decisions.is_repeated(self._run, changed[task.id]):
                tasks.append(_make_task(task.host, task.kind, task.name))
        self._save(*self._describe_failures(changed.values()), tasks=tuple(tasks))

    def _ask(self, task: HostTask) -> HostTask:
        run, steps = self._run, self._driver.control.database.steps
        # Preparation and undo take as long as they need; their commands have limits of their own.
        arguments = decisions.make_arguments(task, self._investigation.plan, run.kind, self._left, run.hosts)  # fmt: skip
        steps(f"start {task.kind}: before")
        try:
            self._hosts.start(task.host, task.id, task.kind, arguments)
        except errors.OvernightError as error:
            return _set_state(task, TaskState.FAILED, f"{error.what}: {error.why}")
        steps(f"start {task.kind}: after")
        return task

    def _describe_failures(self, tasks: Iterable[HostTask]) -> Iterable[Note]:
        for task in tasks:
            before = decisions.list_tries(self._run, task)[:-1]
            repeated = before and (before[-1].state, before[-1].detail) == (task.state, task.detail)
            failed = task.is_over and task.state is not TaskState.DONE
            if failed and not repeated and self._run.state is not ArmState.ENDING:
                what = f"{task.kind} {task.name}".rstrip()
                yield self._note(f"{what} {task.state}: {task.detail}", task.host)

    # states

    def _begin(self) -> None:
        plan, run = decisions.find_arm(self._investigation, self._at)
        steps = decisions.list_preparation(self._investigation.plan, plan)
        tasks = tuple(_make_task(host, *step) for host in run.hosts for step in steps)
        note = self._note(f"preparing {', '.join(run.hosts)}")
        self._save(note, state=ArmState.PREPARING, tasks=tasks, changes=plan.changes)

    def _prepare(self) -> None:
        self._advance(Stage.PREPARE)
        steps = decisions.list_stage(self._run, Stage.PREPARE)
        unfit = {
            task.host
            for task in steps
            if decisions.has_failed(self._run, task)
            # Where the arm cannot be noted, it can still be observed.
            and task.name != decisions.NOTE_ARM
        }
        hosts = tuple(host for host in self._run.hosts if host not in unfit)
        if hosts != self._run.hosts:
            self._save(hosts=hosts)
        if not hosts:
            self._end("no host of this arm could be prepared")
        elif all(task.is_over for task in steps if task.host in hosts) and self._begin_incident():
            note = self._note(f"observing {', '.join(hosts)}")
            self._save(note, state=ArmState.RUNNING, began_us=self._driver.now_us)
            self._observe()

    def _begin_incident(self) -> bool:
        found = decisions.find_arm(self._investigation, self._at)
        return self._hooks.begin_incident(self._investigation, *found)

    def _observe(self) -> None:
        self._begin_incident()
        plan, left = self._investigation.plan, self._left
        self._advance(Stage.OBSERVE)
        if self._add_tasks(
            _make_task(host, *step)
            for host in self._run.hosts
            for step in decisions.find_missing(plan, self._run, host, left)
        ):
            self._advance(Stage.OBSERVE)
        self._find_events()
        self._diagnose()
        hosts = self._run.hosts
        seen = tuple(h for h in hosts if decisions.can_observe(plan, self._run, h, left))
        if seen != hosts:
            lost = (self._note("no longer observed", h) for h in hosts if h not in seen)
            self._save(*lost, hosts=seen)
        why = decisions.why_arm_ends(self._investigation, self._at, self._driver.now_us)
        if why is not None:
            self._end(why)

    def _find_events(self) -> None:
        """Add new events of the kinds that the plan waits for, and have all hosts keep their windows."""
        now, run = self._investigation, self._run
        if not run.began_us:
            return
        known = {seen.event for seen in run.occurrences}
        until_us = run.ended_us or self._driver.now_us
        everywhere = {host for arm in now.arms for host in arm.hosts} | {*run.hosts}
        # The evidence of an arm ends with it, and so do its events; one at that very moment still counts.
        for event in self._hosts.list_events(run.hosts, run.began_us, until_us + 1):
            is_new = event.id not in known
            if not decisions.is_wanted(now.plan, event):
                continue
            if is_new or event.time_us > until_us - PIN_US:
                for host in sorted(everywhere):
                    self._hosts.pin(host, event)
            if is_new:
                seen = Occurrence(event.host, event.id, event.kind, event.time_us)
                note = self._note(f"{event.kind} {event.text}".rstrip(), event.host)
                self._save(note, occurrences=(*self._run.occurrences, seen))

    def _diagnose(self) -> None:
        for seen in self._run.occurrences:
            if not seen.headline and (judged := self._driver.diagnose(seen)):
                every = tuple(judged if each is seen else each for each in self._run.occurrences)
                note = self._note(f"first verdict: {judged.headline}", judged.host)
                self._save(note, occurrences=every)

    def _end(self, why: str) -> None:
        notes = [self._note(why)] if why else []
        if self._run.state is ArmState.WAITING:
            self._save(*notes, state=ArmState.ENDED, note=why)
        else:
            self._save(*notes, state=ArmState.ENDING, ended_us=self._driver.now_us, note=why)

    def _close(self) -> None:
        """Measure, stop what runs, then undo, then call the arm ended; what does not answer is left."""
        waited = (self._driver.now_us - self._run.ended_us) / SECOND_US
        if not self._measure(waited):
            return
        self._hooks.end_incident()
        if self._stop_tasks(waited) and self._undo(waited):
            self._finish()

    def _measure(self, waited: float) -> bool:
        if not decisions.list_stage(self._run, Stage.MEASURE):
            step = (TaskKind.AGE, decisions.MEASURE)
            return not self._add_tasks(_make_task(host, *step) for host in self._touched)
        self._advance(Stage.MEASURE)
        measures = decisions.list_stage(self._run, Stage.MEASURE)
        return waited >= decisions.MEASURE_SECONDS or all(task.is_over for task in measures)

    def _stop_tasks(self, waited: float) -> bool:
        stages = (Stage.PREPARE, Stage.OBSERVE, Stage.MEASURE)
        running = [t for stage in stages for t in decisions.list_stage(self._run, stage) if not t.is_over]  # fmt: skip
        for task in running:
            if waited >= decisions.STOP_SECONDS:
                self._replace(_set_state(task, TaskState.EXPIRED, LOST))
            elif task.state is TaskState.PENDING and not self._hosts.look([task.id]):
                self._replace(_set_state(task, TaskState.CANCELLED, ""))
            else:
                self._hosts.stop(task.host, task.id)
        self._advance(*stages)
        return not running or waited >= decisions.STOP_SECONDS

    def _undo(self, waited: float) -> bool:
        if not decisions.list_stage(self._run, Stage.CLOSE) and self._add_tasks(
            _make_task(host, *step)
            for host in self._touched
            for step in decisions.list_closing(self._run, host)
        ):
            return False
        self._advance(Stage.CLOSE)
        undone = all(task.is_over for task in decisions.list_stage(self._run, Stage.CLOSE))
        waits = decisions.awaits_verdicts(self._investigation, self._run, self._driver.now_us)
        return waited >= 2 * decisions.STOP_SECONDS or (undone and not waits)

    def _replace(self, task: HostTask) -> None:
        self._save(tasks=tuple(task if t.id == task.id else t for t in self._run.tasks))

    def _finish(self) -> None:
        notes = [
            self._note(f"not undone: {task.kind} {task.name}: {task.detail or LOST}", task.host)
            for task in decisions.list_left(self._run)
        ]
        found = self._hosts.look([task.id for task in self._run.tasks])
        doses: dict[str, dict[str, float]] = {}
        constancy: dict[str, str] = {}
        for task in (task for task in self._run.tasks if task.id in found):
            result = found[task.id].result
            doses.setdefault(task.host, {}).update(_find_dose(task, result))
            if task.kind is TaskKind.LOAD and result:
                shared = decisions.is_shared(self._investigation.plan)
                hosts = self._run.hosts if shared else (task.host,)
                constancy |= dict.fromkeys(hosts, str(result["status"]))
                if result["status"] == Constancy.NOT_CONSTANT:
                    text = f"the load is not constant: {result.get('says', '')}"
                    notes.append(self._note(text, task.host))
        notes.append(self._note("ended"))
        self._save(*notes, state=ArmState.ENDED, doses=doses, constancy=constancy)


def _make_task(host: str, kind: TaskKind, name: str) -> HostTask:
    return HostTask(host, kind, f"t-{secrets.token_hex(8)}", name)


def _set_state(task: HostTask, state: TaskState, detail: str) -> HostTask:
    return dataclasses.replace(task, state=state, detail=printable(detail)[:DETAIL])


def _find_dose(task: HostTask, result: Mapping[str, Any]) -> dict[str, float]:
    """Return what a task measured that may make the event more frequent."""
    if task.kind is TaskKind.RECORD and result.get("seconds", 0) >= decisions.WORTHWHILE_SECONDS:
        return {"load": float(result["busy"] or 0.0), "cores": float(result["cores"])}
    if task.kind is TaskKind.AGE and task.name == decisions.MEASURE and "uptime_s" in result:
        zombies = result.get("counts", {}).get("dying")
        found = {} if zombies is None else {"zombies": float(zombies)}
        return {**found, "uptime_s": float(result["uptime_s"])}
    return {}
