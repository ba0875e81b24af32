"""Handwritten verdicts with the material of a report."""

from __future__ import annotations

import dataclasses
import functools
import math

import folding
from materials import (
    BEFORE,
    EVENT_US,
    HOST,
    HOT,
    NIGHT,
    SECOND,
    change,
    cores,
    coverage,
    stacks,
)

from overnight.diagnosis import decision, knowledge, narrative
from overnight.model.event import Event, Value
from overnight.model.finding import Answer, Evidence, Finding, Status, Subject, finding_id
from overnight.model.flame import Frame
from overnight.model.selection import Window
from overnight.model.suspect import Suspect, SuspectName, SuspectOutcome
from overnight.model.verdict import (
    Argument,
    ArgumentOutcome,
    Chain,
    Gap,
    GapKind,
    GapWindow,
    Link,
    Narrative,
    RuledOut,
    RuledOutReason,
    Step,
    Verdict,
    VerdictStatus,
)
from overnight.queries import diff, top
from overnight.reports import diagnosis
from overnight.reports.pictures import difference

HOSTILE = (
    "</script><script>window.broken=1</script>",
    "]]><img src=x onerror=window.broken=1>",
    "\u202egnp.exe\u2066",
    "a\x1b[31mred\x00\x07\x85\n\r\tb",
    "' onmouseover='window.broken=1' \" onfocus=\"window.broken=1",
    "--><style>*{display:none}</style>",
    "[link](javascript:alert) `tick` ``two`` | pipe *star* @everyone #1",
    "\ud800 lone",
    "x" * 8192,
)


def reset(host: str = HOST, **changes: object) -> Event:
    fields: dict[str, object] = {
        "time_us": EVENT_US, "kind": "net.driver_reset", "host": host, "severity": "critical",
        "text": "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec.",
        "id": "net.driver_reset-51c0ffee", "source": "ena-tx-paused", "count": 3,
        "fields": {"interface": "eth0", "queue": 5},
    }  # fmt: skip
    return Event(**{**fields, **changes})  # type: ignore[arg-type]


def make_finding(
    detector: str,
    kind: str,
    summary: str,
    confidence: float = 0.9,
    window: Window = HOT,
    evidence: tuple[Evidence, ...] = (),
    against: tuple[Evidence, ...] = (),
    magnitude: dict[str, float] | None = None,
    **subject: object,
) -> Finding:
    about = Subject(**{"host": HOST, **subject})  # type: ignore[arg-type]
    return Finding(
        finding_id(detector, kind, about, window.begin_us), detector, kind, about, window,
        confidence, summary, evidence, magnitude or {}, against,
    )  # fmt: skip


def make_lift(
    unit: str, process: str, function: str, lift: float, low: float, q_value: float, recurrences: int, cores_more: float
) -> Finding:  # fmt: skip
    magnitude = {"lift": lift, "low": low, "q_value": q_value, "recurrences": recurrences, "cores_more": cores_more}  # fmt: skip
    return make_finding("lift", "stack.lift", "", magnitude=magnitude, unit=unit, process=process, function=function)  # fmt: skip


def fact(text: str, source: str, command: str = "", **values: Value) -> Evidence:
    return Evidence(text, source, values, HOT, command)


def chain_of(
    steps: tuple[Finding, ...], *links: tuple[float, str, str], score: float, why_not: str = ""
) -> Chain:  # fmt: skip
    return Chain(
        steps,
        tuple(
            link_of(steps[n], steps[n + 1], strength, why, against)
            for n, (strength, why, against) in enumerate(links)
        ),
        score,
        why_not,
    )


def link_of(cause: Finding, effect: Finding, strength: float, why: str, against: str = "") -> Link:
    arguments = [Argument("rule", ArgumentOutcome.AGREES, text) for text in why.split("; ")]
    arguments += [
        Argument("same_core", ArgumentOutcome.AGAINST, text)
        for text in filter(None, against.split("; "))
    ]
    return Link(cause.id, effect.id, strength, tuple(arguments))


