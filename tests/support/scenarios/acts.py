"""What may happen in a night: each act puts its doers to work, and knows the chain that is true of it.

A story is made of acts, so that two causes, or a cause and a decoy, can share a night.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from scenarios import nights, setting, stacks, truth, work

WALKERS = frozenset(
    (
        "memcg_numa_stat_show", "mem_cgroup_nr_lru_pages", "mem_cgroup_node_nr_lru_pages",
        "mem_cgroup_iter", "css_next_descendant_pre", "shrink_node", "shrink_lruvec",
        "shrink_node_memcgs", "shrink_slab", "list_lru_count_one",
    )
)  # fmt: skip
LOCKS = frozenset(("native_queued_spin_lock_slowpath", "_raw_spin_lock"))


@dataclasses.dataclass
class Act:
    """`kind` of event at `when` follows from `chain`; `put` puts the rest of it into the night."""

    kind: str
    when: float
    chain: tuple[truth.Expected, ...]
    put: Callable[[nights.Night], None]
    facts: dict[str, object]
    also_true: frozenset[str] = frozenset()  # kinds that may stand in the chain, and need not


def reset_lines(night: nights.Night, queue: int, core: int, when: float, stalled: float) -> None:
    """The driver gives up on a queue that nobody polled; the counters tell it, too."""
    host = night.host
    since = f"Time since last napi {round(stalled * 1e6)} usec. napi scheduled: 1"
    done = "Device reset completed successfully"
    if int(host.driver.split(".")[1]) >= 17:
        since = (
            f"usecs since napi {round(stalled * 1e6)}. napi scheduled: 1. napi CPU: {core}."
            f" msecs since interrupt: {round(stalled * 1e3)}"
        )
        done = "Device reset completed, status: 0"
    head = f"ena {host.bus} {host.interface}:"
    info = f"Driver info: Elastic Network Adapter (ENA) v{host.driver}"
    night.log += [
        (when, f"{head} TX q {queue} is paused for too long (threshold 5000000). {since}"),
        (when + 1e-5, f"{head} napi handler hasn't been called for a long time but is scheduled"),
        (when + 9e-4, f"ena {host.bus}: {done}, {info}"),
    ]
    for counter in ("total_resets", "suspected_poll_starvation"):
        night.steps["ethtool", host.interface, counter].append((when, 1))


def _starve(
    made: setting.Setting, doer: work.Work, moments: list[float], *causes: truth.Expected
) -> Act:
    """Somebody holds the core of a queue until the driver gives up."""
    queue, core = made.queue()
    stalls = [made.chance.uniform(5.1, 6.8) for _ in moments]
    for when, stalled in zip(moments, stalls, strict=True):
        end = when + made.chance.uniform(0.05, 0.4)
        share = made.chance.uniform(0.97, 1.0)
        made.episodes.append(work.Episode(doer, core, when - stalled, end, share))
    place: dict[str, truth.Part] = {"interface": made.host.interface, "queue": queue}
    chain = (
        *((kind, {**parts, "core": core} if "process" in parts else parts) for kind, parts in causes),
        ("cpu.core_saturated", {"core": core}),
        ("net.queue_starved", {**place, "core": core}),
        ("net.driver_reset", place),
    )  # fmt: skip

    def put(night: nights.Night) -> None:
        for when, stalled in zip(moments, stalls, strict=True):
            reset_lines(night, queue, core, when, stalled)

    facts = {
        "core": core, "queue": queue, "process": doer.who.process, "unit": doer.who.unit,
        "moments_us": [made.begin_us + round(one * 1e6) for one in moments],
    }  # fmt: skip
    return Act("net.driver_reset", moments[-1], chain, put, facts)


def _leak(made: setting.Setting, night: nights.Night, births: nights.Births, us: float) -> None:
    """Each birth leaves a dead memory cgroup, since the boot."""
    night.births.append(births)
    night.dying_per_hour = made.chance.uniform(0.9, 1.0) * 3600 / births.every
    night.dying = night.dying_per_hour * made.host.uptime_seconds / 3600
    night.zombie_parent = births.parent
    night.zombie_us = us


def hidden_loop(made: setting.Setting) -> tuple[str, nights.Births]:
    """A unit whose own supervisor starts a container again and again; systemd counts no restart."""
    unit = made.chance.choice(("ecs.service", "ecs.service", f"{made.word()}-agent.service"))
    made.units[unit] = {"preset": "disabled", "restart": "always"}
    every = made.chance.uniform(11.0, 17.0)
    return unit, nights.Births(f"/system.slice/{unit}", every, every - 1.5)


def visible_loop(made: setting.Setting) -> tuple[str, nights.Births]:
    """A unit that systemd restarts for ever, each time in a cgroup of its own."""
    unit = f"{made.word()}-{made.chance.choice(('sidecar', 'exporter', 'collector'))}.service"
    made.units[unit] = {"sub": "auto-restart", "active": "activating"}
    every = made.chance.uniform(18.0, 32.0)
    before = int(made.host.uptime_seconds / every)
    return unit, nights.Births("/system.slice", every, made.chance.uniform(2, 9), unit, before)


def walk_of_zombies(made: setting.Setting, moments: list[float]) -> Act:
    """Kernel 5.4, cgroup v1: dead memory cgroups of a hidden crash loop make one read take seconds."""
    process = made.chance.choice(("kubelet", "kubelet", "cadvisor", f"{made.word()}let"))
    known = made.who(process, f"{process}.service")
    made.units[known.unit] = {}
    module = f"/usr/bin/{process}"
    names = ("k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoop", "runtime.mallocgc")
    reads = stacks.numa_stat(module)
    usual = (*stacks.program(module, names, 0.3), *((0.02 * w, path) for w, path in reads))
    made.background.append(work.Work(known, usual, 0.03 * made.chance.uniform(0.5, 1.5)))
    doer = work.Work(known, reads)
    unit, births = hidden_loop(made)
    act = _starve(
        made, doer, moments,
        ("unit.hidden_crash_loop", {"unit": unit}),
        ("memory.zombie_cgroups", {}),
        ("memory.cgroup_walk", {"process": known.process, "function": WALKERS}),
    )  # fmt: skip
    # The same read on a core that serves no queue harms nobody, and is part of such a night.
    free = [core for core in range(made.host.cores) if core not in made.host.queue_cores]
    begin = made.chance.uniform(30, made.seconds - 300)
    if free and all(abs(begin - one) > 60 for one in moments):
        length = made.chance.uniform(4.0, 6.0)
        made.episodes.append(work.Episode(doer, made.chance.choice(free), begin, begin + length))
    starve = act.put

    def put(night: nights.Night) -> None:
        starve(night)
        _leak(made, night, births, us=2.0)

    act.put = put
    act.facts |= {"loop": unit, "cgroup": births.parent, "births_per_hour": 3600 / births.every}
    return act


def walk_in_reclaim(made: setting.Setting, moments: list[float]) -> Act:
    """Newer kernels, cgroup v2: reclaim below a limit visits the zombies of a visible crash loop."""
    process = f"{made.word()}-{made.chance.choice(('etl', 'index', 'cache'))}"
    known = made.who(process, f"{process}.service")
    made.units[known.unit] = {}
    module, own = f"/opt/{process}/{process}", ("run", "grow_arena")
    usual = stacks.program(module, ("run", "merge", "flush"), 0.25)
    made.background.append(work.Work(known, usual, made.chance.uniform(0.1, 0.3)))
    doer = work.Work(known, stacks.zombie_reclaim(module, own))
    unit, births = visible_loop(made)
    act = _starve(
        made, doer, moments,
        ("unit.crash_loop", {"unit": unit}),
        ("memory.zombie_cgroups", {}),
        ("memory.cgroup_walk", {"process": known.process, "function": WALKERS}),
    )  # fmt: skip
    starve, waiting = act.put, made.chance.uniform(0.25, 0.5)

    def put(night: nights.Night) -> None:
        starve(night)
        _leak(made, night, births, us=0.4)
        for when in moments:
            night.rates["pressure", "memory", "some"].append((when - 5.5, when, 1e6 * waiting))
            night.rates["vmstat", "", "workingset_refault_file"].append((when - 5.5, when, 4000.0))

    act.put = put
    act.facts |= {"loop": unit, "cgroup": births.parent, "births_per_hour": 3600 / births.every}
    act.also_true = frozenset(("memory.reclaim",))
    return act


def rt_hog(made: setting.Setting, moments: list[float]) -> Act:
    """A real-time thread polls on the core of a queue whose driver polls in a thread, too."""
    process = f"{made.word()}-{made.chance.choice(('ptp', 'dpdk', 'audio', 'fieldbus'))}"
    known = made.who(process, f"{process}.service", rt=made.chance.choice((50, 80, 99)))
    made.units[known.unit] = {}
    paths = stacks.realtime(f"/opt/{process}/{process}", ("poll_loop", "read_ring"))
    made.background.append(work.Work(known, paths, made.chance.uniform(0.005, 0.02)))
    doer = work.Work(known, paths)
    act = _starve(made, doer, moments, ("cpu.rt_hog", {"process": known.process}))
    act.facts["rt_priority"] = known.rt
    return act


def storm(made: setting.Setting, moments: list[float]) -> Act:
    """More packets than a core can take in: ksoftirqd fills it, and its backlog drops."""
    _, core = made.queue()
    paths = stacks.storm()
    known = work.Who(f"ksoftirqd/{core}", 10 + 6 * core)
    made.background.append(work.Work(known, paths, 0.004))
    doer = work.Work(known, paths)
    spans = []
    for when in moments:
        span = (when - made.chance.uniform(1.0, 2.0), when + made.chance.uniform(6.0, 14.0))
        made.episodes.append(work.Episode(doer, core, *span, made.chance.uniform(0.97, 1.0)))
        spans.append(span)
    received = made.chance.uniform(20_000, 60_000)
    dropped = made.chance.uniform(300, 3000)

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
    facts: dict[str, object] = {"core": core, "process": known.process, "net_rx": received}
    return Act("net.softnet_drops", moments[-1], chain, put, facts)


def reclaim(made: setting.Setting, moments: list[float], *, host_wide: bool = False) -> Act:
    """A process at its cgroup's limit frees its own pages, and fills a core with it; no zombies.

    The host's vmstat counts no scans of such a reclaim (the kernel leaves a cgroup's out), only the
    pages that are read back; with `host_wide` the whole host is short, and it does.
    """
    process = f"{made.word()}-{made.chance.choice(('db', 'build', 'parse'))}"
    known = made.who(process, f"{process}.service")
    made.units[known.unit] = {}
    module = f"/opt/{process}/{process}"
    usual = stacks.program(module, ("execute", "scan", "sort"), 0.2)
    made.background.append(work.Work(known, usual, made.chance.uniform(0.1, 0.3)))
    doer = work.Work(known, stacks.limit_reclaim(module, ("execute", "allocate")))
    core = made.chance.randrange(made.host.cores)
    spans = [(when, when + made.chance.uniform(6.0, 15.0)) for when in moments]
    made.episodes += [work.Episode(doer, core, *span) for span in spans]
    waiting, pages = made.chance.uniform(0.3, 0.7), made.chance.uniform(5_000, 60_000)

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
        ("memory.reclaim", {"process": known.process}),
        ("cpu.core_pinned", {"core": core}),
    )
    facts: dict[str, object] = {"core": core, "process": known.process, "unit": known.unit}
    return Act("cpu.core_pinned", moments[-1], chain, put, facts)


def convoy(made: setting.Setting, moments: list[float]) -> Act:
    """Many processes want one lock of the kernel's, until a core is said to be stuck."""
    core, lines = 0, []
    doers = []
    for _ in range(made.chance.randint(6, 10)):
        process = f"{made.word()}-worker"
        known = made.who(process, f"{process}.service")
        made.units[known.unit] = {}
        usual = stacks.program(f"/opt/{process}/w", ("serve", "parse"), 0.3)
        made.background.append(work.Work(known, usual, made.chance.uniform(0.02, 0.06)))
        doers.append(work.Work(known, stacks.convoy(f"/opt/{process}/w", ("serve",))))
    for when in moments:
        begin = when - made.chance.uniform(22.5, 24.5)
        end = when + made.chance.uniform(0.5, 2.0)
        cores = made.chance.sample(range(made.host.cores), min(made.host.cores, len(doers)))
        for where, doer in zip(cores, doers, strict=False):
            share = made.chance.uniform(0.7, 0.95)
            made.episodes.append(work.Episode(doer, where, begin, end, share))
        core, first = cores[0], doers[0]
        made.episodes[-len(cores)] = work.Episode(first, core, begin, end)
        stuck = f"CPU#{core} stuck for 22s! [{first.who.process}:{first.who.pid}]"
        lines.append((when, f"watchdog: BUG: soft lockup - {stuck}"))

    def put(night: nights.Night) -> None:
        night.log += lines
        for when in moments:
            night.rates["pressure", "cpu", "some"].append((when - 22, when, 4e5))

    chain: tuple[truth.Expected, ...] = (
        ("kernel.lock_contention", {"function": LOCKS}),
        ("cpu.soft_lockup", {"core": core}),
    )
    facts: dict[str, object] = {"core": core, "processes": [one.who.process for one in doers]}
    return Act("cpu.soft_lockup", moments[-1], chain, put, facts, frozenset(("cpu.stall",)))


