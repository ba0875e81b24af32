"""The plan of a seed, the needs of a rehearsal, and the resources that it leaves behind."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight import errors, load
from overnight.app import rehearsal, rehearsal_host
from overnight.sources.perf import events
from overnight.undo import journal

EMPTY = rehearsal_host.Inventory(frozenset(), frozenset(), frozenset(), frozenset())


@hypothesis.given(
    st.integers(0, 10**6), st.sets(st.integers(0, 200), min_size=2, max_size=8), st.booleans()
)
def test_a_seed_chooses_two_cores_and_a_bounded_time(
    seed: int, cores: set[int], brief: bool
) -> None:
    plan = rehearsal_host.draw("rt-hog", seed, cores, brief=brief)
    assert plan == rehearsal_host.draw("rt-hog", seed, cores, brief=brief)
    assert plan.core in cores
    assert plan.spare in cores - {plan.core}
    assert plan.longest < (300 if brief else 800)


def test_seeds_and_rehearsals_vary_core_and_timing() -> None:
    plans = [rehearsal_host.draw("rt-hog", seed, range(8)) for seed in range(60)]
    assert {plan.core for plan in plans} == set(range(8))
    assert len({plan.baseline for plan in plans}) > 10
    assert len({plan.after for plan in plans}) > 10
    assert rehearsal_host.draw("quiet", 1, range(8)) != rehearsal_host.draw("rt-hog", 1, range(8))


def test_the_requested_core_is_used() -> None:
    plan = rehearsal_host.draw("rt-hog", 3, range(4), core=2)
    assert plan.core == 2
    assert plan.spare != 2
    with pytest.raises(errors.UsageError, match="core 9"):
        rehearsal_host.draw("rt-hog", 3, range(4), core=9)


def test_busy_cores_are_avoided_where_others_are_left() -> None:
    for seed in range(20):
        plan = rehearsal_host.draw("rt-hog", seed, range(4), busy=(0, 3))
        assert {plan.core, plan.spare} == {1, 2}
        assert rehearsal_host.draw("rt-hog", seed, range(2), busy=(0,)).core == 1
        assert rehearsal_host.draw("rt-hog", seed, range(4), busy=range(4), core=2).core == 2


def test_one_core_is_too_few() -> None:
    with pytest.raises(errors.CannotError, match="two cores"):
        rehearsal_host.draw("rt-hog", 1, {0})


def test_every_missing_need_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(errors.CannotError) as caught:
        rehearsal_host.check_needs(("root", "netns", "nspawn", "realtime"))
    for word in ("root", "iproute2", "systemd-nspawn"):
        assert caught.value.why.count(word) == 1


def test_a_host_that_cannot_sample_stacks_cannot_rehearse(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = events.Probe((), {0: "EACCES"}, False, False, False)
    monkeypatch.setattr(events, "probe", lambda _: refused)
    with pytest.raises(errors.CannotError) as caught:
        rehearsal_host.check_needs(())
    assert "cannot sample stacks: perf_event_open fails with EACCES" in caught.value.why


def test_a_host_with_one_core_cannot_rehearse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    with pytest.raises(errors.CannotError) as caught:
        rehearsal_host.check_needs(())
    assert "two cores" in caught.value.why


def test_leftovers_are_attributed_by_run_name_or_undo_journal(tmp_path: pathlib.Path) -> None:
    after = rehearsal_host.Inventory(
        frozenset({"/sys/fs/cgroup/memory/made/below", "/sys/fs/cgroup/memory/somebody"}),
        frozenset({"overnight-1-a"}),
        frozenset(),
        frozenset({"/run/netns", "/mnt/other"}),
    )
    ours, others = rehearsal_host.left_behind(
        "overnight-1", tmp_path / "gone", ["/sys/fs/cgroup/memory/made"], EMPTY, after
    )
    assert ours == ["cgroup /sys/fs/cgroup/memory/made/below", "netns overnight-1-a"]
    assert others == ["cgroup /sys/fs/cgroup/memory/somebody", "mount /mnt/other"]
    ours, _ = rehearsal_host.left_behind("overnight-1", tmp_path, [], EMPTY, EMPTY)
    assert ours == [f"folder {tmp_path}"]


def test_a_file_with_the_runs_name_is_left_behind(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / ".#overnight-0000000a.lck").touch()
    before = rehearsal_host.take_inventory()
    (tmp_path / ".#overnight-7e57ca5e.lck").touch()
    after = rehearsal_host.take_inventory()
    gone = tmp_path / "gone"
    ours, _ = rehearsal_host.left_behind("overnight-7e57ca5e", gone, [], before, after)
    assert ours == [f"file {tmp_path}/.#overnight-7e57ca5e.lck"]


def test_existing_resources_are_not_leftovers() -> None:
    inventory = rehearsal_host.take_inventory()
    assert rehearsal_host.left_behind(
        "overnight-1", pathlib.Path("/nonexistent"), [], inventory, inventory
    ) == (
        [],
        [],
    )
    assert "lo" in inventory.links
    assert "/proc" in inventory.mounts


def test_the_newest_runs_are_kept_and_nothing_else_is_touched(tmp_path: pathlib.Path) -> None:
    for number in range(5):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        marker = folder / rehearsal_host.MARKER
        marker.write_text("{}")
        os.utime(marker, (number, number))
    (tmp_path / "of-the-user").mkdir()
    rehearsal_host.prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["of-the-user", "run-3", "run-4"]


def test_a_second_rehearsal_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path / "undo"))
    with (
        rehearsal_host.alone(),
        pytest.raises(errors.CannotError, match="another rehearsal"),
        rehearsal_host.alone(),
    ):
        pass
    with rehearsal_host.alone():
        modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "undo").iterdir()}
        assert modes == {0o600}


def test_the_lock_of_a_killed_rehearsal_is_cleaned_up(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_UNDO", str(tmp_path))
    (tmp_path / "rehearse.lock").touch()
    assert rehearsal.clean() == []
    assert list(tmp_path.iterdir()) == []
    with rehearsal_host.alone():
        assert rehearsal.clean() == []
        assert [path.name for path in tmp_path.iterdir()] == ["rehearse.lock"]


def test_only_the_calling_thread_and_its_children_leave_the_core() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    seen: list[set[int]] = []
    with load.keep_off((core,)):
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
    assert seen == [before - {core} or before]
    assert os.sched_getaffinity(0) == before


def test_other_processes_on_a_core_are_named_but_not_those_of_the_run() -> None:
    crowd = rehearsal_host.Crowd("overnight-1")
    loop = [sys.executable, "-c", "while True: pass"]
    with (
        subprocess.Popen(loop) as other,
        subprocess.Popen(loop, env={**os.environ, journal.MARK: "overnight-1"}) as own,
    ):
        try:
            deadline = time.monotonic() + 8
            while not any(f"[{other.pid}]" in line for line in crowd.describe(0.05)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert not any(f"[{own.pid}]" in line for line in crowd.describe(0.0))
        finally:
            other.kill()
            own.kill()
    assert crowd.describe(1000.0) == []
