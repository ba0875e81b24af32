from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.app import census


def history(rate_per_hour: float, hours: float, *, start: int = 0, every: float = 60.0) -> list[census.Sample]:  # fmt: skip
    samples = []
    for i in range(int(hours * 3600 / every) + 1):
        dying = start + round(rate_per_hour * i * every / 3600)
        samples.append((i * every, 240 + dying, 240, dying))
    return samples


@pytest.mark.parametrize("rate", [0.0, 50.0, 411.0, -20.0])
def test_growth_is_the_slope(rate: float) -> None:
    assert census.growth_per_hour(history(rate, 7)) == pytest.approx(rate, abs=0.2)


def test_growth_needs_two_samples() -> None:
    assert census.growth_per_hour([]) is None
    assert census.growth_per_hour([(1.0, 5, 2, 3)]) is None
    assert census.growth_per_hour([(1.0, 5, 2, 3), (1.0, 6, 2, 4)]) is None


def test_a_reboot_or_a_purge_starts_a_new_slope() -> None:
    before = history(100, 5, start=60_000)
    after = [(18_060.0 + t, a, b, c) for t, a, b, c in history(300, 2)]
    kept = census.since_last_fall([*before, *after])
    assert list(kept) == after
    assert census.growth_per_hour(kept) == pytest.approx(300, rel=0.01)


@pytest.mark.parametrize(
    ("numbers", "severity"),
    [
        ((250, 240, 10, 0.0, 10.0, 100), "ok"),
        ((1_300, 240, 1_060, 0.0, 10.0, 100), "ok"),  # not ten times those in use
        ((1_100, 100, 1_000, 0.0, 10.0, 100), "ok"),  # not more than 1,000
        ((1_101, 100, 1_001, 0.0, 10.0, 100), "warning"),
        ((300, 240, 60, 51.0, 6.0, 100), "warning"),
        ((300, 240, 60, 51.0, 5.9, 100), "ok"),
        ((300, 240, 60, 50.0, 9.0, 100), "ok"),
        ((300, 240, 60, None, 9.0, 100), "ok"),
        ((30_000, 19_999, 10_001, 0.0, 0.0, 100), "critical"),
        ((300, 240, 60, 0.0, 0.0, 100_001), "critical"),
        ((300, 240, 60, 0.0, 0.0, 100_000), "ok"),
    ],
)
def test_thresholds(numbers: tuple[int, int, int, float | None, float, int], severity: str) -> None:
    judged, reasons = census.judge(*numbers)
    assert judged == severity
    assert bool(reasons) == (severity != "ok")


def report(**changes: object) -> census.Report:
    values: dict[str, object] = {
        "tracked": 5_240, "in_use": 240, "dying": 5_000, "growth_per_hour": 500.0, "measured_s": 10.0,
        "stat_read_us": 50_000, "parents": (), "creators": (), "version": "v1", "severity": "ok",
        "reasons": (),
    }  # fmt: skip
    return census.Report(**{**values, **changes})  # type: ignore[arg-type]


def test_hours_to_critical_and_to_the_watchdog() -> None:
    assert report().hours_to_critical == 10.0
    # 50 ms at 5,000: 5 s at 500,000.
    assert report().hours_to_watchdog == pytest.approx(990)
    assert report(dying=10_000).hours_to_critical == 0
    assert report(stat_read_us=6_000_000).hours_to_watchdog == 0
    assert report(growth_per_hour=0.0).hours_to_critical is None
    assert report(growth_per_hour=None).hours_to_watchdog is None
    assert report(stat_read_us=500).hours_to_watchdog is None


def test_the_ratio_of_the_incident() -> None:
    incident = report(tracked=68_680, in_use=240, dying=68_440)
    assert round(incident.ratio) == 286
    assert incident.as_json()["ratio"] == 286.17


