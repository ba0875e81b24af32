"""Recorded rehearsals of real incidents get the true verdict when diagnosed again."""

from __future__ import annotations

import pathlib

import pytest

from overnight.app import recorded_rehearsal

RECORDED = sorted(recorded_rehearsal.FOLDER.glob("*.overnight"))


def test_the_recorded_incidents_exist() -> None:
    for name in ("rt-hog", "softirq-storm", "zombies"):
        assert recorded_rehearsal.find_recorded(name) in RECORDED


def test_the_recordings_are_small_enough_to_ship() -> None:
    assert sum(path.stat().st_size for path in RECORDED) < 1_000_000


@pytest.mark.parametrize("bundle", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_incident_gets_its_true_verdict(
    bundle: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    result = recorded_rehearsal.replay(bundle, tmp_path)
    assert result.problems == ()
    assert (result.correct, result.rank, result.replayed) == (True, 1, True)
    assert result.report is not None
    assert result.report.stat().st_size > 100_000