def narrated(verdict: Verdict) -> Verdict:
    """Return the verdict with the narrative of the built-in knowledge."""
    rules = knowledge.known()
    end = decision.find_end(verdict.event, verdict.findings)
    if end is None:
        return dataclasses.replace(verdict, narrative=narrative.without_event(verdict.gaps))
    text = narrative.narrate(verdict, rules, end=end, leading=verdict.chain)
    return dataclasses.replace(verdict, narrative=text)


@functools.cache
def incident_steps() -> dict[str, Finding]:
    flame_look = f"overnight flame --host {HOST} -b 2026-11-15T03:14:00 -e +7s --core 39"
    return {
        "loop": make_finding(
            "hidden-loops", "unit.hidden_crash_loop",
            "ecs.service is crash-looping 277 times an hour under its own supervisor; systemd counts 0 restarts an hour.",
            0.95, NIGHT,
            (
                fact("3,046 cgroups were created below ecs.service in 11 h; each lived less than 60 s.",
                     "signal cgroup-births", f"overnight events --host {HOST} --kind unit.", births=3046),
                fact("NRestarts of the unit stayed 0 all night.", "signal unit-restarts",
                     "systemctl show ecs.service -p NRestarts", restarts=0),
            ),
            (), {"births_per_hour": 277, "deaths_per_hour": 277, "counted_per_hour": 0},
            unit="ecs.service", cgroup="/system.slice/ecs.service",
        ),
        "zombies": make_finding(
            "zombies", "memory.zombie_cgroups",
            "The kernel tracks 68,680 memory cgroups, and 240 have a directory.",
            0.98, NIGHT,
            (fact("68,440 memory cgroups are dying; 275 more every hour since the host was started.",
                  "signal memory-cgroups", "overnight census", dying_of_tracked=0.9965, tracked=68680),),
            (fact("The host was not rebooted: since when it grows is extrapolated.", "signal memory-cgroups"),),
            {"dying": 68440, "in_use": 240, "tracked": 68680, "growth_per_hour": 275, "age_hours": 249},
            cgroup="/system.slice/ecs.service",
        ),
        "walk": make_finding(
            "cgroup-walk", "memory.cgroup_walk",
            "kubelet read memory.numa_stat, which walks every memory cgroup, zombies too.",
            0.94, HOT,
            (fact("648 of 662 samples of core 39 in these 7 s are of kubelet, all below memcg_numa_stat_show; 0 samples lost.",
                  "profile, 97 Hz", flame_look, share_of_core_samples=0.979, samples=648, lost=0),),
            (), {"cores_burnt": 0.96, "share_of_core_samples": 0.979, "samples": 648},
            core=39, process="kubelet", unit="kubelet.service", function="mem_cgroup_nr_lru_pages",
        ),
        "core": make_finding(
            "cores", "cpu.core_saturated",
            "Core 39 was 100 % busy in the kernel for 7 s; the other 95 cores were 19 % busy.",
            0.99, HOT,
            (fact("Core 39: 100 % in the kernel in each of 7 seconds.", "signal cpu",
                  f"overnight heatmap --host {HOST} -b 2026-11-15T03:13:40 -e +40s", looks=7),),
            (), {"seconds": 7, "busy_percent": 100, "kernel_percent": 99.7, "others_percent": 19, "cores_burnt": 1.0},
            core=39,
        ),
        "queue": make_finding(
            "queues", "net.queue_starved",
            "The interrupt of eth0 queue 5 is bound to core 39; its NAPI was not run for 6.6 s.",
            0.9, HOT,
            (fact("IRQ 121 (eth0-Tx-Rx-5) was bound to core 39 before the reset.", "signal interrupts",
                  "grep eth0-Tx-Rx-5 /proc/interrupts", irq=121),),
            (), {"seconds": 6.6}, core=39, interface="eth0", queue=5,
        ),
        "event": make_finding(
            "event", "net.driver_reset", "The ena driver reset eth0 as queue 5 was paused for more than 5 s.",
            1.0, Window(EVENT_US, EVENT_US + SECOND),
            (fact("ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000).", "kernel log",
                  "overnight events --kind net.driver_reset"),),
            (), {}, interface="eth0", queue=5,
        ),
    }  # fmt: skip


