"""Top consumers, compared with counting sample by sample."""

from __future__ import annotations

import collections
import pathlib

import captures
import pytest

from overnight import errors
from overnight.model.selection import Selection, Window
from overnight.queries import top

SECOND, NIGHT = captures.SECOND, captures.NIGHT


def labels(sample: captures.Sample, kind: str) -> set[str]:
    if kind == "functions":
        return {f"[unknown] in {f[1]}" if f[0] == "[unknown]" else f[0] for f in sample.path}
    if kind == "units":
        return {sample.unit or "kernel threads and those that ended"}
    return {sample.process if kind == "processes" else sample.thread}


def counted(samples: list[captures.Sample], kind: str) -> collections.Counter[str]:
    sums: collections.Counter[str] = collections.Counter()
    for sample in samples:
        for label in labels(sample, kind):
            sums[label] += sample.count
    return sums


def own(samples: list[captures.Sample]) -> collections.Counter[str]:
    sums: collections.Counter[str] = collections.Counter()
    for sample in samples:
        for label in labels(captures.Sample(0, sample.path[-1:]), "functions"):
            sums[label] += sample.count
    return sums


@pytest.mark.parametrize("kind", top.KINDS)
def test_rows_shares_and_cores(night: captures.Night, chosen: Selection, kind: str) -> None:
    for window in night.windows(11, 2):
        answer = top.top(night.source, window, chosen, kind=kind, limit=1000)
        samples = captures.chosen_samples(night.of(), window, chosen)
        expected = counted(samples, kind)
        assert {row.name: row.samples for row in answer.rows} == dict(expected)
        assert [row.samples for row in answer.rows] == sorted(expected.values(), reverse=True)
        assert answer.others == 0
        total = sum(s.count for s in samples)
        assert answer.coverage.samples == total
        ends = own(samples) if kind == "functions" else expected
        for row in answer.rows:
            assert row.own == ends[row.name]
            assert row.share_of_samples == pytest.approx(row.samples / total)
            assert row.share_of_samples <= 1
            assert row.share_of_capacity == pytest.approx(row.samples / answer.coverage.capacity)
            seconds = answer.coverage.recorded_seconds
            assert row.cores == pytest.approx(row.samples / night.frequency / seconds)


def test_the_limit_counts_the_omitted_rows(night: captures.Night) -> None:
    window = night.source.extent()
    everything = top.top(night.source, window, kind="functions", limit=1000)
    some = top.top(night.source, window, kind="functions", limit=3)
    assert some.rows == everything.rows[:3]
    assert some.others == len(everything.rows) - 3


def test_a_name_in_two_binaries_counts_once_on_a_stack(tmp_path: pathlib.Path) -> None:
    both = (captures.user("malloc", "/opt/app"), captures.user("malloc", "/lib/libc.so"))
    source = captures.store(tmp_path, captures.build([captures.Sample(NIGHT, both)]))
    (row,) = top.top(source, source.extent(), kind="functions").rows
    assert (row.name, row.samples, row.own, row.share_of_samples) == ("malloc", 1, 1, 1.0)


def test_recursion_counts_once(tmp_path: pathlib.Path) -> None:
    f, g = captures.user("f"), captures.user("g")
    source = captures.store(tmp_path, captures.build([captures.Sample(NIGHT, (f, g, f, g, f))]))
    rows = top.top(source, source.extent(), kind="functions").rows
    assert [(row.name, row.samples, row.own) for row in rows] == [("f", 1, 1), ("g", 1, 0)]


def test_unknown_names_and_rates_are_not_guessed(tmp_path: pathlib.Path) -> None:
    samples = [
        captures.Sample(NIGHT, (captures.user("[unknown]", ""),), process="", thread="", pid=7)
    ]
    source = captures.store(tmp_path, captures.build(samples, frequency=0))
    (row,) = top.top(source, source.extent()).rows
    assert (row.name, row.share_of_capacity, row.cores) == ("pid 7", None, None)
    (row,) = top.top(source, source.extent(), kind="functions").rows
    assert row.name == "[unknown]"


def test_a_process_filter_keeps_the_time_without_the_process(
    tmp_path: pathlib.Path,
) -> None:
    samples = [captures.Sample(NIGHT + i * 120 * SECOND) for i in range(5)]
    samples += [captures.Sample(NIGHT + 1, process="rare", pid=2, tid=2) for _ in range(100)]
    recorded = captures.build(samples, begin=NIGHT, end=NIGHT + 600 * SECOND, cores=(0,))
    source = captures.store(tmp_path, recorded)
    chosen = Selection(process="rare")
    for kind in top.KINDS:
        answer = top.top(source, source.extent(), chosen, kind=kind)
        assert answer.coverage.recorded_seconds == 600
        assert answer.rows[0].share_of_capacity == pytest.approx(100 / 60_000)


def test_an_unknown_kind_is_refused(night: captures.Night) -> None:
    with pytest.raises(errors.UsageError, match="is not a kind"):
        top.top(night.source, night.source.extent(), kind="wombats")


def test_an_empty_window_has_no_rows(night: captures.Night) -> None:
    answer = top.top(night.source, Window(0, 1))
    assert (answer.rows, answer.others) == ((), 0)
