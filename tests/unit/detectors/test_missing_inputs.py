"""A detector without evidence names what it needs and did not get."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import casebook
import pytest

from overnight.app import diagnose
from overnight.model.finding import Answer, Need, Status

if TYPE_CHECKING:
    from overnight import detectors

DETECTORS = (*diagnose.discover_detectors(), *diagnose.discover_fleet_detectors())


def name(detector: detectors.Detector) -> str:
    return detector.name


@pytest.mark.parametrize("detector", DETECTORS, ids=name)
def test_a_detector_without_evidence_names_the_missing_inputs(
    tmp_path: pathlib.Path, detector: detectors.Detector
) -> None:
    home = casebook.Home(tmp_path)
    home.event("net.driver_reset")
    answer = detector.look(home.case())
    assert answer.status in (Status.NO_DATA, Status.FOUND, Status.CLEAR)
    assert (answer.status is Status.NO_DATA) == bool(answer.missing)
    assert set(answer.missing) <= set(detector.needs)


def test_most_detectors_have_no_data_in_an_empty_recording(tmp_path: pathlib.Path) -> None:
    home = casebook.Home(tmp_path)
    home.event("net.driver_reset")
    answers = [detector.look(home.case()) for detector in DETECTORS]
    missing = {need for answer in answers for need in answer.missing}
    assert {Need.CPU, Need.PROFILES, Need.MEMORY_CGROUPS, Need.LIMITS} <= missing


def test_missing_inputs_are_part_of_the_json() -> None:
    answer = Answer("reclaim", Status.NO_DATA, missing=(Need.PROFILES, Need.VMSTAT))
    assert answer.as_json()["missing"] == ["profiles", "vmstat"]