def answers(*findings: Finding) -> tuple[Answer, ...]:
    by: dict[str, list[Finding]] = {}
    for finding in findings:
        by.setdefault(finding.detector, []).append(finding)
    return (
        *(Answer(name, Status.FOUND, tuple(group)) for name, group in by.items()),
        Answer("softirq-storm", Status.CLEAR, (), "no core spent more than 4 % of its ticks in soft interrupts"),
        Answer("oom", Status.CLEAR, (), "the kernel log has no such line"),
        Answer("pressure", Status.NO_DATA, (), "the kernel was started with psi=0"),
        Answer("storage", Status.FAILED, (), "ValueError: a line of the kernel log could not be read"),
    )  # fmt: skip


NEXT = (
    Step("Stop the loop on one host, drop caches, and record a night.",
                 "sudo systemctl mask --now ecs.service\nsudo sh -c 'echo 2 > /proc/sys/vm/drop_caches'\novernight record --for 12h",
                 "Confirmed if dying cgroups fall below 1,000 and no reset follows; refuted if a reset follows."),
    Step("Leave a second host as it is.", "overnight record --for 12h", "The resets recur there."),
)  # fmt: skip
FIX = (
    Step("Disable and mask the unit in the base image.", "sudo systemctl disable --now ecs.service\nsudo systemctl mask ecs.service",
                 "overnight audit has no finding on ecs.service."),
    Step("Reboot hosts that already have dying cgroups.", "sudo systemctl reboot", "overnight census shows 0 dying."),
)  # fmt: skip


SUSPECTS = (
    Suspect(SuspectName.FREQUENCY, "frequency", SuspectOutcome.NOT_CHECKED, "no data: the signal frequency was not recorded around the event"),
    Suspect(SuspectName.DISK, "disk", SuspectOutcome.NOT_CLEARED, "changed at the event: nvme0n1 answered in 41.0 ms (baseline 0.8 ms, at most 1.1 ms)",
            {"nvme0n1_ms_per_request": 41.0, "baseline_nvme0n1_ms_per_request": 0.8}, "iostat -x 1 5"),
    Suspect(SuspectName.STEAL, "hypervisor steal", SuspectOutcome.CLEARED, "0.0 % of core 39, 0.0 % in its worst second (baseline 0.1 %, 2.0 %)",
            {"steal_percent_of_core_time": 0.0, "baseline_steal_percent_of_core_time": 0.1}, "mpstat -P ALL 1 5"),
)  # fmt: skip


def reference() -> tuple[Verdict, diagnosis.Material]:
    """The incident of 96 cores: an unneeded unit leaks cgroups until a walk of them starves a queue."""
    steps = incident_steps()
    full_chain = chain_of(
        tuple(steps.values()),
        (0.93, "each start creates a memory cgroup, and one that is deleted with pages charged to it is not freed; magnitude agrees: 277 cgroups created an hour against +275 dying an hour; same cgroup: /system.slice/ecs.service", ""),
        (0.88, "the walk visits every memory cgroup that was not freed; it takes 70 µs a cgroup: 4.8 s for 68,680", "the host was not rebooted to compare"),
        (0.97, "a walk of all memory cgroups does not yield the core; same core: 39; magnitude agrees: 0.96 cores used against 1.00 cores used", ""),
        (0.91, "the interrupts and polls of a queue run on one core; same core: 39; not polled for 6.6 s of these 7 s", ""),
        (0.95, "a driver whose queue makes no progress for some seconds resets the device; same queue: 5", ""),
        score=0.86,
    )  # fmt: skip
    generic = dataclasses.replace(
        chain_of(
            (steps["core"], steps["queue"], steps["event"]),
            (0.91, "the queue's interrupt is bound to core 39", ""),
            (0.95, "queue 5 is the one the driver names", ""),
            score=0.61,
        ),
        why_not="It does not explain why the core was saturated; the winner contains it.",
    )
    rivals = (storm_chain(), generic)
    findings = (*steps.values(), rivals[0].steps[0], lift_finding())
    verdict = Verdict(
        reset(), VerdictStatus.CAUSE_FOUND, 0.82, full_chain, rivals,
        (
            Gap(GapKind.DETECTOR_FAILED, "detector pressure failed", "the kernel was started with psi=0", 0.98, detector="pressure"),
            Gap(GapKind.LOST_SAMPLES, "0.8 % of the samples of the recording", "the recorder was not scheduled for 5 m", 0.97, GapWindow.RECORDING),
        ),
        NEXT, FIX, answers(*findings), findings,
        {"hosts": 60, "sick": 11, "cohort": {"label": "image", "value": "dlami-2025-03", "p": 0.004}},
        (RuledOut(rivals[0].steps[0].id, "net.softirq_storm", "it ended 53 s before the core was saturated", RuledOutReason.CONTRADICTED, "cpu.core_saturated"),),
        suspects=SUSPECTS, score=0.45,
    )  # fmt: skip
    return narrated(verdict), material()


