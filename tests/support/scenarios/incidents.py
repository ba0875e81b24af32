"""Incidents of a night: each adds its load and its traces, and knows the true causal chain.

A scenario combines incidents, so that two causes, or a cause and a decoy, can share a night.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from scenarios import host_setup, nights, stacks, truth, work

WALKERS = frozenset(
    (
        "memcg_numa_stat_show", "mem_cgroup_nr_lru_pages", "mem_cgroup_node_nr_lru_pages",
        "mem_cgroup_iter", "css_next_descendant_pre", "shrink_node", "shrink_lruvec",
        "shrink_node_memcgs", "shrink_slab", "list_lru_count_one",
    )
)  # fmt: skip
LOCKS = frozenset(("native_queued_spin_lock_slowpath", "_raw_spin_lock"))


@dataclasses.dataclass
class Incident:
    """An event of `kind` at `when`, caused by `chain`; `put` adds all traces of it to the night."""

    kind: str
    when: float
    chain: tuple[truth.Expected, ...]
    put: Callable[[nights.Night], None]
    facts: dict[str, object]
    also_true: frozenset[str] = frozenset()  # kinds that the chain may contain, but need not


def reset_lines(night: nights.Night, queue: int, core: int, when: float, stalled: float) -> None:
    """Log a reset by a driver whose queue was not polled, and raise its counters."""
    host = night.host
    since = f"Time since last napi {round(stalled * 1e6)} usec. napi scheduled: 1"
    completed = "Device reset completed successfully"
    if int(host.driver.split(".")[1]) >= 17:
        since = (
            f"usecs since napi {round(stalled * 1e6)}. napi scheduled: 1. napi CPU: {core}."
            f" msecs since interrupt: {round(stalled * 1e3)}"
        )
        completed = "Device reset completed, status: 0"
    head = f"ena {host.bus} {host.interface}:"
    info = f"Driver info: Elastic Network Adapter (ENA) v{host.driver}"
    night.log += [
        (when, f"{head} TX q {queue} is paused for too long (threshold 5000000). {since}"),
        (when + 1e-5, f"{head} napi handler hasn't been called for a long time but is scheduled"),
        (when + 9e-4, f"ena {host.bus}: {completed}, {info}"),
    ]
    for counter in ("total_resets", "suspected_poll_starvation"):
        night.steps["ethtool", host.interface, counter].append((when, 1))


def starve_queue(
    setup: host_setup.HostSetup, culprit: work.Work, moments: list[float], *causes: truth.Expected
) -> Incident:
    """Let a process hold the core of a queue until the driver resets."""
    queue, core = setup.queue()
    stalls = [setup.chance.uniform(5.1, 6.8) for _ in moments]
    for when, stalled in zip(moments, stalls, strict=True):
        end = when + setup.chance.uniform(0.05, 0.4)
        share = setup.chance.uniform(0.97, 1.0)
        setup.episodes.append(work.Episode(culprit, core, when - stalled, end, share))
    subject: dict[str, truth.Part] = {"interface": setup.host.interface, "queue": queue}
    chain = (
        *((kind, {**parts, "core": core} if "process" in parts else parts) for kind, parts in causes),
        ("cpu.core_saturated", {"core": core}),
        ("net.queue_starved", {**subject, "core": core}),
        ("net.driver_reset", subject),
    )  # fmt: skip

    def put(night: nights.Night) -> None:
        for when, stalled in zip(moments, stalls, strict=True):
            reset_lines(night, queue, core, when, stalled)

    facts = {
        "core": core, "queue": queue, "process": culprit.task.process, "unit": culprit.task.unit,
        "moments_us": [setup.begin_us + round(moment * 1e6) for moment in moments],
    }  # fmt: skip
    return Incident("net.driver_reset", moments[-1], chain, put, facts)


def leak(
    setup: host_setup.HostSetup, night: nights.Night, births: nights.Births, us: float
) -> None:
    """Let each new cgroup leave a dying one behind, since the boot."""
    night.births.append(births)
    night.dying_per_hour = setup.chance.uniform(0.9, 1.0) * 3600 / births.every
    night.dying = night.dying_per_hour * setup.host.uptime_seconds / 3600
    night.zombie_parent = births.parent
    night.zombie_us = us


# Who creates the agent's cgroups, and where: the unit itself, or a runtime with its driver of cgroups.
LAYOUTS = ("own", "docker-cgroupfs", "docker-systemd", "containerd-cgroupfs", "containerd-systemd")

WALKING: tuple[str, ...] = ()  # the only names that a test wants, () for any
LOOPING: tuple[str, ...] = ()


def hidden_loop(setup: host_setup.HostSetup) -> tuple[str, nights.Births]:
    """Add a unit whose own supervisor restarts a container without end; systemd counts no restart."""
    unit = setup.chance.choice(
        LOOPING or ("ecs.service", "ecs.service", f"{setup.word()}-agent.service")
    )
    setup.units[unit] = {"preset": "disabled", "restart": "always"}
    every = setup.every or setup.chance.uniform(11.0, 17.0)
    layout = setup.layout or random.Random(f"layout {setup.seed}").choice(LAYOUTS)
    if layout == "own":
        return unit, nights.Births(f"/system.slice/{unit}", every, every - 1.5)
    runtime, _, driver = layout.partition("-")
    name = unit.removesuffix(".service").replace("ecs", "ecs-agent")
    group = "default" if runtime == "containerd" else ""
    parent = "/system.slice" if driver == "systemd" else f"/{group or runtime}"
    image = f"amazon/amazon-{name}:latest" if runtime == "docker" else ""
    fact: dict[str, str | int] = {
        "runtime": runtime, "container": name, "image": image, "group": group, "restarted": setup.restarted,
        "programs": "agent",
    }  # fmt: skip
    creator = nights.Creator(
        f"{runtime}:{f'{group}/{name}' if group else name}",
        fact,
        {unit: (0.95, 0.03)} if setup.supervisors is None else setup.supervisors,
    )
    return unit, nights.Births(parent, every, every - 1.5, creator=creator)


def visible_loop(setup: host_setup.HostSetup) -> tuple[str, nights.Births]:
    """Add a unit that systemd restarts without end, each time in a cgroup of its own."""
    unit = f"{setup.word()}-{setup.chance.choice(('sidecar', 'exporter', 'collector'))}.service"
    setup.units[unit] = {"sub": "auto-restart", "active": "activating"}
    every = setup.chance.uniform(18.0, 32.0)
    before = int(setup.host.uptime_seconds / every)
    return unit, nights.Births("/system.slice", every, setup.chance.uniform(2, 9), unit, before)


def walk_of_zombies(setup: host_setup.HostSetup, moments: list[float]) -> Incident:
    """Kernel 5.4, cgroup v1: dying memory cgroups of an uncounted crash loop make one read take seconds."""
    process = setup.chance.choice(
        WALKING or ("kubelet", "kubelet", "cadvisor", f"{setup.word()}let")
    )
    task = setup.new_task(process, f"{process}.service")
    setup.units[task.unit] = {}
    module = f"/usr/bin/{process}"
    names = ("k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoop", "runtime.mallocgc")
    reads = stacks.numa_stat(module)
    background_stacks = (
        *stacks.program(module, names, 0.3),
        *((0.02 * w, path) for w, path in reads),
    )
    setup.background.append(
        work.Work(task, background_stacks, 0.03 * setup.chance.uniform(0.5, 1.5))
    )
    culprit = work.Work(task, reads)
    unit, births = hidden_loop(setup)
    incident = starve_queue(
        setup, culprit, moments,
        ("unit.hidden_crash_loop", {"unit": unit}),
        ("memory.zombie_cgroups", {}),
        ("memory.cgroup_walk", {"process": task.process, "function": WALKERS}),
    )  # fmt: skip
    # The same read on a core that serves no queue is harmless; such a night has it, too.
    free = [core for core in range(setup.host.cores) if core not in setup.host.queue_cores]
    begin = setup.chance.uniform(30, setup.seconds - 300)
    if free and all(abs(begin - moment) > 60 for moment in moments):
        length = setup.chance.uniform(4.0, 6.0)
        setup.episodes.append(
            work.Episode(culprit, setup.chance.choice(free), begin, begin + length)
        )
    starve = incident.put

    def put(night: nights.Night) -> None:
        starve(night)
        leak(setup, night, births, us=2.0)

    incident.put = put
    incident.facts |= {
        "loop": unit,
        "cgroup": births.parent,
        "births_per_hour": 3600 / births.every,
    }
    return incident


def walk_in_reclaim(setup: host_setup.HostSetup, moments: list[float]) -> Incident:
    """Newer kernels, cgroup v2: reclaim below a limit visits the zombies of a visible crash loop."""
    process = f"{setup.word()}-{setup.chance.choice(('etl', 'index', 'cache'))}"
    task = setup.new_task(process, f"{process}.service")
    setup.units[task.unit] = {}
    module, functions = f"/opt/{process}/{process}", ("run", "grow_arena")
    background_stacks = stacks.program(module, ("run", "merge", "flush"), 0.25)
    setup.background.append(work.Work(task, background_stacks, setup.chance.uniform(0.1, 0.3)))
    culprit = work.Work(task, stacks.zombie_reclaim(module, functions))
    unit, births = visible_loop(setup)
    incident = starve_queue(
        setup, culprit, moments,
        ("unit.crash_loop", {"unit": unit}),
        ("memory.zombie_cgroups", {}),
        ("memory.cgroup_walk", {"process": task.process, "function": WALKERS}),
    )  # fmt: skip
    starve, waiting = incident.put, setup.chance.uniform(0.25, 0.5)

    def put(night: nights.Night) -> None:
        starve(night)
        leak(setup, night, births, us=0.4)
        for when in moments:
            night.rates["pressure", "memory", "some"].append((when - 5.5, when, 1e6 * waiting))
            night.rates["vmstat", "", "workingset_refault_file"].append((when - 5.5, when, 4000.0))

    incident.put = put
    incident.facts |= {
        "loop": unit,
        "cgroup": births.parent,
        "births_per_hour": 3600 / births.every,
    }
    incident.also_true = frozenset(("memory.reclaim",))
    return incident


def rt_hog(setup: host_setup.HostSetup, moments: list[float]) -> Incident:
    """A real-time thread polls on the core of a queue whose driver also polls in a thread."""
    process = f"{setup.word()}-{setup.chance.choice(('ptp', 'dpdk', 'audio', 'fieldbus'))}"
    task = setup.new_task(process, f"{process}.service", rt=setup.chance.choice((50, 80, 99)))
    setup.units[task.unit] = {}
    paths = stacks.realtime(f"/opt/{process}/{process}", ("poll_loop", "read_ring"))
    setup.background.append(work.Work(task, paths, setup.chance.uniform(0.005, 0.02)))
    culprit = work.Work(task, paths)
    incident = starve_queue(setup, culprit, moments, ("cpu.rt_hog", {"process": task.process}))
    incident.facts["rt_priority"] = task.rt
    return incident


def storm(setup: host_setup.HostSetup, moments: list[float]) -> Incident:
    """More packets than a core can process: ksoftirqd saturates it, and its backlog drops packets."""
    _, core = setup.queue()
    paths = stacks.storm()
    task = work.Task(f"ksoftirqd/{core}", 10 + 6 * core)
    setup.background.append(work.Work(task, paths, 0.004))
    culprit = work.Work(task, paths)
    spans = []
    for when in moments:
        span = (when - setup.chance.uniform(1.0, 2.0), when + setup.chance.uniform(6.0, 14.0))
        setup.episodes.append(work.Episode(culprit, core, *span, setup.chance.uniform(0.97, 1.0)))
        spans.append(span)
    received = setup.chance.uniform(20_000, 60_000)
    dropped = setup.chance.uniform(300, 3000)

    def put(night: nights.Night) -> None:
        key = str(core)
        for (begin, end), when in zip(spans, moments, strict=True):
            night.rates["softirqs", key, "NET_RX"].append((begin, end, received))
            night.rates["softnet", key, "processed"].append((begin, end, received * 9))
            night.rates["softnet", key, "squeezed"].append((begin, end, received / 30))
            night.rates["softnet", key, "dropped"].append((when, end, dropped))

    chain: tuple[truth.Expected, ...] = (
        ("net.softirq_storm", {"core": core}),
        ("net.softnet_drops", {"core": core}),
    )
    facts: dict[str, object] = {"core": core, "process": task.process, "net_rx": received}
    return Incident("net.softnet_drops", moments[-1], chain, put, facts)


def reclaim(
    setup: host_setup.HostSetup, moments: list[float], *, host_wide: bool = False
) -> Incident:
    """A process at its cgroup's limit reclaims its own pages and saturates a core; no zombies.

    vmstat does not count the scans of such a reclaim (the kernel leaves out those of a cgroup), only the
    refaults. With `host_wide` the whole host is short of memory, and vmstat counts the scans.
    """
    process = f"{setup.word()}-{setup.chance.choice(('db', 'build', 'parse'))}"
    task = setup.new_task(process, f"{process}.service")
    setup.units[task.unit] = {}
    module = f"/opt/{process}/{process}"
    background_stacks = stacks.program(module, ("execute", "scan", "sort"), 0.2)
    setup.background.append(work.Work(task, background_stacks, setup.chance.uniform(0.1, 0.3)))
    culprit = work.Work(task, stacks.limit_reclaim(module, ("execute", "allocate")))
    core = setup.chance.randrange(setup.host.cores)
    spans = [(when, when + setup.chance.uniform(6.0, 15.0)) for when in moments]
    setup.episodes += [work.Episode(culprit, core, *span) for span in spans]
    waiting, pages = setup.chance.uniform(0.3, 0.7), setup.chance.uniform(5_000, 60_000)

    def put(night: nights.Night) -> None:
        for begin, end in spans:
            night.rates["pressure", "memory", "some"].append((begin, end, 1e6 * waiting))
            night.rates["pressure", "memory", "full"].append((begin, end, 2e5 * waiting))
            for column, share in (("workingset_refault_file", 0.6), ("pgmajfault", 0.02)):
                night.rates["vmstat", "", column].append((begin, end, pages * share))
            if host_wide:
                for column, share in (("pgscan_direct", 1.5), ("pgsteal_direct", 1.0)):
                    night.rates["vmstat", "", column].append((begin, end, pages * share))
                night.rates["vmstat", "", "allocstall"].append((begin, end, pages / 500))

    chain: tuple[truth.Expected, ...] = (
        ("memory.reclaim", {"process": task.process}),
        ("cpu.core_pinned", {"core": core}),
    )
    facts: dict[str, object] = {"core": core, "process": task.process, "unit": task.unit}
    return Incident("cpu.core_pinned", moments[-1], chain, put, facts)


def convoy(setup: host_setup.HostSetup, moments: list[float]) -> Incident:
    """Many processes wait for one kernel lock, until the watchdog reports a stuck core."""
    core, lines = 0, []
    culprits = []
    for _ in range(setup.chance.randint(6, 10)):
        process = f"{setup.word()}-worker"
        task = setup.new_task(process, f"{process}.service")
        setup.units[task.unit] = {}
        background_stacks = stacks.program(f"/opt/{process}/w", ("serve", "parse"), 0.3)
        setup.background.append(
            work.Work(task, background_stacks, setup.chance.uniform(0.02, 0.06))
        )
        culprits.append(work.Work(task, stacks.convoy(f"/opt/{process}/w", ("serve",))))
    for when in moments:
        begin = when - setup.chance.uniform(22.5, 24.5)
        end = when + setup.chance.uniform(0.5, 2.0)
        cores = setup.chance.sample(range(setup.host.cores), min(setup.host.cores, len(culprits)))
        for held_core, culprit in zip(cores, culprits, strict=False):
            share = setup.chance.uniform(0.7, 0.95)
            setup.episodes.append(work.Episode(culprit, held_core, begin, end, share))
        core, first = cores[0], culprits[0]
        setup.episodes[-len(cores)] = work.Episode(first, core, begin, end)
        stuck = f"CPU#{core} stuck for 22s! [{first.task.process}:{first.task.pid}]"
        lines.append((when, f"watchdog: BUG: soft lockup - {stuck}"))

    def put(night: nights.Night) -> None:
        night.log += lines
        for when in moments:
            night.rates["pressure", "cpu", "some"].append((when - 22, when, 4e5))

    chain: tuple[truth.Expected, ...] = (
        ("kernel.lock_contention", {"function": LOCKS}),
        ("cpu.soft_lockup", {"core": core}),
    )
    facts: dict[str, object] = {
        "core": core,
        "processes": [culprit.task.process for culprit in culprits],
    }
    return Incident("cpu.soft_lockup", moments[-1], chain, put, facts, frozenset(("cpu.stall",)))


def decoy_loop(setup: host_setup.HostSetup, *, hidden: bool, zombies: int = 0) -> Incident:
    """A harmless crash loop: its cgroups are freed, and only a few zombies exist."""
    unit, births = hidden_loop(setup) if hidden else visible_loop(setup)

    def put(night: nights.Night) -> None:
        night.births.append(births)
        night.dying += zombies

    return Incident("", 0.0, (), put, {"decoy": unit, "decoy_hidden": hidden})


def chance_event(setup: host_setup.HostSetup) -> Incident:
    """An event at a random time with nothing unusual around it: a fault of the device or of a cable."""
    when = setup.chance.uniform(min(720.0, setup.seconds * 0.85), setup.seconds - 45.0)
    host = setup.host
    queue, _ = setup.queue()
    head = f"ena {host.bus} {host.interface}:"
    paused = f"TX q {queue} is paused for too long (threshold 5000000)."
    polled = "Time since last napi 4000 usec. napi scheduled: 0"
    kind, counter, line = setup.chance.choice(
        (
            ("net.driver_reset", "total_resets", f"{head} {paused} {polled}"),
            ("net.device_fault", "wd_expired", f"{head} Keep alive watchdog timeout."),
            ("net.link_down", "", f"{head} Link is Down"),
        )
    )

    def put(night: nights.Night) -> None:
        night.log.append((when, line))
        if counter:
            night.steps["ethtool", host.interface, counter].append((when, 1))

    return Incident(kind, when, (), put, {"moments_us": [setup.begin_us + round(when * 1e6)]})


def coincidence(setup: host_setup.HostSetup) -> Incident:
    """An event of its own, while a process saturates a core: that of the event, another one, or too early."""
    queue, core = setup.queue()
    when = setup.seconds - setup.chance.uniform(70.0, 160.0)
    process = f"{setup.word()}-batch"
    task = setup.new_task(process, f"{process}.service")
    setup.units[task.unit] = {}
    culprit = work.Work(task, stacks.program(f"/opt/{process}/b", ("solve", "pivot"), 0.3))
    near = setup.chance.choice(("same core", "other core", "too early", "after"))
    place = (core + 1) % setup.host.cores if near == "other core" else core
    length, chance = setup.chance.uniform(3, 12), setup.chance
    begin = {"too early": -length - chance.uniform(12, 26), "after": chance.uniform(2, 6)}.get(
        near, -length
    )
    setup.episodes.append(work.Episode(culprit, place, when + begin, when + begin + length + 0.3))
    host = setup.host
    kind, line = setup.chance.choice(
        (
            ("net.link_down", f"ena {host.bus} {host.interface}: Link is Down"),
            (
                "net.tx_timeout",
                f"NETDEV WATCHDOG: {host.interface} (ena): transmit queue {queue} timed out",
            ),
            ("net.device_fault", f"ena {host.bus} {host.interface}: Keep alive watchdog timeout."),
            (
                "storage.timeout",
                f"nvme nvme0: I/O {setup.chance.randrange(999)} QID {core + 1} timeout, aborting",
            ),
        )
    )

    def put(night: nights.Night) -> None:
        night.log.append((when, line))

    facts: dict[str, object] = {"near": near, "process": process, "core": core}
    return Incident(kind, when, own_fault(kind), put, facts)


def own_fault(kind: str) -> tuple[truth.Expected, ...]:
    """Return the cause of an event that no process causes: only a disk's is a finding of its own."""
    return (("storage.fault", {}), (kind, {})) if kind == "storage.timeout" else ()


