"""The viewer's data: every sample if they fit, otherwise sums with the same totals."""

from __future__ import annotations

import collections
import pathlib

import captures
import numpy as np
import pytest

from overnight import errors
from overnight.model.event import Event
from overnight.model.selection import Selection, Window
from overnight.queries import view

SECOND, NIGHT = captures.SECOND, captures.NIGHT
Row = tuple[int, int, str, tuple[str, ...], bool]


def rows(shown: view.View) -> collections.Counter[Row]:
    """(tick, core, process, functions, idle) -> samples."""
    a = shown.arrays
    offset = a["stack_offset"].tolist()
    counted: collections.Counter[Row] = collections.Counter()
    for time, core, task, stack, count, idle in zip(
        *(a[f"row_{n}"].tolist() for n in ("time", "core", "task", "stack", "count", "idle")),
        strict=True,
    ):
        frames = a["stack_frame"][offset[stack] : offset[stack + 1]]
        path = tuple(shown.strings[a["frame_name"][frame]] for frame in frames)
        process = shown.strings[a["task_process"][task]]
        counted[time, core, process, path, bool(idle)] += count
    return counted


def named(path: tuple[captures.Function, ...]) -> tuple[str, ...]:
    return tuple(
        f"[unknown] in {module.rpartition('/')[2]}" if name == "[unknown]" else name
        for name, module, _ in path
    )


def expected(samples: list[captures.Sample], shown: view.View) -> collections.Counter[Row]:
    counted: collections.Counter[Row] = collections.Counter()
    for s in samples:
        tick = (s.time_us - shown.window.begin_us) // view.TICK_US
        core = s.cpu if s.cpu >= 0 else view.NO_CORE
        counted[tick, core, s.process, named(s.path), s.idle] += s.count
    return counted


def inside(night: captures.Night, window: Window) -> list[captures.Sample]:
    everything = Selection(idle=True)
    return captures.chosen_samples(night.samples["alpha"], window, everything)


def check_indices(shown: view.View) -> None:
    a = shown.arrays
    assert (np.diff(a["row_time"].astype(np.int64)) >= 0).all()
    assert (np.diff(a["stack_offset"].astype(np.int64)) >= 0).all()
    assert a["stack_offset"][-1] == len(a["stack_frame"])
    for column, size in (
        ("row_task", len(a["task_pid"])),
        ("row_stack", len(a["stack_offset"]) - 1),
        ("stack_frame", len(a["frame_name"])),
        ("frame_name", len(shown.strings)),
        ("frame_module", len(shown.strings)),
        ("task_thread", len(shown.strings)),
        ("task_process", len(shown.strings)),
        ("task_unit", len(shown.strings)),
    ):
        assert not len(a[column]) or int(a[column].max()) < size, column
    assert set(a["row_core"].tolist()) <= {*shown.cores, view.NO_CORE}
    assert len(a["heat_busy"]) == len(a["heat_kernel"])
    steps = (shown.window.end_us - shown.window.begin_us) // shown.heat_step_us
    assert len(a["heat_busy"]) == steps * len(shown.cores)
    assert list(a)[:2] == ["heat_busy", "heat_kernel"]
    assert shown.strings[0] == ""


def test_every_sample_is_shown_if_they_fit(night: captures.Night) -> None:
    for window in night.windows(21):
        shown = view.view(night.source, window, "alpha")
        check_indices(shown)
        samples = inside(night, window)
        assert rows(shown) == expected(samples, shown)
        assert [detail.step_us for detail in shown.detail] == [0] * len(shown.detail)
        assert not any("summed" in note for note in shown.notes)
        heat = shown.arrays["heat_busy"].reshape(-1, len(shown.cores) or 1)
        whole = Window(shown.window.begin_us, shown.window.end_us)
        assert int(heat.sum()) == sum(s.count for s in inside(night, whole) if not s.idle)


ALARM = (NIGHT + 200 * SECOND) // 1000


def coarse(night: captures.Night, max_rows: int) -> view.View:
    window = night.source.extent(("alpha",))
    events = (Event(ALARM, "net.driver_reset", core=2),)
    shown = view.view(night.source, window, "alpha", events, max_rows=max_rows)
    check_indices(shown)
    return shown


