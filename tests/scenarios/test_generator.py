"""Generated scenarios: undamaged, reproducible by seed, and consistent with their stated truth."""

from __future__ import annotations

import collections
import dataclasses
import pathlib

import numpy as np
import pytest

import scenarios
from overnight.model.finding import Finding, Subject
from overnight.model.selection import Selection, Window
from overnight.model.verdict import Chain, Verdict, VerdictStatus
from overnight.queries import case
from overnight.store import check as profiles
from overnight.store import segments
from overnight.store.ring import check as rings
from overnight.store.ring import reader
from scenarios import catalogue, unrecorded

SECOND = 1_000_000
EVER = 1 << 62
SHORT = {"minutes": 15.0, "cores": 8}
LONG_SEEDS = [pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6)]
CAUSED = ("reference", "modern", "rt-hog", "softirq-storm", "reclaim", "lock-convoy", "decoy")


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, scenarios.Truth]:
    """Build each scenario on first use."""

    class Built(dict[str, scenarios.Truth]):
        def __missing__(self, name: str) -> scenarios.Truth:
            home = tmp_path_factory.mktemp(name)
            options = {} if name == "fleet" else SHORT
            self[name] = scenarios.build(name, home, seed=1, **options)
            return self[name]

    return Built()


def events_of(home: pathlib.Path) -> list[tuple[str, str, int, int]]:
    return [(e.id, e.kind, e.time_us, e.core) for e in reader.Reader(home).events(0, EVER)]


@pytest.mark.parametrize("name", scenarios.NAMES)
def test_a_scenario_is_undamaged_and_contains_its_event(
    nights: dict[str, scenarios.Truth], name: str
) -> None:
    night = nights[name]
    assert rings.check(night.home).problems == ()
    report = profiles.check(segments.Catalogue(night.home))
    assert report.problems == ()
    assert (report.samples > 0) == (name != "fleet")
    assert (night.event is None) == (name == "quiet")
    if night.event is not None:
        assert night.event.kind == night.chain[-1][0]
        assert night.event.id in [row[0] for row in events_of(night.home)]
    assert not night.absent & {kind for kind, _ in night.chain}


@pytest.mark.parametrize("name", CAUSED)
def test_the_agent_detects_the_core_that_the_truth_names(
    nights: dict[str, scenarios.Truth], name: str
) -> None:
    night = nights[name]
    assert night.event is not None
    assert night.event.core == night.facts["core"]
    if name == "lock-convoy":
        return  # the other cores spin on the same lock
    pinned = [
        event
        for event in reader.Reader(night.home).events(0, EVER, None, ["cpu.core_pinned"])
        if event.time_us - 5 * SECOND <= night.event.time_us <= event.until_us + 5 * SECOND
    ]
    assert [event.core for event in pinned] == [night.facts["core"]]


@pytest.mark.parametrize("name", CAUSED)
def test_signals_and_stacks_agree_on_the_incident_window(
    nights: dict[str, scenarios.Truth], name: str
) -> None:
    night = nights[name]
    assert night.event is not None
    core = int(str(night.facts["core"]))
    opened = case.Case(night.home, night.event)
    cores = opened.cores(opened.window)
    busy = cores.values["busy"][:, cores.cores.index(core)]
    assert np.nanmax(busy) > 95
    longest = max(len(run) for run in "".join("x" if b > 90 else " " for b in busy).split())
    assert longest >= 4
    chosen = Selection(cores=frozenset((core,)))
    named = night.facts.get("process", night.facts.get("processes"))
    first = opened.top(opened.window, chosen, limit=1).rows[0]
    assert first.name.partition("[")[0].strip() in ([named] if isinstance(named, str) else named)


def test_ticks_and_samples_agree(nights: dict[str, scenarios.Truth]) -> None:
    night = nights["quiet"]
    source = reader.Reader(night.home)
    begin, end = source.extent(night.host) or (0, 0)
    window = Window(begin, end)
    from overnight.queries import reader as stacks
    from overnight.queries import signals, top

    cores = signals.core_series(source, night.host, window)
    spent = float(np.nansum(cores.values["busy"])) / 100
    consumers = top.top(
        stacks.Reader(segments.Catalogue(night.home)), window, hosts=(night.host,), limit=50
    )
    sampled = sum(row.samples for row in consumers.rows) / 97
    assert sampled == pytest.approx(spent, rel=0.05)


