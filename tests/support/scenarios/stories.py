"""The stories: what happened in each night, and what of it is true."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from scenarios import machine, recording, setting, stacks, truth, work

ENA_DONE = "ena {bus}: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v{driver}"
WALKERS = frozenset(
    (
        "memcg_numa_stat_show", "mem_cgroup_nr_lru_pages", "mem_cgroup_node_nr_lru_pages",
        "mem_cgroup_iter", "css_next_descendant_pre", "shrink_node", "shrink_lruvec",
        "shrink_node_memcgs", "shrink_slab", "list_lru_count_one",
    )
)  # fmt: skip


def reset_lines(night: machine.Night, queue: int, core: int, when: float, stalled: float) -> None:
    """The driver gives up on a queue that nobody polled; the counters tell it, too."""
    host = night.host
    new = host.driver >= "2.17"
    since = (
        f"usecs since napi {round(stalled * 1e6)}. napi scheduled: 1. napi CPU: {core}."
        f" msecs since interrupt: {round(stalled * 1e3)}"
        if new
        else f"Time since last napi {round(stalled * 1e6)} usec. napi scheduled: 1"
    )
    head = f"ena {host.bus} {host.interface}:"
    night.log += [
        (when, f"{head} TX q {queue} is paused for too long (threshold 5000000). {since}"),
        (when + 1e-5, f"{head} napi handler hasn't been called for a long time but is scheduled"),
        (when + 9e-4, ENA_DONE.format(bus=host.bus, driver=host.driver)),
    ]
    for counter in ("total_resets", "suspected_poll_starvation"):
        night.steps["ethtool", host.interface, counter].append((when, 1))


def pin(
    made: setting.Setting, who: work.Work, core: int, moments: list[float], *, past: float = 0.3
) -> list[tuple[float, float]]:
    """Somebody holds a core until the driver gives up; each reset's time and how long it had waited."""
    found = []
    for moment in moments:
        stalled = made.chance.uniform(5.1, 6.8)
        end = moment + made.chance.uniform(0.05, past)
        made.episodes.append(work.Episode(who, core, moment - stalled, end, 1.0))
        found.append((moment, stalled))
    return found


def reset_chain(
    made: setting.Setting, queue: int, core: int, *causes: truth.Expected
) -> tuple[truth.Expected, ...]:
    """Causes first, then from the core to the reset."""
    place: dict[str, truth.Part] = {"interface": made.host.interface, "queue": queue}
    return (
        *causes,
        ("cpu.core_saturated", {"core": core}),
        ("net.queue_starved", {**place, "core": core}),
        ("net.driver_reset", place),
    )


def tell(
    name: str,
    home: pathlib.Path,
    night: machine.Night,
    kind: str,
    when: float,
    chain: tuple[truth.Expected, ...],
    status: str = truth.FOUND,
    **facts: object,
) -> truth.Truth:
    """The truth of a recorded night."""
    told = truth.find_event(home, night.host.name, kind, night.time_us(when)) if kind else None
    if told is not None and not chain:
        chain = ((kind, {}),)
    return truth.Truth(
        name, home, night.host.name, told, chain, truth.forbidden(chain), status, facts=facts
    )


def walker(made: setting.Setting) -> tuple[work.Work, work.Work]:
    """The node's agent: its everyday, and its read of statistics that walks all memory cgroups."""
    process = made.chance.choice(("kubelet", "kubelet", "cadvisor", f"{made.word()}-kubelet"))
    unit = f"{process}.service"
    made.units[unit] = {}
    known = made.who(process, unit)
    module = f"/usr/bin/{process}"
    names = ("k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoop", "runtime.mallocgc")
    usual = stacks.program(module, names, 0.3)
    usual += tuple((0.02 * weight, path) for weight, path in stacks.numa_stat(module))
    made.background.append(work.Work(known, usual, 0.03 * made.chance.uniform(0.5, 1.5)))
    return made.background[-1], work.Work(known, stacks.numa_stat(module))


