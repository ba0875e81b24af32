from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.model.selection import Coverage, Selection, Window, match_event, parse_event


@given(st.integers(-(10**16), 10**16), st.integers(-(10**16), 10**16))
def test_a_window_has_a_length(begin: int, end: int) -> None:
    if begin < end:
        assert Window(begin, end).seconds == pytest.approx((end - begin) / 1e6)
    else:
        with pytest.raises(errors.UsageError, match="-e must be after -b"):
            Window(begin, end)


@pytest.mark.parametrize("name", ["process", "thread", "function", "unit"])
@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{99999999999999999999}", "(?P<x", "(" * 5000])
def test_a_bad_pattern_names_its_option(name: str, pattern: str) -> None:
    with pytest.raises(errors.UsageError, match="is not a regular expression") as caught:
        Selection(**{name: pattern})
    assert f"--{name}" in caught.value.todo
    assert caught.value.why


def test_a_side_is_kernel_or_user() -> None:
    for side in ("", "kernel", "user"):
        Selection(side=side)
    with pytest.raises(errors.UsageError, match="--side must be kernel or user"):
        Selection(side="left")


def test_a_selection_knows_whether_it_depends_on_tasks_or_stacks() -> None:
    plain = Selection(cores=(1,), idle=True, event=2)
    assert (plain.by_task, plain.by_node) == (False, False)
    for name in ("process", "thread", "unit"):
        assert Selection(**{name: "x"}).by_task
        assert not Selection(**{name: "x"}).by_node
    assert Selection(pids=(7,)).by_task
    assert Selection(function="x").by_node
    assert Selection(side="user").by_node


def test_coverage_is_json() -> None:
    coverage = Coverage(
        ("a",), Window(1, 2), 1.0, 2.0, 3.0, 4, 5, 6, 7, ((1, 2, "why"),), ("note",)
    )
    document = json.loads(json.dumps(coverage.as_json()))
    assert document["window"] == {"begin_us": 1, "end_us": 2}
    assert document["gaps"] == [[1, 2, "why"]]
    assert (document["samples"], document["idle"], document["lost"]) == (4, 5, 6)


EVENTS = ("cpu-clock", "cycles", "cycles:u", "page-faults")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("cpu-clock", "cpu-clock"), ("cpu", "cpu-clock"), ("cycles", "cycles"), ("p", "page-faults")],
)
def test_an_event_is_found_by_its_name_or_a_unique_prefix(wanted: str, expected: str) -> None:
    assert match_event(wanted, EVENTS) == expected


@pytest.mark.parametrize(
    ("wanted", "what", "why"),
    [
        ("c", "3 events begin with 'c'", "cpu-clock, cycles, cycles:u"),
        ("faults", "no event 'faults'", "cpu-clock, cycles, cycles:u, page-faults"),
        ("", "no event ''", "cpu-clock, cycles, cycles:u, page-faults"),
    ],
)
def test_an_unknown_event_is_refused_with_the_known_names(wanted: str, what: str, why: str) -> None:
    with pytest.raises(errors.UsageError, match=what) as refused:
        match_event(wanted, EVENTS * 2)
    assert why in refused.value.why


def test_an_event_is_a_number_or_a_name() -> None:
    assert [parse_event(text) for text in ("0", "12", "cycles", "r00c0", "²", "-1")] == [
        0, 12, "cycles", "r00c0", "²", "-1"
    ]  # fmt: skip
