"""Runs of real incidents that were recorded: diagnosed again, the verdict is the true one."""

from __future__ import annotations

import pathlib

import pytest

from overnight.app import recorded_rehearsal

RECORDED = sorted(recorded_rehearsal.FOLDER.glob("*.overnight"))


def test_there_is_one_for_the_demo_and_two_other_incidents() -> None:
    for name in ("rt-hog", "softirq-storm", "zombies"):
        assert recorded_rehearsal.find_recorded(name) in RECORDED


def test_they_stay_small_for_everyone_who_installs_it() -> None:
    assert sum(path.stat().st_size for path in RECORDED) < 1_000_000


@pytest.mark.parametrize("bundle", RECORDED, ids=lambda path: path.stem)
def test_it_is_diagnosed_as_what_it_was(bundle: pathlib.Path, tmp_path: pathlib.Path) -> None:
    made = recorded_rehearsal.replay(bundle, tmp_path)
    assert made.problems == ()
    assert (made.correct, made.rank, made.replayed) == (True, 1, True)
    assert made.report is not None
    assert made.report.stat().st_size > 100_000
