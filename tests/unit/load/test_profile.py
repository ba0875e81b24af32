"""A profile is read from a document of `overnight cpu`, second by second, and mapped to cores."""

from __future__ import annotations

import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.load import profile

BEGIN = 1_790_000_000_000_000


def reading(begin: float, end: float, shares: dict[int, float], steal: float = 0.0):
    rows = [
        {"core": core, "used": used, "values": {"usr": used - steal, "steal": steal}}
        for core, used in shares.items()
    ]
    span = {"begin_us": BEGIN + round(begin * 1e6), "end_us": BEGIN + round(end * 1e6)}
    return {**span, "seconds": end - begin, "cores": rows}


def document(*readings) -> dict[str, object]:
    return {"schema": "overnight.cpu/1", "host": "db1", "intervals": list(readings)}


def test_readings_become_seconds_by_their_overlap() -> None:
    parsed = profile.parse_profile(
        document(
            reading(0, 1.5, {0: 40, 1: 100}),
            reading(1.5, 2, {0: 80, 1: 0}),
            reading(2, 3, {0: 10, 1: 20}),
        )
    )
    assert (parsed.host, parsed.seconds, parsed.filled) == ("db1", 3, 0)
    assert parsed.shares[0] == pytest.approx((0.4, 0.6, 0.1))
    assert parsed.shares[1] == pytest.approx((1.0, 0.5, 0.2))


def test_steal_is_not_replayed() -> None:
    parsed = profile.parse_profile(document(reading(0, 1, {0: 70}, steal=30)))
    assert parsed.shares[0] == pytest.approx((0.4,))


def test_seconds_that_were_not_recorded_repeat_the_one_before_and_are_counted() -> None:
    parsed = profile.parse_profile(document(reading(0, 1, {0: 30}), reading(3, 4, {0: 50, 1: 60})))
    assert parsed.shares[0] == pytest.approx((0.3, 0.3, 0.3, 0.5))
    assert parsed.shares[1] == pytest.approx((0.6, 0.6, 0.6, 0.6))
    assert parsed.filled == 2
    assert parsed.describe() == "db1: 4 s of 2 cores, 2 s of them not recorded"


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{}", '{"schema": "overnight.cpu/2"}', json.dumps(document()),
        json.dumps(document({"begin_us": 0, "end_us": 1_000_000, "cores": []})),
        json.dumps(document(reading(0, 1e9, {0: 1}))),
        json.dumps(document({"begin_us": 0, "end_us": 1_000_000, "cores": [{"core": 0}]})),
    ],
)  # fmt: skip
def test_other_files_are_refused(content: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(content)
    with pytest.raises((errors.UsageError, errors.CannotError), match=r"profile\.json") as caught:
        profile.read_profile(path)
    assert "overnight cpu" in caught.value.todo
    with pytest.raises(errors.CannotError):
        profile.read_profile(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("recorded", "targets", "pairs", "note"),
    [
        ((0, 1, 2), (0, 1, 2), {0: 0, 1: 1, 2: 2}, ""),
        ((0, 1, 2), (1,), {1: 1}, "not replayed: recorded core 0,2"),
        ((0, 1), (0, 1, 2), {0: 0, 1: 1, 2: 0}, "cores replay recorded cores in order: 0 as 0, 1 as 1, 2 as 0"),
        ((4, 5, 6), (0, 1), {0: 4, 1: 5}, "cores replay recorded cores in order: 0 as 4, 1 as 5; not replayed: recorded core 6"),
    ],
)  # fmt: skip
def test_cores_replay_the_same_number_or_the_recorded_ones_in_order(
    recorded: tuple[int, ...], targets: tuple[int, ...], pairs: dict[int, int], note: str
) -> None:
    assert profile.map_cores(recorded, targets) == (pairs, note)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(0, 40), st.floats(0, 40))
def test_what_is_due_is_the_sum_of_the_shares_also_after_the_end(
    shares: list[float], one: float, other: float
) -> None:
    track = profile.Track(shares, 100.0)
    early, late = sorted((one, other))
    due = track.wanted(100 + late) - track.wanted(100 + early)
    steps = 2000
    width = (late - early) / steps
    summed = sum(track.share(100 + early + (n + 0.5) * width) for n in range(steps)) * width
    assert due == pytest.approx(summed, abs=0.001 + 40 * width)
    assert track.wanted(99.0) == 0
