"""A program saturates a core while an application runs on that core, or on another one; what the application suffers is added by the test."""

from __future__ import annotations

import dataclasses
import pathlib

from scenarios import catalogue, incidents, nights, stacks, truth, work

LENGTH = 12.0  # seconds for which the core is saturated, until the incident's moment


def build(
    home: pathlib.Path,
    seed: int,
    *,
    shares_core: bool,
    share: float = 0.6,
    roams: bool = False,
    sibling: bool = False,
    second: bool = False,
    **changes: object,
) -> truth.Truth:
    """Build the night; with a `second` program, another core is saturated at the same time.

    The victim uses a `share` of one core, or of each where it `roams`; a `sibling` of it, the saturated core.
    """
    setup = catalogue._make("outcome", seed, catalogue.NEW, changes)
    cores = setup.chance.sample(range(1, setup.host.cores), 3)
    when = setup.seconds - 150.0
    victim = work.Task("train", setup.pid(), "train.service", cgroup="/system.slice/train.service")
    setup.units[victim.unit] = {}
    trains = work.Work(victim, stacks.program("/opt/train/train", ("step", "reduce"), 0.1))
    places = range(setup.host.cores) if roams else [cores[0] if shares_core else cores[2]]
    # What comes later takes the core from what was there.
    if sibling:
        other = dataclasses.replace(victim, pid=setup.pid())
        setup.episodes.append(work.Episode(work.Work(other, trains.stacks), cores[0], 1.0, setup.seconds - 1.0, share))  # fmt: skip
    for place in places:
        setup.episodes.append(work.Episode(trains, place, 1.0, setup.seconds - 1.0, share))
    culprits = []
    for core in cores[: 2 if second else 1]:
        process = f"{setup.word()}-solve"
        task = setup.new_task(process, f"{process}.service")
        setup.units[task.unit] = {}
        busy = work.Work(task, stacks.program(f"/opt/{process}/b", ("solve", "pivot"), 0.97))
        setup.episodes.append(work.Episode(busy, core, when - LENGTH, when))
        culprits.append(task.process)

    def put(_: nights.Night) -> None:
        pass

    chain: tuple[truth.Expected, ...] = (
        ("cpu.culprit", {"process": culprits[0]}),
        ("cpu.core_pinned", {"core": cores[0]}),
    )
    facts: dict[str, object] = {
        "core": cores[0],
        "process": culprits[0],
        "second": culprits[-1],
        "other_core": cores[1],
        "victim": victim,
        "end_us": setup.begin_us + round(when * 1e6),
    }
    incident = incidents.Incident("cpu.core_pinned", when - LENGTH, chain, put, facts)
    return catalogue._play("outcome", home, setup, incident)
