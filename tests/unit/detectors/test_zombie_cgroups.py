"""Level, slope, age, parent and creator of zombie cgroups."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import evidence
import numpy as np
import pytest
import rings

from overnight.detectors import zombie_cgroups
from overnight.model.finding import Answer, Finding, Status, Subject

HOUR = 3600
(DETECTOR,) = zombie_cgroups.DETECTORS


def _home(
    path: pathlib.Path,
    dying: Callable[[int], int],
    *,
    hours: float = 3.0,
    in_use: int = 240,
    read_us: float = 0.0,
) -> evidence.Home:
    home = evidence.Home(path, round(hours * HOUR))

    def census(second: int) -> evidence.Rows:
        now = dying(second)
        return {"": (now + in_use, in_use, now, round(read_us * now), 1)}

    home.signal("memory-cgroups", 60, census)
    return home


def _run_detector(home: evidence.Home) -> Answer:
    return DETECTOR.look(home.case(home.add_event(home.seconds - 60, "net.driver_reset")))


def _texts(finding: Finding) -> str:
    return "\n".join(evidence.text for evidence in (*finding.evidence, *finding.against))


def test_a_leak_from_its_onset_to_the_watchdog(tmp_path: pathlib.Path) -> None:
    home = _home(tmp_path, lambda second: 30_000 + second // 15, read_us=70)  # 240 an hour
    home.facts["host"] = {"": {"booted_at": rings.us(0) // 10**6 - 130 * HOUR}}
    home.signal(
        "memory-cgroup-parents", 600, lambda second: {"/docker": (29_000, 28_000, 30_000, 9), "/": (9, 0, 30, 3)}
    )  # fmt: skip
    home.signal(
        "cgroup-births", 60,
        lambda s: {"/docker": (s // 14, s // 14, s // 14, s), "/user.slice": (s // 4000, s // 4000, 0, s)},
    )  # fmt: skip
    (finding,) = _run_detector(home).findings
    assert finding.kind == "memory.zombie_cgroups"
    assert finding.subject == Subject(host=rings.HOST, cgroup="/docker")
    assert finding.magnitude["growth_per_hour"] == pytest.approx(240, rel=0.02)
    assert finding.magnitude["age_hours"] == pytest.approx(30_700 / 240, rel=0.03)
    assert finding.magnitude["creator_deaths_per_zombie"] == pytest.approx(15 / 14, rel=0.05)
    assert "(28,000 to 30,000)" in _texts(finding)
    # 70 us a zombie: 5 s at 71,428 of them, 40,700 more at 240 an hour.
    read = next(e for e in finding.evidence if "hours_to_watchdog" in e.values)
    assert read.values["hours_to_watchdog"] == pytest.approx(169.6, rel=0.03)
    assert "/user.slice" not in finding.summary


def test_purged_zombies_are_not_counted(tmp_path: pathlib.Path) -> None:
    home = _home(tmp_path, lambda s: 90_000 if s < 2 * HOUR else 1500 + s // 12, in_use=10)
    (finding,) = _run_detector(home).findings
    assert finding.window.begin_us == rings.us(2 * HOUR)
    assert finding.magnitude["growth_per_hour"] == pytest.approx(300, rel=0.05)
    assert "since the last reboot, purge or burst" in _texts(finding)


def test_an_event_early_in_the_recording_uses_the_time_after_it(tmp_path: pathlib.Path) -> None:
    """Only up to the later purge, which was not before the event."""
    home = _home(tmp_path, lambda s: 20_000 + s // 12 if s < 1500 else 50, hours=1)
    home.signal("cgroup-births", 60, lambda s: {"/docker": (s // 12, s // 12, s // 12, s)})
    (finding,) = DETECTOR.look(home.case(home.add_event(120, "net.driver_reset"))).findings
    assert finding.magnitude["dying"] == 20_010
    assert finding.magnitude["growth_per_hour"] == pytest.approx(300, rel=0.05)
    assert finding.window.end_us < rings.us(1500)
    assert "since the last reboot, purge or burst" not in _texts(finding)
    assert "creates them" in finding.summary


@pytest.mark.parametrize(
    ("dying", "in_use", "hours", "found"),
    [
        pytest.param(lambda s: 5000, 480, 3, True, id="eleven times those in use"),
        pytest.param(lambda s: 5000, 600, 3, False, id="nine times those in use"),
        pytest.param(lambda s: 990, 10, 3, False, id="below the level of the watch"),
        pytest.param(lambda s: 10_001, 5000, 3, True, id="alarming, however many are in use"),
        pytest.param(lambda s: 9_999, 5000, 3, False, id="many in use"),
        pytest.param(lambda s: 300 + s // 40, 240, 3, True, id="a leak of 90 an hour"),
        pytest.param(lambda s: 300 + s // 80, 240, 3, False, id="a leak of 45 an hour"),
        pytest.param(lambda s: 300 + s // 40, 240, 0.7, False, id="a leak of 40 minutes"),
        pytest.param(lambda s: 20 + s // 36, 240, 1.5, False, id="a leak of few"),
        pytest.param(
            lambda s: 300 + s // 40 + 90 * (s // 1800 % 2), 240, 3, False,
            id="a rise within its own error",
        ),
    ],
)  # fmt: skip
def test_near_misses(
    tmp_path: pathlib.Path, dying: Callable[[int], int], in_use: int, hours: float, found: bool
) -> None:
    answer = _run_detector(_home(tmp_path, dying, in_use=in_use, hours=hours))
    assert len(answer.findings) == found, answer.why


@pytest.mark.parametrize(
    ("fall", "reboot", "begin"),
    [
        pytest.param(90, 2 * HOUR, 2 * HOUR, id="a reboot inside the slope"),
        pytest.param(90, None, 0, id="a small fall"),
        pytest.param(400, None, 0, id="a fall by a tenth"),
        pytest.param(1200, None, 2 * HOUR, id="a purge"),
    ],
)
def test_growth_is_measured_since_the_last_reboot_or_purge(
    tmp_path: pathlib.Path, fall: int, reboot: int | None, begin: int
) -> None:
    home = _home(tmp_path, lambda s: 3400 + s // 12 - fall * (s >= 2 * HOUR), in_use=10, hours=4)
    home.reboot = reboot
    (finding,) = _run_detector(home).findings
    assert finding.window.begin_us == rings.us(begin)


@pytest.mark.parametrize(("below", "cgroup"), [(2600, "/docker"), (2400, "")])
def test_the_parent_has_most_of_them(tmp_path: pathlib.Path, below: int, cgroup: str) -> None:
    home = _home(tmp_path, lambda s: 5000)
    home.signal(
        "memory-cgroup-parents", 600, lambda s: {"/docker": (below,) * 3 + (9,), "/a": (900,) * 3 + (50,)}
    )  # fmt: skip
    (finding,) = _run_detector(home).findings
    assert finding.subject.cgroup == cgroup
    assert f"{below:,} of them are below /docker; in use there: 9\n" in f"{_texts(finding)}\n"


@pytest.mark.parametrize(
    ("signal", "every", "creates"),
    [
        pytest.param("cgroup-births", 12, True, id="one death per zombie"),
        pytest.param("cgroup-births", 22, True, id="half a death per zombie"),
        pytest.param("cgroup-births", 36, False, id="too few"),
        pytest.param("cgroup-births", 0.6, False, id="far more than become zombies"),
        pytest.param("cgroup-births", 6000, False, id="hardly any"),
        pytest.param("unit-restarts", 12, True, id="restarts that systemd counts"),
    ],
)
def test_the_creators_rate_matches_the_growth(
    tmp_path: pathlib.Path, signal: str, every: float, creates: bool
) -> None:
    """The zombies grow by 300 an hour."""
    home = _home(tmp_path, lambda s: 20_000 + s // 12)
    counters = {"cgroup-births": 4, "unit-restarts": 2}[signal]
    home.signal(signal, 60, lambda s: {"/docker": (int(s / every),) * counters})
    (finding,) = _run_detector(home).findings
    assert ("creates them" in finding.summary) == creates
    misfit = {36: "too few to be the source", 0.6: "far more than become zombies"}.get(every, "")
    assert misfit in _texts(finding)


def test_the_creator_whose_rate_is_nearest_comes_first_and_a_shared_slice_last(
    tmp_path: pathlib.Path,
) -> None:
    """The zombies grow by 300 an hour; everything in the shared slice dies at exactly that rate."""
    home = _home(tmp_path, lambda s: 20_000 + s // 12)
    every = {"/system.slice": 12, "/x/few.service": 36, "/x/near.service": 14, "/x/far.service": 20}
    home.signal(
        "cgroup-births",
        60,
        lambda s: {key: (s // 10, s // n, s // n, s) for key, n in every.items()},
    )
    (finding,) = _run_detector(home).findings
    assert finding.summary.endswith("; near.service creates them")
    assert finding.subject.cgroup == "/x/near.service"
    assert finding.magnitude["creator_births_per_hour"] == pytest.approx(360, rel=0.02)
    assert finding.magnitude["creator_deaths_per_zombie"] == pytest.approx(12 / 14, rel=0.02)
    names = [e.values["creator"] for e in finding.evidence if e.source == "cgroup-births"]
    assert names == ["near.service", "far.service", "/system.slice"]
    assert (
        "360 cgroups an hour are created and 257 removed below /x/near.service: 0.86 ("
        in _texts(finding)
    )


@pytest.mark.parametrize(
    ("dying", "confidence"),
    [
        pytest.param(lambda s: 5000, 0.8, id="many, and no growth"),
        pytest.param(lambda s: 5000 + s // 12, 0.95, id="many, and growing"),
        pytest.param(lambda s: 300 + s // 40, 0.8, id="growing, but few"),
        pytest.param(lambda s: 10_001, 0.95, id="alarming"),
    ],
)
def test_a_high_level_that_grows_is_surer(
    tmp_path: pathlib.Path, dying: Callable[[int], int], confidence: float
) -> None:
    (finding,) = _run_detector(_home(tmp_path, dying)).findings
    assert finding.confidence == pytest.approx(confidence)


@pytest.mark.parametrize(
    ("read_us", "words"),
    [
        (170, "took 5.222 s: longer than the 5 s of a network driver's watchdog"),
        (0.01, "took 0.000 s: this kernel does not visit every cgroup for it"),
    ],
)
def test_the_time_of_a_read_is_compared_with_the_watchdog(
    tmp_path: pathlib.Path, read_us: float, words: str
) -> None:
    home = _home(tmp_path, lambda second: 30_000 + second // 15, read_us=read_us)
    (finding,) = _run_detector(home).findings
    assert words in _texts(finding)
    assert not [e for e in finding.evidence if "hours_to_watchdog" in e.values]


def test_a_leak_that_was_faster_before(tmp_path: pathlib.Path) -> None:
    home = _home(tmp_path, lambda s: 50_000 + s // 36)
    home.facts["host"] = {"": {"booted_at": rings.us(0) // 10**6 - 9 * HOUR}}
    (finding,) = _run_detector(home).findings
    assert finding.magnitude["age_hours"] == pytest.approx(12, abs=0.1)
    assert "the growth was faster before" in _texts(finding)


def test_zombies_that_do_not_grow_have_no_creator(tmp_path: pathlib.Path) -> None:
    home = _home(tmp_path, lambda s: 20_000 + s % 7)
    home.signal("cgroup-births", 60, lambda s: {"/docker": (s // 9, s // 9, s // 9, s)})
    (finding,) = _run_detector(home).findings
    assert "age_hours" not in finding.magnitude
    assert "creator_births_per_hour" not in finding.magnitude
    assert any("an hour" in e.text for e in finding.against)


def test_cgroups_in_use_are_not_zombies(tmp_path: pathlib.Path) -> None:
    answer = _run_detector(_home(tmp_path, lambda s: 12, in_use=60_000))
    assert answer.status == Status.CLEAR
    assert "60000 are in use" in answer.why


def test_without_counts_there_is_no_data(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, 600)
    home.signal("load", 60, lambda second: {"": (1,)})
    assert _run_detector(home).status == Status.NO_DATA


@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_host_has_no_finding(tmp_path: pathlib.Path, seed: int) -> None:
    """Hundreds of zombies that come and go; the level drifts by some tens an hour."""
    chance = np.random.default_rng(seed)
    steps = np.cumsum(chance.normal(0, 6, 200))
    level = np.maximum(0, 400 + steps + chance.poisson(20, 200)).astype(int).tolist()
    answer = _run_detector(_home(tmp_path, lambda second: level[second // 60]))
    assert answer.status == Status.CLEAR, answer


def test_a_leak_and_its_creator_are_found_in_half_a_minute(tmp_path: pathlib.Path) -> None:
    """A rehearsal, read every two seconds, growing by eight a second."""
    home = evidence.Home(tmp_path, 30)
    home.signal("memory-cgroups", 2, lambda s: {"": (12_050 + 8 * s, 50, 12_000 + 8 * s, 900, 1)})
    cgroup = "/box/system.slice/flint.service"
    home.signal("cgroup-births", 1, lambda s: {cgroup: (8 * s, 8 * s, 8 * s, 40 * s)})
    (finding,) = DETECTOR.look(home.case(home.add_event(27, "net.driver_reset"))).findings
    assert finding.magnitude["growth_per_hour"] == pytest.approx(8 * HOUR, rel=0.02)
    assert finding.magnitude["creator_deaths_per_zombie"] == pytest.approx(1, rel=0.1)
    assert "flint.service creates them" in finding.summary
    assert finding.subject.cgroup == cgroup
    assert " 0 h" not in _texts(finding)


def test_thousands_within_seconds_have_no_slope(tmp_path: pathlib.Path) -> None:
    """For example a purge on a build farm: there are many zombies, but they do not grow."""
    home = evidence.Home(tmp_path, 30)
    home.signal("memory-cgroups", 2, lambda s: {"": (0, 50, 12_000 if s > 20 else 0, 900, 1)})
    (finding,) = DETECTOR.look(home.case(home.add_event(27, "net.driver_reset"))).findings
    assert "creates them" not in finding.summary
    assert "an hour" not in finding.summary


@pytest.mark.parametrize(("burst", "begin"), [(12_000, 40), (90, 0)])
def test_growth_is_measured_after_a_burst(tmp_path: pathlib.Path, burst: int, begin: int) -> None:
    """As in the rehearsal: thousands within seconds, then ten a second."""
    home = evidence.Home(tmp_path, 120)

    def dying(second: int) -> int:  # after the event, some are freed
        return 1180 + 10 * second + burst * (second >= 40) - 600 * (second > 110)

    home.signal("memory-cgroups", 2, lambda s: {"": (dying(s) + 20, 20, dying(s), 0, 1)})
    home.signal("cgroup-births", 1, lambda s: {"/a.service": (10 * s,) * 3 + (s,)})
    (finding,) = DETECTOR.look(home.case(home.add_event(110, "net.driver_reset"))).findings
    assert finding.window.begin_us == rings.us(begin)
    assert finding.magnitude["growth_per_hour"] == pytest.approx(36_000, rel=0.05)
    assert "a.service creates them" in finding.summary