@pytest.mark.parametrize("name", ["softirq-storm"])
def test_a_seed_determines_the_scenario(tmp_path: pathlib.Path, name: str) -> None:
    built = [
        scenarios.build(name, tmp_path / str(n), seed=seed, minutes=13.0)
        for n, seed in enumerate((4, 4, 5))
    ]
    assert events_of(built[0].home) == events_of(built[1].home)
    assert built[0].facts == built[1].facts
    samples = [
        profiles.check(segments.Catalogue(truth.home)).samples
        for truth in (built[0], built[1], built[2])
    ]
    assert samples[0] == samples[1] != samples[2]
    assert built[0].facts != built[2].facts
    assert built[0].event != built[2].event


@pytest.mark.parametrize("seed", [0, 1, *LONG_SEEDS])
@pytest.mark.parametrize("name", ["quiet", "random"])
def test_no_events_are_detected_in_quiet_and_random_scenarios(
    tmp_path: pathlib.Path, name: str, seed: int
) -> None:
    night = scenarios.build(name, tmp_path, seed=seed, minutes=14.0, profiles=False)
    kinds = [kind for _, kind, _, _ in events_of(tmp_path)]
    assert kinds == ([night.event.kind] if night.event else [])
    assert night.status == "no-cause"


def test_an_unsynchronised_clock_is_the_only_event(tmp_path: pathlib.Path) -> None:
    night = scenarios.build("quiet", tmp_path, unsynced=True, minutes=5.0, profiles=False)
    assert [kind for _, kind, _, _ in events_of(tmp_path)] == ["clock.unsynchronised"]
    assert night.event is not None


def test_two_causes_are_two_events_on_two_cores(nights: dict[str, scenarios.Truth]) -> None:
    first, (second,) = nights["two-cause"], nights["two-cause"].others
    assert first.event is not None
    assert second.event is not None
    assert first.event.core != second.event.core
    assert abs(first.event.time_us - second.event.time_us) > 120 * SECOND
    assert "memory.cgroup_walk" in second.absent
    assert "net.softirq_storm" in first.absent


def test_a_decoy_loops_without_leaving_zombies(tmp_path: pathlib.Path) -> None:
    for hidden, kind in ((True, "unit.hidden_crash_loop"), (False, "unit.crash_loop")):
        home = tmp_path / kind
        night = scenarios.build("decoy", home, seed=2, hidden=hidden, profiles=False, **SHORT)
        kinds = [row[1] for row in events_of(home)]
        assert kind in kinds
        assert "memory.zombie_cgroups" not in kinds
        assert kind in night.absent


def test_zombies_grow_as_fast_as_cgroups_are_created(nights: dict[str, scenarios.Truth]) -> None:
    night = nights["reference"]
    source = reader.Reader(night.home)
    begin, end = source.extent(night.host) or (0, 0)
    (series,) = [
        frame.series("", "dying")
        for frame in source.numbers(night.host, "memory-cgroups", begin, end + 1)
        if len(frame.wall_us) > 5
    ][:1]
    times, dying = (np.array(column, float) for column in series)
    slope = np.polyfit(times / 3.6e9, dying, 1)[0]
    assert slope == pytest.approx(float(str(night.facts["births_per_hour"])), rel=0.25)


@pytest.mark.parametrize("keep_event", [True, False])
def test_half_of_the_recording_is_missing_and_the_gaps_are_noted(
    tmp_path: pathlib.Path, keep_event: bool
) -> None:
    night = scenarios.build("half-missing", tmp_path, seed=3, cores=8, keep_event=keep_event)
    assert night.event is not None
    opened = case.Case(tmp_path, night.event)
    incident = Window(night.event.time_us - 5 * SECOND, night.event.time_us)
    assert opened.has_profile(incident) is keep_event
    assert len(opened.profiles.catalogue.segments(night.host)) <= 8  # of 15
    assert opened.ring.gaps(night.host)
    begin, end = opened.ring.extent(night.host) or (0, 0)
    assert "processes" not in opened.ring.signals(night.host, begin, end)


