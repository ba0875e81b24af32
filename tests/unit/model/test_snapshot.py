from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight.model.snapshot import PARTS, SCHEMA, Gap, Part, Snapshot, compare

texts = st.text(max_size=5)
parts = st.dictionaries(
    st.sampled_from(PARTS),
    st.dictionaries(texts, texts | st.dictionaries(texts, texts, max_size=2), max_size=3),
    max_size=3,
)


@hypothesis.given(parts)
def test_a_snapshot_survives_json(content: dict[str, Part]) -> None:
    snapshot = Snapshot({"host": "a"}, content, (Gap("os", "x", "y"),))
    restored = Snapshot.from_json(json.loads(json.dumps(snapshot.as_json())))
    assert compare(snapshot, restored).changes == ()
    assert restored.as_json() == snapshot.as_json()


@hypothesis.given(parts, parts)
def test_a_difference_is_symmetric(a: dict[str, Part], b: dict[str, Part]) -> None:
    first, second = Snapshot({}, a, ()), Snapshot({}, b, ())
    forward, backward = compare(first, second), compare(second, first)
    assert [(c.part, c.key, c.property, c.after, c.before) for c in backward.changes] == [
        (c.part, c.key, c.property, c.before, c.after) for c in forward.changes
    ]
    assert forward.unknown == backward.unknown


def test_added_removed_changed_and_unknown() -> None:
    before = Snapshot(
        {},
        {
            "packages": {"a": {"version": "1"}, "b": {"version": "1"}},
            "sysctl": {"x": "1", "y": "2"},
        },
        (Gap("sysctl", "y", "permission denied"),),
    )
    after = Snapshot({}, {"packages": {"a": {"version": "2"}, "c": {"version": "1"}}, "sysctl": {"x": "1"}, "os": {}}, ())  # fmt: skip
    comparison = compare(before, after)
    assert [(change.key, change.before, change.after) for change in comparison.changes] == [
        ("a", "1", "2"),
        ("b", "1", None),
        ("c", None, "1"),
    ]
    assert comparison.unknown == ("os",)


def test_restarts_are_compared_in_bands_and_shown_as_they_are() -> None:
    def make(restarts: str) -> Snapshot:
        return Snapshot({}, {"running": {"a.service": {"restarts": restarts}}}, ())

    assert compare(make("11"), make("98")).changes == ()
    (change,) = compare(make("0"), make("1834")).changes
    assert (change.before, change.after) == ("0", "1834")
    old = compare(Snapshot({}, {"os": {}}, ()), Snapshot({}, {"os": {}, **make("3").parts}, ()))
    assert (old.changes, old.unknown) == ((), ("running",))


def test_unreadable_values_are_not_reported_as_removed() -> None:
    """A snapshot by root and one by nobody show no difference of the host."""
    everything = {
        "modules": {"a": {"version": "1", "parameters.x": "1", "parameters.y": "1"}},
        "sysctl": {"net.a.b": "1", "net.c": "1", "vm.x": "1"},
        "cpu": {"model": "m", "online": "0-1"},
    }
    partly = {
        "modules": {"a": {"version": "1", "parameters.y": "2"}},
        "sysctl": {"net.c": "1", "vm.x": "1"},
        "cpu": {"online": "0-3"},
    }
    gaps = (
        Gap("modules", "a.parameters.x", "permission denied"),
        Gap("sysctl", "net.a", "permission denied"),
        Gap("cpu", "/proc/cpuinfo", "permission denied"),
    )
    comparison = compare(Snapshot({}, everything, ()), Snapshot({}, partly, gaps))
    assert [(change.key, change.property, change.after) for change in comparison.changes] == [
        ("online", "", "0-3"),
        ("a", "parameters.y", "2"),
    ]
    assert comparison.unknown == ("cpu",)


@pytest.mark.parametrize(
    "document",
    [{}, {"schema": "overnight.snapshot/2"}, {"schema": SCHEMA, "header": {}, "parts": {"a": 1}, "gaps": []}, {"schema": SCHEMA, "header": {}, "parts": {"a": {"b": {"c": 1}}}, "gaps": []}, {"schema": SCHEMA, "header": {}, "parts": {}, "gaps": [{"x": 1}]}],
)  # fmt: skip
def test_other_documents_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"not a document|are not those"):
        Snapshot.from_json(document)
