"""cgroup walk, reclaim and lock contention on small captures: found, clear, no data, failed."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import evidence
import pytest
import rings

from overnight.app import diagnose
from overnight.detectors import _stack_usage, cgroup_walk, lock_contention, reclaim
from overnight.model.actor import Actor
from overnight.model.finding import Status, Subject
from overnight.model.selection import Window
from overnight.queries import function_usage

if TYPE_CHECKING:
    from overnight.queries import case

(WALK,) = cgroup_walk.DETECTORS
(RECLAIM,) = reclaim.DETECTORS
(LOCKS,) = lock_contention.DETECTORS
SECONDS, AT = 900, 860
READ = ("do_syscall_64", "seq_read", "memcg_numa_stat_show", "mem_cgroup_nr_lru_pages")
LIMIT = ("try_charge", "try_to_free_mem_cgroup_pages", "do_try_to_free_pages", "shrink_node")
SPIN = ("do_syscall_64", "path_openat", "lockref_get", "_raw_spin_lock", "native_queued_spin_lock_slowpath")  # fmt: skip


@pytest.fixture
def home(tmp_path: pathlib.Path) -> evidence.Home:
    home = evidence.Home(tmp_path, SECONDS)
    home.idle()
    return home


def _case(home: evidence.Home, core: int = -1) -> case.Case:
    return home.case(home.add_event(AT, "net.driver_reset", core=core))


def _zombies(home: evidence.Home, dying: int) -> None:
    home.signal("memory-cgroups", 60, lambda s: {"": (dying + 240, 240, dying, 0, 1)})


def test_a_process_that_reads_statistics_of_zombies_is_found(home: evidence.Home) -> None:
    _zombies(home, 68_000)
    home.add_samples(AT - 6, 6, READ, core=3, process="kubelet", unit="kubelet.service")
    home.add_samples(100, 400, READ, core=1, process="kubelet", unit="kubelet.service", share=0.01)
    (finding,) = WALK.look(_case(home)).findings
    assert finding.subject == Subject(
        host=rings.HOST, core=3, process="kubelet", unit="kubelet.service",
        function="mem_cgroup_nr_lru_pages",
    )  # fmt: skip
    assert finding.window.seconds == 6
    assert finding.magnitude["cores_burnt"] == pytest.approx(1, abs=0.01)
    assert finding.magnitude["lift_low"] > 10
    assert finding.confidence == pytest.approx(0.95)


@pytest.mark.parametrize(("dying", "most"), [(None, 0.8), (40, 0.45)])
def test_a_walk_without_zombies_has_lower_confidence(
    home: evidence.Home, dying: int | None, most: float
) -> None:
    if dying is not None:
        _zombies(home, dying)
    home.add_samples(AT - 6, 6, READ, core=3)
    (finding,) = WALK.look(_case(home)).findings
    assert finding.confidence <= most
    assert any("dying" in e.values for e in finding.against) == (dying is not None)


def test_reclaim_that_frees_memory_is_not_a_walk(home: evidence.Home) -> None:
    home.add_samples(
        AT - 8, 8, (*LIMIT, "shrink_lruvec", "shrink_inactive_list"), core=2, share=0.9
    )
    home.add_samples(AT - 8, 8, (*LIMIT, "mem_cgroup_iter"), core=2, share=0.06)
    opened = _case(home)
    assert WALK.look(opened).status == Status.CLEAR
    (finding,) = RECLAIM.look(opened).findings
    assert finding.subject.function == "try_to_free_mem_cgroup_pages"
    assert finding.magnitude["cores_burnt"] == pytest.approx(0.96, abs=0.02)
    assert "its cgroup was at its memory limit" in finding.summary


def test_a_small_part_of_much_reclaim_is_not_a_walk(home: evidence.Home) -> None:
    """The step from one cgroup to the next uses a third of a core, and reclaim nearly three."""
    for core in (1, 2, 3):
        home.add_samples(AT - 8, 8, (*LIMIT, "shrink_lruvec"), core=core, share=0.65 + 0.1 * core)
    home.add_samples(AT - 8, 8, (*LIMIT, "mem_cgroup_iter"), core=0, share=0.33)
    assert WALK.look(_case(home)).status == Status.CLEAR


def test_reclaim_that_walks_counts_completely_as_a_walk(home: evidence.Home) -> None:
    _zombies(home, 15_000)
    home.add_samples(AT - 8, 8, (*LIMIT, "mem_cgroup_iter"), core=2, share=0.5)
    home.add_samples(AT - 8, 8, (*LIMIT, "shrink_lruvec"), core=2, share=0.45)
    opened = _case(home)
    (walk,) = WALK.look(opened).findings
    assert walk.subject.function == "mem_cgroup_iter"
    assert walk.magnitude["cores_burnt"] == pytest.approx(0.95, abs=0.02)
    assert (walk.confidence, walk.magnitude["dying"]) == (pytest.approx(0.9), 15_000)
    assert RECLAIM.look(opened).findings[0].confidence < walk.confidence


@pytest.mark.parametrize(
    ("samples", "cores", "seconds", "lift_low", "share", "baseline", "found"),
    [
        pytest.param(25, 0.25, 2, 2.0, 0.25, True, True, id="just enough"),
        pytest.param(24, 0.25, 2, 2.0, 0.25, True, False, id="few samples"),
        pytest.param(25, 0.24, 2, 2.0, 0.25, True, False, id="little of a core"),
        pytest.param(25, 0.25, 1, 2.0, 0.25, True, False, id="one second"),
        pytest.param(99, 0.7, 5, 1.9, 0.7, True, False, id="hardly more than in the baseline"),
        pytest.param(99, 0.8, 5, 1.0, 0.8, True, True, id="it saturates the core, as before"),
        pytest.param(99, 0.5, 5, 0.0, 0.5, False, True, id="half a core without a baseline"),
        pytest.param(99, 0.4, 5, 0.0, 0.4, False, False, id="less without a baseline"),
    ],
)
def test_near_misses(
    samples: int,
    cores: float,
    seconds: int,
    lift_low: float,
    share: float,
    baseline: bool,
    found: bool,
) -> None:
    usage = function_usage.Usage(
        Actor("app"), "f", {}, 3, 1.0, Window(0, seconds * 1_000_000), samples, cores, share,
        0.1, 3.0, lift_low, {}, [],
    )  # fmt: skip
    assert _stack_usage.stands_out(usage, baseline=baseline) == found


def test_low_usage_is_not_a_finding(home: evidence.Home) -> None:
    home.add_samples(AT - 20, 20, READ, core=3, share=0.05)
    home.add_samples(AT - 20, 20, SPIN, core=2, share=0.05)
    home.add_samples(AT - 20, 20, (*LIMIT, "shrink_lruvec"), core=1, share=0.05)
    opened = _case(home)
    answers = [detector.look(opened) for detector in (WALK, LOCKS, RECLAIM)]
    assert [answer.status for answer in answers] == [Status.CLEAR] * 3
    assert all(answer.why for answer in answers)


def test_constant_usage_is_not_a_finding(home: evidence.Home) -> None:
    """It used half a core in the ten minutes before, too."""
    home.add_samples(0, SECONDS, READ, core=3, share=0.5)
    assert WALK.look(_case(home)).status == Status.CLEAR


def test_direct_reclaim_is_found_with_its_counters(home: evidence.Home) -> None:
    home.add_samples(AT - 8, 8, ("__alloc_pages_slowpath", "try_to_free_pages", "shrink_node", "shrink_lruvec"))  # fmt: skip
    home.signal("vmstat", 1, lambda s: {"": (50_000 * max(0, s - AT + 8), s, 9 * max(0, s - AT + 8), 0)})  # fmt: skip
    home.signal("pressure", 1, lambda s: {"memory": (400_000 * max(0, s - AT + 8), 0)})
    (finding,) = RECLAIM.look(_case(home)).findings
    assert finding.magnitude["pages_per_second"] == pytest.approx(50_000, rel=0.15)
    assert finding.confidence == pytest.approx(0.95)
    assert {e.source for e in finding.evidence} == {"profiles", "vmstat", "pressure"}


def test_less_spinning_is_enough_on_the_core_of_the_event(home: evidence.Home) -> None:
    """A core that was already in use is saturated by a smaller addition."""
    home.add_samples(AT - 10, 10, SPIN, core=2, process="writer", share=0.4)
    findings = LOCKS.look(_case(home, core=2)).findings
    assert [finding.subject.core for finding in findings] == [2]
    assert findings[0].magnitude["cores_burnt"] == pytest.approx(0.4, abs=0.05)


def test_little_spinning_on_another_core_is_not_a_finding(home: evidence.Home) -> None:
    home.add_samples(AT - 10, 10, SPIN, core=2, process="writer", share=0.4)
    assert LOCKS.look(_case(home, core=1)).status == Status.CLEAR


def test_lock_contention_is_grouped_by_caller(home: evidence.Home) -> None:
    for core in (0, 1, 2):
        home.add_samples(AT - 10, 10, SPIN, core=core, process=f"worker-{core}", share=0.9)
    home.add_samples(AT - 10, 10, ("shrink_inactive_list", "folio_lruvec_lock_irq", "_raw_spin_lock_irq", "native_queued_spin_lock_slowpath"), core=3, process="db")  # fmt: skip
    findings = LOCKS.look(_case(home, core=1)).findings
    assert [finding.evidence[0].values["caller"] for finding in findings] == ["lockref_get", "shrink_inactive_list"]  # fmt: skip
    assert findings[0].magnitude["cores_burnt"] == pytest.approx(2.7, abs=0.05)
    assert findings[0].magnitude["waiters"] == 3
    assert findings[0].subject.process == "worker-1"  # the worker on the event's core
    assert findings[0].evidence[0].text == "3 processes wait for a lock that lockref_get takes"
    assert findings[0].summary.startswith(
        "2.70 cores were used waiting for a lock, taken in lockref_get; cores by process: worker-1 0.90, "
    )
    assert findings[0].confidence == pytest.approx(0.85)
    assert findings[0].subject.function == "native_queued_spin_lock_slowpath"


def test_a_process_that_waits_for_two_locks_is_ranked_by_the_costlier_one(
    home: evidence.Home,
) -> None:
    other = tuple("other_caller" if function == "lockref_get" else function for function in SPIN)
    third = tuple("third_caller" if function == "lockref_get" else function for function in SPIN)
    home.add_samples(AT - 10, 10, SPIN, core=0, process="job", share=0.65)
    home.add_samples(AT - 10, 10, other, core=0, process="job", share=0.3)
    home.add_samples(AT - 10, 10, third, core=1, process="db", share=0.55)
    findings = LOCKS.look(_case(home, core=0)).findings
    assert [(f.subject.process, f.evidence[0].values["caller"]) for f in findings] == [
        ("job", "lockref_get"),
        ("db", "third_caller"),
    ]


def test_a_futex_storm_needs_more_than_a_core(home: evidence.Home) -> None:
    path = ("do_syscall_64", "do_futex", "futex_wake")
    home.add_samples(AT - 10, 10, path, core=0, process="job")
    opened = _case(home)
    assert LOCKS.look(opened).status == Status.CLEAR


def test_a_futex_storm_is_found(home: evidence.Home) -> None:
    for core in range(3):
        home.add_samples(AT - 10, 10, ("do_syscall_64", "do_futex", "futex_wake"), core=core, process="job")  # fmt: skip
    (finding,) = LOCKS.look(_case(home)).findings
    assert finding.subject.function == "futex_wake"
    assert finding.magnitude["cores_burnt"] == pytest.approx(3, abs=0.05)
    assert finding.confidence == pytest.approx(0.6)


def test_without_a_baseline_only_high_usage_is_a_finding(tmp_path: pathlib.Path) -> None:
    for share, count in ((0.4, 0), (0.95, 1)):
        home = evidence.Home(tmp_path / str(share), SECONDS, begin=AT - 40)
        home.idle()
        home.add_samples(AT - 10, 10, READ, share=share)
        assert len(WALK.look(_case(home)).findings) == count


def test_no_stacks_is_no_data(tmp_path: pathlib.Path) -> None:
    opened = _case(evidence.Home(tmp_path, SECONDS))
    for detector in (WALK, LOCKS, RECLAIM):
        assert detector.look(opened).status == Status.NO_DATA


def test_stacks_that_end_before_the_event_are_no_data(tmp_path: pathlib.Path) -> None:
    home = evidence.Home(tmp_path, AT - 8)
    home.idle()
    home.signal("vmstat", 1, lambda s: {"": (0, 0, 0, 0)})
    opened = _case(home)
    for detector in (WALK, LOCKS, RECLAIM):
        answer = detector.look(opened)
        assert answer.status == Status.NO_DATA
        assert "s around the event were sampled" in answer.why


def test_a_damaged_segment_is_no_data_and_not_clear(home: evidence.Home) -> None:
    home.add_samples(AT - 6, 6, READ, core=3)
    opened = _case(home)
    for file in home.path.glob("profiles/**/nodes.parquet"):
        file.write_bytes(b"PAR1 no more")
    (answer,) = diagnose.run_detectors(opened, (WALK,))
    assert answer.status == Status.NO_DATA
    assert answer.why == "there are no readable stacks around the event"


def test_kswapd_activity_has_lower_confidence(home: evidence.Home) -> None:
    home.add_samples(AT - 8, 8, ("kthread", "kswapd", "balance_pgdat", "shrink_node", "shrink_lruvec"), process="kswapd0", unit="")  # fmt: skip
    (finding,) = RECLAIM.look(_case(home)).findings
    assert finding.confidence < 0.7
    assert "in the background" in finding.summary
