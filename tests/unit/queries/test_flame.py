"""Flame graphs, compared with counting stack by stack."""

from __future__ import annotations

import collections
import dataclasses
import pathlib

import captures
import numpy as np
import pytest

from overnight import errors
from overnight.model.selection import Selection, Window
from overnight.queries import flame
from overnight.store import capture

Path = tuple[captures.Function, ...]
SECOND, NIGHT = captures.SECOND, captures.NIGHT


def counted(tree: flame.FlameTree) -> tuple[dict[Path, int], dict[Path, int]]:
    """Return own and total samples of every path; also check the tree's invariants."""
    paths: list[Path] = []
    for node, (parent, frame) in enumerate(
        zip(tree.parent.tolist(), tree.frame.tolist(), strict=True)
    ):
        assert parent < node
        name = (tree.names[frame], tree.modules[frame], tree.kinds[frame])
        paths.append((*(paths[parent] if parent >= 0 else ()), name))
        inside = range(node, node + int(tree.size[node]))
        assert parent < 0 or inside.stop <= parent + int(tree.size[parent])
        assert int(tree.whole[node]) == int(tree.own[inside.start : inside.stop].sum())
    assert len(set(paths)) == len(paths)
    siblings: dict[int, int] = {}
    for parent, whole in zip(tree.parent.tolist(), tree.whole.tolist(), strict=True):
        assert whole <= siblings.get(parent, whole)  # the widest first
        siblings[parent] = whole
    assert int(tree.whole[tree.parent < 0].sum()) == tree.coverage.samples
    return (
        {p: n for p, n in zip(paths, tree.own.tolist(), strict=True) if n},
        dict(zip(paths, tree.whole.tolist(), strict=True)),
    )


def naive_whole(own: collections.Counter[Path]) -> dict[Path, int]:
    whole: collections.Counter[Path] = collections.Counter()
    for path, count in own.items():
        for depth in range(1, len(path) + 1):
            whole[path[:depth]] += count
    return dict(whole)


@pytest.mark.parametrize("hosts", [(), ("beta",)], ids=["both hosts", "one"])
@pytest.mark.parametrize("reverse", [False, True], ids=["upright", "reverse"])
def test_every_path_has_its_samples(
    night: captures.Night, chosen: Selection, hosts: tuple[str, ...], reverse: bool
) -> None:
    for window in night.windows(len(hosts), 3):
        tree = flame.flame(night.source, window, chosen, hosts=hosts, reverse=reverse)
        samples = captures.chosen_samples(night.of(hosts), window, chosen)
        expected: collections.Counter[Path] = collections.Counter()
        for path, count in captures.paths(samples).items():
            expected[tuple(reversed(path)) if reverse else path] += count
        own, whole = counted(tree)
        assert own == dict(expected)
        assert whole == naive_whole(expected)


def test_coverage_counts_samples_and_recorded_time(
    night: captures.Night, chosen: Selection
) -> None:
    for window in night.windows(9):
        tree = flame.flame(night.source, window, chosen)
        coverage = tree.coverage
        rows = [s for s in night.of() if captures.passes(s, window, chosen)]
        in_time = [
            s for s in night.of() if captures.passes(s, window, _without_stacks(chosen)) and s.idle
        ]
        assert coverage.samples == sum(s.count for s in rows if chosen.idle or not s.idle)
        assert coverage.idle == sum(s.count for s in in_time)
        begin, end = min(night.of(), key=lambda s: s.time), max(night.of(), key=lambda s: s.time)
        assert begin.time < end.time
        extent = night.source.extent()
        both = max(0, min(window.end_us, extent.end_us) - max(window.begin_us, extent.begin_us))
        assert coverage.recorded_seconds == pytest.approx(2 * both / 1e6, abs=2e-6)
        cores = [
            len(set(range(n)) & set(chosen.cores)) if chosen.cores else n
            for n in night.cores.values()
        ]
        assert coverage.core_seconds == pytest.approx(sum(cores) * both / 1e6, abs=1e-5)
        assert coverage.capacity == pytest.approx(coverage.core_seconds * night.frequency)


