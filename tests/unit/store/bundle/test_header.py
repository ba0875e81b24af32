"""Headers and manifests are read back; anything else is refused with a reason."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.store.bundle import header

HEADER = header.Header(
    overnight="0.1.0",
    created_us=5,
    event="net.driver_reset-1",
    kind="net.driver_reset",
    host="db-7",
    time_us=1,
    hosts=("db-7", "\udcff"),
    windows=(header.Span("db-7", 0, 9),),
    recurrences=0,
    left_out=3,
    masked={"unit names": 2},
    notes=("nothing",),
    members=2,
    manifest_sha256="0" * 64,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def test_a_header_is_read_back() -> None:
    assert header.parse_header(HEADER.encode()) == HEADER
    assert HEADER.encode() == HEADER.encode()


@given(st.sampled_from(sorted(json.loads(HEADER.encode()))), VALUES)
def test_a_header_with_any_value_is_read_or_refused(name: str, value: object) -> None:
    fields = json.loads(HEADER.encode()) | {name: value}
    try:
        parsed = header.parse_header(json.dumps(fields).encode())
    except (header.NoBundleError, header.FutureError):
        return
    assert json.loads(parsed.encode())["format"] == header.FORMAT


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(header.NoBundleError):
        header.parse_header(data)


@pytest.mark.parametrize("name", sorted(json.loads(HEADER.encode())))
def test_a_header_without_a_field_is_refused(name: str) -> None:
    fields = json.loads(HEADER.encode())
    del fields[name]
    if name == "needs":  # required only in later versions
        assert header.parse_header(json.dumps(fields).encode()) == HEADER
        return
    with pytest.raises(header.NoBundleError):
        header.parse_header(json.dumps(fields).encode())


def test_a_version_of_true_is_not_a_version() -> None:
    fields = json.loads(HEADER.encode()) | {"version": True}
    with pytest.raises(header.NoBundleError, match="another format"):
        header.parse_header(json.dumps(fields).encode())


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=3))
def test_a_manifest_with_any_members_is_refused(members: dict[str, object]) -> None:
    text = json.dumps({"members": members}).encode()
    fits = dataclasses.replace(
        HEADER, members=len(members), manifest_sha256=hashlib.sha256(text).hexdigest()
    )
    if not members:
        assert header.parse_manifest(text, fits) == {}
        return
    with pytest.raises(header.NoBundleError):
        header.parse_manifest(text, fits)
