"""Kernel reports around an event, which is never its own explanation: lockups, kills, disks, limits."""

from __future__ import annotations

import pathlib
import random
from typing import TYPE_CHECKING

import evidence
import pytest
import rings

from overnight.detectors import kernel_limits, lockups, oom, storage_faults
from overnight.model.finding import Status, Subject
from overnight.model.selection import Window

if TYPE_CHECKING:
    from overnight.queries import case

DETECTORS = tuple(module.DETECTORS[0] for module in (lockups, oom, storage_faults, kernel_limits))
LOCKUPS, OOM, STORAGE, LIMITS = DETECTORS
SECONDS, AT = 900, 860


@pytest.fixture
def home(tmp_path: pathlib.Path) -> evidence.Home:
    made = evidence.Home(tmp_path, SECONDS)
    made.signal("load", 10, lambda second: {"": (100,)})
    return made


def _reset(home: evidence.Home) -> case.Case:
    return home.case(home.tell(AT, "net.driver_reset"))


def test_a_soft_lockup_before_the_event(home: evidence.Home) -> None:
    home.tell(
        AT - 20, "cpu.soft_lockup", core=5, process="kubelet", text="BUG: soft lockup - CPU#5",
        fields={"s": 23, "cpu": 5},
    )  # fmt: skip
    (one,) = LOCKUPS.look(_reset(home)).findings
    assert one.kind == "cpu.stall"
    assert one.subject == Subject(host=rings.HOST, core=5, process="kubelet")
    assert one.magnitude["stalled_seconds"] == 23
    assert one.evidence[0].look == "overnight events cpu.soft_lockup-0"


def test_what_comes_after_is_less_likely_the_cause(home: evidence.Home) -> None:
    home.tell(AT + 5, "rcu.stall", text="rcu: INFO: rcu_sched self-detected stall on CPU")
    (one,) = LOCKUPS.look(_reset(home)).findings
    assert one.confidence < lockups.CONFIDENCE["rcu.stall"]


def test_the_event_does_not_explain_itself(home: evidence.Home) -> None:
    kinds = ["cpu.soft_lockup", "memory.oom_kill", "storage.timeout"]
    for kind, detector in zip(kinds, (LOCKUPS, OOM, STORAGE), strict=True):
        one = home.tell(AT, kind, text="it")
        other = evidence.Home(home.path / kind, SECONDS, readings=home.readings, events=[one])
        assert detector.look(other.case(one)).status == Status.CLEAR


def test_a_kill_is_named_once(home: evidence.Home) -> None:
    """The log names the process, the counter and its watch do not."""
    home.tell(
        AT - 9, "memory.oom_kill", process="python3", unit="job.service", text="Killed process 42",
        fields={"pid": 42, "comm": "python3"},
    )  # fmt: skip
    home.tell(AT - 8, "memory.oom_kill", text="the kernel killed 1 processes for memory")
    home.signal("vmstat", 1, lambda s: {"": (0, 0, 0, int(s >= AT - 9))})
    (one,) = OOM.look(_reset(home)).findings
    assert (one.subject.process, one.subject.unit) == ("python3", "job.service")
    assert one.magnitude["kills"] == 1
    assert any(e.source == "vmstat" for e in one.evidence)


def test_a_kill_that_only_the_counter_saw(home: evidence.Home) -> None:
    home.signal("vmstat", 1, lambda s: {"": (0, 0, 0, 2 * int(s >= AT - 9))})
    (one,) = OOM.look(_reset(home)).findings
    assert one.magnitude["kills"] == 2
    assert one.window == Window(rings.us(AT - 10), rings.us(AT - 9))


