"""The scenarios: which incidents share a night, and the truth about it."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from scenarios import fleet, host_setup, incidents, inventory, pods, recording, truth, work

OLD = {"kernel": "5.4.0-1103-aws", "cgroups": "v1", "driver": "2.11.0g"}
NEW = {"kernel": "6.8.0-1015-aws", "cgroups": "v2", "driver": "2.17.0"}
SEGMENT = recording.SEGMENT

Builder = Callable[..., truth.Truth]


def _play(
    name: str,
    home: pathlib.Path,
    setup: host_setup.HostSetup,
    *night_incidents: incidents.Incident,
    status: truth.VerdictStatus = truth.FOUND,
    missing: frozenset[str] = frozenset(),
    ring_gaps: list[tuple[int, int, str]] | None = None,
    profile_gaps: list[tuple[int, int, str]] | None = None,
) -> truth.Truth:
    """Record a night of these incidents; the first is the one to diagnose."""
    if setup.bystander and night_incidents[0].kind:
        night_incidents[0].facts |= incidents.bystander(setup, night_incidents[0].when)
    night = setup.node()
    for incident in night_incidents:
        incident.put(night)
    night.absent |= missing
    night.ring_gaps, night.profile_gaps = ring_gaps or [], profile_gaps or []
    recording.record(home, night)
    # A real-time thread starves others only without a runtime limit.
    hogs = any(work.task.rt for work in night.load.works)
    sysctl = {"kernel.sched_rt_runtime_us": "-1"} if hogs else {}
    inventory.write(home, setup.host, setup.begin_us, night.units, sysctl=sysctl)
    facts: dict[str, object] = {}
    for incident in reversed(night_incidents):
        facts |= incident.facts
    truths = [
        dataclasses.replace(
            _truth(name, home, setup, incident, status), facts={**facts, **incident.facts}
        )
        for incident in night_incidents
        if incident.kind
    ]
    if not truths:
        return truth.Truth(
            name, home, setup.host.name, None, (), truth.CAUSES, truth.NONE, facts=facts
        )
    return dataclasses.replace(truths[0], others=tuple(truths[1:]))


def _truth(
    name: str,
    home: pathlib.Path,
    setup: host_setup.HostSetup,
    incident: incidents.Incident,
    status: truth.VerdictStatus,
) -> truth.Truth:
    near_us = setup.begin_us + round(incident.when * 1e6)
    event = truth.find_event(home, setup.host.name, incident.kind, near_us)
    chain = incident.chain or ((incident.kind, {}),)
    absent = truth.CAUSES - {kind for kind, _ in chain} - incident.also_true
    return truth.Truth(name, home, setup.host.name, event, chain, absent, status)


def _make(
    scenario: str, seed: int, defaults: dict[str, object], changes: dict[str, object]
) -> host_setup.HostSetup:
    return host_setup.make(seed, story=scenario, **{**defaults, **changes})  # type: ignore[arg-type]  # parts of a Host too


def build_reference(
    home: pathlib.Path, seed: int, *, recurrences: int = 2, **changes: object
) -> truth.Truth:
    """The reference incident."""
    setup = _make("reference", seed, OLD, changes)
    incident = incidents.walk_of_zombies(setup, setup.moments(recurrences + 1))
    return _play("reference", home, setup, incident)


def build_modern(
    home: pathlib.Path, seed: int, *, recurrences: int = 2, **changes: object
) -> truth.Truth:
    """The reference incident on a current kernel."""
    setup = _make("modern", seed, NEW, changes)
    incident = incidents.walk_in_reclaim(setup, setup.moments(recurrences + 1))
    return _play("modern", home, setup, incident)


def build_rt_hog(
    home: pathlib.Path, seed: int, *, recurrences: int = 1, **changes: object
) -> truth.Truth:
    """A real-time process on the core of a queue."""
    setup = _make("rt-hog", seed, {**NEW, "threaded": True}, changes)
    return _play("rt-hog", home, setup, incidents.rt_hog(setup, setup.moments(recurrences + 1)))


def build_storm(
    home: pathlib.Path, seed: int, *, recurrences: int = 1, **changes: object
) -> truth.Truth:
    """Receive softirqs saturate one core."""
    setup = _make("softirq-storm", seed, NEW, changes)
    return _play(
        "softirq-storm", home, setup, incidents.storm(setup, setup.moments(recurrences + 1))
    )


def build_reclaim(
    home: pathlib.Path,
    seed: int,
    *,
    recurrences: int = 1,
    host_wide: bool = False,
    **changes: object,
) -> truth.Truth:
    """Reclaim without zombies."""
    setup = _make("reclaim", seed, NEW, changes)
    incident = incidents.reclaim(setup, setup.moments(recurrences + 1), host_wide=host_wide)
    return _play("reclaim", home, setup, incident)


def build_convoy(
    home: pathlib.Path, seed: int, *, recurrences: int = 0, **changes: object
) -> truth.Truth:
    """All processes wait for one lock."""
    setup = _make("lock-convoy", seed, NEW, changes)
    return _play(
        "lock-convoy", home, setup, incidents.convoy(setup, setup.moments(recurrences + 1))
    )


def build_busy(
    home: pathlib.Path,
    seed: int,
    *,
    recurrences: int = 0,
    culprit: tuple[str, work.Stacks] | None = None,
    **changes: object,
) -> truth.Truth:
    """A process that no detector knows, or the given one."""
    setup = _make("busy-process", seed, NEW, changes)
    moments = setup.moments(recurrences + 1)
    return _play("busy-process", home, setup, incidents.busy_process(setup, moments, culprit))


def build_one_name(
    home: pathlib.Path, seed: int, *, recurrences: int = 1, **changes: object
) -> truth.Truth:
    """A collector among training workers: all of them are python3, in pods."""
    setup = _make("one-name", seed, {**NEW, "busy": 0.08}, changes)
    return _play("one-name", home, setup, pods.one_name(setup, setup.moments(recurrences + 1)))


def build_decoy(
    home: pathlib.Path,
    seed: int,
    *,
    cause: str = "",
    hidden: bool | None = None,
    zombies: int = 0,
    **changes: object,
) -> truth.Truth:
    """A harmless crash loop beside another cause: rt-hog, softirq-storm or reclaim."""
    setup = _make("decoy", seed, {**NEW, "threaded": True}, changes)
    builders = {
        "rt-hog": incidents.rt_hog,
        "softirq-storm": incidents.storm,
        "reclaim": incidents.reclaim,
    }
    chosen = cause or setup.chance.choice(sorted(builders))
    is_hidden = setup.chance.random() < 0.5 if hidden is None else hidden
    incident = builders[chosen](setup, setup.moments(2))
    decoy = incidents.decoy_loop(setup, hidden=is_hidden, zombies=zombies)
    incident.facts["cause"] = chosen
    return _play("decoy", home, setup, incident, decoy)


def build_two_causes(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """Two unrelated events in one night."""
    setup = _make("two-cause", seed, OLD, changes)
    moments = setup.moments(2, apart=400.0)
    setup.chance.shuffle(moments)
    first = incidents.walk_of_zombies(setup, moments[:1])
    second = incidents.storm(setup, moments[1:])
    return _play("two-cause", home, setup, first, second)


def build_quiet(
    home: pathlib.Path, seed: int, *, unsynced: bool = False, **changes: object
) -> truth.Truth:
    """Nothing happens; `unsynced`: the agent reports an unsynchronised clock, and nothing else."""
    setup = _make("quiet", seed, NEW, changes)

    def put(night: object) -> None:
        night.unsynced = unsynced  # type: ignore[attr-defined]  # a nights.Night

    kind = "clock.unsynchronised" if unsynced else ""
    incident = incidents.Incident(kind, 0.0, (), put, {})
    return _play("quiet", home, setup, incident, status=truth.NONE)


def build_random(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """Random load, and an unrelated event."""
    setup, incident = random_night(seed, **changes)
    return _play("random", home, setup, incident, status=truth.NONE)


def build_polled(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A saturated core and an unrelated reset: the queue did not wait to be polled."""
    setup = _make("polled", seed, OLD, changes)
    return _play("polled", home, setup, incidents.polled(setup), status=truth.NONE)


