from __future__ import annotations

import collections
import gzip
import importlib
import io
import json
import pkgutil
from xml.etree import ElementTree as ET

import folding
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight import reports
from overnight.model import colours
from overnight.model.flame import UNKNOWN, Folded, Frame, FrameKind
from overnight.reports import collapsed, pprof, speedscope, svg
from overnight.reports import json as json_report
from overnight.reports.diagnosis.pictures import embedded
from overnight.reports.pictures import difference

WRITERS: tuple[reports.Writer, ...] = tuple(
    importlib.import_module(f"{reports.__name__}.{module.name}")
    for module in pkgutil.iter_modules(reports.__path__)
    if module.name
    not in ("diagnosis", "html", "investigation", "pictures")  # these do not write stacks
)
SVG = "{http://www.w3.org/2000/svg}"

MAIN = Frame("main", "/opt/app")
WORK = Frame("work<int>(a & b)", "/opt/app")
IDLE = Frame("do_idle", "[kernel]", FrameKind.KERNEL)


def make_folded(*stacks: tuple[tuple[Frame, ...], int], **more: object) -> Folded:
    value: dict[str, object] = {
        "title": "A <night> & a day",
        "host": "web-7",
        "begin_ns": 1_700_000_000_000_000_000,
        "end_ns": 1_700_000_005_000_000_000,
        "frequency": 97,
        "cores": (0, 1),
        "event": "cpu-clock",
        "lost": 3,
        "notes": ("one note",),
        **more,
    }
    return folding.fold(stacks, **value)


GOOD = make_folded(((MAIN, WORK), 70), ((MAIN,), 20), ((IDLE,), 10))


