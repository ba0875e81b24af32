"""The EC2 provider decides the same with the prose of its errors blanked."""

from __future__ import annotations

import pathlib

import blankprose
import pytest

# Which region is tried next, what counts as terminated, and what is raised.
_TESTS = blankprose.tests_of(pathlib.Path(__file__).with_name("test_ec2.py"))
test_without_capacity_the_next_region_is_tried = _TESTS[
    "test_without_capacity_the_next_region_is_tried"
]
test_an_instance_in_the_second_region_is_not_launched_again = _TESTS["test_an_instance_in_the_second_region_is_not_launched_again"]  # fmt: skip
test_terminating_a_missing_instance_succeeds = _TESTS[
    "test_terminating_a_missing_instance_succeeds"
]
test_a_refused_termination_is_an_error = _TESTS["test_a_refused_termination_is_an_error"]
test_why_an_instance_is_gone = _TESTS["test_why_an_instance_is_gone"]


@pytest.fixture(autouse=True)
def _blank_prose(monkeypatch: pytest.MonkeyPatch) -> None:
    blankprose.blank(monkeypatch)