def polled(setup: host_setup.HostSetup) -> Incident:
    """The core of a queue is saturated when the driver resets, but the log line shows that the queue was polled."""
    queue, core = setup.queue()
    when = setup.seconds - setup.chance.uniform(70.0, 160.0)
    process = f"{setup.word()}-batch"
    task = setup.new_task(process, f"{process}.service")
    setup.units[task.unit] = {}
    culprit = work.Work(task, stacks.program(f"/opt/{process}/b", ("solve", "pivot"), 0.05))
    setup.episodes.append(
        work.Episode(culprit, core, when - setup.chance.uniform(6, 9), when + 0.3)
    )
    last, scheduled = setup.chance.choice(((4000, 0), (4000, 1), (6_100_000, 0)))
    host = setup.host
    line = (
        f"ena {host.bus} {host.interface}: TX q {queue} is paused for too long (threshold 5000000)."
        f" Time since last napi {last} usec. napi scheduled: {scheduled}"
    )

    def put(night: nights.Night) -> None:
        night.log.append((when, line))
        night.steps["ethtool", host.interface, "total_resets"].append((when, 1))

    facts: dict[str, object] = {"core": core, "process": process, "since_napi_us": last}
    return Incident("net.driver_reset", when, (), put, facts)


def busy_process(
    setup: host_setup.HostSetup,
    moments: list[float],
    culprit: tuple[str, work.Stacks] | None = None,
) -> Incident:
    """A process of no known mechanism holds the core of a queue; or `culprit`, by name, with its stacks."""
    if culprit is not None:
        given = work.Work(work.Task(culprit[0], setup.pid()), culprit[1])
        return starve_queue(setup, given, moments, ("cpu.culprit", {"process": culprit[0]}))
    process = f"{setup.word()}-{setup.chance.choice(('sync', 'batch', 'index', 'worker'))}"
    task = setup.new_task(process, setup.chance.choice((f"{process}.service", "")))
    if task.unit:
        setup.units[task.unit] = {}
    names = tuple(setup.word() for _ in range(2))
    paths = stacks.program(f"/opt/{process}/b", names, setup.chance.uniform(0.0, 0.6))
    if setup.chance.random() < 0.5:  # it also runs at other times
        setup.background.append(work.Work(task, paths, setup.chance.uniform(0.005, 0.1)))
    return starve_queue(
        setup, work.Work(task, paths), moments, ("cpu.culprit", {"process": task.process})
    )


