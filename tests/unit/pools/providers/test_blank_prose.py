"""The decisions of the EC2 provider again, with the prose of its errors blanked."""

from __future__ import annotations

import pathlib

import blankprose
import pytest

# Which region is tried next, what counts as terminated, and what is raised.
_TESTS = blankprose.tests_of(pathlib.Path(__file__).with_name("test_ec2.py"))
test_no_room_here_is_asked_for_there = _TESTS["test_no_room_here_is_asked_for_there"]
test_one_that_was_made_there_is_not_made_here = _TESTS["test_one_that_was_made_there_is_not_made_here"]  # fmt: skip
test_one_that_is_not_there_has_ended = _TESTS["test_one_that_is_not_there_has_ended"]
test_one_that_may_not_be_ended_is_told_of = _TESTS["test_one_that_may_not_be_ended_is_told_of"]
test_why_one_is_gone = _TESTS["test_why_one_is_gone"]


@pytest.fixture(autouse=True)
def _blank_prose(monkeypatch: pytest.MonkeyPatch) -> None:
    blankprose.blank(monkeypatch)
