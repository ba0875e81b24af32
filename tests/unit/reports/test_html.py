"""The page holds the data of the view, in the format that web/README.md documents."""

from __future__ import annotations

import base64
import gzip
import importlib.resources
import io
import json
import pathlib
import re
import struct
from typing import Any

import captures
import numpy as np
import pytest

from overnight import errors
from overnight.model.event import Event
from overnight.model.selection import Window
from overnight.queries import view
from overnight.reports import html

NIGHT, SECOND = captures.NIGHT, captures.SECOND
WIDTHS = {"u8": ("<u1", 1), "u16": ("<u2", 2), "u32": ("<u4", 4), "i32": ("<i4", 4)}
ARRAYS = {
    "heat_busy": "u16", "heat_kernel": "u16", "frame_name": "u32", "frame_module": "u32",
    "frame_kind": "u8", "stack_offset": "u32", "stack_frame": "u32", "task_pid": "i32",
    "task_tid": "i32", "task_thread": "u32", "task_process": "u32", "task_unit": "u32",
    "row_time": "u32", "row_core": "u16", "row_task": "u32", "row_stack": "u32", "row_count": "u32",
    "row_idle": "u8",
}  # fmt: skip


def decode(payload: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    data = gzip.decompress(payload)
    (length,) = struct.unpack_from("<I", data)
    assert (4 + length) % 8 == 0
    header = json.loads(data[4 : 4 + length])
    body = data[4 + length :]
    arrays = {}
    for name, place in header["arrays"].items():
        kind, width = WIDTHS[place["type"]]
        assert place["offset"] % 8 == 0
        assert place["offset"] + place["length"] * width <= len(body)
        arrays[name] = np.frombuffer(body, kind, place["length"], place["offset"])
    return header, arrays


@pytest.fixture
def shown(tmp_path: pathlib.Path) -> view.View:
    samples = captures.random_samples(4, 300, begin=NIGHT, end=NIGHT + 30 * SECOND)
    samples += [
        captures.Sample(
            NIGHT + i,
            (captures.user(name, name),),
            process=name,
            thread=name,
            unit=name,
        )
        for i, name in enumerate(
            ("</script><script>alert(1)</script>", "<!--", "\u2028", "\0", "]]>")
        )
    ]
    gap = captures.capture.Gap(NIGHT + SECOND, NIGHT + 2 * SECOND, "</script>")
    capture = captures.build(
        samples, end=NIGHT + 30 * SECOND, gaps=(gap,), lost=3, notes=("</script>",), cores=(0, 1, 2)
    )
    source = captures.store(tmp_path, capture)
    events = (
        Event(NIGHT // 1000 + 5, "net.driver_reset", "</script>", core=1, severity="critical"),
        Event(NIGHT // 1000 + 9, "kernel.oom"),
    )
    return view.view(source, source.extent(), "alpha", events, title="</script>")


def test_the_header_has_the_fields_that_the_viewer_checks(shown: view.View) -> None:
    header, arrays = decode(html.payload(shown))
    assert header["schema"] == "overnight.view/1"
    assert (header["host"], header["title"]) == ("alpha", "</script>")
    assert header["begin_us"] <= header["heat"]["begin_us"] < header["end_us"]
    assert (header["frequency"], header["cores"], header["lost"]) == (100, [0, 1, 2], 3)
    assert header["gaps"] == [
        {"begin_us": NIGHT // 1000 + 10**6, "end_us": NIGHT // 1000 + 2 * 10**6, "why": "</script>"}
    ]
    assert [(e["core"], e["severity"]) for e in header["events"]] == [
        (1, "critical"),
        (None, "warning"),
    ]
    assert all(set(d) == {"begin_us", "end_us", "step_us", "per_core"} for d in header["detail"])
    heat = header["heat"]
    assert heat["begin_us"] + heat["columns"] * heat["step_us"] == header["end_us"]
    assert len(arrays["heat_busy"]) == heat["columns"] * len(header["cores"])
    assert {name: place["type"] for name, place in header["arrays"].items()} == ARRAYS
    assert header["strings"] == shown.strings


def test_the_header_holds_the_opening_selection(shown: view.View) -> None:
    header, _ = decode(html.payload(shown))
    assert "open" not in header
    window, before = Window(5, 9), Window(1, 4)
    opening = html.Opening(window, before, top="threads", process="a|b", cores="0-3", limit=7)
    header, arrays = decode(html.payload(shown, opening))
    assert header["open"] == {
        "window": {"begin_us": 5, "end_us": 9},
        "baseline": {"begin_us": 1, "end_us": 4},
        "map": "cores",
        "measure": "busy",
        "top": "threads",
        "rank": "self",
        "limit": 7,
        "tables_first": False,
        "callers": False,
        "idle": False,
        "process": "a|b",
        "thread": "",
        "unit": "",
        "cores": "0-3",
    }
    assert arrays.keys() == shown.arrays.keys()
    header, _ = decode(html.payload(shown, html.Opening(None)))
    assert header["open"]["window"] is None


def test_arrays_are_unchanged(shown: view.View) -> None:
    _, arrays = decode(html.payload(shown))
    assert arrays.keys() == shown.arrays.keys()
    for name, array in arrays.items():
        assert array.tolist() == shown.arrays[name].tolist(), name
    assert len(arrays["stack_offset"]) > 5
    assert list(arrays)[:2] == ["heat_busy", "heat_kernel"]  # the page draws them first


def test_the_page_is_the_template_with_the_data_inserted(shown: view.View) -> None:
    page = io.BytesIO()
    html.write_view(shown, page)
    text = page.getvalue().decode("utf-8")
    template = (
        importlib.resources.files("overnight.reports").joinpath("viewer.html").read_text("utf-8")
    )
    before, after = template.split("<!--NIGHT-->")
    assert text.startswith(before)
    assert text.endswith(after)
    inside = text[len(before) : len(text) - len(after)]
    match = re.fullmatch(
        r'<script type="application/octet-stream" id="night">([A-Za-z0-9+/=]+)</script>', inside
    )
    assert match is not None  # host names are base64, so none of them can close the element
    header, _ = decode(base64.b64decode(match[1], validate=True))
    assert "</script><script>alert(1)</script>" in header["strings"]


def test_an_installation_without_the_viewer_is_an_error(
    shown: view.View, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(importlib.resources, "files", lambda _: tmp_path)
    with pytest.raises(errors.MissingToolError, match="was not built"):
        html.write_view(shown, io.BytesIO())


def test_an_empty_view_is_a_page(tmp_path: pathlib.Path) -> None:
    source = captures.store(tmp_path, captures.build([]))
    empty = view.view(source, source.extent(), "alpha")
    header, arrays = decode(html.payload(empty))
    assert header["heat"]["columns"] == 1
    assert arrays["stack_offset"].tolist() == [0]
