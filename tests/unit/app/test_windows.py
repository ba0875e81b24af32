"""Windows and filters as users write them are resolved against a store."""

from __future__ import annotations

import pathlib

import captures
import pytest

from overnight import errors
from overnight.app import windows
from overnight.model.selection import Window

NIGHT_US = captures.NIGHT // 1000
RECORDED = Window(NIGHT_US, NIGHT_US + 30_000_000)


@pytest.mark.parametrize(
    ("begin", "end", "seconds"),
    [
        ("", "", (0, 30)),
        ("10s", "", (10, 30)),
        ("10s", "+5s", (10, 15)),
        ("", "5s", (0, 5)),
        (str(NIGHT_US / 1e6), "+1s", (0, 1)),
        ("06:50:10", "06:50:20", (10, 20)),  # of that day, however long ago
    ],
)
def test_texts_become_a_window(begin: str, end: str, seconds: tuple[int, int]) -> None:
    window = windows.resolve_window(RECORDED, begin, end)
    assert window == Window(*(NIGHT_US + second * 1_000_000 for second in seconds))


def test_a_window_outside_the_recording_names_the_recorded_time() -> None:
    with pytest.raises(errors.CannotError, match="nothing was recorded") as caught:
        windows.resolve_window(RECORDED, "2001-01-01", "2001-01-02")
    assert "2026-11-15T06:50:00.000Z" in caught.value.why


def test_samples_are_resolved_against_the_store(tmp_path: pathlib.Path) -> None:
    samples = captures.random_samples(
        5, 50, begin=captures.NIGHT, end=captures.NIGHT + 30 * captures.SECOND
    )
    captures.store(tmp_path, captures.build(samples, host="a"))
    query = windows.Query(core="0-1", process="dd", begin="1s")
    opened = windows.open_samples(windows.Request(tmp_path, query))
    assert opened.hosts == ("a",)
    assert opened.selection.cores == (0, 1)
    assert opened.title.startswith("a, 2026-11-15T06:50:01")
    with pytest.raises(errors.OvernightError, match="b"):
        windows.open_samples(windows.Request(tmp_path, windows.Query(host=("b",))))
