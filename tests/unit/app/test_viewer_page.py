"""The page of a query holds the samples of the query."""

from __future__ import annotations

import collections
import pathlib

import captures
import numpy as np
import pytest

from overnight import errors
from overnight.app import viewer_page
from overnight.model.event import Event
from overnight.model.selection import Selection, Window
from overnight.queries import heatmap, top, view

NIGHT, SECOND = captures.NIGHT, captures.SECOND
HOST = "alpha"


def count_functions(shown: view.View, window: Window) -> collections.Counter[str]:
    """Count samples by function anywhere on the stack, from the arrays of the page."""
    arrays = {name: array.tolist() for name, array in shown.arrays.items()}
    counted: collections.Counter[str] = collections.Counter()
    for time, stack, count, idle in zip(
        arrays["row_time"],
        arrays["row_stack"],
        arrays["row_count"],
        arrays["row_idle"],
        strict=True,
    ):
        at = shown.window.begin_us + time * 100
        if idle or not window.begin_us <= at < window.end_us:
            continue
        frames = arrays["stack_frame"][
            arrays["stack_offset"][stack] : arrays["stack_offset"][stack + 1]
        ]
        for name in {shown.strings[arrays["frame_name"][frame]] for frame in frames}:
            counted[name] += count
    return counted


@pytest.fixture
def night(tmp_path: pathlib.Path) -> captures.Night:
    samples = captures.random_samples(5, 3000, begin=NIGHT, end=NIGHT + 300 * SECOND)
    source = captures.store(tmp_path, captures.build(samples, end=NIGHT + 300 * SECOND))
    return captures.Night(source, {HOST: samples}, {HOST: 2}, 100)


@pytest.mark.parametrize(
    "selection",
    [
        Selection(function="tcp_|malloc"),
        Selection(side="kernel"),
        Selection(side="user"),
        Selection(function="unknown", side="user"),
        Selection(function="nothing of this name"),
        Selection(function="a\\.so"),
    ],
    ids=str,
)
def test_stack_filters_apply_to_the_page(night: captures.Night, selection: Selection) -> None:
    window = captures.window(NIGHT + 40 * SECOND, NIGHT + 200 * SECOND)
    shown = viewer_page.page_view(night.source, HOST, (window,), selection)
    expected = top.top(night.source, window, selection, kind="functions", limit=1000)
    counts = count_functions(shown, window)
    # The page shortens the path to "[unknown] in a.so"; the table keeps it.
    assert {name.replace("in a.so", "in /lib/a.so"): n for name, n in counts.items()} == {
        row.name: row.samples for row in expected.rows
    }
    only = Selection(cores=shown.cores, function=selection.function, side=selection.side)
    for mode in ("busy", "kernel"):
        heat = heatmap.by_core(night.source, shown.window, only, mode=mode)
        assert shown.arrays[f"heat_{mode}"].tolist() == heat.values.ravel().tolist()
    assert any("this page holds only" in note for note in shown.notes)


def test_other_filters_do_not_change_the_page(night: captures.Night) -> None:
    window = night.source.extent()
    plain = view.view(night.source, window, HOST)
    shown = viewer_page.page_view(night.source, HOST, (window,), Selection(process="nginx"))
    assert shown.notes == plain.notes
    for name, array in plain.arrays.items():
        assert np.array_equal(array, shown.arrays[name])


def test_the_page_spans_window_and_baseline_and_shows_only_the_marks(night: captures.Night) -> None:
    window = captures.window(NIGHT + 250 * SECOND, NIGHT + 260 * SECOND)
    before = captures.window(NIGHT + 10 * SECOND, NIGHT + 20 * SECOND)
    marks = (Event(window.begin_us, "mark", "here"),)
    shown = viewer_page.page_view(
        night.source, HOST, (window, before), Selection(), marks=marks, title="t"
    )
    assert (shown.window.begin_us, shown.window.end_us) == (before.begin_us, window.end_us)
    assert shown.events == marks
    assert shown.title == "t"


def test_a_page_that_is_too_large_keeps_every_sample_of_the_window(
    night: captures.Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = view.view
    monkeypatch.setattr(
        view, "view", lambda *args, **kwargs: limited(*args, **kwargs, max_rows=2000)
    )
    window = captures.window(NIGHT + 250 * SECOND, NIGHT + 253 * SECOND)
    before = captures.window(NIGHT + 10 * SECOND, NIGHT + 200 * SECOND)
    shown = viewer_page.page_view(night.source, HOST, (window, before), Selection())
    assert any(part.step_us for part in shown.detail)
    (at,) = [d for d in shown.detail if d.begin_us <= window.begin_us < d.end_us]
    assert at.step_us == 0
    assert at.end_us >= window.end_us
    expected = top.top(night.source, window, kind="functions", limit=1000)
    counts = count_functions(shown, window)
    assert {row.name for row in expected.rows if "unknown" not in row.name} <= set(counts)
    with pytest.raises(errors.CannotError, match="cannot filter by core and threads"):
        viewer_page.page_view(
            night.source, HOST, (window, before), Selection(), needs=("core", "threads")
        )
    # Every sample of the window fits, so the filter is possible.
    alone = viewer_page.page_view(night.source, HOST, (window,), Selection(), needs=("core",))
    assert {part.step_us for part in alone.detail} == {0}
