"""The stories: which acts share a night, and what of it is true."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from scenarios import acts, fleet, inventory, recording, setting, truth

OLD = {"kernel": "5.4.0-1103-aws", "cgroups": "v1", "driver": "2.11.0g"}
NEW = {"kernel": "6.8.0-1015-aws", "cgroups": "v2", "driver": "2.17.0"}
SEGMENT = recording.SEGMENT

Story = Callable[..., truth.Truth]


def _play(
    name: str,
    home: pathlib.Path,
    made: setting.Setting,
    *played: acts.Act,
    status: str = truth.FOUND,
    missing: frozenset[str] = frozenset(),
    ring_gaps: list[tuple[int, int, str]] | None = None,
    profile_gaps: list[tuple[int, int, str]] | None = None,
) -> truth.Truth:
    """Record a night of these acts; the first is the one to diagnose."""
    if made.bystander and played[0].kind:
        played[0].facts |= acts.bystander(made, played[0].when)
    night = made.node()
    for act in played:
        act.put(night)
    night.absent |= missing
    night.ring_gaps, night.profile_gaps = ring_gaps or [], profile_gaps or []
    recording.record(home, night)
    # A real-time thread starves others only where nobody holds it back.
    hogs = any(work.who.rt for work in night.load.works)
    sysctl = {"kernel.sched_rt_runtime_us": "-1"} if hogs else {}
    inventory.write(home, made.host, made.begin_us, night.units, sysctl=sysctl)
    facts: dict[str, object] = {}
    for act in reversed(played):
        facts |= act.facts
    truths = [
        dataclasses.replace(_truth(name, home, made, act, status), facts={**facts, **act.facts})
        for act in played
        if act.kind
    ]
    if not truths:
        return truth.Truth(
            name, home, made.host.name, None, (), truth.CAUSES, truth.NONE, facts=facts
        )
    return dataclasses.replace(truths[0], others=tuple(truths[1:]))


def _truth(
    name: str, home: pathlib.Path, made: setting.Setting, act: acts.Act, status: str
) -> truth.Truth:
    near_us = made.begin_us + round(act.when * 1e6)
    told = truth.find_event(home, made.host.name, act.kind, near_us)
    chain = act.chain or ((act.kind, {}),)
    absent = truth.CAUSES - {kind for kind, _ in chain} - act.also_true
    return truth.Truth(name, home, made.host.name, told, chain, absent, status)


def _make(
    story: str, seed: int, said: dict[str, object], more: dict[str, object]
) -> setting.Setting:
    return setting.make(seed, story=story, **{**said, **more})  # type: ignore[arg-type]  # parts of a Host too


def tell_reference(
    home: pathlib.Path, seed: int, *, recurrences: int = 2, **more: object
) -> truth.Truth:
    """The reference incident."""
    made = _make("reference", seed, OLD, more)
    act = acts.walk_of_zombies(made, made.moments(recurrences + 1))
    return _play("reference", home, made, act)


def tell_modern(
    home: pathlib.Path, seed: int, *, recurrences: int = 2, **more: object
) -> truth.Truth:
    """The same on a kernel of today."""
    made = _make("modern", seed, NEW, more)
    act = acts.walk_in_reclaim(made, made.moments(recurrences + 1))
    return _play("modern", home, made, act)


def tell_rt_hog(
    home: pathlib.Path, seed: int, *, recurrences: int = 1, **more: object
) -> truth.Truth:
    """A real-time process on the core of a queue."""
    made = _make("rt-hog", seed, {**NEW, "threaded": True}, more)
    return _play("rt-hog", home, made, acts.rt_hog(made, made.moments(recurrences + 1)))


def tell_storm(
    home: pathlib.Path, seed: int, *, recurrences: int = 1, **more: object
) -> truth.Truth:
    """Receive work fills one core."""
    made = _make("softirq-storm", seed, NEW, more)
    return _play("softirq-storm", home, made, acts.storm(made, made.moments(recurrences + 1)))


def tell_reclaim(
    home: pathlib.Path,
    seed: int,
    *,
    recurrences: int = 1,
    host_wide: bool = False,
    **more: object,
) -> truth.Truth:
    """Reclaim without zombies."""
    made = _make("reclaim", seed, NEW, more)
    act = acts.reclaim(made, made.moments(recurrences + 1), host_wide=host_wide)
    return _play("reclaim", home, made, act)


def tell_convoy(
    home: pathlib.Path, seed: int, *, recurrences: int = 0, **more: object
) -> truth.Truth:
    """Everybody waits for one lock."""
    made = _make("lock-convoy", seed, NEW, more)
    return _play("lock-convoy", home, made, acts.convoy(made, made.moments(recurrences + 1)))


def tell_decoy(
    home: pathlib.Path,
    seed: int,
    *,
    cause: str = "",
    hidden: bool | None = None,
    zombies: int = 0,
    **more: object,
) -> truth.Truth:
    """A harmless crash loop beside another cause: rt-hog, softirq-storm or reclaim."""
    made = _make("decoy", seed, {**NEW, "threaded": True}, more)
    known = {"rt-hog": acts.rt_hog, "softirq-storm": acts.storm, "reclaim": acts.reclaim}
    chosen = cause or made.chance.choice(sorted(known))
    aside = made.chance.random() < 0.5 if hidden is None else hidden
    act = known[chosen](made, made.moments(2))
    decoy = acts.decoy_loop(made, hidden=aside, zombies=zombies)
    act.facts["cause"] = chosen
    return _play("decoy", home, made, act, decoy)


def tell_two_causes(home: pathlib.Path, seed: int, **more: object) -> truth.Truth:
    """Two events of one night that have nothing to do with each other."""
    made = _make("two-cause", seed, OLD, more)
    moments = made.moments(2, apart=400.0)
    made.chance.shuffle(moments)
    first = acts.walk_of_zombies(made, moments[:1])
    second = acts.storm(made, moments[1:])
    return _play("two-cause", home, made, first, second)


def tell_quiet(
    home: pathlib.Path, seed: int, *, unsynced: bool = False, **more: object
) -> truth.Truth:
    """Nothing happens; `unsynced`: the agent notes that no server holds the clock, and that is all."""
    made = _make("quiet", seed, NEW, more)

    def put(night: object) -> None:
        night.unsynced = unsynced  # type: ignore[attr-defined]  # a nights.Night

    kind = "clock.unsynchronised" if unsynced else ""
    act = acts.Act(kind, 0.0, (), put, {})
    return _play("quiet", home, made, act, status=truth.NONE)


def tell_random(home: pathlib.Path, seed: int, **more: object) -> truth.Truth:
    """Random load, and an event that has nothing to do with it."""
    made, act = random_night(seed, **more)
    return _play("random", home, made, act, status=truth.NONE)


def tell_polled(home: pathlib.Path, seed: int, **more: object) -> truth.Truth:
    """A full core beside a reset that does not come of it: the queue did not wait to be polled."""
    made = _make("polled", seed, OLD, more)
    return _play("polled", home, made, acts.polled(made), status=truth.NONE)


def random_night(seed: int, **more: object) -> tuple[setting.Setting, acts.Act]:
    """The same, before anybody records it."""
    made = _make("random", seed, {**NEW, "driver": "2.11.0g"}, more)
    acts.bursts(made)
    return made, acts.chance_event(made)


def reference_night(
    seed: int, recurrences: int, **more: object
) -> tuple[setting.Setting, acts.Act, list[float]]:
    """The reference incident with so many recurrences, before anybody records it, and its moments."""
    made = _make("reference", seed, OLD, more)
    moments = made.moments(recurrences + 1)
    return made, acts.walk_of_zombies(made, moments), moments


def tell_half_missing(
    home: pathlib.Path,
    seed: int,
    *,
    keep_event: bool = True,
    recurrences: int = 2,
    **more: object,
) -> truth.Truth:
    """The reference incident with half of the segments and some signals missing.

    With `keep_event` the segment of the event is among those that are there; without it neither its
    stacks nor those of its recurrences are, and nobody can say who held the core.
    """
    made = _make("half-missing", seed, OLD, more)
    moments = made.moments(recurrences + 1)
    act = acts.walk_of_zombies(made, moments)
    numbers = list(range(-(-made.seconds // SEGMENT)))
    hot = {int((one + shift) // SEGMENT) for one in moments for shift in (-8.0, 1.0)}
    last = {int((moments[-1] + shift) // SEGMENT) for shift in (-8.0, 1.0)}
    must_go = set() if keep_event else hot
    may_go = [n for n in numbers if n not in (last if keep_event else hot)]
    made.chance.shuffle(may_go)
    gone = sorted([*must_go, *may_go][: max(len(must_go), len(numbers) // 2)])
    why = "the recorder ended"
    profile_gaps = [
        (n * SEGMENT, min((n + 1) * SEGMENT, made.seconds), why) for n in gone
    ]  # fmt: skip
    begin = made.chance.randrange(100, int(moments[-1]) - 200)
    ring_gaps = [(begin, begin + 75, "this host did not let the agent run for 75.0 s")]
    missing = frozenset(("memory-cgroup-parents", "processes", "softnet"))
    status = truth.FOUND if keep_event else truth.OPEN
    found = _play(
        "half-missing", home, made, act,
        status=status, missing=missing, ring_gaps=ring_gaps, profile_gaps=profile_gaps,
    )  # fmt: skip
    if keep_event:
        return found
    chain = tuple(step for step in found.chain if step[0] != "memory.cgroup_walk")
    # What was recorded still says which core was full and which queue starved.
    place = next(n for n, (kind, _) in enumerate(chain) if kind == "cpu.core_saturated")
    return dataclasses.replace(found, chain=chain[place:], absent=frozenset())


STORIES: dict[str, Story] = {
    "reference": tell_reference,
    "modern": tell_modern,
    "rt-hog": tell_rt_hog,
    "softirq-storm": tell_storm,
    "reclaim": tell_reclaim,
    "lock-convoy": tell_convoy,
    "decoy": tell_decoy,
    "two-cause": tell_two_causes,
    "quiet": tell_quiet,
    "random": tell_random,
    "polled": tell_polled,
    "half-missing": tell_half_missing,
    "fleet": fleet.tell_fleet,
}
