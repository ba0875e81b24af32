"""Kernel reports around an event: lockups, OOM kills, disks, limits. No event explains itself."""

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
    home = evidence.Home(tmp_path, SECONDS)
    home.signal("load", 2, lambda second: {"": (100,)})
    return home


def _reset(home: evidence.Home) -> case.Case:
    return home.case(home.add_event(AT, "net.driver_reset"))


def test_a_soft_lockup_before_the_event_is_found(home: evidence.Home) -> None:
    home.add_event(
        AT - 20, "cpu.soft_lockup", core=5, process="kubelet", text="BUG: soft lockup - CPU#5",
        fields={"s": 23, "cpu": 5},
    )  # fmt: skip
    (finding,) = LOCKUPS.look(_reset(home)).findings
    assert finding.kind == "cpu.stall"
    assert finding.subject == Subject(host=rings.HOST, core=5, process="kubelet")
    assert finding.magnitude["stalled_seconds"] == 23
    assert finding.evidence[0].look == "overnight events cpu.soft_lockup-0"


def test_stalls_of_one_process_on_one_core_are_one_finding_and_the_surest_come_first(
    home: evidence.Home,
) -> None:
    """The second report of a lockup is after the event: what matters is that it began before."""
    home.add_event(AT - 50, "task.hung", process="dd")
    for second, seconds, process in ((-30, 45, "kubelet"), (-20, 26, "etcd"), (5, 23, "kubelet")):
        home.add_event(
            AT + second,
            "cpu.soft_lockup",
            core=5,
            process=process,
            unit=f"{process}.service",
            fields={"s": seconds},
            count=2,
        )
    found = LOCKUPS.look(_reset(home)).findings
    assert [(f.subject.process, f.subject.unit, f.confidence, f.magnitude) for f in found] == [
        ("kubelet", "kubelet.service", 0.95, {"stalled_seconds": 45, "count": 4}),
        ("etcd", "etcd.service", 0.95, {"stalled_seconds": 26, "count": 2}),
        ("dd", "", 0.6, {"stalled_seconds": 0, "count": 1}),
    ]
    assert found[0].window == Window(rings.us(AT - 30), rings.us(AT + 5) + 1)
    assert [each.values["lines_or_sightings"] for each in found[0].evidence] == [2, 2]


def test_a_stall_after_the_event_has_lower_confidence(home: evidence.Home) -> None:
    home.add_event(AT + 5, "rcu.stall", text="rcu: INFO: rcu_sched self-detected stall on CPU")
    (finding,) = LOCKUPS.look(_reset(home)).findings
    assert finding.confidence < lockups.CONFIDENCE["rcu.stall"]


def test_the_event_does_not_explain_itself(home: evidence.Home) -> None:
    home.signal("vmstat", 1, lambda s: {"": (0, 0, 0, int(s >= AT))})
    kinds = ["cpu.soft_lockup", "memory.oom_kill", "storage.timeout"]
    for kind, detector in zip(kinds, (LOCKUPS, OOM, STORAGE), strict=True):
        event = home.add_event(AT, kind, text="it")
        other = evidence.Home(home.path / kind, SECONDS, readings=home.readings, events=[event])
        assert detector.look(other.case(event)).status == Status.CLEAR


def test_a_kill_is_reported_once(home: evidence.Home) -> None:
    """The log names the process; the counter and its event do not."""
    home.add_event(
        AT - 9, "memory.oom_kill", process="python3", unit="job.service", text="Killed process 42",
        fields={"pid": 42, "comm": "python3"},
    )  # fmt: skip
    home.add_event(AT - 8, "memory.oom_kill", text="the kernel killed 1 processes for memory")
    home.signal("vmstat", 1, lambda s: {"": (0, 0, 0, int(s >= AT - 9))})
    (finding,) = OOM.look(_reset(home)).findings
    assert (finding.subject.process, finding.subject.unit) == ("python3", "job.service")
    assert finding.magnitude["kills"] == 1
    assert any(e.source == "vmstat" for e in finding.evidence)


def test_a_kill_seen_only_by_the_counter_is_found(home: evidence.Home) -> None:
    home.signal("vmstat", 1, lambda s: {"": (0, 0, 0, 2 * int(s >= AT - 9))})
    (finding,) = OOM.look(_reset(home)).findings
    assert finding.magnitude["kills"] == 2
    assert finding.window == Window(rings.us(AT - 10), rings.us(AT - 9))


