"""Loops that systemd counts, loops that it does not, and what is not a loop."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable

import evidence
import pytest
import rings

from overnight.detectors import crash_loops
from overnight.model.finding import Answer, Status, Subject

VISIBLE, HIDDEN = crash_loops.DETECTORS
HOURS_2 = 7200


def _run_detector(
    home: evidence.Home,
    detector: crash_loops.CrashLoops | crash_loops.UncountedCrashLoops = VISIBLE,
) -> Answer:
    return detector.look(home.case(home.add_event(home.seconds - 30, "net.driver_reset")))


def test_a_unit_that_systemd_restarts_for_hours_is_a_loop(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.facts["units"] = {"ecs.service": {"active": "activating", "result": "exit-code"}}
    home.signal(
        "unit-restarts",
        30,
        lambda s: {"ecs.service": (max(0, s - 3600) // 30, 0), "ssh.service": (4, 0)},
    )
    (finding,) = _run_detector(home).findings
    assert finding.subject == Subject(host=rings.HOST, unit="ecs.service")
    assert finding.magnitude["restarts_per_hour"] == pytest.approx(120, rel=0.1)
    # It began after an hour; counters are compared every ten minutes.
    assert abs(finding.window.begin_us - rings.us(3600)) <= crash_loops.INTERVAL_US
    assert any("exit-code" in e.text for e in finding.evidence)


@pytest.mark.parametrize(("begins", "count"), [(0, 1), (400, 0)])
def test_a_loop_that_begins_after_the_event_is_not_a_cause(
    tmp_path: pathlib.Path, begins: int, count: int
) -> None:
    """The event is two minutes into the recording: a loop counts if it ran before, too."""
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("unit-restarts", 10, lambda s: {"ecs.service": (max(0, s - begins) // 15, 0)})
    opened = home.case(home.add_event(120, "net.driver_reset"))
    assert len(VISIBLE.look(opened).findings) == count


@pytest.mark.parametrize(
    ("restarts", "found"),
    [
        pytest.param(lambda s: s // 300, True, id="twelve an hour"),
        pytest.param(lambda s: s // 600, False, id="six an hour"),
        pytest.param(lambda s: max(0, s - 6600) // 105, True, id="five just before the event"),
        pytest.param(lambda s: max(0, s - 6600) // 130, False, id="four just before the event"),
        pytest.param(lambda s: min(s, 4200) // 60, True, id="it ended 50 minutes before"),
        pytest.param(lambda s: min(s, 3000) // 60, False, id="it ended 70 minutes before"),
    ],
)
def test_near_misses_of_a_counted_loop(
    tmp_path: pathlib.Path, restarts: Callable[[int], int], found: bool
) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("unit-restarts", 30, lambda s: {"ecs.service": (restarts(s), 0)})
    assert len(_run_detector(home).findings) == found


@pytest.mark.parametrize(
    ("every", "lives", "unit", "restarts_every", "found"),
    [
        pytest.param(15, 1, "ecs.service", 36, True, id="systemd counts four of ten"),
        pytest.param(15, 1, "ecs.service", 25, False, id="systemd counts six of ten"),
        pytest.param(15, 1, "other.service", 15, True, id="restarts of another unit"),
        pytest.param(15, 1, "box:ecs.service", 15, True, id="restarts in another machine"),
        pytest.param(120, 1, "ecs.service", 9999, False, id="thirty an hour"),
        pytest.param(15, 0, "ecs.service", 9999, False, id="none dies within a minute"),
    ],
)
def test_near_misses_of_an_uncounted_loop(
    tmp_path: pathlib.Path, every: int, lives: int, unit: str, restarts_every: int, found: bool
) -> None:
    """A cgroup is created every `every` seconds; `lives` is 1 where each is short-lived."""
    home = evidence.Home(tmp_path, HOURS_2)
    cgroup = "/system.slice/ecs.service"
    home.signal(
        "cgroup-births", 60, lambda s: {cgroup: (s // every, s // every, lives * (s // every), s)}
    )
    home.signal("unit-restarts", 60, lambda s: {unit: (s // restarts_every, 0)})
    assert len(_run_detector(home, HIDDEN).findings) == found


def test_a_counter_that_begins_high_is_not_a_loop(tmp_path: pathlib.Path) -> None:
    """When systemd answers again, the unit returns with its old counter."""
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("unit-restarts", 30, lambda s: {"ecs.service": (900, 0)} if s > 6000 else {})
    assert _run_detector(home).status == Status.CLEAR


def test_a_recorded_event_is_enough_without_counters(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.add_event(
        5000, "unit.crash_loop", unit="ecs.service", until_us=rings.us(7000), fields={"restarts": 9}
    )
    (finding,) = _run_detector(home).findings
    assert finding.magnitude["restarts_per_hour"] == 27
    assert finding.confidence < 0.95


@pytest.mark.parametrize(
    ("kind", "unit", "until", "count"),
    [
        pytest.param("unit.crash_loop", "a.service", 3600, 1, id="until an hour before the event"),
        pytest.param("unit.crash_loop", "a.service", 3500, 0, id="over for more than an hour"),
        pytest.param("unit.crash_loop", "", 7000, 0, id="no unit"),
        pytest.param("unit.hidden_crash_loop", "a.service", 7000, 0, id="not counted by systemd"),
    ],
)
def test_near_misses_of_a_recorded_loop(
    tmp_path: pathlib.Path, kind: str, unit: str, until: int, count: int
) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.add_event(1000, kind, unit=unit, until_us=rings.us(until))
    assert len(_run_detector(home).findings) == count


def test_each_unit_of_the_recorded_loops_is_found_once(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("unit-restarts", 30, lambda s: {"a.service": (s // 60, 0)})
    for second, unit in ((6000, "a.service"), (6300, "b.service"), (6900, "b.service")):
        home.add_event(second, "unit.crash_loop", unit=unit, count=7)
    counted, recorded = _run_detector(home).findings
    assert (counted.subject.unit, recorded.subject.unit) == ("a.service", "b.service")
    assert recorded.magnitude["restarts_per_hour"] == 21


def test_a_crash_loop_does_not_explain_its_own_event(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    event = home.add_event(7000, "unit.crash_loop", unit="a.service", fields={"restarts": 9})
    assert not VISIBLE.look(home.case(event)).findings


@pytest.mark.parametrize(
    ("pause", "begins"),
    [
        pytest.param((2970, 3600), 0, id="one interval"),
        pytest.param((2370, 3600), 3600, id="two intervals"),
    ],
)
def test_a_pause_of_one_interval_does_not_end_a_loop(
    tmp_path: pathlib.Path, pause: tuple[int, int], begins: int
) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    begin, end = pause
    home.signal(
        "unit-restarts",
        30,
        lambda s: {"a.service": ((s - min(max(s - begin, 0), end - begin)) // 30, 0)},
    )
    (finding,) = _run_detector(home).findings
    assert abs(finding.window.begin_us - rings.us(begins)) <= crash_loops.INTERVAL_US


def test_the_numbers_of_an_uncounted_loop_are_those_of_its_own_columns(
    tmp_path: pathlib.Path,
) -> None:
    """In an hour 360 are born, 300 die and 240 of these lived less than a minute; 2.5 s on average."""
    home = evidence.Home(tmp_path, HOURS_2)
    cgroup = "/system.slice/a.service"
    home.signal(
        "cgroup-births", 60, lambda s: {cgroup: (s // 10, s // 12, s // 15, 2500 * (s // 12))}
    )
    home.signal("unit-restarts", 60, lambda s: {"a.service": (s // 60, 0)})
    for second in (6000, 6600):
        home.add_event(second, "container.agent_restart", text=f"restarted at {second}")
    (finding,) = _run_detector(home, HIDDEN).findings
    numbers = ("births", "deaths", "short_lived", "counted")
    rates = [finding.magnitude[f"{name}_per_hour"] for name in numbers]
    assert rates == pytest.approx([360, 300, 240, 60], rel=0.001)
    assert (
        "it is started 360 times an hour and lives 2 s, for at least 1 h 59 min" in finding.summary
    )
    texts = [each.text for each in finding.evidence]
    assert texts[0].startswith(
        f"714 cgroups were created below {cgroup} in 1 h 59 min; 476 of them"
    )
    assert texts[0].endswith(" lived less than a minute, 2.5 s on average")
    counted = "systemd counted only 60 restarts of a.service an hour"
    assert texts[1:] == [counted, "restarted at 6600"]


def test_without_counters_there_is_no_data(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("load", 60, lambda s: {"": (1,)})
    opened = home.case(home.add_event(7000, "net.driver_reset"))
    assert {detector.look(opened).status for detector in crash_loops.DETECTORS} == {Status.NO_DATA}


def test_a_loop_of_a_supervisor_is_found(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    cgroup = "/system.slice/ecs.service"
    home.signal("cgroup-births", 60, lambda s: {cgroup: (s // 15, s // 15, s // 15, 800 * s)})
    home.signal("unit-restarts", 60, lambda s: {"ecs.service": (0, 0)})
    home.idle()
    home.add_samples(
        6500, 60, ("do_syscall_64",), unit="ecs.service", process="ecs-agent", share=0.05
    )
    (finding,) = _run_detector(home, HIDDEN).findings
    assert finding.subject == Subject(host=rings.HOST, unit="ecs.service", cgroup=cgroup)
    assert finding.magnitude["births_per_hour"] == pytest.approx(240, rel=0.03)
    assert finding.magnitude["deaths_per_hour"] == pytest.approx(240, rel=0.03)
    assert finding.magnitude["mean_life_seconds"] == pytest.approx(12, rel=0.05)
    assert finding.magnitude["cores_burnt"] == pytest.approx(0.05 * 60 / 600, rel=0.3)
    assert any(e.source == "unit-restarts" for e in finding.evidence)


def test_births_that_systemd_counts_as_restarts_are_not_an_uncounted_loop(
    tmp_path: pathlib.Path,
) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    cgroup = "/system.slice/ecs.service"
    home.signal("cgroup-births", 3, lambda s: {cgroup: (s // 15, s // 15, s // 15, 800 * s)})
    home.signal("unit-restarts", 30, lambda s: {"ecs.service": (s // 16, 0)})
    answer = _run_detector(home, HIDDEN)
    assert answer.status == Status.CLEAR
    assert "except 1 whose restarts systemd counts" in answer.why


@pytest.mark.parametrize(
    ("cgroup", "every", "count"),
    [("/system.slice", 60, 0), ("/system.slice", 5, 1), ("/docker", 60, 1), ("/docker", 300, 0)],
)
def test_timers_of_a_healthy_host_are_not_a_loop(
    tmp_path: pathlib.Path, cgroup: str, every: int, count: int
) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("cgroup-births", 60, lambda s: {cgroup: (s // every,) * 3 + (s,)})
    answer = _run_detector(home, HIDDEN)
    assert len(answer.findings) == count
    assert all(finding.confidence == (0.5 if cgroup == "/system.slice" else 0.9) for finding in answer.findings)  # fmt: skip


@pytest.mark.parametrize(("dying", "every", "count"), [(5000, 14, 1), (5000, 120, 0), (300, 14, 0)])
@pytest.mark.parametrize("cgroup", ["/system.slice", "/machine.slice"])
def test_a_shared_slice_of_a_host_with_many_dying_cgroups_needs_no_more_births_than_a_unit(
    tmp_path: pathlib.Path, cgroup: str, dying: int, every: int, count: int
) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("cgroup-births", 10, lambda s: {cgroup: (s // every,) * 3 + (s,)})
    home.signal("memory-cgroups", 60, lambda _: {"": (dying + 90, 90, dying, 0, 0)})
    found = _run_detector(home, HIDDEN).findings
    assert [finding.confidence for finding in found] == [0.5] * count


@pytest.mark.parametrize("seed", range(8))
def test_a_healthy_host_has_no_loop(tmp_path: pathlib.Path, seed: int) -> None:
    """A few restarts, and jobs of which most run longer than a minute."""
    chance = random.Random(seed)
    restarts = sorted(chance.sample(range(HOURS_2), 4))
    births = sorted(chance.sample(range(HOURS_2), 40))
    short = births[::4]
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("unit-restarts", 60, lambda s: {"app.service": (sum(t <= s for t in restarts), 0)})
    home.signal(
        "cgroup-births", 60,
        lambda s: {"/kubepods/burstable": (
            sum(t <= s for t in births), sum(t <= s for t in births), sum(t <= s for t in short), 99 * s
        )},
    )  # fmt: skip
    opened = home.case(home.add_event(7000, "net.driver_reset"))
    assert [detector.look(opened).findings for detector in crash_loops.DETECTORS] == [(), ()]


# A recording of a minute: a rehearsal, or an agent that was just started.
MACHINE = "/box/system.slice/flint.service"


def _run_on_short_recording(home: evidence.Home, detector: crash_loops.CrashLoops | crash_loops.UncountedCrashLoops) -> Answer:  # fmt: skip
    return detector.look(home.case(home.add_event(home.seconds - 3, "net.driver_reset")))


def test_a_loop_that_goes_on_all_the_time_is_found_in_half_a_minute(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, 30)
    home.facts["units"] = {"box:flint.service": {"active": "active", "result": "success"}}
    home.signal("cgroup-births", 1, lambda s: {MACHINE: (8 * s, 8 * s, 8 * s, 40 * s)})
    home.signal("unit-restarts", 2, lambda s: {"box:flint.service": (0, 0)})
    (finding,) = _run_on_short_recording(home, HIDDEN).findings
    assert finding.subject == Subject(host=rings.HOST, unit="flint.service", cgroup=MACHINE)
    assert finding.magnitude["births_per_hour"] == pytest.approx(8 * 3600, rel=0.05)
    assert finding.confidence < 0.9
    assert "h at least" not in finding.summary
    # The state from systemd is recorded under the machine's own name for the unit.
    assert any("box:flint.service" in e.text and e.source == "units" for e in finding.evidence)
    assert any(e.source == "unit-restarts" for e in finding.evidence)


@pytest.mark.parametrize(
    "count",
    [
        lambda s: 100 * (s > 10),  # a deploy: all at once
        lambda s: min(10 * s, 120),  # a boot: many, then none
        lambda s: s // 2,  # steady, but too few to be certain
    ],
)
def test_a_burst_in_half_a_minute_is_not_a_loop(
    tmp_path: pathlib.Path, count: Callable[[int], int]
) -> None:
    home = evidence.Home(tmp_path, 30)
    home.signal("cgroup-births", 1, lambda s: {MACHINE: (count(s), count(s), count(s), s)})
    home.signal("unit-restarts", 2, lambda s: {"box:flint.service": (count(s), 0)})
    assert _run_on_short_recording(home, HIDDEN).status == Status.NO_DATA
    assert _run_on_short_recording(home, VISIBLE).status == Status.NO_DATA


def test_restarts_twice_a_second_are_a_loop_in_half_a_minute(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, 30)
    home.signal("unit-restarts", 2, lambda s: {"box:flint.service": (2 * s + 7, 0), "ssh.service": (1, 0)})  # fmt: skip
    (finding,) = _run_on_short_recording(home, VISIBLE).findings
    assert finding.subject.unit == "box:flint.service"
    assert finding.magnitude["restarts_per_hour"] == pytest.approx(7200, rel=0.1)


@pytest.mark.parametrize(("machine", "count"), [("box", 0), ("other", 1)])
def test_births_below_a_slice_are_explained_by_restarts_of_its_units(
    tmp_path: pathlib.Path, machine: str, count: int
) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("cgroup-births", 60, lambda s: {"/box/system.slice": (s // 5,) * 3 + (s,)})
    home.signal("unit-restarts", 60, lambda s: {f"{machine}:flint.service": (s // 6, 0), "ssh.service": (0, 0)})  # fmt: skip
    assert len(_run_detector(home, HIDDEN).findings) == count


LEADS = (3, 0)  # births with an action in the second before, and after
AGENT = {
    "runtime": "docker",
    "cgroup": "/docker",
    "container": "ecs-agent",
    "image": "amazon/ecs:1",
}


def _container_loop(
    tmp_path: pathlib.Path,
    units: dict[str, tuple[int, ...]],
    *,
    key: str = "docker:ecs-agent",
    fact: dict[str, str | int] = AGENT,
    every: int = 14,
) -> evidence.Home:
    """A container is born every `every` seconds; `units` are the counts of those that acted, before the births by default."""
    rows = {f"{key} {unit}": (*row, *LEADS[len(row) - 4 :]) for unit, row in units.items()}
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("cgroup-births", 10, lambda s: {key: (s // every, s // every, s // every, 0)})
    home.signal("cgroup-supervisors", 10, lambda _: rows)
    if fact:
        home.facts["cgroup-creators"] = {key: fact}
    return home


@pytest.mark.parametrize(
    ("counts", "unit"),
    [
        pytest.param((43, 41, 600, 80), "ecs.service", id="41 of 43"),
        pytest.param((43, 29, 600, 80), "", id="two of three"),
        pytest.param((43, 31, 600, 80), "ecs.service", id="five of seven"),
        pytest.param((43, 41, 600, 520), "", id="it acts nearly all the time"),
        pytest.param((6, 6, 84, 6), "ecs.service", id="six births"),
        pytest.param((5, 5, 84, 5), "", id="five births"),
        pytest.param((6, 6, 20, 6), "", id="six births in twenty seconds"),
        pytest.param((43, 0, 600, 0), "", id="it never acted"),
        pytest.param((14, 11, 400, 100), "", id="eleven of fourteen, at a quarter of the time"),
        pytest.param((14, 11, 400, 60), "ecs.service", id="eleven of fourteen, at a seventh"),
    ],
)
def test_a_unit_supervises_a_container_if_it_acts_at_its_births_more_than_by_chance(
    tmp_path: pathlib.Path, counts: tuple[int, int, int, int], unit: str
) -> None:
    home = _container_loop(tmp_path, {"ecs.service": counts})
    (finding,) = _run_detector(home, HIDDEN).findings
    assert finding.subject == Subject(
        host=rings.HOST,
        unit=unit,
        cgroup="/docker",
        container="docker:ecs-agent",
        image="amazon/ecs:1",
    )
    assert (finding.confidence > 0.85) == bool(unit)
    who = f"{unit} starts container ecs-agent, which" if unit else "container ecs-agent"
    assert finding.summary.startswith(f"{who} is in a crash loop")
    texts = [each.text for each in finding.evidence]
    assert any(f"{counts[1]} of {counts[0]} births" in text for text in texts) == bool(unit)


@pytest.mark.parametrize(
    ("units", "unit", "doubt"),
    [
        pytest.param({"logs.service": (0, 9)}, "", "not before them", id="it acts after the births"),
        pytest.param({"logs.service": (4, 4)}, "", "not before them", id="before as often as after"),
        pytest.param({"ecs.service": (1, 0), "logs.service": (0, 9)}, "ecs.service", "", id="of two, one is first"),
        pytest.param({"a.service": (3, 0), "b.service": (2, 1)}, "", "a.service and b.service acted before", id="both"),
    ],
)  # fmt: skip
def test_a_unit_that_reacts_to_a_container_does_not_start_it(
    tmp_path: pathlib.Path, units: dict[str, tuple[int, int]], unit: str, doubt: str
) -> None:
    acted = {name: (43, 41, 600, 80, *order) for name, order in units.items()}
    (finding,) = _run_detector(_container_loop(tmp_path, acted), HIDDEN).findings
    assert finding.subject.unit == unit
    assert (finding.confidence > 0.85) == bool(unit)
    assert [doubt in each.text for each in finding.against if doubt] == [True] * bool(doubt)
    texts = [each.text for each in finding.evidence if each.source == "cgroup-supervisors"]
    assert len(texts) == len(units)
    for name, (led, followed) in units.items():
        (text,) = (each for each in texts if name in each)
        assert text.startswith(f"41 of 43 births fell within 2 s after {name} started")
        assert "by chance it would be 5.7. " in text
        assert text.endswith(f"before {led} of them, and in the second after {followed}")


@pytest.mark.parametrize("late", [0, 60])
def test_a_recorder_that_was_starved_before_the_event_knows_the_unit_of_the_loop(
    tmp_path: pathlib.Path, late: int
) -> None:
    """On the host of the story, what starves a queue may starve the recorder for as long."""
    home = _container_loop(tmp_path, {"ecs.service": (43, 41, 600, 80)})
    event = home.add_event(home.seconds + late, "net.driver_reset")
    (finding,) = HIDDEN.look(home.case(event)).findings
    assert (finding.subject.unit, finding.subject.image) == ("ecs.service", "amazon/ecs:1")


def test_a_recorder_that_began_again_knows_what_it_had_counted(tmp_path: pathlib.Path) -> None:
    counts = (43, 41, 600, 80)
    home = _container_loop(tmp_path, {})
    restarted = home.seconds - 60

    def read(second: int) -> evidence.Rows:
        return {
            "docker:ecs-agent ecs.service": (
                *(counts if second < restarted else (2, 2, 28, 3)),
                *LEADS,
            )
        }

    home.signal("cgroup-supervisors", 10, read)
    (finding,) = _run_detector(home, HIDDEN).findings
    assert finding.subject.unit == "ecs.service"


@pytest.mark.parametrize("watched", [True, False])
def test_that_no_unit_acted_is_said_only_where_that_was_recorded(
    tmp_path: pathlib.Path, watched: bool
) -> None:
    home = _container_loop(tmp_path, {"metrics.service": (43, 4, 600, 90)})
    if not watched:
        del home.readings["cgroup-supervisors"]
    (finding,) = _run_detector(home, HIDDEN).findings
    (against,) = [each.text for each in finding.against]
    assert ("no unit acted" in against, "were not recorded" in against) == (watched, not watched)


@pytest.mark.parametrize("every", [9, 14])
def test_a_container_in_a_shared_slice_needs_no_more_births_than_a_unit(
    tmp_path: pathlib.Path, every: int
) -> None:
    fact = {**AGENT, "cgroup": "/system.slice"}
    home = _container_loop(tmp_path, {"ecs.service": (43, 41, 600, 80)}, fact=fact, every=every)
    (finding,) = _run_detector(home, HIDDEN).findings
    assert (finding.subject.unit, finding.subject.cgroup) == ("ecs.service", "/system.slice")
    assert finding.confidence > 0.85


def test_two_units_that_act_at_all_births_are_both_named_and_neither_is_blamed(
    tmp_path: pathlib.Path,
) -> None:
    sure = (43, 41, 600, 80)
    home = _container_loop(tmp_path, {"ecs.service": sure, "watcher.service": sure})
    (finding,) = _run_detector(home, HIDDEN).findings
    assert finding.subject.unit == ""
    assert finding.confidence < 0.7
    assert {u for u in ("ecs.service", "watcher.service") for e in finding.evidence if u in e.text} == {
        "ecs.service", "watcher.service",
    }  # fmt: skip


def test_a_unit_that_only_watches_a_container_that_docker_restarts_is_not_blamed(
    tmp_path: pathlib.Path,
) -> None:
    home = _container_loop(
        tmp_path, {"watcher.service": (43, 41, 600, 80)}, fact={**AGENT, "restarted": 40}
    )
    (finding,) = _run_detector(home, HIDDEN).findings
    assert finding.subject.unit == ""
    assert any("the runtime itself restarted" in each.text for each in finding.against)
    assert not any("watcher.service" in each.text for each in finding.evidence)


@pytest.mark.parametrize(
    ("fact", "factor"),
    [
        (AGENT, 0.75),
        ({"runtime": "docker", "cgroup": "/docker", "programs": "agent"}, 0.75),
        ({"runtime": "docker", "cgroup": "/docker"}, 0.5),
        ({}, 0.5),
    ],
)
def test_what_is_not_known_of_a_container_lowers_the_confidence(
    tmp_path: pathlib.Path, fact: dict[str, str | int], factor: float
) -> None:
    """Nobody acted at its births; in the last case nothing was recorded of it but the births."""
    (finding,) = _run_detector(_container_loop(tmp_path, {}, fact=fact), HIDDEN).findings
    assert finding.confidence == pytest.approx(0.9 * factor)
    cgroup = str(fact.get("cgroup", ""))
    assert (finding.subject.container, finding.subject.cgroup) == ("docker:ecs-agent", cgroup)


def test_a_supervisor_of_another_container_with_a_longer_name_is_not_its_own(
    tmp_path: pathlib.Path,
) -> None:
    keys = ("docker:ecs", "docker:ecs-2")
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("cgroup-births", 10, lambda s: dict.fromkeys(keys, (s // 14,) * 3 + (0,)))
    home.signal(
        "cgroup-supervisors", 10, lambda _: {f"{keys[1]} a.service": (43, 41, 600, 80, *LEADS)}
    )
    home.facts["cgroup-creators"] = dict.fromkeys(keys, AGENT)
    found = {each.subject.container: each for each in _run_detector(home, HIDDEN).findings}
    assert {key: each.subject.unit for key, each in found.items()} == {keys[0]: "", keys[1]: "a.service"}  # fmt: skip
    assert not [each for each in found[keys[0]].evidence if each.source == "cgroup-supervisors"]


def test_a_burst_of_births_does_not_count_as_the_rate_of_the_loop(tmp_path: pathlib.Path) -> None:
    """A deploy started a thousand containers within ten seconds."""
    home = _container_loop(tmp_path, {})
    home.signal(
        "cgroup-births", 10, lambda s: {"docker:ecs-agent": (s // 14 + 1000 * (s >= 3600),) * 3 + (0,)}
    )  # fmt: skip
    (finding,) = _run_detector(home, HIDDEN).findings
    assert finding.magnitude["births_per_hour"] == pytest.approx(257, rel=0.05)


def test_containers_that_live_long_are_not_a_loop_whoever_starts_them(
    tmp_path: pathlib.Path,
) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    home.signal("cgroup-births", 10, lambda s: {"docker:job": (s // 14, s // 14, 0, 0)})
    home.facts["cgroup-creators"] = {"docker:job": AGENT}
    assert not _run_detector(home, HIDDEN).findings


def test_two_containers_that_churn_are_two_loops(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, HOURS_2)
    row = {f"docker:{name}": every for name, every in (("a", 14), ("b", 40), ("c", 400))}
    home.signal(
        "cgroup-births", 10, lambda s: {key: (s // n, s // n, s // n, 0) for key, n in row.items()}
    )
    home.facts["cgroup-creators"] = dict.fromkeys(row, AGENT)
    found = _run_detector(home, HIDDEN).findings
    assert [finding.subject.container for finding in found] == ["docker:a", "docker:b"]


def test_a_container_whose_unit_systemd_restarts_is_a_counted_loop(tmp_path: pathlib.Path) -> None:
    home = _container_loop(tmp_path, {"web.service": (43, 41, 600, 80)})
    home.signal("unit-restarts", 30, lambda s: {"web.service": (s // 14, 0)})
    assert not _run_detector(home, HIDDEN).findings
    (finding,) = _run_detector(home, VISIBLE).findings
    assert finding.subject.unit == "web.service"


def test_a_container_of_a_pod_is_the_pods(tmp_path: pathlib.Path) -> None:
    fact = {
        "runtime": "kubernetes",
        "cgroup": "/kubepods/pod7",
        "container": "app",
        "group": "prod/web-7",
    }
    home = _container_loop(tmp_path, {}, key="kubernetes:prod/web-7/app", fact=fact)
    (finding,) = _run_detector(home, HIDDEN).findings
    assert finding.subject.actor.pod == ("prod", "web-7")
    assert finding.confidence > 0.85