def decoy_loop(made: setting.Setting, *, hidden: bool, zombies: int = 0) -> Act:
    """A crash loop that harms nobody: its cgroups are freed, and what zombies there are stay few."""
    unit, births = hidden_loop(made) if hidden else visible_loop(made)

    def put(night: nights.Night) -> None:
        night.births.append(births)
        night.dying += zombies

    return Act("", 0.0, (), put, {"decoy": unit, "decoy_hidden": hidden})


def chance_event(made: setting.Setting) -> Act:
    """An event at some moment, with nothing unusual around it: the device's fault, or a cable's."""
    when = made.chance.uniform(min(720.0, made.seconds * 0.85), made.seconds - 45.0)
    host = made.host
    queue, _ = made.queue()
    head = f"ena {host.bus} {host.interface}:"
    paused = f"TX q {queue} is paused for too long (threshold 5000000)."
    polled = "Time since last napi 4000 usec. napi scheduled: 0"
    kind, counter, line = made.chance.choice(
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

    return Act(kind, when, (), put, {"moments_us": [made.begin_us + round(when * 1e6)]})


def polled(made: setting.Setting) -> Act:
    """The core of a queue is full when its driver resets, and it was polled all the same, as that says."""
    queue, core = made.queue()
    when = made.seconds - made.chance.uniform(70.0, 160.0)
    process = f"{made.word()}-batch"
    known = made.who(process, f"{process}.service")
    made.units[known.unit] = {}
    doer = work.Work(known, stacks.program(f"/opt/{process}/b", ("solve", "pivot"), 0.05))
    made.episodes.append(work.Episode(doer, core, when - made.chance.uniform(6, 9), when + 0.3))
    last, scheduled = made.chance.choice(((4000, 0), (4000, 1), (6_100_000, 0)))
    host = made.host
    line = (
        f"ena {host.bus} {host.interface}: TX q {queue} is paused for too long (threshold 5000000)."
        f" Time since last napi {last} usec. napi scheduled: {scheduled}"
    )

    def put(night: nights.Night) -> None:
        night.log.append((when, line))
        night.steps["ethtool", host.interface, "total_resets"].append((when, 1))

    facts: dict[str, object] = {"core": core, "process": process, "since_napi_us": last}
    return Act("net.driver_reset", when, (), put, facts)


def bystander(made: setting.Setting, when: float) -> dict[str, object]:
    """Somebody computes on a core that serves no queue, before, while and after it happens."""
    process = f"{made.word()}-batch"
    known = made.who(process, f"{process}.service")
    made.units[known.unit] = {}
    doer = work.Work(known, stacks.program(f"/opt/{process}/b", ("solve", "pivot"), 0.02))
    busy = {one.core for one in made.episodes}
    free = [c for c in range(made.host.cores) if c not in {*made.host.queue_cores, *busy}]
    core = made.chance.choice(free or [0])
    begin, end = when - made.chance.uniform(40, 55), when + made.chance.uniform(15, 25)
    made.episodes.append(work.Episode(doer, core, begin, end, made.chance.uniform(0.96, 1.0)))
    return {"bystander": known.process, "bystander_core": core}


def bursts(made: setting.Setting) -> None:
    """Random load: whoever, wherever, for as long as an incident is not."""
    for _ in range(made.seconds // 20):
        begin = made.chance.uniform(2, made.seconds - 5)
        made.episodes.append(
            work.Episode(
                made.chance.choice(made.background[:-1]),
                made.chance.randrange(made.host.cores),
                begin,
                begin + made.chance.uniform(0.3, 2.4),
                made.chance.uniform(0.2, 0.8),
            )
        )