def test_the_counter_counts_kills_and_not_kills_a_second(home: evidence.Home) -> None:
    """It is read every ten seconds; three processes were killed together, and one later."""
    home.signal("vmstat", 10, lambda s: {"": (0, 0, 0, 3 * (s >= AT - 20) + (s >= AT - 9))})
    (finding,) = OOM.look(_reset(home)).findings
    assert finding.magnitude["kills"] == 4
    assert finding.window == Window(rings.us(AT - 30), rings.us(AT))
    assert finding.summary.startswith("the kernel killed 4 processes to free memory")


def test_kills_are_grouped_by_unit_and_a_failed_allocation_is_not_one(home: evidence.Home) -> None:
    home.signal("vmstat", 1, lambda s: {"": (0, 0, 0, 3 * (s >= AT - 9))})
    for unit in ("a.service", "b.service"):
        home.add_event(
            AT - 9, "memory.oom_kill", process="python3", unit=unit, fields={"cgroup": f"/{unit}"}
        )
    home.add_event(AT - 9, "memory.allocation_failure", process="dd")
    found = OOM.look(_reset(home)).findings
    assert sorted((f.subject.unit, f.subject.cgroup, f.magnitude["kills"]) for f in found) == [
        ("", "", 0),
        ("a.service", "/a.service", 3),
        ("b.service", "/b.service", 3),
    ]


def test_a_disk_that_does_not_respond_is_found(home: evidence.Home) -> None:
    home.add_event(
        AT - 40, "storage.timeout", text="nvme nvme1: I/O 7 timeout", fields={"device": "nvme1"}
    )
    home.add_event(
        AT - 30, "storage.io_error", text="I/O error, dev nvme1", fields={"device": "nvme1"}, count=4
    )  # fmt: skip
    home.signal("pressure", 1, lambda s: {"io": (900_000 * max(0, s - AT + 25), 0)})
    (finding,) = STORAGE.look(_reset(home)).findings
    assert finding.magnitude["faults"] == 5
    assert finding.magnitude["io_wait_percent"] == pytest.approx(90, rel=0.05)
    assert "nvme1" in finding.summary


@pytest.mark.parametrize(
    ("kind", "more", "count"),
    [
        ("storage.filesystem_error", {"fields": {"device": "nvme1n1p2"}}, 1),
        ("storage.filesystem_error", {"fields": {"device": "nvme0n1p1"}}, 0),
        ("storage.filesystem_error", {"fields": {"device": "dm-0"}}, 1),  # may be on any disk
        ("task.hung", {"process": "jbd2/nvme0n1p1"}, 0),
        ("task.hung", {"process": "jbd2/nvme1n1p1"}, 1),
        ("task.hung", {"process": "postgres"}, 1),
    ],
)
def test_errors_of_another_disk_are_not_a_cause(
    home: evidence.Home, kind: str, more: dict[str, object], count: int
) -> None:
    home.add_event(AT - 40, "storage.timeout", text="I/O 7 timeout", fields={"device": "nvme1"})
    answer = STORAGE.look(home.case(home.add_event(AT, kind, **more)))
    assert len(answer.findings) == count
    assert ("the errors are of nvme1" in answer.why) == (not count)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ("xvda1", "xvdb"),
        ("mmcblk0p1", "mmcblk1"),
        ("sda1", "sdb"),
        ("vda1", "vdb"),
        ("hda1", "hdb"),
    ],
)
def test_the_names_of_disks_are_told_apart_from_their_partitions(
    home: evidence.Home, own: str, other: str
) -> None:
    for device, kind in (
        (own.rstrip("p1"), "storage.readonly"),
        (other, "storage.io_error"),
        (own, "storage.timeout"),
    ):
        home.add_event(AT - 40, kind, text=kind, fields={"device": device})
    event = home.add_event(AT, "storage.filesystem_error", fields={"device": own})
    found = STORAGE.look(home.case(event)).findings
    assert {finding.summary for finding in found} == {
        f"{own.rstrip('p1')}: storage.readonly",
        f"{own}: storage.timeout",
    }


def test_faults_of_a_disk_are_as_sure_as_the_surest_of_them(home: evidence.Home) -> None:
    for n, kind in enumerate(["storage.readonly", *["storage.timeout"] * 12]):
        home.add_event(AT - 40 + n, kind, text=kind, fields={"device": "sda"})
    home.signal("pressure", 1, lambda s: {"io": (900_000 * max(0, s - AT + 25), 0)})
    (finding,) = STORAGE.look(_reset(home)).findings
    assert finding.confidence == 0.95
    assert (finding.magnitude["faults"], len(finding.evidence)) == (13, 8 + 1)
    assert finding.evidence[-1].text.startswith("tasks waited for I/O 90 % of the time; 0 % in")


