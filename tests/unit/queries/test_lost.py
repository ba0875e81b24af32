"""Every query reports the samples lost in its window: exactly, or an upper limit."""

from __future__ import annotations

import json
import pathlib

import captures
import pytest

from overnight.model.selection import Window
from overnight.queries import diff, flame, heatmap, reader, top
from overnight.store import capture, segments

NIGHT, SECOND = captures.NIGHT, captures.SECOND


def source_of(home: pathlib.Path, *losses: tuple[float, float, int]) -> reader.Reader:
    recorded = captures.build(
        [captures.Sample(NIGHT + i * SECOND) for i in range(100)],
        end=NIGHT + 100 * SECOND,
        lost=9,
        losses=tuple(
            capture.Loss(NIGHT + round(begin * SECOND), NIGHT + round(end * SECOND), count)
            for begin, end, count in losses
        ),
    )
    return captures.store(home, recorded)


def lost(source: reader.Reader, begin: float, end: float) -> tuple[int, bool]:
    """Return the lost samples that all queries report, and whether this is an upper limit."""
    window = captures.window(NIGHT + round(begin * SECOND), NIGHT + round(end * SECOND))
    answers = [
        flame.flame(source, window).coverage,
        top.top(source, window).coverage,
        diff.diff(source, window, window).coverage,
        heatmap.by_offset(source, window).coverage,
    ]
    (reported,) = {(coverage.lost, coverage.notes) for coverage in answers}
    count, notes = reported
    return count, any(note.startswith(f"at most {count} samples were lost") for note in notes)


TIMED = ((10.2, 10.9, 2), (50, 52, 3), (99, 99.5, 4))


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (0, 100, (9, False)),
        (10, 11, (2, False)),
        (20, 25, (0, False)),
        (51, 60, (3, True)),
        (5, 51, (5, True)),
        (52, 100, (4, False)),
    ],
)
def test_losses_are_reported_by_their_time(
    tmp_path: pathlib.Path, begin: float, end: float, expected: tuple[int, bool]
) -> None:
    assert lost(source_of(tmp_path, *TIMED), begin, end) == expected


def test_a_store_without_loss_times_reports_an_upper_limit(tmp_path: pathlib.Path) -> None:
    source = source_of(tmp_path)
    (segment,) = source.touched(("alpha",), Window(0, 2**60))
    described = segment.path / "segment.json"
    document = json.loads(described.read_text())
    assert document.pop("losses") == []
    document["digest"] = segments.description_digest(document)  # as written before losses had times
    described.write_text(json.dumps(document))
    source = reader.Reader(source.catalogue)
    assert lost(source, 20, 25) == (9, True)
    assert lost(source, 0, 100) == (9, False)
