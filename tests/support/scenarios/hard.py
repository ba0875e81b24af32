"""Nights on which the evidence misleads: to calibrate the confidence, not to be always right.

The cause is outside of the host, below the kernel, or on another core; innocents are busy meanwhile: on the
same core or beside it, once or periodically, alone or with their children.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from scenarios import catalogue, host_setup, incidents, nights, stacks, truth, work

Stacks = Callable[[str], work.Stacks]
# What an innocent does: its own work, or what a detector knows, at a harmless time.
INNOCENT: tuple[Stacks, ...] = (
    lambda module: stacks.program(module, ("solve", "pivot"), 0.05),
    lambda module: stacks.program(module, ("serve", "encode"), 0.6),
    lambda module: stacks.limit_reclaim(module, ("load", "grow")),
    lambda module: stacks.convoy(module, ("open_all",)),
    stacks.numa_stat,
)
LATE, EARLY = 12.0, 26.0  # seconds before the event: what ended earlier did not cause it


def add_innocent(setup: host_setup.HostSetup, when: float, core: int, name: str = "") -> work.Task:
    """Let a process be busy around an event that it did not cause, on its core or on another one."""
    chance = setup.chance
    process = name or f"{setup.word()}-{chance.choice(('batch', 'index', 'backup', 'report'))}"
    unit = f"{process if not name else setup.word()}.service"
    task = setup.new_task(process, unit)
    setup.units[unit] = {}
    busy = work.Work(task, chance.choice(INNOCENT)(f"/opt/{unit}/{process}"))
    place = core if chance.random() < 0.6 else chance.randrange(setup.host.cores)
    share = chance.choice((0.4, 0.7, 0.85, 1.0, 1.0)) * chance.uniform(0.93, 1.0)
    length = chance.choice((3.0, 8.0, 20.0, 90.0)) * chance.uniform(0.7, 1.4)
    begin = chance.choice(
        (
            when - length + chance.uniform(-2, 4),  # it ends with the event
            when - chance.uniform(1, 9),
            when - length - chance.uniform(LATE, EARLY),
            when + chance.uniform(1, 6),
        )
    )
    setup.episodes.append(work.Episode(busy, place, max(1.0, begin), begin + length, share))
    return task


def add_periodic(setup: host_setup.HostSetup, core: int, through: float | None) -> None:
    """Let a job saturate a core at regular times, one of them at `through`, if given."""
    chance = setup.chance
    process = f"{setup.word()}-cron"
    task = setup.new_task(process, f"{process}.service")
    setup.units[task.unit] = {}
    job = work.Work(task, chance.choice(INNOCENT[:3])(f"/opt/{process}/{process}"))
    period, length = chance.choice((45.0, 60.0, 120.0, 300.0)), chance.uniform(3.0, 9.0)
    first = (
        through - chance.uniform(0.3, length) if through else chance.uniform(0, period)
    ) % period
    begin = first
    while begin < setup.seconds - 1:
        setup.episodes.append(
            work.Episode(job, core, begin, begin + length, chance.uniform(0.9, 1.0))
        )
        begin += period


def external(
    setup: host_setup.HostSetup, moments: list[float], queue: int, core: int
) -> incidents.Incident:
    """A fault of the device, its firmware, the network or the storage: nothing on the host causes it."""
    head = f"ena {setup.host.bus} {setup.host.interface}:"
    paused = f"{head} TX q {queue} is paused for too long (threshold 5000000)."
    kind, line = setup.chance.choice(
        (
            ("net.driver_reset", f"{paused} Time since last napi 4000 usec. napi scheduled: 0"),
            ("net.driver_starved", f"{head} Found a Tx that wasn't completed on time, qid {queue}, index 12."),
            ("net.link_down", f"{head} Link is Down"),
            ("net.tx_timeout", f"NETDEV WATCHDOG: {setup.host.interface} (ena): transmit queue {queue} timed out"),
            ("net.device_fault", f"{head} Keep alive watchdog timeout."),
            ("storage.timeout", f"nvme nvme0: I/O {setup.chance.randrange(999)} QID {core + 1} timeout, aborting"),
        )
    )  # fmt: skip

    def put(night: nights.Night) -> None:
        night.log += [(when, line) for when in moments]

    return incidents.Incident(kind, moments[-1], incidents.own_fault(kind), put, {"core": core})


def build_outside(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A fault from outside of the host while one to three innocents are busy."""
    setup = catalogue._make("outside", seed, {**catalogue.NEW, "driver": "2.11.0g"}, changes)
    queue, core = setup.queue()
    incident = external(setup, setup.moments(setup.chance.choice((1, 1, 2))), queue, core)
    for _ in range(setup.chance.randint(1, 3)):
        add_innocent(setup, incident.when, core)
    return catalogue._play("outside", home, setup, incident, status=truth.NONE)


