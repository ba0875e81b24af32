"""Top consumers of marked functions, compared with counting sample by sample."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import captures
import pytest

from overnight.queries import function_usage
from overnight.queries import samples as window_samples

if TYPE_CHECKING:
    from overnight.model.actor import Actor

BEGIN = captures.NIGHT
SECOND = captures.SECOND
WALK = (
    captures.user("read"),
    captures.kernel("do_syscall_64"),
    captures.kernel("memcg_numa_stat_show"),
    captures.kernel("mem_cgroup_nr_lru_pages.isra.0"),
)


def _full(
    begin: int, seconds: int, path: tuple[captures.Function, ...], **fields: object
) -> list[captures.Sample]:
    return [
        captures.Sample(BEGIN + begin * SECOND + n * SECOND // 100, path, **fields)  # type: ignore[arg-type]
        for n in range(100 * seconds)
    ]


def _read(
    home: pathlib.Path, samples: list[captures.Sample], begin: int, end: int, **more: bool
) -> window_samples.WindowSamples:
    recorded = captures.build(samples, begin=BEGIN, end=BEGIN + 700 * SECOND, cores=(0, 1, 2))
    source = captures.store(home, recorded)
    window = captures.window(BEGIN + begin * SECOND, BEGIN + end * SECOND)
    return window_samples.read_window(source, "alpha", window, **more)


def test_the_top_consumer_has_its_window_core_and_function(tmp_path: pathlib.Path) -> None:
    samples = [
        *_full(650, 6, WALK, cpu=2, process="kubelet", unit="kubelet.service"),
        *_full(640, 40, (captures.user("main"),), cpu=1),
        *(s for n in range(600, 640, 20) for s in _full(n, 1, WALK, process="kubelet", unit="kubelet.service")[:10]),
    ]  # fmt: skip
    now = _read(tmp_path, samples, 630, 680)
    marks = function_usage.mark_innermost("memcg_numa_stat_show|mem_cgroup_nr_lru_pages")
    (consumer,) = function_usage.top_consumers(now, None, marks)
    assert consumer.actor == ("kubelet", "kubelet.service")
    assert (consumer.function, consumer.core, consumer.samples) == (
        "mem_cgroup_nr_lru_pages",
        2,
        600,
    )
    assert consumer.window == captures.window(BEGIN + 650 * SECOND, BEGIN + 656 * SECOND)
    assert consumer.cores_used == pytest.approx(1.0)
    assert consumer.share_of_core_samples == pytest.approx(1.0)
    assert consumer.path[0] == "kubelet"
    assert consumer.path[-1] == "mem_cgroup_nr_lru_pages.isra.0"
    assert (consumer.lift, consumer.lift_low) == (0.0, 0.0)


def test_lift_over_the_baseline(tmp_path: pathlib.Path) -> None:
    # Seconds without any sample would count as not recorded.
    idle = [
        captures.Sample(BEGIN + n * SECOND, captures.IDLE, process="swapper") for n in range(700)
    ]
    samples = [*idle, *_full(650, 6, WALK, cpu=2), *_full(100, 6, WALK, cpu=1)]
    now = _read(tmp_path, samples, 640, 680)
    before = _read(tmp_path, samples, 0, 600, by_second=False)
    (consumer,) = function_usage.top_consumers(
        now, before, function_usage.mark_innermost("memcg_numa_stat_show")
    )
    assert consumer.lift == pytest.approx(15.0)  # 600 samples in 40 s against 600 in 600 s
    assert 12 < consumer.lift_low < 15
    assert consumer.baseline_cores == pytest.approx(0.01)


@pytest.mark.parametrize("seed", range(8))
def test_every_marked_sample_is_counted_once(tmp_path: pathlib.Path, seed: int) -> None:
    samples = captures.random_samples(
        seed, 600, begin=BEGIN, end=BEGIN + 300 * SECOND, cores=(0, 1, 2)
    )
    recorded = captures.build(samples, begin=BEGIN, end=BEGIN + 300 * SECOND, cores=(0, 1, 2))
    source = captures.store(tmp_path, recorded)
    window = captures.window(BEGIN + 40 * SECOND, BEGIN + 290 * SECOND)
    now = window_samples.read_window(source, "alpha", window)
    wanted: dict[Actor, int] = {}
    for sample in samples:
        inside = window.begin_us <= sample.time_us < window.end_us and not sample.idle
        if inside and captures.kernel("tcp_sendmsg") in sample.path:
            actor = (sample.process, sample.unit)
            wanted[actor] = wanted.get(actor, 0) + sample.count
    consumers = function_usage.top_consumers(
        now, None, function_usage.mark_innermost("tcp_sendmsg"), limit=99
    )
    assert {consumer.actor: sum(consumer.marked.values()) for consumer in consumers} == wanted
    both, all_ = function_usage.nested_share(now, "list_lru_count_one", "tcp_sendmsg")
    assert all_ == sum(wanted.values())
    assert both <= all_


def test_a_user_function_of_the_same_name_is_not_a_kernel_function(tmp_path: pathlib.Path) -> None:
    now = _read(tmp_path, _full(650, 6, (captures.user("mem_cgroup_iter"),)), 640, 680)
    assert (
        function_usage.top_consumers(now, None, function_usage.mark_innermost("mem_cgroup_iter"))
        == []
    )


def test_the_busiest_run_allows_one_pause() -> None:
    assert function_usage.busiest_run({10: 99, 11: 99, 13: 99, 20: 99, 30: 3}, 50) == (10, 14)
    assert function_usage.busiest_run({10: 3, 30: 3}, 50) == (10, 31)


def test_a_run_at_about_half_a_core_is_not_split() -> None:
    about_half = {10: 48, 11: 52, 12: 44, 13: 47, 14: 51, 15: 49, 20: 9}
    assert function_usage.busiest_run(about_half, 50) == (10, 16)


def test_of_two_runs_the_one_nearest_before_the_event_is_chosen() -> None:
    twice = {**dict.fromkeys(range(10, 16), 99), **dict.fromkeys(range(35, 39), 99)}
    assert function_usage.busiest_run(twice, 50) == (10, 16)
    assert function_usage.busiest_run(twice, 50, near_s=40) == (35, 39)
    assert function_usage.busiest_run(twice, 50, near_s=18) == (10, 16)  # the other had not begun
    echo = {**twice, 57: 60}
    assert function_usage.busiest_run(echo, 50, near_s=58) == (10, 16)