def lift_finding() -> Finding:
    return make_finding(
        "lift", "stack.lift", "kubelet ran 41 times as much in the 30 s before 9 resets as at other times.",
        0.97, HOT, (fact("In 9 of 9 recurrences.", "profiles of 9 events", "overnight diff --host gpu-96-07", recurrences=9),),
        (), {"lift": 41.0, "low": 2.9, "q_value": 2e-7, "recurrences": 9, "cores_more": 0.93},
        process="kubelet", unit="kubelet.service", function="mem_cgroup_nr_lru_pages",
    )  # fmt: skip


def storm_chain() -> Chain:
    storm = make_finding(
        "softirq", "net.softirq_storm", "Core 39 handled 212,000 packets/s a minute before.", 0.4,
        Window(EVENT_US - 70 * SECOND, EVENT_US - 60 * SECOND),
        (fact("4 % of the core's ticks in soft interrupts.", "signal cpu", "overnight heatmap --mode softirq"),),
        (fact("It had ended 53 s before the core was full.", "signal cpu"),),
        {"softirq_percent": 4, "packets_per_second": 212000}, core=39,
    )  # fmt: skip
    steps = (storm, incident_steps()["queue"], incident_steps()["event"])
    return chain_of(
        steps, (0.22, "same core", "it ended 53 s before; 4 % of a core cannot starve a queue"),
        (0.95, "queue 5 is the one the driver names", ""), score=0.24,
        why_not="The storm ended 53 s before the core was full, and 4 % of a core cannot starve a queue.",
    )  # fmt: skip


def generic() -> tuple[Verdict, diagnosis.Material]:
    """The kind of the cause is unknown: process, saturated core, starved queue, event."""
    steps = incident_steps()
    culprit = make_finding(
        "culprit", "cpu.culprit", "backup-agent ran on core 39 in every one of these seconds.", 0.8, HOT,
        (fact("610 of 662 samples of core 39; 12 lost.", "profile, 97 Hz", "overnight top --core 39", samples=610),),
        (), {"cores_burnt": 0.9, "share_of_core_samples": 0.92, "samples": 610, "kernel_share": 0.99},
        core=39, process="backup-agent", unit="backup.service", function="crypto_shash_update",
    )  # fmt: skip
    full_chain = chain_of(
        (culprit, steps["core"], steps["queue"], steps["event"]),
        (0.9, "the top consumer of a saturated core is what saturates it; same core: 39", ""),
        (0.91, "the queue's interrupt is bound to core 39", ""),
        (0.95, "queue 5 is the one the driver names", ""),
        score=0.7,
    )
    verdict = Verdict(
        reset(), VerdictStatus.CAUSE_FOUND, 0.66, full_chain, (), (), NEXT[:1], FIX[:1], answers(*full_chain.steps), full_chain.steps, score=0.4,
    )  # fmt: skip
    return narrated(verdict), dataclasses.replace(material(), lifts=(), census=(), compared=None)


