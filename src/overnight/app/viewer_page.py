"""The data of a viewer page: its window, its baseline, and the filters on stacks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from overnight import errors
from overnight.model.event import Event
from overnight.model.flame import FrameKind
from overnight.model.selection import Selection, Window
from overnight.queries import heatmap, reader, view

UNKNOWN = "[unknown]"


def page_view(
    source: reader.Reader,
    host: str,
    windows: tuple[Window, ...],
    chosen: Selection,
    *,
    marks: tuple[Event, ...] = (),
    title: str = "",
    needs: tuple[str, ...] = (),
) -> view.View:
    """Collect the windows; where not all samples fit, keep every sample at the edges of the first.

    Filters on stacks are applied here; the page applies the others itself. `needs` names filters that
    sums over segments cannot answer: with them, all samples must fit.
    """
    whole = Window(min(w.begin_us for w in windows), max(w.end_us for w in windows))
    # The page keeps every sample around events: an event at each edge has the same effect.
    edges = (windows[0].begin_us, windows[0].end_us)
    near = tuple(Event(us, "edge") for us in edges if whole.begin_us < us < whole.end_us)
    shown = view.view(source, whole, host, (*marks, *near), title=title)
    coarse = any(
        part.step_us and part.begin_us < window.end_us and part.end_us > window.begin_us
        for part in shown.detail
        for window in windows
    )
    if coarse and needs:
        raise errors.CannotError(
            f"a page of this window cannot filter by {' and '.join(needs)}",
            why="not all samples fit; the sums in their place have only process and stack",
            todo="choose a shorter window or baseline, or -O text, which reads every sample",
        )
    shown = dataclasses.replace(shown, events=marks)
    return _filtered(shown, source, chosen) if chosen.by_node else shown


def _filtered(shown: view.View, source: reader.Reader, chosen: Selection) -> view.View:
    """Remove the rows and heatmap samples that the filters on stacks exclude."""
    arrays = dict(shown.arrays)
    kept = _stack_mask(shown, chosen)[arrays["row_stack"]]
    for name in arrays:
        if name.startswith("row_"):
            arrays[name] = arrays[name][kept]
    only = Selection(cores=shown.cores, function=chosen.function, side=chosen.side)
    for mode in ("busy", "kernel"):
        found = heatmap.by_core(
            source, shown.window, only, hosts=(shown.host,), step_us=shown.heat_step_us, mode=mode
        )
        columns = [found.rows.index(str(core)) for core in shown.cores]
        heat = np.minimum(found.values[:, columns], 0xFFFF)
        arrays[f"heat_{mode}"] = heat.astype("<u2").ravel()
    filters = [
        f"--{name} {getattr(chosen, name)}"
        for name in ("function", "side")
        if getattr(chosen, name)
    ]
    notes = (*shown.notes, f"this page holds only samples of {' '.join(filters)}")
    return dataclasses.replace(shown, arrays=arrays, notes=notes)


def _stack_mask(shown: view.View, chosen: Selection) -> npt.NDArray[np.bool_]:
    """Mark the page's stacks that pass the filters."""
    arrays: dict[str, npt.NDArray[Any]] = shown.arrays
    offset = arrays["stack_offset"].astype(np.int64)
    frame = arrays["stack_frame"].astype(np.int64)
    mask = np.ones(len(offset) - 1, bool)
    if chosen.function and len(mask):
        names = [shown.strings[i] for i in arrays["frame_name"].tolist()]
        # The page adds the binary to an unknown function; filters match its name only.
        plain = [UNKNOWN if name.startswith(f"{UNKNOWN} in ") else name for name in names]
        hit = reader.matches(np.array(plain, object), chosen.function)
        before = np.concatenate([[0], np.cumsum(hit[frame])])
        mask &= before[offset[1:]] > before[offset[:-1]]
    if chosen.side and len(mask):
        empty = offset[1:] == offset[:-1]
        last = np.where(empty, 0, offset[1:] - 1)
        kinds = arrays["frame_kind"][frame[last]] if len(frame) else np.zeros(len(mask), np.uint8)
        mask &= ((kinds == FrameKind.KERNEL) & ~empty) == (chosen.side == "kernel")
    return mask
