"""Segment names sort by time and contain host, start and boot."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.sources import perf

HOSTS = st.from_regex(re.compile(r"[A-Za-z0-9._-]{1,30}"), fullmatch=True)
STARTS = st.integers(0, 4_000_000_000_000).map(lambda ms: ms * 1_000_000)


@given(HOSTS, STARTS, st.text("0123456789abcdef", min_size=8, max_size=8))
def test_a_name_round_trips(host, start, boot):
    name = perf.SegmentName(host, start, boot)
    assert perf.parse_segment_name(str(name)) == name


@given(st.lists(STARTS, min_size=2))
def test_names_sort_by_time(starts):
    names = [str(perf.SegmentName("h", start, "0" * 8)) for start in sorted(starts)]
    assert names == sorted(names)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "status.json",
        "h-20260301T020304.056Z-0123abcd.perf.data.writing",
        "h-20261301T020304.056Z-0123abcd.perf.data",
        "h-20260301T020304Z-0123abcd.perf.data",
        "-20260301T020304.056Z-0123abcd.perf.data",
    ],
)
def test_other_files_are_not_segments(name):
    assert perf.parse_segment_name(name) is None


def test_two_segments_of_one_millisecond_are_both_kept(tmp_path):
    name = perf.SegmentName("h", 10**18, "0" * 8)
    paths = []
    for text in ("a", "b"):
        written = tmp_path / f"{text}.writing"
        written.write_text(text)
        paths.append(perf.publish(written, name))
    assert [path.read_text() for path in paths] == ["a", "b"]


def test_the_two_clocks_are_read_together():
    first, second = perf.read_clock(), perf.read_clock()
    assert abs(first.offset_ns - second.offset_ns) < 1_000_000


def test_identity_is_safe_in_a_file_name(tmp_path, monkeypatch):
    monkeypatch.setattr(perf.platform, "node", lambda: "we/b 1\n")
    assert perf.read_identity(tmp_path) == perf.Identity("we_b_1_", "0" * 32)
    assert re.fullmatch("[0-9a-f]{32}", perf.read_identity().boot)