def build_coincidence(home: pathlib.Path, seed: int, **changes: object) -> truth.Truth:
    """A saturated core and an event that it did not cause."""
    setup = _make("coincidence", seed, {**NEW, "driver": "2.11.0g"}, changes)
    return _play("coincidence", home, setup, incidents.coincidence(setup), status=truth.NONE)


def random_night(seed: int, **changes: object) -> tuple[host_setup.HostSetup, incidents.Incident]:
    """Build the random night without recording it."""
    setup = _make("random", seed, {**NEW, "driver": "2.11.0g"}, changes)
    incidents.bursts(setup)
    return setup, incidents.chance_event(setup)


def reference_night(
    seed: int, recurrences: int, **changes: object
) -> tuple[host_setup.HostSetup, incidents.Incident, list[float]]:
    """Build the reference incident without recording it; return also its moments."""
    setup = _make("reference", seed, OLD, changes)
    moments = setup.moments(recurrences + 1)
    return setup, incidents.walk_of_zombies(setup, moments), moments


def build_half_missing(
    home: pathlib.Path,
    seed: int,
    *,
    keep_event: bool = True,
    recurrences: int = 2,
    **changes: object,
) -> truth.Truth:
    """The reference incident with half of the segments and some signals missing.

    With `keep_event` the segment of the event is kept. Without it, the stacks of the event and of its
    recurrences are missing, so that the process that held the core cannot be known.
    """
    setup = _make("half-missing", seed, OLD, changes)
    moments = setup.moments(recurrences + 1)
    incident = incidents.walk_of_zombies(setup, moments)
    numbers = list(range(-(-setup.seconds // SEGMENT)))
    incident_segments = {
        int((moment + shift) // SEGMENT) for moment in moments for shift in (-8.0, 1.0)
    }
    last = {int((moments[-1] + shift) // SEGMENT) for shift in (-8.0, 1.0)}
    must_go = set() if keep_event else incident_segments
    may_go = [n for n in numbers if n not in (last if keep_event else incident_segments)]
    setup.chance.shuffle(may_go)
    dropped = sorted([*must_go, *may_go][: max(len(must_go), len(numbers) // 2)])
    reason = "the recorder ended"
    profile_gaps = [
        (n * SEGMENT, min((n + 1) * SEGMENT, setup.seconds), reason) for n in dropped
    ]  # fmt: skip
    begin = setup.chance.randrange(100, int(moments[-1]) - 200)
    ring_gaps = [(begin, begin + 75, "this host did not let the agent run for 75.0 s")]
    missing = frozenset(("memory-cgroup-parents", "processes", "softnet"))
    status = truth.FOUND if keep_event else truth.OPEN
    result = _play(
        "half-missing", home, setup, incident,
        status=status, missing=missing, ring_gaps=ring_gaps, profile_gaps=profile_gaps,
    )  # fmt: skip
    if keep_event:
        return result
    chain = tuple(step for step in result.chain if step[0] != "memory.cgroup_walk")
    # The recording still shows which core was saturated and which queue starved.
    first = next(n for n, (kind, _) in enumerate(chain) if kind == "cpu.core_saturated")
    return dataclasses.replace(result, chain=chain[first:], absent=frozenset())


def build_reclaim_in_a_pod(
    home: pathlib.Path, seed: int, *, zombies: str, **changes: object
) -> truth.Truth:
    """Reclaim in a pod; not among the scenarios, as only the links between its findings matter."""
    setup = _make("reclaim-in-a-pod", seed, NEW, changes)
    incident = pods.reclaim_in_a_pod(setup, setup.moments(1), zombies=zombies)
    return _play("reclaim-in-a-pod", home, setup, incident)


SCENARIOS: dict[str, Builder] = {
    "reference": build_reference,
    "modern": build_modern,
    "rt-hog": build_rt_hog,
    "softirq-storm": build_storm,
    "reclaim": build_reclaim,
    "lock-convoy": build_convoy,
    "busy-process": build_busy,
    "one-name": build_one_name,
    "decoy": build_decoy,
    "two-cause": build_two_causes,
    "quiet": build_quiet,
    "random": build_random,
    "polled": build_polled,
    "half-missing": build_half_missing,
    "fleet": fleet.build_fleet,
}