def inconclusive() -> tuple[Verdict, diagnosis.Material]:
    """Half of the evidence is missing."""
    step = incident_steps()["event"]
    gaps = (
        Gap(GapKind.STACKS, "stacks for 100 % of the incident window", "segments from 03:10:00 to 03:16:00 are missing", 0.4, GapWindow.INCIDENT),
        Gap(GapKind.PERMISSION, "permission to read signal interrupts", "the recorder was denied access to it", 0.8),
        Gap(GapKind.CLOCK, "a steady clock", "chrony stepped it by 41 s; times before that are shifted", 0.9),
        Gap(GapKind.LOST_SAMPLES, "38 % of the samples of the recording", "the ring buffer was full; 4 MB would have been enough", 0.6, GapWindow.RECORDING),
        Gap(GapKind.DETECTOR_NO_DATA, "detector pressure had no data", "the kernel was started with psi=0", 0.98, detector="pressure"),
    )  # fmt: skip
    verdict = Verdict(
        reset(), VerdictStatus.INCONCLUSIVE, 0.0,
        Chain((incident_steps()["queue"], step), (link_of(incident_steps()["queue"], step, 0.95, "the driver names queue 5"),), 0.3),
        (), gaps,
        (Step("Record again, with stacks kept for three days.", "sudo overnight record --keep 3d", "The next reset has profiles around it."),),
        (), answers(step), (step,),
    )  # fmt: skip
    return narrated(verdict), diagnosis.Material(cores=cores(96, missing=True), incident=HOT, core=39, events=(reset(),), problems=("profiles: nothing is recorded from 03:13:37 to 03:14:17",))  # fmt: skip


def no_cause() -> tuple[Verdict, diagnosis.Material]:
    verdict = Verdict(
        None, VerdictStatus.NO_CAUSE, answers=answers(),
    )  # fmt: skip
    return narrated(verdict), diagnosis.EMPTY


def two_alternatives() -> tuple[Verdict, diagnosis.Material]:
    verdict, report_material = reference()
    return dataclasses.replace(verdict, fleet={}), report_material


def hostile() -> tuple[Verdict, diagnosis.Material]:
    """Every text that comes from the host tries to break the page."""
    nasty = HOSTILE
    steps = tuple(
        make_finding(
            name, f"kind.{name}", name, 0.5, HOT,
            (Evidence(name, name, {name: name, "share": 0.5, "nan": math.nan, "yes": True}, HOT, f"echo {name}"),),
            (fact(name, name),), {name: 1.0, "odd": math.inf},
            host=name, unit=name, process=name, function=name, cgroup=name, interface=name, core=n, queue=n,
        )
        for n, name in enumerate(nasty)
    )  # fmt: skip
    full_chain = chain_of(
        steps, *((0.5, name, name) for name in nasty[1:]), score=0.5, why_not=nasty[0]
    )
    text = " ".join(nasty[:-1])
    verdict = Verdict(
        reset(text, text=text, kind=nasty[0], id=nasty[1], process=nasty[2], unit=nasty[3]),
        VerdictStatus.INCONCLUSIVE, 0.4, full_chain, (full_chain, full_chain),
        tuple(Gap(GapKind.PERMISSION, name, name, 0.9, detector=name) for name in nasty),
        tuple(Step(name, name, name) for name in nasty),
        tuple(Step(name, name, name) for name in nasty),
        tuple(Answer(name, Status.NO_DATA, (), name) for name in nasty),
        steps, {name: {name: [name, 1, None]} for name in nasty},
        tuple(RuledOut(step.id, name, name, RuledOutReason.WEAK, name) for step, name in zip(steps, nasty, strict=True)),
        notes=nasty,
        suspects=tuple(Suspect(SuspectName.DISK, name, outcome, name, {name: name}, f"echo {name}") for name in nasty for outcome in SuspectOutcome),
    )  # fmt: skip
    frames = tuple(Frame(name, name, n % 2) for n, name in enumerate(nasty))
    stacks = folding.fold(
        [(frames, 9)],
        title=text,
        host=text,
        frequency=97,
        cores=(0,),
        event=text,
        lost=3,
        notes=nasty,
    )
    marks = tuple(reset(name, kind=name, text=name, core=n) for n, name in enumerate(nasty))
    report_material = material()
    assert report_material.processes
    assert report_material.difference
    parts = Narrative(*(" ".join((name, text)) for name in nasty[:-1]), nasty[-1], *nasty[:3])
    return dataclasses.replace(verdict, narrative=parts), dataclasses.replace(
        report_material,
        core=0,
        events=marks,
        flame=stacks,
        compared=difference.Compared(stacks, stacks, 10, 10, text),
        processes=dataclasses.replace(
            report_material.processes, rows=tuple(top.Row(n, 1, 1, 0.1, None, None) for n in nasty)
        ),
        difference=dataclasses.replace(
            report_material.difference,
            changes=tuple(change(name, 3, 1) for name in nasty),
        ),
        lifts=tuple(make_lift(n, n, n, math.inf, math.nan, 0.5, 1, 0.1) for n in nasty),
        fleet=steps,
        labels={name: name for name in nasty},
        problems=nasty,
    )