def _without_stacks(chosen: Selection) -> Selection:
    return dataclasses.replace(chosen, function="", side="")


def test_a_window_includes_its_begin_and_not_its_end(night: captures.Night) -> None:
    everything = Selection(idle=True)
    sample = next(s for s in night.samples["beta"])
    for begin, expected in ((0, True), (1, False), (-1, False)):
        window = Window(sample.time_us + begin, sample.time_us + begin + 1)
        count = flame.flame(night.source, window, everything, hosts=("beta",)).coverage.samples
        assert count == sum(s.count for s in night.samples["beta"] if s.time_us == window.begin_us)
        assert (count > 0) == expected


def test_a_window_outside_the_recording_is_empty(night: captures.Night) -> None:
    outside = Window(0, 1_000_000)
    for reverse in (False, True):
        tree = flame.flame(night.source, outside, reverse=reverse)
        assert (len(tree.frame), tree.names) == (0, [])
        assert tree.coverage.segments == 0
        assert tree.coverage.recorded_seconds == 0


def test_an_unknown_host_is_an_error_that_names_the_known(night: captures.Night) -> None:
    with pytest.raises(errors.CannotError, match="gamma") as caught:
        flame.flame(night.source, night.source.extent(), hosts=("alpha", "gamma"))
    assert "alpha, beta" in caught.value.why


def test_an_empty_store_is_an_error(tmp_path: pathlib.Path) -> None:
    source = captures.store(tmp_path)
    with pytest.raises(errors.CannotError, match="no profiles"):
        flame.flame(source, Window(0, 1))
    (tmp_path / "profiles/v1/alpha/20261115/.new-x").mkdir(parents=True)
    with pytest.raises(errors.CannotError, match="no segment is complete"):
        source.extent()


def test_gaps_and_losses_are_reported_once_and_gaps_are_not_recorded_time(
    tmp_path: pathlib.Path,
) -> None:
    gap = capture.Gap(NIGHT + 100 * SECOND, NIGHT + 150 * SECOND, "perf died")
    inside = capture.Gap(NIGHT + 110 * SECOND, NIGHT + 115 * SECOND, "and again")
    samples = [captures.Sample(NIGHT + i * SECOND) for i in range(0, 240, 10)]
    recorded = captures.build(
        samples, begin=NIGHT, end=NIGHT + 240 * SECOND, gaps=(gap, inside), lost=7, notes=("n",)
    )
    source = captures.store(tmp_path, recorded)
    coverage = flame.flame(source, source.extent()).coverage
    assert (coverage.lost, coverage.notes, coverage.segments) == (7, ("n",), 2)
    assert sorted(coverage.gaps) == [(g.begin // 1000, g.end // 1000, g.why) for g in (gap, inside)]
    assert coverage.recorded_seconds == 190
    assert coverage.core_seconds == 380
    early = flame.flame(source, captures.window(NIGHT, NIGHT + 105 * SECOND)).coverage
    assert (early.recorded_seconds, [g[2] for g in early.gaps]) == (100, ["perf died"])
    late = flame.flame(source, captures.window(NIGHT + 150 * SECOND, NIGHT + 160 * SECOND)).coverage
    assert (late.recorded_seconds, late.gaps) == (10, ())


def test_a_deep_stack(tmp_path: pathlib.Path) -> None:
    path = tuple(captures.user(f"f{i % 50}") for i in range(1000))
    source = captures.store(tmp_path, captures.build([captures.Sample(NIGHT, path)]))
    for reverse in (False, True):
        tree = flame.flame(source, source.extent(), reverse=reverse)
        assert len(tree.frame) == 1001
        assert set(tree.whole.tolist()) == {1}
        assert tree.parent.tolist() == list(range(-1, 1000))


def test_all_columns_are_int64(night: captures.Night) -> None:
    tree = flame.flame(night.source, night.source.extent())
    for column in (tree.frame, tree.parent, tree.size, tree.own, tree.whole):
        assert column.dtype == np.int64