def test_a_coarse_view_keeps_samples_around_events_and_totals_elsewhere(
    night: captures.Night,
) -> None:
    shown = coarse(night, 900)
    near = captures.window(NIGHT + 140 * SECOND, NIGHT + 230 * SECOND)
    fine = [d for d in shown.detail if not d.step_us]
    assert [(d.begin_us, d.end_us, d.per_core) for d in fine] == [
        (near.begin_us, near.end_us, True)
    ]
    extent = night.source.extent(("alpha",))
    at = extent.begin_us
    counted = rows(shown)
    for detail in sorted(shown.detail, key=lambda d: d.begin_us):
        assert detail.begin_us == at  # no time is left out
        at = detail.end_us
        samples = inside(night, Window(detail.begin_us, detail.end_us))
        first = (detail.begin_us - shown.window.begin_us) // view.TICK_US
        last = (detail.end_us - 1 - shown.window.begin_us) // view.TICK_US
        in_detail = collections.Counter({r: n for r, n in counted.items() if first <= r[0] <= last})
        if detail.step_us:
            assert detail.step_us == detail.end_us - detail.begin_us
            assert not detail.per_core
            assert {r[1] for r in in_detail} <= {view.NO_CORE}
        else:
            assert in_detail == expected(samples, shown)
        for idle in (False, True):
            total = sum(n for r, n in in_detail.items() if r[4] == idle)
            assert total == sum(s.count for s in samples if s.idle == idle)
    assert at == extent.end_us
    assert any("summed" in note for note in shown.notes)
    assert not any("want of room" in note for note in shown.notes)


@pytest.mark.parametrize("max_rows", [1, 40, 200])
def test_the_rarest_stacks_count_for_their_process(night: captures.Night, max_rows: int) -> None:
    shown = coarse(night, max_rows)
    assert [d for d in shown.detail if not d.step_us] == []
    assert any("1 events are shown without" in note for note in shown.notes)
    samples = inside(night, night.source.extent(("alpha",)))
    for process in {s.process for s in samples}:
        for idle in (False, True):
            count = sum(n for r, n in rows(shown).items() if (r[2], r[4]) == (process, idle))
            wanted = [s.count for s in samples if (s.process, s.idle) == (process, idle)]
            assert count == sum(wanted)
    few = max_rows // (2 * len(shown.detail)) + len(captures.TASKS) + 1 + 2
    assert len(shown.arrays["row_time"]) <= len(shown.detail) * (few + 1)


def test_a_part_of_a_segment_is_summed_as_a_part(night: captures.Night) -> None:
    window = captures.window(NIGHT + 130 * SECOND, NIGHT + 150 * SECOND)
    shown = view.view(night.source, window, "alpha", max_rows=1)
    samples = inside(night, window)
    assert sum(shown.arrays["row_count"].tolist()) == sum(s.count for s in samples)


def test_samples_of_an_unknown_core_are_shown_without_a_core(tmp_path: pathlib.Path) -> None:
    samples = [captures.Sample(NIGHT, cpu=-1), captures.Sample(NIGHT, cpu=1)]
    source = captures.store(tmp_path, captures.build(samples, cores=(0, 1)))
    shown = view.view(source, source.extent(), "alpha")
    check_indices(shown)
    assert shown.cores == (0, 1)
    assert sorted(shown.arrays["row_core"].tolist()) == [1, view.NO_CORE]
    assert shown.arrays["heat_busy"].tolist() == [0, 1]


def test_a_profile_without_cores_has_rows_and_no_heat(tmp_path: pathlib.Path) -> None:
    recorded = captures.build([captures.Sample(NIGHT, cpu=-1, count=9)], cores=(), timed=False)
    source = captures.store(tmp_path, recorded)
    shown = view.view(source, source.extent(), "alpha")
    check_indices(shown)
    assert (shown.cores, shown.arrays["row_count"].tolist()) == ((), [9])


def test_an_empty_window_has_no_rows(night: captures.Night) -> None:
    shown = view.view(night.source, Window(0, 10**6), "alpha")
    check_indices(shown)
    assert (shown.detail, len(shown.arrays["row_time"])) == ((), 0)


def test_an_unknown_host_or_too_long_window_is_refused(night: captures.Night) -> None:
    with pytest.raises(errors.CannotError, match="gamma"):
        view.view(night.source, night.source.extent(), "gamma")
    with pytest.raises(errors.UsageError, match="hours"):
        view.view(night.source, Window(0, 120 * 3600 * 10**6), "alpha")


def test_a_long_window_has_wider_columns_and_a_note(
    night: captures.Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "MAX_HEAT_CELLS", 300)
    window = night.source.extent(("alpha",))
    shown = view.view(night.source, window, "alpha")
    check_indices(shown)
    assert shown.heat_step_us == 5_000_000
    assert any("each heatmap column is 5 s wide" in note for note in shown.notes)
    busy = sum(s.count for s in inside(night, window) if not s.idle)
    assert int(shown.arrays["heat_busy"].sum()) == busy