def test_a_disk_that_does_not_answer(home: evidence.Home) -> None:
    home.tell(
        AT - 40, "storage.timeout", text="nvme nvme1: I/O 7 timeout", fields={"device": "nvme1"}
    )
    home.tell(
        AT - 30, "storage.io_error", text="I/O error, dev nvme1", fields={"device": "nvme1"}, count=4
    )  # fmt: skip
    home.signal("pressure", 1, lambda s: {"io": (900_000 * max(0, s - AT + 25), 0)})
    (one,) = STORAGE.look(_reset(home)).findings
    assert one.magnitude["faults"] == 5
    assert one.magnitude["io_wait_percent"] == pytest.approx(90, rel=0.05)
    assert "nvme1" in one.summary


@pytest.mark.parametrize(
    ("kind", "told", "found"),
    [
        ("storage.filesystem_error", {"fields": {"device": "nvme1n1p2"}}, 1),
        ("storage.filesystem_error", {"fields": {"device": "nvme0n1p1"}}, 0),
        ("storage.filesystem_error", {"fields": {"device": "dm-0"}}, 1),  # made of whichever disks
        ("task.hung", {"process": "jbd2/nvme0n1p1"}, 0),
        ("task.hung", {"process": "jbd2/nvme1n1p1"}, 1),
        ("task.hung", {"process": "postgres"}, 1),
    ],
)
def test_another_disk_is_no_explanation(
    home: evidence.Home, kind: str, told: dict[str, object], found: int
) -> None:
    home.tell(AT - 40, "storage.timeout", text="I/O 7 timeout", fields={"device": "nvme1"})
    answer = STORAGE.look(home.case(home.tell(AT, kind, **told)))
    assert len(answer.findings) == found
    assert ("the errors are of nvme1" in answer.why) == (not found)


def test_waiting_for_disks_alone_is_weak(home: evidence.Home) -> None:
    home.signal("pressure", 1, lambda s: {"io": (900_000 * max(0, s - AT + 25), 0)})
    (one,) = STORAGE.look(_reset(home)).findings
    assert one.confidence == 0.5


def test_a_host_that_waits_for_disks_all_night(home: evidence.Home) -> None:
    home.signal("pressure", 1, lambda s: {"io": (600_000 * s, 0)})
    assert STORAGE.look(_reset(home)).status == Status.CLEAR


@pytest.mark.parametrize(("used", "confidence"), [(690, 0), (720, 0.6), (970, 0.9)])
def test_a_table_that_is_nearly_full(home: evidence.Home, used: int, confidence: float) -> None:
    home.signal(
        "limits", 10, lambda s: {"pids": (used if s == AT - 60 else 100, 1000), "files": (1, 0)}
    )
    found = LIMITS.look(_reset(home)).findings
    assert [one.confidence for one in found] == ([confidence] if confidence else [])


def test_another_table_is_not_what_the_event_is_of(home: evidence.Home) -> None:
    home.signal("limits", 10, lambda _: {"pids": (800, 1000), "files": (990, 1000)})
    told = home.tell(AT, "limit.near", text="pids: 800 of 1000 used (80 %)")
    (one,) = LIMITS.look(home.case(told)).findings
    assert one.subject.function == "pids"


def test_nobody_listened(tmp_path: pathlib.Path) -> None:
    made = _reset(evidence.Home(tmp_path, SECONDS))
    assert {one.look(made).status for one in DETECTORS} == {Status.NO_DATA}


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_host_has_nothing(home: evidence.Home, seed: int) -> None:
    chance = random.Random(seed)
    waits = [0]
    for _ in range(SECONDS):
        waits.append(waits[-1] + round(1e6 * chance.betavariate(1, 6)))
    home.signal("pressure", 1, lambda s: {"io": (waits[s], 0)})
    home.signal("vmstat", 1, lambda s: {"": (s, s, 0, 3)})
    home.signal("limits", 10, lambda s: {"pids": (chance.randrange(600), 1000)})
    home.tell(AT - 300, "cpu.soft_lockup", core=1, text="long ago")
    home.tell(AT - 5, "workqueue.hog", text="workqueue: x hogged CPU for >10000us 4 times")
    made = _reset(home)
    assert [one.look(made).findings for one in DETECTORS] == [()] * 4
