from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import errors
from overnight.model import sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512", 512), ("512B", 512), ("1kB", 1000), ("1KiB", 1024), ("20 GiB", 20 << 30), ("1.5m", 1_500_000),
     ("2T", 2 * 10**12), ("9007199254740993", 9007199254740993), ("0.1ti", 109951162778)],
)  # fmt: skip
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert sizes.parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "B", "-1", "1e3", "1.5.2", "3x", "1kk", "٣", "9" * 400, "inf", "1 0"]
)
def test_other_texts_are_not_sizes(text: str) -> None:
    with pytest.raises(errors.UsageError, match="is not a size"):
        sizes.parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1 kB"), (1000, "1 kB"), (999_499, "999 kB"), (999_500, "1 MB"),
     (1_234_567, "1.23 MB"), (10**15, "1000 TB"), (999_600_000_000, "1 TB")],
)  # fmt: skip
def test_sizes_are_formatted(size: float, text: str) -> None:
    assert sizes.format_size(size) == text


@given(st.integers(0, 10**15))
def test_a_size_written_and_read_is_the_same_to_three_digits(size: int) -> None:
    assert sizes.parse_size(sizes.format_size(size)) == pytest.approx(size, rel=0.006)


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(errors.UsageError):
        assert sizes.parse_size(text) >= 0
