"""Cores, length and notes of a load, before it starts."""

from __future__ import annotations

import json
import pathlib

import pytest

from overnight import errors
from overnight.app import load


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    return tmp_path / "profile.json"


def write(path: pathlib.Path, cores: range, seconds: int = 4) -> pathlib.Path:
    rows = [{"core": core, "used": 50.0, "values": {}} for core in cores]
    readings = [
        {"begin_us": n * 1_000_000, "end_us": (n + 1) * 1_000_000, "cores": rows}
        for n in range(seconds)
    ]
    text = json.dumps({"schema": "overnight.cpu/1", "host": "db1", "intervals": readings})
    path.write_text(text)
    return path


def test_a_replay_lasts_as_its_profile_on_the_same_cores(path: pathlib.Path) -> None:
    request = load.Request("replay", seconds=None, profile=write(path, range(2)))
    plan = load._make_plan(request)
    assert (plan.options.cores, plan.seconds) == ((0, 1), 4.0)
    assert plan.notes == ("profile of db1: 4 s of 2 cores",)


def test_a_replay_on_other_cores_and_for_longer_is_noted(path: pathlib.Path) -> None:
    request = load.Request("replay", seconds=60.0, profile=write(path, range(4)))
    plan = load._make_plan(request)
    assert (plan.options.cores, plan.seconds) == ((1, 2), 60.0)
    assert plan.notes[1:] == (
        "not replayed: recorded core 0,3",
        "the profile begins again every 4 s",
    )


def test_hosts_of_a_cluster_choose_their_cores(path: pathlib.Path) -> None:
    cluster = load.Options(orchestrator="ray", address="head:6379")
    assert load._make_plan(load.Request("trials", cluster, "90-95")).options.cores == ()
    with pytest.raises(errors.UsageError):
        load._make_plan(load.Request("trials", load.Options(orchestrator="ray"), "90-95"))