def build_job(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A fault from outside of the host while one ordinary job keeps the core of the event busy."""
    setup = catalogue._make("job", seed, {**catalogue.NEW, "driver": "2.11.0g"}, changes)
    queue, core = setup.queue()
    moments = setup.moments(setup.chance.choice((1, 1, 2)))
    incident = external(setup, moments, queue, core)
    process = f"{setup.word()}-{setup.chance.choice(('build', 'train', 'encode'))}"
    task = setup.new_task(process, f"{process}.service")
    setup.units[task.unit] = {}
    job = work.Work(task, setup.chance.choice(INNOCENT)(f"/opt/{process}/{process}"))
    begin = incident.when - setup.chance.choice((6.0, 12.0, 40.0, 120.0)) * setup.chance.uniform(
        0.6, 1.4
    )
    end = incident.when + setup.chance.choice((0.5, 10.0, 60.0))
    setup.episodes.append(
        work.Episode(job, core, max(1.0, begin), end, setup.chance.uniform(0.95, 1.0))
    )
    return catalogue._play("job", home, setup, incident, status=truth.NONE)


def build_periodic(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A fault from outside of the host; a periodic job overlaps it by chance in some recurrences."""
    setup = catalogue._make("periodic", seed, {**catalogue.NEW, "driver": "2.11.0g"}, changes)
    queue, core = setup.queue()
    incident = external(setup, setup.moments(setup.chance.choice((1, 2, 4))), queue, core)
    add_periodic(setup, core, setup.chance.choice((None, incident.when)))
    return catalogue._play("periodic", home, setup, incident, status=truth.NONE)


def build_below(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """The hypervisor takes a core away, or its firmware does: the queue starves, whatever runs there."""
    setup = catalogue._make("below", seed, catalogue.NEW, changes)
    queue, core = setup.queue()
    moments = setup.moments(setup.chance.choice((1, 1, 3)))
    running = setup.chance.choice(setup.background[:7]).task
    taken = work.take_away(setup.chance.choice(sorted(work.TAKEN)), running)
    for _ in range(setup.chance.randint(0, 2)):
        add_innocent(setup, moments[-1], core)
    stalls = [setup.chance.uniform(5.1, 6.8) for _ in moments]
    for when, stalled in zip(moments, stalls, strict=True):
        share = setup.chance.choice((1.0, 1.0, 0.6))
        setup.episodes.append(work.Episode(taken, core, when - stalled, when + 0.2, share))

    def put(night: nights.Night) -> None:
        for when, stalled in zip(moments, stalls, strict=True):
            incidents.reset_lines(night, queue, core, when, stalled)

    incident = incidents.Incident("net.driver_reset", moments[-1], (), put, {"core": core})
    return catalogue._play("below", home, setup, incident, status=truth.OPEN)


def build_remote(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A process on one core interrupts another core all the time; the innocent there seems to be busy."""
    setup = catalogue._make("remote", seed, catalogue.NEW, changes)
    _, core = setup.queue()
    process = f"{setup.word()}-alloc"
    cause = setup.new_task(process, f"{process}.service")
    setup.units[cause.unit] = {}
    innocent = setup.chance.choice(setup.background[:7])
    interrupted = work.Work(innocent.task, stacks.interrupted(innocent.stacks))
    far = setup.chance.choice([each for each in range(setup.host.cores) if each != core])
    moments = setup.moments(setup.chance.choice((1, 2, 4)))
    spans = [(when - 1.5, when + setup.chance.uniform(5.0, 12.0)) for when in moments]
    for span in spans:
        own, here = setup.chance.uniform(0.6, 1.0), setup.chance.uniform(0.9, 1.0)
        flushes = work.Work(cause, stacks.shootdown(f"/opt/{process}/{process}"))
        setup.episodes.append(work.Episode(flushes, far, *span, own))
        setup.episodes.append(work.Episode(interrupted, core, *span, here))
    drops = setup.chance.uniform(300, 3000)

    def put(night: nights.Night) -> None:
        for (_, end), when in zip(spans, moments, strict=True):
            night.rates["softnet", str(core), "dropped"].append((when, end, drops))

    chain: tuple[truth.Expected, ...] = (
        ("cpu.culprit", {"process": cause.process}),
        ("net.softnet_drops", {"core": core}),
    )
    facts: dict[str, object] = {"core": core, "process": cause.process, "unit": cause.unit}
    incident = incidents.Incident("net.softnet_drops", moments[-1], chain, put, facts)
    return catalogue._play("remote", home, setup, incident)


def build_kernel_path(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """Kernel work that no detector knows holds the queue's core: in a worker, or on top of whatever runs there."""
    setup = catalogue._make("kernel-path", seed, catalogue.NEW, changes)
    moments = setup.moments(setup.chance.choice((1, 1, 3)))
    function = f"{setup.word()}_reap_work"
    in_worker = setup.chance.random() < 0.5
    task = work.Task(f"kworker/u9:1 [{function}]", setup.pid())
    causes = [("cpu.culprit", {"process": task.process})]
    if not in_worker:
        task, causes = setup.chance.choice(setup.background[:7]).task, []
    busy = work.Work(task, stacks.callbacks(function, in_worker=in_worker))
    incident = incidents.starve_queue(setup, busy, moments, *causes)
    held, setup.episodes = setup.episodes, []
    for _ in range(setup.chance.randint(0, 2)):
        add_innocent(setup, incident.when, int(str(incident.facts["core"])))
    setup.episodes += held
    return catalogue._play("kernel-path", home, setup, incident)


def build_crowded(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A cause, innocents on its core and beside it, and in half of the nights a harmless crash loop."""
    setup = catalogue._make("crowded", seed, {**catalogue.NEW, "threaded": True}, changes)
    builder = setup.chance.choice(
        (incidents.rt_hog, incidents.storm, incidents.reclaim, incidents.busy_process)
    )
    incident = builder(setup, setup.moments(setup.chance.choice((1, 2))))
    core = int(str(incident.facts["core"]))
    # What comes later takes the core from what was there: the innocents share it with the cause.
    causes, setup.episodes = setup.episodes, []
    for _ in range(setup.chance.randint(1, 3)):
        add_innocent(setup, incident.when, core)
    setup.episodes += causes
    loop = incidents.decoy_loop(
        setup, hidden=setup.chance.random() < 0.5, zombies=setup.chance.choice((0, 400, 1500))
    )
    others = (loop,) if setup.chance.random() < 0.5 else ()
    return catalogue._play("crowded", home, setup, incident, *others)


def build_namesake(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A cause, and innocents of the same name in other units."""
    setup = catalogue._make("namesake", seed, catalogue.NEW, changes)
    incident = incidents.busy_process(setup, setup.moments(setup.chance.choice((1, 2))))
    causes, setup.episodes = setup.episodes, []
    for _ in range(setup.chance.randint(1, 3)):
        core, name = int(str(incident.facts["core"])), str(incident.facts["process"])
        add_innocent(setup, incident.when, core, name)
    setup.episodes += causes
    return catalogue._play("namesake", home, setup, incident)


def build_weak(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A cause that leaves its core some time, and innocents elsewhere that leave theirs none."""
    setup = catalogue._make("weak", seed, catalogue.NEW, changes)
    before = len(setup.episodes)
    incident = incidents.busy_process(setup, setup.moments(setup.chance.choice((1, 2, 4))))
    share = setup.chance.uniform(0.75, 0.97)
    setup.episodes[before:] = [
        dataclasses.replace(episode, share=share) for episode in setup.episodes[before:]
    ]
    for _ in range(setup.chance.randint(0, 2)):
        other = setup.chance.randrange(setup.host.cores)
        if other != incident.facts["core"]:
            add_innocent(setup, incident.when, other)
    return catalogue._play("weak", home, setup, incident)


def build_launcher(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A script with many children beside a busy daemon: either may be the one that holds the queue's core."""
    setup = catalogue._make("launcher", seed, catalogue.NEW, changes)
    script = setup.word()
    shell = setup.new_task(f"{script}.sh (bash)", "cron.service")
    setup.units["cron.service"] = {}
    setup.background.append(
        work.Work(shell, stacks.program("/bin/bash", ("execute_cmd",), 0.5), 0.01)
    )
    paths = stacks.short_lived("/usr/bin/gzip")
    child = dataclasses.replace(
        shell, process=f"{script}.sh → gzip", pid=setup.pid(), thread="gzip", launcher=shell
    )
    moments = setup.moments(setup.chance.choice((1, 2)))
    daemon_is_cause = setup.chance.random() < 0.5
    if daemon_is_cause:
        incident = incidents.busy_process(setup, moments)
    else:
        before = len(setup.episodes)
        incident = incidents.starve_queue(
            setup,
            work.Work(child, paths),
            moments,
            ("mechanism.fork-exec", {"process": shell.process}),
            ("process.spawn_storm", {"process": shell.process}),
        )
        incident.facts["unit"] = shell.unit
        held = setup.episodes[before:]
        del setup.episodes[before:]
        add_innocent(setup, incident.when, int(str(incident.facts["core"])))
        setup.episodes += held
    free = [core for core in range(setup.host.cores) if core != incident.facts["core"]]
    far = setup.chance.choice(free)
    rate = setup.chance.uniform(30, 300)
    for when in moments:
        begin, end = when - setup.chance.uniform(6, 20), when + setup.chance.uniform(0, 5)
        setup.spawns.append((child, begin, end, rate))
        if daemon_is_cause:
            setup.episodes.append(work.Episode(work.Work(child, paths), far, begin, end, 0.98))
    return catalogue._play("launcher", home, setup, incident)


HARD: dict[str, catalogue.Builder] = {
    "coincidence": catalogue.build_coincidence,
    "outside": build_outside,
    "job": build_job,
    "periodic": build_periodic,
    "below": build_below,
    "remote": build_remote,
    "kernel-path": build_kernel_path,
    "crowded": build_crowded,
    "namesake": build_namesake,
    "weak": build_weak,
    "launcher": build_launcher,
}