@pytest.mark.parametrize(
    ("before", "now", "seconds", "found"),
    [
        pytest.param(0, 90, 25, True, id="tasks wait for I/O"),
        pytest.param(0, 45, 25, False, id="less than half of the time"),
        pytest.param(0, 90, 2, False, id="two seconds"),
        pytest.param(60, 60, 25, False, id="as in the baseline"),
        pytest.param(25, 60, 25, False, id="hardly more than in the baseline"),
        pytest.param(60, 95, 25, True, id="nearly all the time"),
    ],
)
def test_near_misses_of_waiting(
    home: evidence.Home, before: int, now: int, seconds: int, found: bool
) -> None:
    """Waiting alone, in percent of the time, has low confidence."""

    def total(second: int) -> int:
        late = max(0, min(second - AT + 25, seconds))
        return 10_000 * (before * second + (now - before) * late)

    home.signal("pressure", 1, lambda s: {"io": (total(s), 0)})
    findings = STORAGE.look(_reset(home)).findings
    assert [(finding.kind, finding.confidence) for finding in findings] == [
        ("io.wait", 0.5)
    ] * found


@pytest.mark.parametrize(
    ("complaints", "kinds"),
    [
        pytest.param(["task.blocked"], ["io.wait"], id="a blocked task"),
        pytest.param(["storage.timeout"], ["storage.fault"], id="a disk"),
        pytest.param(["task.blocked", "storage.timeout"], ["io.wait", "storage.fault"], id="both"),
    ],
)
def test_only_a_disk_that_complains_is_a_storage_fault(
    home: evidence.Home, complaints: list[str], kinds: list[str]
) -> None:
    for kind in complaints:
        more = (
            {"fields": {"device": "nvme1"}} if kind == "storage.timeout" else {"process": "dd[7]"}
        )
        home.add_event(AT - 40, kind, text=kind, **more)
    home.signal("pressure", 1, lambda s: {"io": (900_000 * max(0, s - AT + 25), 0)})
    findings = STORAGE.look(_reset(home)).findings
    assert sorted(finding.kind for finding in findings) == kinds
    assert [finding.subject.process for finding in findings if finding.kind == "io.wait"] == (
        ["dd[7]"] * ("io.wait" in kinds)
    )


@pytest.mark.parametrize(
    ("table", "used", "confidence"),
    [("pids", 690, 0), ("pids", 720, 0.6), ("pids", 970, 0.9), ("conntrack", 720, 0)],
)
def test_a_table_that_is_nearly_full_is_found(
    home: evidence.Home, table: str, used: int, confidence: float
) -> None:
    home.signal(
        "limits", 10, lambda s: {table: (used if s == AT - 60 else 100, 1000), "files": (1, 0)}
    )
    findings = LIMITS.look(_reset(home)).findings
    assert [finding.confidence for finding in findings] == ([confidence] if confidence else [])


def test_only_the_table_of_the_event_is_reported(home: evidence.Home) -> None:
    home.signal("limits", 10, lambda _: {"pids": (800, 1000), "files": (990, 1000)})
    event = home.add_event(AT, "limit.near", text="pids: 800 of 1000 used (80 %)")
    (finding,) = LIMITS.look(home.case(event)).findings
    assert finding.subject.function == "pids"


def test_an_empty_recording_is_no_data(tmp_path: pathlib.Path) -> None:
    opened = _reset(evidence.Home(tmp_path, SECONDS))
    assert {detector.look(opened).status for detector in DETECTORS} == {Status.NO_DATA}


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_host_has_no_findings(home: evidence.Home, seed: int) -> None:
    chance = random.Random(seed)
    waits = [0]
    for _ in range(SECONDS):
        waits.append(waits[-1] + round(1e6 * chance.betavariate(1, 6)))
    home.signal("pressure", 1, lambda s: {"io": (waits[s], 0)})
    home.signal("vmstat", 1, lambda s: {"": (s, s, 0, 3)})
    home.signal("limits", 10, lambda s: {"pids": (chance.randrange(600), 1000)})
    home.add_event(AT - 300, "cpu.soft_lockup", core=1, text="long ago")
    home.add_event(AT - 5, "workqueue.hog", text="workqueue: x hogged CPU for >10000us 4 times")
    opened = _reset(home)
    assert [detector.look(opened).findings for detector in DETECTORS] == [()] * 4
