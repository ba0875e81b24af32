"""Dataclasses from JSON: the inverse of asdict, and a named place for everything else."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from overnight.model import decoding
from overnight.model.event import Event, Value
from overnight.model.finding import Answer, Evidence, Finding, Need, Status, Subject
from overnight.model.selection import Window


class Colour(enum.StrEnum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: float


@dataclasses.dataclass(frozen=True)
class Inner:
    begin: int
    end: int = 0


@dataclasses.dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    maybe: Inner | None
    many: tuple[Inner, ...] = ()
    pair: tuple[str, int] | None = None
    colour: Colour = Colour.RED
    point: Point | None = None
    number: float = 0.0
    labels: Mapping[str, str | int | float | bool] = dataclasses.field(default_factory=dict)
    anything: object = None


LEAST = {"name": "a", "inner": {"begin": 1}, "maybe": None}
WHOLE = Outer(
    "a", Inner(1), Inner(2, 3), (Inner(4), Inner(5)), ("x", 6), Colour.RED, Point(7, 8.5), 9.0,
    {"text": "t", "int": 1, "float": 1.0, "bool": True}, {"deep": [1, None]},
)  # fmt: skip


def test_a_value_survives_json() -> None:
    document = dataclasses.asdict(WHOLE) | {"point": WHOLE.point._asdict(), "later": "ignored"}
    decoded = decoding.decode(Outer, json.loads(json.dumps(document)))
    assert decoded == WHOLE
    assert [type(value) for value in decoded.labels.values()] == [str, int, float, bool]
    assert decoding.decode(Outer, LEAST) == Outer("a", Inner(1), None)
    assert decoding.decode(Outer, LEAST | {"number": 3}).number == 3.0


def test_nested_fields_may_be_inline() -> None:
    assert decoding.decode(Outer, {"name": "a", "begin": 5, "end": 6}) == Outer("a", Inner(5, 6), Inner(5, 6))  # fmt: skip
    with pytest.raises(decoding.ShapeError, match="inner is not there"):
        decoding.decode(Outer, {"name": "a", "begin": None, "end": None})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 5}, "name is not a text"),
        ({"name": None}, "name is not a text"),
        ({"inner": []}, "inner is not an object"),
        ({"inner": {"begin": "1"}}, "inner.begin is not a whole number"),
        ({"inner": {"begin": 1.0}}, "inner.begin is not a whole number"),
        ({"inner": {"begin": True}}, "inner.begin is not a whole number"),
        ({"inner": {}}, "inner.begin is not there"),
        ({"maybe": {"begin": "x"}}, "maybe.begin is not a whole number"),
        ({"many": {}}, "many is not a list"),
        ({"many": [{"begin": 1}, 2]}, r"many\[1\] is not an object"),
        ({"pair": ["x"]}, "pair is not of a known type"),
        ({"colour": "blue"}, "colour is not one of red"),
        ({"point": [1, 2]}, "point is not of a known type"),
        ({"point": {"x": 1}}, "point is not of a known type"),
        ({"number": "1"}, "number is not a number"),
        ({"labels": []}, "labels is not an object"),
        ({"labels": {"a": None}}, "labels.a is not of a known type"),
    ],
)
def test_another_shape_is_refused_with_its_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(decoding.ShapeError, match=message):
        decoding.decode(Outer, LEAST | change)


@pytest.mark.parametrize("value", [None, 5, "x", [], True])
def test_no_document_is_refused(value: object) -> None:
    with pytest.raises(decoding.ShapeError, match="the document is not an object"):
        decoding.decode(Outer, value)


def test_published_findings_and_events_are_read_back() -> None:
    evidence = (
        Evidence("t", "events", {"p": 0.5, "n": 3, "b": True, "s": "x"}, Window(3, 4), "look"),
        Evidence("t", "host"),
    )
    finding = Finding("i", "d", "a.b", Subject(core=3, cohort="zone a"), Window(1, 2), 0.5, "s", evidence, {"n": 2.0}, evidence)  # fmt: skip
    document = json.loads(json.dumps(finding.as_json()))
    names = {"Window": Window, "Value": Value}
    assert decoding.decode(Finding, document, **names) == finding
    answer = Answer("d", Status.NO_DATA, (), "why", (Need.EVENTS,))
    assert decoding.decode(Answer, json.loads(json.dumps(answer.as_json())), **names) == answer
    event = Event(5, "a.b", fields={"queue": 4, "text": "x"})
    assert decoding.decode(Event, json.loads(json.dumps(event.as_json()))) == event
    with pytest.raises(decoding.ShapeError, match="is not valid: -e must be after -b"):
        decoding.decode(Finding, document | {"begin_us": 9}, **names)
