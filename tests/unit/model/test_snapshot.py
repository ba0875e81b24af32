from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight.model import snapshot

texts = st.text(max_size=5)
parts = st.dictionaries(
    st.sampled_from(snapshot.PARTS),
    st.dictionaries(texts, texts | st.dictionaries(texts, texts, max_size=2), max_size=3),
    max_size=3,
)


@hypothesis.given(parts)
def test_what_is_written_is_read_again_and_equals_itself(found: dict[str, snapshot.Part]) -> None:
    one = snapshot.Snapshot({"host": "a"}, found, (snapshot.Gap("os", "x", "y"),))
    again = snapshot.Snapshot.from_json(json.loads(json.dumps(one.as_json())))
    assert snapshot.compare(one, again).changes == ()
    assert again.as_json() == one.as_json()


@hypothesis.given(parts, parts)
def test_a_difference_is_told_from_both_sides(
    a: dict[str, snapshot.Part], b: dict[str, snapshot.Part]
) -> None:
    one, other = snapshot.Snapshot({}, a, ()), snapshot.Snapshot({}, b, ())
    there, back = snapshot.compare(one, other), snapshot.compare(other, one)
    assert [(c.part, c.key, c.property, c.after, c.before) for c in back.changes] == [
        (c.part, c.key, c.property, c.before, c.after) for c in there.changes
    ]
    assert there.unknown == back.unknown


def test_added_removed_changed_and_unknown() -> None:
    before = snapshot.Snapshot(
        {},
        {
            "packages": {"a": {"version": "1"}, "b": {"version": "1"}},
            "sysctl": {"x": "1", "y": "2"},
        },
        (snapshot.Gap("sysctl", "y", "permission denied"),),
    )
    after = snapshot.Snapshot({}, {"packages": {"a": {"version": "2"}, "c": {"version": "1"}}, "sysctl": {"x": "1"}, "os": {}}, ())  # fmt: skip
    found = snapshot.compare(before, after)
    assert [(one.key, one.before, one.after) for one in found.changes] == [
        ("a", "1", "2"),
        ("b", "1", None),
        ("c", None, "1"),
    ]
    assert found.unknown == ("os",)


def test_what_one_could_not_read_is_not_removed() -> None:
    """As root and as nobody: no difference of the host."""
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
        snapshot.Gap("modules", "a.parameters.x", "permission denied"),
        snapshot.Gap("sysctl", "net.a", "permission denied"),
        snapshot.Gap("cpu", "/proc/cpuinfo", "permission denied"),
    )
    found = snapshot.compare(
        snapshot.Snapshot({}, everything, ()), snapshot.Snapshot({}, partly, gaps)
    )
    assert [(one.key, one.property, one.after) for one in found.changes] == [
        ("online", "", "0-3"),
        ("a", "parameters.y", "2"),
    ]
    assert found.unknown == ("cpu",)


@pytest.mark.parametrize(
    "document",
    [{}, {"schema": "overnight.snapshot/2"}, {"schema": snapshot.SCHEMA, "header": {}, "parts": {"a": 1}, "gaps": []}, {"schema": snapshot.SCHEMA, "header": {}, "parts": {"a": {"b": {"c": 1}}}, "gaps": []}, {"schema": snapshot.SCHEMA, "header": {}, "parts": {}, "gaps": [{"x": 1}]}],
)  # fmt: skip
def test_other_documents_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"it is no|are not what"):
        snapshot.Snapshot.from_json(document)
