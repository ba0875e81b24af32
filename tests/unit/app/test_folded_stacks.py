from __future__ import annotations

import collections
import pathlib

import captures
import folding

from overnight.app import folded_stacks
from overnight.model.flame import Frame
from overnight.queries import flame

NIGHT, SECOND = captures.NIGHT, captures.SECOND


def test_stacks_of_a_tree_are_those_of_the_samples(tmp_path: pathlib.Path) -> None:
    samples = captures.random_samples(8, 300, begin=NIGHT, end=NIGHT + 20 * SECOND)
    source = captures.store(tmp_path, captures.build(samples, lost=2, notes=("n",)))
    window = source.extent()
    folded = folded_stacks.fold(source, flame.flame(source, window), "t")
    busy = captures.paths(s for s in samples if not s.idle)
    expected = collections.Counter(
        {tuple(Frame(*frame) for frame in path): count for path, count in busy.items()}
    )
    assert dict(folding.unfold(folded)) == dict(expected)
    assert (folded.event, folded.frequency) == ("cpu-clock", 100)
    assert (folded.title, folded.host, folded.lost) == ("t", "alpha", 2)
    assert folded.notes == (*folded.unknown.lines(), "n")
    assert (folded.begin_ns, folded.end_ns) == (window.begin_us * 1000, window.end_us * 1000)


def test_an_empty_capture_has_no_stacks(tmp_path: pathlib.Path) -> None:
    source = captures.store(tmp_path, captures.build([]))
    assert folded_stacks.fold(source, flame.flame(source, source.extent()), "t").nodes == ()
