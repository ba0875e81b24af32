"""Made-up investigations and the evidence of their arms, for reports."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import findings
import materials
import verdicts

from overnight.app import investigation_reports
from overnight.diagnosis import decision
from overnight.model.event import Event
from overnight.model.fleet import Fleet, Host, Spell
from overnight.model.investigation import (
    Answer,
    ArmRun,
    ArmState,
    ExperimentRun,
    HostTask,
    Investigation,
    Note,
    Occurrence,
    Outcome,
    Phase,
)
from overnight.model.plan import ArmKind, ArmPlan, HostsPlan, LoadPlan, Plan, WaitPlan
from overnight.model.reservation import (
    Check,
    CheckState,
    HostState,
    Order,
    Reservation,
    ReservationState,
    ReservedHost,
)
from overnight.queries import contrast, diff, not_reproduced
from overnight.reports import investigation as reports

if TYPE_CHECKING:
    from overnight.model.verdict import Verdict

HOUR = 3_600_000_000
BEGIN = 1_794_690_000_000_000  # 2026-11-14 21:00 UTC
KIND = "net.driver_reset"
UNIT = "ecs.service"


def make_host(name: str, begin_us: int, hours: float, events: tuple[float, ...] = (), kind: str = KIND) -> Host:  # fmt: skip
    """Return a host recorded for some hours, with events that many hours into it."""
    spell = Spell(begin_us, begin_us + round(hours * HOUR), 86_400.0, "0000000a")
    seen = tuple(
        Event(begin_us + round(at * HOUR), kind, host=name, id=f"{kind}-{name}-{n}")
        for n, at in enumerate(events)
    )
    return Host(name, {}, (spell,), seen)


def make_arm(
    kind: ArmKind,
    begin: float,
    hours: float,
    events: dict[str, tuple[float, ...]],
    doses: dict[str, dict[str, float]] | None = None,
    **fields: object,
) -> ArmRun:
    """Return an arm that begins `begin` hours into the night; `events` are hours into it, by host."""
    begin_us = BEGIN + round(begin * HOUR)
    seen = tuple(
        Occurrence(host, f"{KIND}-{host}-{kind}-{n}", KIND, begin_us + round(at * HOUR), f"Cause found: {UNIT} leaks memory cgroups", f"events/{host} {n}.html")
        for host, times in events.items()
        for n, at in enumerate(times)
    )  # fmt: skip
    return ArmRun(
        kind=kind, hosts=tuple(events), state=ArmState.ENDED, began_us=begin_us,
        ended_us=begin_us + round(hours * HOUR), occurrences=seen, doses=doses or {}, **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def make_fleet(run: Investigation) -> Fleet:
    """Return the hosts of all arms, recorded from the first to the last."""
    names = sorted({host for arm in run.arms for host in arm.hosts})
    end = max(arm.ended_us for arm in run.arms)
    hours = (end - BEGIN) / HOUR + 8
    return Fleet(tuple(make_host(name, BEGIN, hours) for name in names))


def reproduced() -> Investigation:
    """Six hosts at the same time: three cold, three hot, then the fix on the hot ones."""
    hot = {"node-4": (1.0, 4.2, 6.0), "node-5": (2.5, 7.1), "node-6": (0.7, 3.0, 5.5, 7.9)}
    cold = {"node-1": (), "node-2": (), "node-3": ()}
    plan = Plan(
        name="driver-resets",
        hosts=HostsPlan(provider="kubernetes", where="production-eu", count=6, like="node-9"),
        arms=(
            ArmPlan(kind=ArmKind.COLD, hosts=3),
            ArmPlan(kind=ArmKind.HOT, hosts=3, age={"memory-cgroups": 15_000}),
            ArmPlan(kind=ArmKind.FIXED, hosts=3, changes=(f"mask-unit {UNIT}",)),
        ),
        load=LoadPlan(kind="cpu", duty=0.6),
        wait=WaitPlan(events=(KIND,)),
    )
    doses = {
        host: {"zombies": number, "uptime_s": 5e5, "load": 0.6, "cores": 8.0}
        for host, number in zip(hot, (15_200.0, 9_800.0, 21_300.0), strict=True)
    }
    fresh = {host: {"zombies": 140.0 + n, "uptime_s": 9e3 + n, "load": 0.6, "cores": 8.0} for n, host in enumerate(cold)}  # fmt: skip
    tasks = (
        HostTask("node-4", "instrument", "t-1", "runqlat", "done", "0.4 % of one core"),
        HostTask("node-5", "instrument", "t-2", "offcpu", "refused", "agent.toml does not list it"),
    )
    constancy = dict.fromkeys(hot, "constant: 4.80 cores, CV 0.3 %, drift +0.1 %/h")
    fixed = dict.fromkeys(hot, ())
    return Investigation(
        id="i-0123456789ab", plan=plan, owner="sre@example.org", phase=Phase.RELEASE, outcome=Outcome.REPRODUCED,
        made_us=BEGIN - HOUR // 4, reservations=("r-0123456789ab",),
        arms=(
            make_arm(ArmKind.COLD, 0, 8, cold, fresh),
            make_arm(ArmKind.HOT, 0, 8, hot, doses, tasks=tasks, constancy=constancy),
            make_arm(ArmKind.FIXED, 8.5, 6, fixed, doses, changes=(f"mask-unit {UNIT}",), note="ended after 6 h: budget of 16 h"),
        ),
        experiment=ExperimentRun(
            change=f"mask-unit {UNIT} then purge", why=f"{UNIT} leaks memory cgroups",
            arm=make_arm(ArmKind.HOT, 14.7, 1.5, {"node-4": ()}, {"node-4": doses["node-4"]}),
            answer=Answer.UNDECIDED, says="no event in 1.5 host-hours; 0.6 expected", needs_hours=6.5, undone=True,
        ),
    )  # fmt: skip


def quiet() -> Investigation:
    """One machine, cold and hot one after the other, without the event."""
    plan = Plan(
        name="driver-resets",
        arms=(ArmPlan(kind=ArmKind.COLD), ArmPlan(kind=ArmKind.HOT)),
        wait=WaitPlan(seconds=7200.0, events=(KIND,)),
    )
    doses = {"db-7": {"uptime_s": 90_000.0, "zombies": 320.0, "cores": 16.0}}
    return Investigation(
        id="i-00000000c01d", plan=plan, phase=Phase.REPORT, outcome=Outcome.NOT_REPRODUCED, made_us=BEGIN,
        arms=(
            make_arm(ArmKind.COLD, 0.1, 2, {"db-7": ()}, doses),
            make_arm(ArmKind.HOT, 2.2, 2, {"db-7": ()}, doses),
        ),
    )  # fmt: skip


def reservation(*names: str) -> Reservation:
    hosts = [
        ReservedHost(
            name=name,
            state=HostState.RELEASED,
            checks=(
                Check("foreign-workload", CheckState.PASSED),
                Check("clock", CheckState.PASSED if n else CheckState.FAILED, "2.1 s behind", "run chrony"),
            ),
        )
        for n, name in enumerate(names)
    ]  # fmt: skip
    return Reservation(
        id="r-0123456789ab", order=Order(provider="kubernetes"), state=ReservationState.RELEASED, made_us=BEGIN,
        until_us=BEGIN + 16 * HOUR, cap_us=BEGIN + 20 * HOUR, hosts=tuple(hosts),
    )  # fmt: skip


def observed(run: Investigation) -> tuple[contrast.Arm, ...]:
    """Return what `app.investigation_reports.observe` reads."""
    named = [(str(arm.kind), arm) for arm in run.arms]
    named += [("experiment", run.experiment.arm)] if run.experiment else []
    arms = []
    for name, arm in named:
        hosts = []
        for host in arm.hosts:
            times = tuple((seen.time_us - arm.began_us) / HOUR for seen in arm.occurrences if seen.host == host)  # fmt: skip
            doses = {key: value for key, value in arm.doses.get(host, {}).items() if key != "cores"}
            cores = int(arm.doses.get(host, {}).get("cores", 0))
            recorded = make_host(host, arm.began_us, (arm.ended_us - arm.began_us) / HOUR, times)
            hosts.append(contrast.Observed(recorded, cores, doses))
        arms.append(contrast.Arm(name, tuple(hosts)))
    return tuple(arms)


def report_of(run: Investigation, **fields: object) -> reports.Report:
    arms = observed(run)
    missed = None
    if run.outcome is Outcome.NOT_REPRODUCED:
        hours = {arm.name: sum(each.hours for each in arm.hosts) for arm in arms}
        missed = not_reproduced.explain(run, hours)
    given = {"not_reproduced": missed, "written_us": BEGIN + 17 * HOUR, **fields}
    return reports.Report(investigation=run, contrast=contrast.contrast(arms, (KIND,)), **given)  # type: ignore[arg-type]


def argue(run: Investigation) -> Verdict:
    """Return a verdict in which the arms argue."""
    ask = investigation_reports.ask_arms(run, contrast.contrast(observed(run), (KIND,)))
    return decision.decide(
        findings.RESET, (*findings.answers(findings.reference()), *ask(KIND).answers)
    )


def full_report() -> reports.Report:
    run = reproduced()
    verdict = argue(run)
    difference = diff.Difference(
        (
            materials.change("mem_cgroup_iter", 140, 240),
            materials.change("do_exit", 9, 700, "unclear"),
        ),
        120, materials.coverage(materials.HOT, 12_000), materials.coverage(materials.BEFORE, 11_000),
    )  # fmt: skip
    processes = (
        reports.ProcessShare("cedar-meter", 0.21, 0.004),
        reports.ProcessShare("ember-scout", 0.03, 0.028),
    )
    return report_of(
        run,
        diagnosed=(reports.Diagnosed(run.arms[1].occurrences[-1], verdict, "report-verdict-1.html"),),
        differences=(reports.ProfileDifference("hot", "cold", difference, processes),),
        reservations=(reservation(*(f"node-{n}" for n in range(1, 7))),),
        problems=("node-2: 3 min of signals are damaged",),
        notes=(Note(BEGIN, "the cold arm began"), Note(BEGIN + HOUR, "event", "node-4")),
    )  # fmt: skip


def quiet_report() -> reports.Report:
    return report_of(quiet(), next_plan="/srv/overnight/report-next-plan.yaml")


def hostile_report(text: str) -> reports.Report:
    """Return a report in which every name that comes from outside is `text`."""
    full = full_report()
    run = full.investigation
    assert run.experiment
    arms = tuple(_spoil(arm, text) for arm in run.arms)
    plan = dataclasses.replace(
        run.plan,
        name=text,
        hosts=dataclasses.replace(run.plan.hosts, provider=text, where=text, like=text),
        load=LoadPlan(kind=text),
    )
    experiment = dataclasses.replace(
        run.experiment, change=text, why=text, says=text, arm=_spoil(run.experiment.arm, text)
    )
    run = dataclasses.replace(
        run, id=text, owner=text, plan=plan, arms=arms, experiment=experiment, reason=text, outcome=Outcome.NOT_REPRODUCED
    )  # fmt: skip
    compared = full.contrast
    compared = dataclasses.replace(
        compared,
        kinds=(text,),
        arms=tuple(dataclasses.replace(row, kind=text) for row in compared.arms),
        pairs=tuple(dataclasses.replace(pair, kind=text) for pair in compared.pairs),
        trends=tuple(
            dataclasses.replace(
                trend, kind=text, dose=text, why=text,
                points=tuple(dataclasses.replace(point, host=text) for point in trend.points),
            )
            for trend in compared.trends
        ),
    )  # fmt: skip
    verdict, _ = verdicts.ALL["hostile"]()
    seen = Occurrence(text, text, text, BEGIN, text, text)
    difference = full.differences[0]
    functions = dataclasses.replace(
        difference.functions,
        changes=tuple(dataclasses.replace(change, name=text) for change in difference.functions.changes),
    )  # fmt: skip
    checks = (Check(text, CheckState.FAILED, text, text),)
    host = ReservedHost(name=text, state=HostState.HELD, checks=checks, detail=text)
    return dataclasses.replace(
        full,
        investigation=run,
        contrast=compared,
        diagnosed=(reports.Diagnosed(seen, verdict, text),),
        differences=(
            dataclasses.replace(difference, functions=functions, processes=(reports.ProcessShare(text, 0.1, 0.2),)),
        ),
        not_reproduced=not_reproduced.explain(run, {"hot": 12.0}),
        next_plan=text,
        reservations=(dataclasses.replace(full.reservations[0], hosts=(host,)),),
        problems=(text,),
        notes=(Note(BEGIN, text, text),),
    )  # fmt: skip


def _spoil(arm: ArmRun, text: str) -> ArmRun:
    return dataclasses.replace(
        arm,
        hosts=(text,),
        tasks=(HostTask(text, "instrument", text, text, "failed", text),),
        occurrences=(Occurrence(text, text, text, arm.began_us + 5, text, text),),
        doses={text: {"zombies": 5.0}},
        constancy={text: text},
        changes=(text,),
        note=text,
    )