def material(count: int = 96) -> diagnosis.Material:
    incident, baseline = stacks()
    rows = (("kubelet", 648), ("python3", 9), ("swapper", 5))
    return diagnosis.Material(
        core=39 % count,
        incident=HOT,
        baseline=BEFORE,
        cores=cores(count),
        events=(
            Event(EVENT_US - 2 * SECOND, "cpu.core_pinned", "core 39 was 100 % busy", HOST, 39, "warning", "p"),
            reset(),
            Event(EVENT_US + 4 * SECOND, "net.link_up", "eth0", HOST, -1, "info", "u"),
        ),
        processes=top.Top("processes", tuple(top.Row(n, k, k, k / 662, k / 679, k / 679) for n, k in rows), 0, coverage(HOT, 662)),
        flame=incident,
        compared=difference.Compared(incident, baseline, 679, 58200),
        difference=diff.Difference(
            (
                change("mem_cgroup_nr_lru_pages", 505, 61),
                dataclasses.replace(change("memcg_numa_stat_show", 648, 61), own_difference=0.0),
                change("css_next_descendant_pre", 143, 0, "new"),
                change("sock_read_iter", 9, 9100, "less"),
            ),
            11, coverage(HOT, 662), coverage(BEFORE, 11201, 12),
        ),
        lifts=(
            make_lift("kubelet.service", "kubelet", "mem_cgroup_nr_lru_pages", 41.0, 2.9, 2e-7, 9, 0.93),
            make_lift("kubelet.service", "kubelet", "css_next_descendant_pre", 38.0, 2.1, 4e-5, 9, 0.21),
            make_lift("ray.slice", "ray::IDLE", "pipe_read", 1.3, -0.2, 0.62, 9, 0.004),
        ),
        census=tuple(diagnosis.Census(EVENT_US - n * 600 * SECOND, 68680 - 46 * n, 240, 68440 - 46 * n) for n in range(66, -1, -1)),
        fleet=(
            make_finding("cohort", "fleet.cohort_skew", "10 of 11 hosts with resets run image dlami-2025-03; 18 of 49 without do.", 0.9, NIGHT,
                  (fact("Permutation over hosts, weighted by exposure, stratified by uptime: p = 0.004; the smallest attainable is 0.0001.",
                        "events of 60 hosts", "overnight fleet --label image", hosts=60, p=0.004),), host="", magnitude={"p_value": 0.004}),
            make_finding("uptime", "fleet.uptime_hazard", "The hazard rises with uptime, from the 6th day on: state accumulates, and a reboot clears it.", 0.8, NIGHT,
                  (fact("23 events in 412 host-days.", "events and boots of 60 hosts", "overnight fleet --uptime"),), host=""),
        ),
        labels={"zone": "us-east-1a", "kernel": "5.4.0-1103-aws", "image": "dlami-2025-03", "uptime": "10 d 9 h"},
    )  # fmt: skip


ALL = {
    "reference": reference,
    "generic": generic,
    "inconclusive": inconclusive,
    "no-cause": no_cause,
    "hostile": hostile,
    "two-alternatives": two_alternatives,
}