def leak(made: setting.Setting, night: machine.Night, births: machine.Births) -> None:
    """Each birth leaves a dead memory cgroup, since the boot."""
    leaking = made.chance.uniform(0.9, 1.0)
    night.births.append(births)
    night.dying_per_hour = leaking * 3600 / births.every
    night.dying = night.dying_per_hour * made.host.uptime_seconds / 3600
    night.zombie_parent = births.parent


def hidden_loop(made: setting.Setting) -> tuple[str, machine.Births]:
    """A unit whose own supervisor starts a container again and again; systemd counts no restart."""
    unit = made.chance.choice(("ecs.service", "ecs.service", f"{made.word()}-agent.service"))
    made.units[unit] = {"file": "enabled", "preset": "disabled", "restart": "always"}
    every = made.chance.uniform(11.0, 17.0)
    return unit, machine.Births(f"/system.slice/{unit}", every, every - 1.5)


def tell_reference(
    home: pathlib.Path, seed: int, *, recurrences: int = 2, name: str = "reference", **more: object
) -> truth.Truth:
    """Kernel 5.4, cgroup v1: dead memory cgroups of a hidden crash loop make one read take seconds."""
    made = setting.make(seed, **{"kernel": "5.4.0-1103-aws", "driver": "2.11.0g", **more})  # type: ignore[arg-type]
    _, walking = walker(made)
    unit, births = hidden_loop(made)
    queue, core = made.queue()
    moments = made.moments(recurrences + 1)
    resets = pin(made, walking, core, moments)
    # The same read on cores that serve no queue harms nobody, and is part of the night.
    for _ in range(2):
        begin = made.chance.uniform(30, made.seconds - 300)
        free = [c for c in range(made.host.cores) if c not in made.host.queue_cores]
        if free and all(abs(begin - one) > 60 for one in moments):
            length = made.chance.uniform(4.0, 6.0)
            where = made.chance.choice(free)
            made.episodes.append(work.Episode(walking, where, begin, begin + length, 1.0))
    night = made.node()
    leak(made, night, births)
    night.zombie_us = 2.0
    for when, stalled in resets:
        reset_lines(night, queue, core, when, stalled)
    return finish_reference(name, home, made, night, queue, core, unit, births, walking, moments)


def finish_reference(
    name: str,
    home: pathlib.Path,
    made: setting.Setting,
    night: machine.Night,
    queue: int,
    core: int,
    unit: str,
    births: machine.Births,
    walking: work.Work,
    moments: list[float],
) -> truth.Truth:
    """Record it, and say what is true."""
    recording.record(home, night)
    chain = reset_chain(
        made,
        queue,
        core,
        ("unit.hidden_crash_loop", {"unit": unit}),
        ("memory.zombie_cgroups", {}),
        (
            "memory.cgroup_walk",
            {"process": walking.who.process, "core": core, "function": WALKERS},
        ),
    )
    return tell(
        name, home, night, "net.driver_reset", moments[-1], chain,
        core=core, queue=queue, unit=unit, cgroup=births.parent, process=walking.who.process,
        moments=[night.time_us(one) for one in moments], dying=night.dying,
        dying_per_hour=night.dying_per_hour, births_per_hour=3600 / births.every,
    )  # fmt: skip


def tell_quiet(
    home: pathlib.Path, seed: int, *, unsynced: bool = False, **more: object
) -> truth.Truth:
    """Nothing happens; `unsynced`: the agent notes that no server holds the clock, and that is all."""
    made = setting.make(seed, **more)  # type: ignore[arg-type]
    night = made.node()
    night.unsynced = unsynced
    recording.record(home, night)
    kind = "clock.unsynchronised" if unsynced else ""
    return tell("quiet", home, night, kind, 0.0, (), truth.NONE)


Story = Callable[..., truth.Truth]
STORIES: dict[str, Story] = {"reference": tell_reference, "quiet": tell_quiet}
