"""A damaged segment is left out of every answer, and every answer reports it."""

from __future__ import annotations

import json
import pathlib
import shutil
from collections.abc import Callable

import captures
import pytest

from overnight.model.selection import Coverage, Selection, Window
from overnight.queries import consumers, diff, flame, heatmap, reader, samples, top, view
from overnight.store import segments

NIGHT, SECOND = captures.NIGHT, captures.SECOND
WINDOW = captures.window(NIGHT + 60 * SECOND, NIGHT + 330 * SECOND)
BASE = captures.window(NIGHT, NIGHT + 60 * SECOND)
WHOLE = captures.window(NIGHT + 120 * SECOND, NIGHT + 240 * SECOND)
FILES = ("samples.parquet", "nodes.parquet", "frames.parquet", "tasks.parquet", "seconds.npy")

Answer = tuple[object, Coverage]


def ask_top(source: reader.Reader, window: Window = WINDOW) -> Answer:
    answer = top.top(source, window, limit=100)
    return [(row.name, row.samples) for row in answer.rows], answer.coverage


def ask_flame(source: reader.Reader) -> Answer:
    answer = flame.flame(source, WINDOW)
    return sorted(zip(answer.names, answer.kinds, strict=True)), answer.coverage


def ask_diff(source: reader.Reader) -> Answer:
    answer = diff.diff(source, WINDOW, BASE)
    return [(change.name, change.samples) for change in answer.changes], answer.coverage


def ask_cores(source: reader.Reader) -> Answer:
    answer = heatmap.by_core(source, WINDOW)
    return answer.values.tolist(), answer.coverage


def ask_offsets(source: reader.Reader) -> Answer:
    answer = heatmap.by_offset(source, WINDOW)
    return answer.values.tolist(), answer.coverage


def ask_window(source: reader.Reader) -> Answer:
    answer = samples.read_window(source, "alpha", WINDOW)
    return sorted(answer.processes), answer.coverage


# The files that each query reads of a segment that is entirely in the window.
READS: dict[Callable[[reader.Reader], Answer], tuple[str, ...]] = {
    ask_top: FILES[:4],
    ask_flame: ("nodes.parquet", "frames.parquet"),
    ask_diff: ("frames.parquet",),
    ask_cores: ("seconds.npy",),
    ask_offsets: ("samples.parquet", "nodes.parquet"),
    ask_window: FILES[:4],
}


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """Three segments of two minutes; the second one has the stack and the process of its own."""
    common = captures.random_samples(5, 600, begin=NIGHT, end=NIGHT + 360 * SECOND)
    lone = [
        captures.Sample(
            NIGHT + (120 + i) * SECOND, (captures.user("lone"),), process="hermit", pid=7
        )
        for i in range(100)
    ]
    captures.store(
        tmp_path / "home",
        captures.build([*common, *lone], begin=NIGHT, end=NIGHT + 360 * SECOND),
    )
    return tmp_path / "home"


def second_segment(home: pathlib.Path) -> segments.Segment:
    (segment,) = segments.Catalogue(home).segments("alpha", WHOLE.begin_us, WHOLE.end_us)
    return segment


def open_reader(home: pathlib.Path) -> reader.Reader:
    return reader.Reader(segments.Catalogue(home))


