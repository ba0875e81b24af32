"""One arm: prepare its hosts, observe them, measure them, and undo what was done to them.

A task is written with its id before a host is asked for it, and asked for with the same id until the host has it. A
host on which something fails leaves the arm; the others go on.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import TYPE_CHECKING

from overnight import errors
from overnight.investigations import context, decisions
from overnight.model.investigation import ArmRun, ArmState, HostTask, Note, Occurrence
from overnight.model.load import Constancy
from overnight.model.protocol import TaskKind, TaskState
from overnight.model.text import printable
from overnight.model.times import MINUTE_US, SECOND_US

if TYPE_CHECKING:
    from overnight.investigations import driver
    from overnight.model.event import Event

PIN_US = 10 * MINUTE_US  # after an event: then every host was asked for its window
LOST = "no answer"
DETAIL = 300


class Arm:
    """An arm as its driver sees it; `at` is its position in the plan, None that of the experiment."""

    def __init__(self, driven: driver.Driver, at: int | None) -> None:
        self._driver, self._at = driven, at
        self._hosts = driven.hosts

    @property
    def run(self) -> ArmRun:
        return decisions.find_arm(self._driver.investigation, self._at)[1]

    def step(self, why_end: str) -> None:
        """Do what is due; `why_end`: the investigation ends, and so does this arm."""
        if why_end and self.run.state in (ArmState.WAITING, ArmState.PREPARING, ArmState.RUNNING):
            self._end(why_end)
            return
        match self.run.state:
            case ArmState.WAITING:
                self._begin()
            case ArmState.PREPARING:
                self._prepare()
            case ArmState.RUNNING:
                self._observe()
            case ArmState.ENDING:
                self._find_events()  # hosts report them with a delay
                self._diagnose()
                self._close()
            case ArmState.ENDED:
                pass

    # the record

    def _save(self, *notes: Note, **changes: object) -> None:
        now = self._driver.investigation
        changed = dataclasses.replace(self.run, **changes)  # type: ignore[arg-type]  # its fields
        if self._at is None:
            assert now.experiment is not None
            self._driver.save(*notes, experiment=dataclasses.replace(now.experiment, arm=changed))
        else:
            all_arms = (*now.arms[: self._at], changed, *now.arms[self._at + 1 :])
            self._driver.save(*notes, arms=all_arms)

    def _note(self, text: str, host: str = "") -> Note:
        of = "experiment" if self._at is None else f"arm {self.run.kind}"
        return self._driver.note(f"{of}: {printable(text)}", host)

    @property
    def _left(self) -> float:
        return decisions.arm_left(self._driver.investigation, self._at, self._driver.now_us)

    def _make(self, host: str, kind: TaskKind, name: str) -> HostTask:
        return HostTask(host, kind, f"t-{secrets.token_hex(8)}", name, TaskState.PENDING)

    # tasks

    def _advance(self, stage: decisions.Stage) -> None:
        """Start tasks that are due and note how the others go; save only what changed."""
        run, notes = self.run, []
        at_once = stage is decisions.Stage.OBSERVE
        due: list[HostTask] = []
        for host in dict.fromkeys(task.host for task in run.tasks):
            of_host = [
                task
                for task in run.tasks
                if task.host == host
                and decisions.find_stage(task) is stage
                and not decisions.is_over(task)
            ]
            due += of_host if at_once else of_host[:1]
        changed: dict[str, HostTask] = {}
        for task in due:
            if task.state == TaskState.PENDING:
                changed[task.id] = self._ask(task)
        found = self._hosts.look([task.id for task in due])
        for task in due:
            now = changed.get(task.id, task)
            if task.id in found and not decisions.is_over(now):
                status = found[task.id]
                now = dataclasses.replace(
                    now, state=status.state, detail=printable(status.detail)[:DETAIL]
                )
            if now != task:
                changed[task.id] = now
                notes += self._describe(now)
        if any(changed[task.id] != task for task in due if task.id in changed):
            tasks: list[HostTask] = []
            for task in run.tasks:
                now = changed.get(task.id, task)
                tasks.append(now)
                if now != task and decisions.is_repeated(run, now):
                    tasks.append(self._make(now.host, TaskKind(now.kind), now.name))
            self._save(*notes, tasks=tuple(tasks))

    def _ask(self, task: HostTask) -> HostTask:
        plan = self._driver.investigation.plan
        # Preparation and undo take as long as they need; their commands have limits of their own.
        run = self.run
        arguments = decisions.make_arguments(task, plan, run.kind, self._left, run.hosts)
        self._driver.control.database.steps(f"start {task.kind}: before")
        try:
            self._hosts.start(task.host, task.id, TaskKind(task.kind), arguments)
        except errors.OvernightError as error:
            detail = printable(f"{error.what}: {error.why}")[:DETAIL]
            return dataclasses.replace(task, state=TaskState.FAILED, detail=detail)
        self._driver.control.database.steps(f"start {task.kind}: after")
        return task

    def _describe(self, task: HostTask) -> list[Note]:
        state = TaskState(task.state)
        if not state.is_final or state is TaskState.DONE or self.run.state is ArmState.ENDING:
            return []
        before = decisions.list_tries(self.run, task)[:-1]
        if before and (before[-1].state, before[-1].detail) == (task.state, task.detail):
            return []  # noted once
        what = f"{task.kind} {task.name}".rstrip()
        return [self._note(f"{what} {state}: {task.detail}", task.host)]

    # states

    def _begin(self) -> None:
        plan, run = decisions.find_arm(self._driver.investigation, self._at)
        steps = decisions.list_preparation(self._driver.investigation.plan, plan)
        tasks = tuple(self._make(host, *step) for host in run.hosts for step in steps)
        on = ", ".join(run.hosts)
        self._save(
            self._note(f"prepares {on}"),
            state=ArmState.PREPARING, tasks=tasks, changes=plan.changes,
        )  # fmt: skip

    def _prepare(self) -> None:
        self._advance(decisions.Stage.PREPARE)
        steps = [t for t in self.run.tasks if decisions.find_stage(t) is decisions.Stage.PREPARE]
        unfit = {
            task.host
            for task in steps
            if decisions.has_failed(self.run, task)
            # Where the arm cannot be noted, it can still be observed.
            and task.name != decisions.NOTE_ARM
        }
        hosts = tuple(host for host in self.run.hosts if host not in unfit)
        if hosts != self.run.hosts:
            self._save(hosts=hosts)
        if not hosts:
            self._end("no host of this arm could be prepared")
        elif all(decisions.is_over(t) for t in steps if t.host in hosts) and self._begin_incident():
            self._save(
                self._note(f"observes {', '.join(hosts)}"),
                state=ArmState.RUNNING, began_us=self._driver.now_us,
            )  # fmt: skip

    def _begin_incident(self) -> bool:
        found = decisions.find_arm(self._driver.investigation, self._at)
        return self._driver.control.hooks.begin_incident(self._driver.investigation, *found)

    def _observe(self) -> None:
        self._begin_incident()
        plan = self._driver.investigation.plan
        new = [
            self._make(host, kind, name)
            for host in self.run.hosts
            for kind, name in decisions.find_missing(plan, self.run, host, self._left)
        ]
        if new:
            self._save(tasks=(*self.run.tasks, *new))
        self._advance(decisions.Stage.OBSERVE)
        self._find_events()
        self._diagnose()
        seen = [h for h in self.run.hosts if decisions.can_observe(plan, self.run, h, self._left)]
        lost = [self._note("is not observed any more", h) for h in self.run.hosts if h not in seen]
        if lost:
            self._save(*lost, hosts=tuple(seen))
        why = decisions.why_arm_ends(self._driver.investigation, self._at, self._driver.now_us)
        if why is not None:
            self._end(why)

    def _find_events(self) -> None:
        """Add new events of the kinds that the plan waits for, and have all hosts keep their windows."""
        now, run = self._driver.investigation, self.run
        known = {occurrence.event for occurrence in run.occurrences}
        if not run.began_us:
            return
        until_us = run.ended_us or self._driver.now_us
        everywhere = {host for arm in now.arms for host in arm.hosts} | {*run.hosts}
        for event in self._hosts.list_events(run.hosts, run.began_us, until_us + SECOND_US):
            if not decisions.is_wanted(now.plan, event):
                continue
            if event.id not in known or event.time_us > until_us - PIN_US:
                for host in sorted(everywhere):
                    self._hosts.pin(host, event)
            if event.id not in known:
                self._add(event)

    def _add(self, event: Event) -> None:
        host = event.host or self.run.hosts[0]
        found = Occurrence(host, event.id, event.kind, event.time_us)
        note = self._note(f"{event.kind} {event.text}".rstrip(), host)
        self._save(note, occurrences=(*self.run.occurrences, found))

    def _diagnose(self) -> None:
        for occurrence in self.run.occurrences:
            if occurrence.headline:
                continue
            verdict = self._driver.diagnose(occurrence)
            if verdict is not None:
                judged = dataclasses.replace(
                    occurrence, headline=verdict.headline, report=verdict.report
                )
                every = tuple(judged if o is occurrence else o for o in self.run.occurrences)
                self._save(
                    self._note(f"first verdict: {judged.headline}", judged.host), occurrences=every
                )

    def _end(self, why: str) -> None:
        ended_us = self._driver.now_us
        if self.run.state is ArmState.WAITING:
            self._save(self._note(why), state=ArmState.ENDED, note=why)
            return
        notes = [self._note(why)] if why else []
        self._save(*notes, state=ArmState.ENDING, ended_us=ended_us, note=self.run.note or why)

    def _close(self) -> None:
        """Measure, stop what runs, then undo, then call the arm ended; what does not answer is left."""
        waited = (self._driver.now_us - self.run.ended_us) / SECOND_US
        touched = dict.fromkeys(task.host for task in self.run.tasks)
        measures = [t for t in self.run.tasks if decisions.find_stage(t) is decisions.Stage.MEASURE]
        if touched and not measures:
            new = (self._make(host, TaskKind.AGE, decisions.MEASURE) for host in touched)
            self._save(tasks=(*self.run.tasks, *new))
            return
        self._advance(decisions.Stage.MEASURE)
        measures = [t for t in self.run.tasks if decisions.find_stage(t) is decisions.Stage.MEASURE]
        if waited < decisions.MEASURE_SECONDS and not all(map(decisions.is_over, measures)):
            return
        self._driver.control.hooks.end_incident(self._driver.investigation)
        running = [
            task
            for task in self.run.tasks
            if not decisions.is_over(task)
            and decisions.find_stage(task) is not decisions.Stage.CLOSE
        ]
        if running and waited < decisions.STOP_SECONDS:
            for task in running:
                if task.state == TaskState.PENDING and task.id not in self._hosts.look([task.id]):
                    self._forget(task, TaskState.CANCELLED, "")
                else:
                    self._hosts.stop(task.host, task.id)
            for stage in (
                decisions.Stage.PREPARE,
                decisions.Stage.OBSERVE,
                decisions.Stage.MEASURE,
            ):
                self._advance(stage)
            return
        for task in running:
            self._forget(task, TaskState.EXPIRED, LOST)
        closing = [t for t in self.run.tasks if decisions.find_stage(t) is decisions.Stage.CLOSE]
        if not closing:
            steps = [(h, step) for h in touched for step in decisions.list_closing(self.run, h)]
            if steps:
                more = tuple(self._make(host, *step) for host, step in steps)
                self._save(tasks=(*self.run.tasks, *more))
                return
        self._advance(decisions.Stage.CLOSE)
        closing = [t for t in self.run.tasks if decisions.find_stage(t) is decisions.Stage.CLOSE]
        late = waited >= 2 * decisions.STOP_SECONDS
        waits = decisions.awaits_verdicts(self._driver.investigation, self.run, self._driver.now_us)
        if late or (all(map(decisions.is_over, closing)) and not waits):
            self._finish()

    def _forget(self, task: HostTask, state: TaskState, detail: str) -> None:
        gone = dataclasses.replace(task, state=state, detail=detail)
        self._save(tasks=tuple(gone if t.id == task.id else t for t in self.run.tasks))

    def _finish(self) -> None:
        notes = [
            self._note(f"not undone: {task.kind} {task.name}: {task.detail or LOST}", task.host)
            for task in decisions.list_left(self.run)
        ]
        found = self._hosts.look([task.id for task in self.run.tasks])
        pairs = [(task, found[task.id]) for task in self.run.tasks if task.id in found]
        doses: dict[str, dict[str, float]] = {}
        constancy: dict[str, str] = {}
        for task, status in pairs:
            doses.setdefault(task.host, {}).update(_find_dose(task, status))
            if task.kind == TaskKind.LOAD and status.result:
                shared = decisions.is_shared(self._driver.investigation.plan)
                of = self.run.hosts if shared else (task.host,)
                constancy |= dict.fromkeys(of, str(status.result["status"]))
                if status.result["status"] == Constancy.NOT_CONSTANT:
                    says = status.result.get("says", "")
                    notes.append(self._note(f"the load is not constant: {says}", task.host))
        self._save(
            *notes, self._note("ended"),
            state=ArmState.ENDED, doses=doses, constancy=constancy,
        )  # fmt: skip


def _find_dose(task: HostTask, status: context.TaskStatus) -> dict[str, float]:
    """Return what a task measured that may make the event more frequent."""
    result = status.result
    if task.kind == TaskKind.RECORD and result.get("seconds", 0) >= decisions.WORTHWHILE_SECONDS:
        return {"load": float(result["busy"] or 0.0), "cores": float(result["cores"])}
    if task.kind == TaskKind.AGE and task.name == decisions.MEASURE and "uptime_s" in result:
        zombies = result.get("counts", {}).get("dying")
        found = {} if zombies is None else {"zombies": float(zombies)}
        return {**found, "uptime_s": float(result["uptime_s"])}
    return {}
