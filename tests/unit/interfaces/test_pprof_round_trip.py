"""A profile that is exported as pprof and imported again still has its processes, threads and cores."""

from __future__ import annotations

import gzip
import pathlib
from typing import TYPE_CHECKING

import captures

from overnight.interfaces import cli
from overnight.model.selection import Selection
from overnight.queries import flame, heatmap, labels, reader, top
from overnight.store import segments

if TYPE_CHECKING:
    import pytest

NIGHT, SECOND = captures.NIGHT, captures.SECOND
CORES = (0, 1, 2, 3)


def open_reader(home: pathlib.Path) -> reader.Reader:
    return reader.Reader(segments.Catalogue(home))


def round_trip(home: pathlib.Path, other: pathlib.Path, *options: str) -> reader.Reader:
    file = home / "profile.pb.gz"
    words = ["flame", "-O", "pprof", "-o", str(file), *options]
    assert cli.main(["--home", str(home), *words]) == 0
    assert cli.main(["--home", str(other), "import", str(file), "--host", "alpha"]) == 0
    return open_reader(other)


def rank(source: reader.Reader, kind: str) -> list[tuple[str, int]]:
    return [(row.name, row.samples) for row in top.top(source, source.extent(), kind=kind).rows]


def stacks(source: reader.Reader, chosen: Selection = Selection()) -> list[object]:
    """All paths with their samples, so that a doubled or a missing frame shows."""
    tree = flame.flame(source, source.extent(), chosen)
    paths: list[tuple[tuple[str, str], ...]] = []
    for frame, parent in zip(tree.frame.tolist(), tree.parent.tolist(), strict=True):
        above = paths[parent] if parent >= 0 else ()
        paths.append((*above, (tree.names[frame], tree.modules[frame])))
    return sorted(zip(paths, tree.own.tolist(), strict=True))


def by_core(source: reader.Reader) -> dict[str, int]:
    cells = heatmap.by_core(source, source.extent())
    sums = zip(cells.rows, cells.values.sum(axis=0).tolist(), strict=True)
    return {core: samples for core, samples in sums if samples}


def test_processes_threads_units_cores_and_stacks_survive(tmp_path: pathlib.Path) -> None:
    samples = captures.random_samples(3, 900, begin=NIGHT, end=NIGHT + 300 * SECOND, cores=CORES)
    before = captures.store(tmp_path / "a", captures.build(samples, cores=CORES))
    after = round_trip(tmp_path / "a", tmp_path / "b")
    for kind in ("processes", "threads", "units", "functions"):
        assert rank(after, kind) == rank(before, kind)
    assert by_core(after) == by_core(before)
    assert stacks(after) == stacks(before)
    one = Selection(cores=(2,), thread="worker 1")
    assert stacks(after, one) == stacks(before, one)


def test_filters_apply_to_the_labelled_samples(tmp_path: pathlib.Path) -> None:
    samples = captures.random_samples(4, 400, begin=NIGHT, end=NIGHT + 60 * SECOND, cores=CORES)
    before = captures.store(tmp_path / "a", captures.build(samples, cores=CORES))
    filters = ["--core", "1,2", "--process", "nginx", "--function", "malloc", "--side", "user"]
    after = round_trip(tmp_path / "a", tmp_path / "b", *filters)
    chosen = Selection(cores=(1, 2), process="nginx", function="malloc", side="user")
    assert stacks(after) == stacks(before, chosen) != []


def test_the_event_survives_where_it_is_no_clock(tmp_path: pathlib.Path) -> None:
    samples = captures.random_samples(6, 50, begin=NIGHT, end=NIGHT + 9 * SECOND)
    captures.store(tmp_path / "a", captures.build(samples, events=("page-faults",)))
    after = round_trip(tmp_path / "a", tmp_path / "b")
    assert top.top(after, after.extent()).coverage.event == "page-faults"


def test_hosts_are_kept_apart(tmp_path: pathlib.Path) -> None:
    for host in ("alpha", "beta"):
        samples = [captures.Sample(NIGHT + i, cpu=1) for i in range(3)]
        captures.store(tmp_path, captures.build(samples, host=host))
    source = open_reader(tmp_path)
    labelled = labels.label(source, source.extent())
    assert labelled is not None
    assert [(dict(each.labels)["host"], each.samples) for each in labelled.samples] == [
        ("alpha", 3),
        ("beta", 3),
    ]


def test_a_window_with_too_many_rows_keeps_the_processes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = captures.random_samples(3, 900, begin=NIGHT, end=NIGHT + 300 * SECOND, cores=CORES)
    before = captures.store(tmp_path / "a", captures.build(samples, cores=CORES))
    monkeypatch.setattr(labels, "MAX_ROWS", 400)
    after = round_trip(tmp_path / "a", tmp_path / "b")
    assert by_core(after).keys() == {"-1"}
    assert rank(after, "processes") == rank(before, "processes")
    assert stacks(after) == stacks(before)
    data = gzip.decompress((tmp_path / "a/profile.pb.gz").read_bytes())
    assert b"threads and cores are added up" in data
