"""Top processes and functions, compared with counting sample by sample."""

from __future__ import annotations

import collections
import pathlib

import captures
import pytest

from overnight.model.actor import Actor
from overnight.model.selection import Selection, Window
from overnight.queries import consumers

SECOND = captures.SECOND
BEGIN, END = captures.NIGHT + 5 * SECOND, captures.NIGHT + 290 * SECOND


@pytest.fixture
def samples() -> list[captures.Sample]:
    return captures.random_samples(3, 4000, begin=BEGIN, end=END)


def windows() -> list[Window]:
    """Return windows inside a segment, across two, with nothing recorded, and across others."""
    return [
        captures.window(captures.NIGHT + a * SECOND, captures.NIGHT + b * SECOND)
        for a, b in ((10, 30), (100, 140), (40, 50), (1000, 1010), (20, 45))
    ]


def within(sample: captures.Sample, window: Window) -> bool:
    return window.begin_us <= sample.time_us < window.end_us


@pytest.mark.parametrize("cores", [(), (1,)])
def test_every_function_on_a_stack_counts_once(
    tmp_path: pathlib.Path, samples: list[captures.Sample], cores: tuple[int, ...]
) -> None:
    source = captures.store(tmp_path, captures.build(samples, begin=BEGIN, end=END))
    tally = consumers.count_functions(source, "alpha", windows(), Selection(cores=cores))
    whole: collections.Counter[tuple[consumers.Item, int]] = collections.Counter()
    own: collections.Counter[tuple[consumers.Item, int]] = collections.Counter()
    for number, window in enumerate(windows()):
        for s in samples:
            if within(s, window) and not s.idle and (not cores or s.cpu in cores):
                labels = [
                    f"[unknown] in {module}" if name == "[unknown]" else name
                    for name, module, _ in s.path
                ]
                distinct = set(s.path)
                for frame in distinct:
                    label = labels[s.path.index(frame)]
                    whole[consumers.Item(Actor(s.process, s.unit), label), number] += s.count
                whole[consumers.Item(Actor(s.process, s.unit), ""), number] += s.count
                own[
                    consumers.Item(Actor(s.process, s.unit), labels[-1] if labels else ""), number
                ] += s.count
    for counted, table in ((whole, tally.counts), (own, tally.own)):
        nonzero = {
            (item, number): int(table[place, number])
            for place, item in enumerate(tally.items)
            for number in range(len(windows()))
            if table[place, number]
        }
        assert nonzero == dict(counted)
    assert tally.seconds.tolist() == [20, 40, 10, 0, 25]
    assert tally.frequency == 100


def test_soft_interrupts_are_not_counted_for_the_interrupted_process(
    tmp_path: pathlib.Path, samples: list[captures.Sample]
) -> None:
    source = captures.store(tmp_path, captures.build(samples, begin=BEGIN, end=END))
    chosen = windows()
    ranked, idle = consumers.rank_processes(source, "alpha", chosen)
    inside = [s for s in samples if any(within(s, window) for window in chosen)]
    assert idle == sum(s.count for s in inside if s.idle)
    for consumer in ranked:
        own = [s for s in inside if (s.process, s.unit) == consumer.actor and not s.idle]
        plain = [s for s in own if not s.softirq]
        assert consumer.samples == sum(s.count for s in plain)
        assert consumer.softirq == sum(s.count for s in own) - consumer.samples
        assert consumer.kernel == sum(s.count for s in plain if s.in_kernel)
        assert sum(consumer.functions.values()) == consumer.samples
    assert [consumer.samples for consumer in ranked] == sorted(
        (consumer.samples for consumer in ranked), reverse=True
    )


def test_a_host_without_profiles_has_no_consumers(tmp_path: pathlib.Path) -> None:
    source = captures.store(tmp_path)
    assert consumers.rank_processes(source, "alpha", windows()) == ((), 0)
    assert consumers.count_functions(source, "alpha", windows()).items == ()