def flip_bit(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def check_answer(
    home: pathlib.Path, ask: Callable[[reader.Reader], Answer], why: str, known: int | None
) -> None:
    """The answer is that of a home without the segment, and its coverage names the segment."""
    content, coverage = ask(open_reader(home))
    segment = second_segment(home)
    (damage,) = coverage.damaged
    assert (damage.host, damage.segment) == ("alpha", segment.path.name)
    assert (damage.seconds, damage.samples) == (120.0, known)
    assert why in damage.why
    assert str(damage) in coverage.notes
    assert (WHOLE.begin_us, WHOLE.end_us, "damaged segment") in coverage.gaps
    shutil.rmtree(segment.path)
    expected, without = ask(open_reader(home))
    assert content == expected
    assert (coverage.samples, coverage.recorded_seconds, coverage.segments) == (
        without.samples,
        without.recorded_seconds,
        2,
    )
    assert without.damaged == ()


@pytest.mark.parametrize("ask", READS)
@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_costs_one_segment(
    home: pathlib.Path, name: str, ask: Callable[[reader.Reader], Answer]
) -> None:
    segment = second_segment(home)
    known = segment.meta().samples
    (segment.path / name).unlink()
    check_answer(home, ask, f"{name} cannot be read: No such file or directory", known)


@pytest.mark.parametrize(("ask", "name"), [(ask, name) for ask in READS for name in READS[ask]])
@pytest.mark.parametrize("old", [False, True])
def test_an_altered_file_costs_one_segment(
    home: pathlib.Path, name: str, ask: Callable[[reader.Reader], Answer], old: bool
) -> None:
    segment = second_segment(home)
    known = segment.meta().samples
    if old:  # stores of earlier versions have only the slower checksum
        document = json.loads((segment.path / "segment.json").read_bytes())
        assert set(document.pop("crc32")) == set(FILES)
        document["digest"] = segments.description_digest(document)
        (segment.path / "segment.json").write_text(json.dumps(document))
        assert ask(open_reader(home))[1].damaged == ()
    flip_bit(segment.path / name)
    check_answer(home, ask, f"{name} has changed since it was written", known)


@pytest.mark.parametrize("ask", READS)
def test_an_altered_description_costs_one_segment(
    home: pathlib.Path, ask: Callable[[reader.Reader], Answer]
) -> None:
    path = second_segment(home).path / "segment.json"
    path.write_text(path.read_text().replace('"idle": ', '"idle": 1'))
    check_answer(home, ask, "it has changed since it was written", None)


def test_a_description_that_is_not_of_this_segment_costs_the_segment(home: pathlib.Path) -> None:
    segment = second_segment(home)
    other = segments.Catalogue(home).segments("alpha")[0]
    for path in other.path.iterdir():
        shutil.copyfile(path, segment.path / path.name)
    why = "its description belongs to another segment"
    check_answer(home, ask_cores, why, other.meta().samples)


def test_a_hostile_file_name_costs_the_segment(home: pathlib.Path) -> None:
    segment = second_segment(home)
    document = json.loads((segment.path / "segment.json").read_bytes())
    document["files"]["\0"] = [1, ""]
    document["digest"] = segments.description_digest(document)
    (segment.path / "segment.json").write_text(json.dumps(document))
    check_answer(home, ask_top, "embedded null byte", segment.meta().samples)


def test_a_part_of_a_damaged_segment_is_reported_in_proportion(home: pathlib.Path) -> None:
    segment = second_segment(home)
    (segment.path / "nodes.parquet").unlink()
    window = captures.window(NIGHT + 30 * SECOND, NIGHT + 150 * SECOND)
    (damage,) = ask_top(open_reader(home), window)[1].damaged
    assert damage.seconds == 30.0
    assert damage.samples == round(segment.meta().samples / 4)


def test_a_query_beside_the_damage_reads_none_of_it(home: pathlib.Path) -> None:
    source = open_reader(home)
    flip_bit(second_segment(home).path / "nodes.parquet")
    assert ask_top(source, WINDOW)[1].damaged
    assert ask_top(source, BASE)[1].damaged == ()


def test_nothing_is_left_where_every_segment_is_damaged(home: pathlib.Path) -> None:
    for path in home.rglob("nodes.parquet"):
        path.unlink()
    for ask in READS:
        _, coverage = ask(open_reader(home))
        assert coverage.samples == coverage.recorded_seconds == 0
        assert len(coverage.damaged) == 3


def test_a_page_and_a_tally_leave_the_segment_out(home: pathlib.Path) -> None:
    flip_bit(second_segment(home).path / "samples.parquet")
    page = view.view(open_reader(home), WINDOW, "alpha")
    assert "hermit" not in page.strings
    assert any("is damaged and left out" in note for note in page.notes)
    assert (WHOLE.begin_us, WHOLE.end_us, "damaged segment") in page.gaps
    tally = consumers.count_functions(open_reader(home), "alpha", (WINDOW, BASE))
    assert "hermit" not in {item.actor.process for item in tally.items}
    assert tally.seconds[0] == WINDOW.seconds - 120


def test_a_filtered_heatmap_leaves_the_segment_out(home: pathlib.Path) -> None:
    flip_bit(second_segment(home).path / "tasks.parquet")
    answer = heatmap.by_core(open_reader(home), WINDOW, Selection(process="hermit"))
    assert answer.values.sum() == 0
    assert len(answer.coverage.damaged) == 1


def test_a_segment_that_was_removed_is_not_damaged(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_reader(home)
    listed = source.listed(("alpha",), WINDOW)
    shutil.rmtree(second_segment(home).path)
    monkeypatch.setattr(source, "listed", lambda _hosts, _window: listed)
    answer = top.top(source, WINDOW)
    assert (answer.coverage.segments, answer.coverage.damaged) == (2, ())