def test_a_fleet_has_its_stated_skew(nights: dict[str, scenarios.Truth]) -> None:
    night = nights["fleet"]
    source = reader.Reader(night.home)
    hosts = source.hosts()
    assert len(hosts) == 30
    assert len(list((night.home / "snapshots").glob("*/*.json"))) == 30
    rate = collections.Counter[bool]()
    affected = {}
    for host in hosts:
        _, end = source.extent(host) or (0, 0)
        labels = (source.facts(host, "host", end).state or {})[""]
        affected[host] = labels[str(night.facts["label"])] == night.facts["value"]
    for event in source.events(0, EVER):
        rate[affected[event.host]] += 1
        assert event.monotonic_ns / 86400e9 >= float(str(night.facts["onset_days"]))
    count = collections.Counter(affected.values())
    assert rate[True] / count[True] > 3 * rate[False] / count[False]


def _verdict(night: scenarios.Truth, status: str, *steps: Finding) -> Verdict:
    chain = Chain(steps, (), 1.0) if steps else None
    return Verdict(night.event, VerdictStatus(status), 0.9, chain)


def test_a_truth_distinguishes_right_verdicts_from_wrong_ones(
    nights: dict[str, scenarios.Truth],
) -> None:
    night = nights["rt-hog"]
    window = Window(0, 1)
    right = [
        Finding("x", "d", kind, Subject(host="h", **parts), window, 1.0, "", ())  # type: ignore[arg-type]
        for kind, parts in night.chain
    ]
    assert night.problems(_verdict(night, "cause-found", *right)) == []
    between = dataclasses.replace(right[0], kind="cpu.culprit")
    assert night.problems(_verdict(night, "cause-found", right[0], between, *right[1:])) == []
    assert night.problems(_verdict(night, "inconclusive", *right))
    assert night.problems(_verdict(night, "cause-found", *right[1:]))
    assert night.problems(_verdict(night, "cause-found", *reversed(right)))
    wrong = dataclasses.replace(right[0], subject=Subject(host="h", process="other"))
    assert night.problems(_verdict(night, "cause-found", wrong, *right[1:]))
    invented = dataclasses.replace(right[0], kind="memory.zombie_cgroups")
    assert night.problems(_verdict(night, "cause-found", invented, *right))


def test_a_bystander_is_busy_on_another_core(tmp_path: pathlib.Path) -> None:
    night = scenarios.build("rt-hog", tmp_path, seed=7, bystander=True, **SHORT)
    assert night.event is not None
    opened = case.Case(tmp_path, night.event)
    core = int(str(night.facts["bystander_core"]))
    assert core != night.event.core
    cores = opened.cores(opened.window)
    assert np.nanmedian(cores.values["busy"][:, cores.cores.index(core)]) > 90


def test_lost_samples_and_missing_signals_are_reported(tmp_path: pathlib.Path) -> None:
    night = scenarios.build(
        "reference", tmp_path, seed=6, lost=0.2, missing=["cgroup-births"], **SHORT
    )
    assert night.event is not None
    opened = case.Case(tmp_path, night.event)
    assert opened.flame(opened.window).coverage.lost > 0
    begin, end = opened.ring.extent(night.host) or (0, 0)
    kept = opened.ring.signals(night.host, begin, end)
    assert "cpu" in kept
    assert "cgroup-births" not in kept


def test_an_unrecorded_case_has_the_samples_of_its_recording(tmp_path: pathlib.Path) -> None:
    truth = scenarios.build("random", tmp_path, seed=4, minutes=4.0, cores=4)
    assert truth.event is not None
    recorded = case.Case(truth.home, truth.event)
    host, act = catalogue.random_night(4, minutes=4.0, cores=4)
    windows = [
        Window(host.begin_us + n * 10 * SECOND, host.begin_us + (n + 1) * 10 * SECOND)
        for n in range(23)
    ]
    from_recording, from_memory = (
        source.tally(windows) for source in (recorded, unrecorded.build_case(host, act, [act.when]))
    )
    counts = dict(zip(from_recording.items, from_recording.counts.tolist(), strict=True))
    assert {
        item: row
        for item, row in zip(from_memory.items, from_memory.counts.tolist(), strict=True)
        if any(row)
    } == {item: row for item, row in counts.items() if any(row)}
    assert from_recording.seconds == pytest.approx(from_memory.seconds)