def test_creators_are_matched_to_the_growth() -> None:
    before = {"/system.slice/ecs.service": (10, 9, 9, 0), "/idle": (3, 3, 3, 0)}
    after = {
        "/system.slice/ecs.service": (110, 109, 109, 5),
        "/user": (25, 25, 0, 9),
        "/idle": (3, 3, 3, 0),
        "(unwatched)": (7, 0, 0, 0),
    }
    ecs, user = census.rank_creators(before, after, seconds=10, grown=125)
    assert (ecs.cgroup, ecs.unit) == ("/system.slice/ecs.service", "ecs.service")
    assert (ecs.births_per_hour, ecs.deaths_per_hour, ecs.short_lived) == (36_000, 36_000, 100)
    assert ecs.explains == 0.8
    assert user.explains == 0.2


def test_without_growth_no_creator_explains_it() -> None:
    (creator,) = census.rank_creators({}, {"/a": (5, 5, 5, 0)}, seconds=10, grown=0)
    assert creator.explains is None


@given(
    st.dictionaries(st.text(), st.tuples(*[st.integers(0, 10**6)] * 4)), st.integers(-(10**6), 10**6)
)  # fmt: skip
def test_creators_explain_at_most_the_whole_growth(
    rows: dict[str, tuple[int, ...]], grown: int
) -> None:
    creators = census.rank_creators({}, rows, 10, grown)
    assert sum(creator.explains or 0 for creator in creators) <= 1 + 1e-9


def test_a_host_without_memory_cgroups_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError, match="cannot count memory cgroups"):
        census.take(tmp_path, seconds=0)


def v2_tree(root: pathlib.Path) -> pathlib.Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text("30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n")
    (root / "cg/leaky").mkdir(parents=True)
    write_dying(root, 100)
    return root


def write_dying(root: pathlib.Path, dying: int) -> None:
    for folder in ("cg", "cg/leaky"):
        (root / folder / "cgroup.stat").write_text(
            f"nr_descendants 1\nnr_dying_descendants {dying}\n"
        )


def test_a_census_while_it_grows(tmp_path: pathlib.Path) -> None:
    """Ten memory cgroups are created and left dying each second; the test sets the clock."""
    root = v2_tree(tmp_path)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        write_dying(root, 100 + round(10 * now[0]))
        for i in range(10):
            (root / f"cg/leaky/{i}").mkdir()
            (root / f"cg/leaky/{i}").rmdir()

    measured = census.take(root, seconds=5, clock=lambda: now[0], sleep=sleep)
    assert (measured.tracked, measured.in_use, measured.dying) == (152, 2, 150)
    assert measured.growth_per_hour == pytest.approx(36_000)
    assert [(parent.path, parent.dying, parent.counted) for parent in measured.parents] == [
        ("/leaky", 150, True)
    ]
    (creator,) = measured.creators
    assert creator.cgroup == "/leaky"
    assert creator.births_per_hour == pytest.approx(36_000)
    assert creator.explains == 1


def test_growth_continues_the_history_of_a_running_recording(tmp_path: pathlib.Path) -> None:
    root = v2_tree(tmp_path)
    write_dying(root, 420)
    recorded, now = history(60, 7), 7 * 3600.0 + 60
    measured = census.take(root, seconds=0, history=recorded, clock=lambda: now)
    assert measured.growth_per_hour == pytest.approx(60, rel=0.01)
    assert measured.severity == "warning"
    assert measured.measured_s == now


def test_the_history_of_a_recording_that_ended_is_not_the_growth_now(
    tmp_path: pathlib.Path,
) -> None:
    root, now = v2_tree(tmp_path), [7 * 3600.0 + 121]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        write_dying(root, 101)

    recorded = history(-20, 7, start=300)
    measured = census.take(root, seconds=1, history=recorded, clock=lambda: now[0], sleep=sleep)
    assert measured.growth_per_hour == pytest.approx(3600)
    assert measured.measured_s == 1
