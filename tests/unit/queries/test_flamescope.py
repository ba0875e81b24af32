"""Known errors of FlameScope that the store and its queries avoid."""

from __future__ import annotations

import itertools
import pathlib

import captures

from overnight.app import imports
from overnight.model.selection import Selection
from overnight.queries import diff, flame, heatmap, top
from overnight.queries import reader as readers
from overnight.store import parquet, segments

SECOND, NIGHT = captures.SECOND, captures.NIGHT
Sample = captures.Sample
IDLE = {"process": "swapper", "thread": "swapper", "pid": 0, "tid": 0}


def test_softirq_work_on_top_of_idle_is_not_dropped(tmp_path: pathlib.Path) -> None:
    samples = [
        Sample(NIGHT, captures.IDLE, **IDLE),
        Sample(NIGHT + 1, captures.IRQ_ON_IDLE, **IDLE),
        Sample(
            NIGHT + 2, captures.IRQ_ON_IDLE, process="swapper/3", thread="swapper/3", pid=0, tid=0
        ),
    ]
    source = captures.store(tmp_path, captures.build(samples))
    answer = flame.flame(source, source.extent())
    assert (answer.coverage.samples, answer.coverage.idle) == (2, 1)
    assert "net_rx" in answer.names
    for mode, expected in {"busy": 2, "kernel": 2, "softirq": 2, "idle": 1}.items():
        assert heatmap.by_core(source, source.extent(), mode=mode).values.sum() == expected


def test_the_idle_functions_of_another_task_are_work(tmp_path: pathlib.Path) -> None:
    source = captures.store(
        tmp_path, captures.build([Sample(NIGHT, captures.IDLE, process="vcpu")])
    )
    coverage = flame.flame(source, source.extent()).coverage
    assert (coverage.samples, coverage.idle) == (1, 0)


def test_the_idle_task_with_a_core_number_is_idle_too(tmp_path: pathlib.Path) -> None:
    samples = [
        Sample(NIGHT, captures.IDLE, process="swapper/12"),
        Sample(NIGHT + 1, captures.IDLE, process="", thread="swapper"),
    ]
    source = captures.store(tmp_path, captures.build(samples))
    assert flame.flame(source, source.extent()).coverage.idle == 2


def test_events_are_not_mixed_and_periods_are_kept(tmp_path: pathlib.Path) -> None:
    samples = [Sample(NIGHT + i, event=i % 3, period=1000 + i) for i in range(9)]
    recorded = captures.build(samples, events=("cycles", "instructions", "page-faults"))
    source = captures.store(tmp_path, recorded)
    for event in range(3):
        chosen = Selection(event=event)
        assert flame.flame(source, source.extent(), chosen).coverage.samples == 3
        assert top.top(source, source.extent(), chosen).rows[0].samples == 3
        assert heatmap.by_core(source, source.extent(), chosen).values.sum() == 3
    (segment,) = source.catalogue.segments("alpha")
    kept = parquet.read(segment.path / "samples.parquet", ("period",))["period"].tolist()
    assert kept == [sample.period for sample in samples]


def test_heatmaps_have_an_axis_of_cores(tmp_path: pathlib.Path) -> None:
    pinned = [Sample(NIGHT + i * SECOND // 100, cpu=2) for i in range(100)]
    recorded = captures.build(pinned, begin=NIGHT, end=NIGHT + SECOND, cores=tuple(range(4)))
    source = captures.store(tmp_path, recorded)
    cores = heatmap.by_core(source, source.extent())
    assert cores.values.tolist() == [[0, 0, 100, 0]]
    assert cores.full == 100


def test_a_difference_keeps_vanished_functions(tmp_path: pathlib.Path) -> None:
    gone = [Sample(NIGHT + i, (captures.user("gone"),)) for i in range(50)]
    left = [Sample(NIGHT + 10 * SECOND + i, (captures.user("left"),)) for i in range(50)]
    source = captures.store(tmp_path, captures.build(gone + left, end=NIGHT + 20 * SECOND))
    before = captures.window(NIGHT, NIGHT + 10 * SECOND)
    after = captures.window(NIGHT + 10 * SECOND, NIGHT + 20 * SECOND)
    changes = {c.name: c.status for c in diff.diff(source, after, before).changes}
    assert changes == {"gone": "vanished", "left": "new"}


OUT_OF_ORDER = """\
cc1plus  71/71  [001]    12.000300:   10309278 cpu-clock:ppp:
\t    55d0c0de operator+(X, Y)+0x1f (/usr/bin/cc1plus)
\t    55d0c000 main+0x10 (/usr/bin/cc1plus)

kworker/3:1-e 5/5 [003]    12.000200:   10309278 cpu-clock:ppp:
\tffffffff8101 process_one_work+0x1 ([kernel.kallsyms])

cc1plus  71/71  [001]    12.000100:   10309278 cpu-clock:ppp:
\t    55d0c000 main+0x10 (/usr/bin/cc1plus)

"""


def test_samples_out_of_order_names_with_digits_and_symbols_with_a_plus(
    tmp_path: pathlib.Path,
) -> None:
    text = tmp_path / "out.perf"
    text.write_text(OUT_OF_ORDER)
    list(imports.import_files(tmp_path / "home", [text]))
    source = readers.Reader(segments.Catalogue(tmp_path / "home"))
    window = source.extent()
    assert flame.flame(source, window).coverage.samples == 3
    processes = {row.name: row.samples for row in top.top(source, window).rows}
    assert processes == {"cc1plus": 2, "kworker/3:1-e": 1}
    functions = {row.name: row.samples for row in top.top(source, window, kind="functions").rows}
    assert functions == {"main": 2, "operator+(X, Y)": 1, "process_one_work": 1}
    (segment,) = source.touched(source.hosts(), window)
    times = parquet.read(segment.path / "samples.parquet", ("time_us",))["time_us"].tolist()
    assert [b - a for a, b in itertools.pairwise(times)] == [100, 100]