def bystander(setup: host_setup.HostSetup, when: float) -> dict[str, object]:
    """Saturate a core that serves no queue before, during and after the incident."""
    process = f"{setup.word()}-batch"
    task = setup.new_task(process, f"{process}.service")
    setup.units[task.unit] = {}
    culprit = work.Work(task, stacks.program(f"/opt/{process}/b", ("solve", "pivot"), 0.02))
    busy = {episode.core for episode in setup.episodes}
    free = [c for c in range(setup.host.cores) if c not in {*setup.host.queue_cores, *busy}]
    core = setup.chance.choice(free or [0])
    begin, end = when - setup.chance.uniform(40, 55), when + setup.chance.uniform(15, 25)
    setup.episodes.append(work.Episode(culprit, core, begin, end, setup.chance.uniform(0.96, 1.0)))
    return {"bystander": task.process, "bystander_core": core}


def bursts(setup: host_setup.HostSetup) -> None:
    """Add random load: any program, on any core, each time shorter than an incident."""
    for _ in range(setup.seconds // 20):
        begin = setup.chance.uniform(2, setup.seconds - 5)
        setup.episodes.append(
            work.Episode(
                setup.chance.choice(setup.background[:-1]),
                setup.chance.randrange(setup.host.cores),
                begin,
                begin + setup.chance.uniform(0.3, 2.4),
                setup.chance.uniform(0.2, 0.8),
            )
        )