def render(writer: reports.Writer, value: Folded) -> bytes:
    buffer = io.BytesIO()
    writer.write(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_the_same_value_gives_the_same_bytes(writer: reports.Writer) -> None:
    assert render(writer, GOOD) == render(writer, GOOD) != b""


def test_five_formats_write_stacks() -> None:
    assert len(WRITERS) == 5


hostile = st.text(max_size=12) | st.sampled_from(
    [
        "</title><script>alert(1)</script>",
        "]]>",
        "&#0;",
        "a;b\n1",
        "\ud800",
        "\0",
        "\"'",
        "_[k]",
        "",
    ]
)
FRAMES = st.builds(Frame, hostile, hostile, st.sampled_from([0, 1]))


@given(
    stacks=st.lists(st.tuples(st.lists(FRAMES, max_size=5).map(tuple), st.integers(0, 2**40))),
    title=hostile,
    note=hostile,
)
@settings(max_examples=60, deadline=None)
def test_hostile_names_break_no_format(
    stacks: list[tuple[tuple[Frame, ...], int]], title: str, note: str
) -> None:
    value = make_folded(*stacks, title=title, host=title, notes=(note,))
    root = ET.fromstring(render(svg, value))
    assert root.tag == SVG + "svg"
    assert {element.tag for element in root.iter()} <= {
        SVG + tag for tag in ("svg", "g", "rect", "text", "title", "desc", "style")
    }
    document = json.loads(render(json_report, value))
    expected = collections.Counter[tuple[Frame, ...]]()
    for frames, count in stacks:
        expected.update({frames: count} if frames and count else {})
    assert dict(folding.unfold(value)) == expected
    assert [stack["count"] for stack in document["stacks"]] == [n for _, n in value.stacks()]
    assert len(json.loads(render(speedscope, value))["profiles"][0]["samples"]) == len(expected)
    lines = render(collapsed, value).decode().split("\n")
    assert len(lines) == len(expected) + 1
    for (frames, count), line in zip(folding.unfold(value), lines, strict=False):
        assert line.endswith(f" {count}")
        assert line.count(";") == max(0, len(frames) - 1)
    gzip.decompress(render(pprof, value))


def test_collapsed_marks_the_kernel_and_escapes_separators() -> None:
    odd = Frame("a;b\nc"), Frame("mine_[k]"), Frame("f", "", FrameKind.KERNEL)
    text = render(collapsed, make_folded(((MAIN, *odd), 3), ((Frame(""),), 1))).decode()
    assert text == "main;a\\x3bb\\x0ac;mine_\\x5bk];f_[k] 3\n[unknown] 1\n"


def test_json_has_every_field() -> None:
    assert json.loads(render(json_report, GOOD)) == {
        "schema": "overnight.stacks/1",
        "title": "A <night> & a day",
        "host": "web-7",
        "begin_ns": 1_700_000_000_000_000_000,
        "end_ns": 1_700_000_005_000_000_000,
        "frequency": 97,
        "cores": [0, 1],
        "event": "cpu-clock",
        "samples": 100,
        "lost": 3,
        "notes": ["one note"],
        "empty": None,
        "unknown": None,
        "frames": [
            {"name": "main", "module": "/opt/app", "kind": "user"},
            {"name": "work<int>(a & b)", "module": "/opt/app", "kind": "user"},
            {"name": "do_idle", "module": "[kernel]", "kind": "kernel"},
        ],
        "stacks": [
            {"frames": [0], "count": 20},
            {"frames": [0, 1], "count": 70},
            {"frames": [2], "count": 10},
        ],
    }


def test_speedscope_weighs_in_cpu_time_where_samples_are_time() -> None:
    document = json.loads(render(speedscope, GOOD))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert document["shared"]["frames"][2] == {"name": "do_idle", "file": "[kernel]"}
    (profile,) = document["profiles"]
    each = round(1e9 / 97)
    assert profile["type"] == "sampled"
    assert profile["unit"] == "nanoseconds"
    assert profile["samples"] == [[0], [0, 1], [2]]
    assert profile["weights"] == [20 * each, 70 * each, 10 * each]
    assert profile["endValue"] == 100 * each
    faults = json.loads(render(speedscope, make_folded(((MAIN,), 4), event="page-faults")))
    assert faults["profiles"][0]["unit"] == "none"
    assert faults["profiles"][0]["weights"] == [4]


def parse_fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Parse protobuf independently of the writer, so that both cannot share a bug."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return value, at

    records: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        key, at = varint(at)
        value, at = varint(at)
        if key & 7 == 2:
            records.append((key >> 3, data[at : at + value]))
            at += value
        else:
            assert key & 7 == 0
            records.append((key >> 3, value))
    return records


def test_pprof_follows_its_format() -> None:
    packed = render(pprof, GOOD)
    assert packed[4:8] == b"\0\0\0\0"  # no time stamp
    top = parse_fields(gzip.decompress(packed))

    def of(number: int) -> list[bytes]:
        return [value for field, value in top if field == number and isinstance(value, bytes)]

    strings = of(6)
    assert strings[0] == b""
    kinds = [tuple(strings[int(v)] for _, v in parse_fields(value)) for value in of(1)]
    assert kinds == [(b"samples", b"count"), (b"cpu", b"nanoseconds")]
    functions = {dict(parse_fields(value))[1]: dict(parse_fields(value))[2] for value in of(5)}
    mappings = {dict(parse_fields(value))[1]: dict(parse_fields(value))[5] for value in of(3)}
    locations = {}
    for value in of(4):
        parts = dict(parse_fields(value))
        line = parts[4]
        assert isinstance(line, bytes)
        assert parts[2] in mappings
        locations[parts[1]] = strings[functions[dict(parse_fields(line))[1]]]
    assert 0 not in {*locations, *functions, *mappings}
    first = dict(parse_fields(of(2)[1]))
    assert isinstance(first[1], bytes)
    assert [locations[number] for number in first[1]] == [
        b"work<int>(a & b)",
        b"main",
    ]  # leaf first
    assert first[2] == b"\x46" + b"\xb4\xfe\x8d\xd8\x02"  # 70 samples, 70 * 10309278 ns
    assert {strings[number] for number in mappings.values()} == {b"/opt/app", b"[kernel.kallsyms]"}
    assert dict(top)[9] == GOOD.begin_ns
    assert dict(top)[10] == 5_000_000_000
    assert dict(top)[12] == round(1e9 / 97)


def parse_boxes(root: ET.Element) -> dict[str, tuple[float, float, float, str]]:
    frames = {}
    for group in root.iter(SVG + "g"):
        title, rect = group.find(SVG + "title"), group.find(SVG + "rect")
        assert title is not None
        assert rect is not None
        assert title.text is not None
        place = tuple(float(rect.attrib[key]) for key in ("x", "y", "width"))
        frames[title.text.split(",")[0]] = (*place, rect.attrib["fill"])
    return frames  # type: ignore[return-value]


def test_svg_draws_each_frame_on_its_caller_in_proportion() -> None:
    root = ET.fromstring(render(svg, GOOD))
    frames = parse_boxes(root)
    everything, main = frames["all"], frames["main (/opt/app)"]
    work, idle = frames["work<int>(a & b) (/opt/app)"], frames["do_idle ([kernel])"]
    assert main[2] / everything[2] == pytest.approx(0.9, abs=0.001)
    assert work[2] / main[2] == pytest.approx(70 / 90, abs=0.001)
    assert everything[1] > main[1] == idle[1] > work[1]  # y points down
    assert main[0] <= work[0] <= work[0] + work[2] <= main[0] + main[2] + 0.01
    assert idle[0] + idle[2] <= main[0] + 0.01  # by name: do_idle, main
    assert work[3] != idle[3]
    assert idle[3] == colours.fill(FrameKind.KERNEL, "[kernel]", "do_idle")
    assert main[3] == colours.fill(FrameKind.USER, "/opt/app", "main")
    texts = [text.text for text in root.iter(SVG + "text")]
    assert "work<int>(a & b)" in texts
    assert "A <night> & a day" in texts
    assert "3 samples lost" in texts
    assert "one note" in texts
    assert any("100 samples" in str(text) and "97 Hz" in str(text) for text in texts)


def test_svg_merges_narrow_frames_and_counts_them() -> None:
    thin = [((MAIN, Frame(f"t{n}"), WORK), 1) for n in range(50)]
    root = ET.fromstring(render(svg, make_folded(((MAIN,), 100_000), *thin)))
    texts = [str(text.text) for text in root.iter(SVG + "text")]
    assert any(text.startswith("100 frames are narrower than 0.3 px") for text in texts)
    frames = parse_boxes(root)
    assert not any(name.startswith("t1") for name in frames)
    assert frames["100 frames that are not drawn"][3] == "#c8c8c8"
    assert all(width >= 0.3 for _, _, width, _ in frames.values())


def test_pictures_fold_unknown_functions_in_a_row_and_exports_do_not() -> None:
    jit, other = Frame(UNKNOWN, "/tmp/perf-7.map"), Frame(UNKNOWN)
    in_kernel = Frame(UNKNOWN, "[kernel]", FrameKind.KERNEL)
    towers = make_folded(
        ((MAIN, jit, other, jit, WORK), 60), ((MAIN, jit, WORK), 30), ((other, in_kernel), 10)
    )
    compared = difference.Compared(towers, towers, 0, 0)
    drawn = [render(svg, towers).decode(), embedded.draw_flame(towers), embedded.draw_difference(compared)]  # fmt: skip
    for picture in drawn:
        assert picture.count(">[unknown] x3</text>") == 1
        assert picture.count("[unknown] (/tmp/perf-7.map), up to 3 unknown frames in a row") == 1
        assert picture.count(">[unknown]</text>") == 2  # one in user, one in kernel mode
        assert picture.count(">work&lt;int&gt;(a &amp; b)</text>") == 1
    assert parse_boxes(ET.fromstring(drawn[0]))["work<int>(a & b) (/opt/app)"][2] > 1000
    assert render(collapsed, towers).count(b"[unknown]") == 6
    assert {"frames": [0, 1, 2, 1, 3], "count": 60} in json.loads(render(json_report, towers))["stacks"]  # fmt: skip


def test_a_picture_of_a_report_is_no_higher_than_a_page_and_states_what_was_cut() -> None:
    deep = tuple(Frame(f"f{n}") for n in range(100))
    stacks = make_folded((deep, 3), ((MAIN,), 1))
    compared = difference.Compared(stacks, stacks, 0, 0)
    for picture in (embedded.draw_flame(stacks), embedded.draw_difference(compared)):
        assert float(ET.fromstring(picture).attrib["height"]) < 1300
        assert "cut at row 60: 41 frames above it, 75 % of the width, are not drawn" in picture


def test_svg_shortens_names_to_their_box() -> None:
    long, wide = Frame("l" * 500), Frame("宽" * 500)
    root = ET.fromstring(render(svg, make_folded(((long,), 9), ((wide,), 1))))
    texts = [str(text.text) for text in root.iter(SVG + "text")]
    assert any(text.startswith("lll") and text.endswith("…") and len(text) < 165 for text in texts)
    assert any(text.startswith("宽宽") and text.endswith("…") and len(text) < 10 for text in texts)


def test_svg_has_no_script_and_loads_nothing() -> None:
    data = render(svg, GOOD).decode()
    assert "<script" not in data
    assert "href" not in data
    assert "url(" not in data
    assert data.count("http") == 1  # the name space


def test_svg_draws_deep_and_empty_stacks() -> None:
    deep = tuple(Frame(f"f{n}") for n in range(5000))
    root = ET.fromstring(render(svg, make_folded((deep, 7))))
    assert float(root.attrib["height"]) < 8000
    texts = [str(text.text) for text in root.iter(SVG + "text")]
    assert "cut at row 400: 4,601 frames above it, 100 % of the width, are not drawn" in texts
    empty = ET.fromstring(render(svg, make_folded()))
    assert "no samples" in [text.text for text in empty.iter(SVG + "text")]
