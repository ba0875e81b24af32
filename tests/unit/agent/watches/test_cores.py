"""Synthetic loads on 2 to 192 cores, checked second by second."""

from __future__ import annotations

import pytest

from overnight.agent.watches import cores
from overnight.model import clock

SECOND = 1_000_000_000
WALL = 1_700_000_000 * SECOND


def at(second: float) -> clock.Clock:
    return clock.Clock(WALL + round(second * SECOND), round(second * SECOND))


class Host:
    """Counters that rise by the ticks spent in each second."""

    def __init__(self, count: int) -> None:
        self.ticks = {str(core): [0] * 10 for core in range(count)}
        self.watch = cores.CorePinned()
        self.now = 0

    def poll(self) -> list:
        rows = {core: tuple(row) for core, row in self.ticks.items()}
        return list(self.watch.check("cpu", at(self.now), rows))

    def second(self, spent: dict[int, dict[str, int]] | None = None, idle: int = 80) -> list:
        """Every core is `100 - idle` % busy in user space, except those in `spent`."""
        modes = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
        for core, row in self.ticks.items():
            used = (spent or {}).get(int(core), {"user": 100 - idle, "idle": idle})
            for mode, ticks in used.items():
                row[modes.index(mode)] += ticks
        self.now += 1
        return self.poll()


@pytest.mark.parametrize("count", [2, 96, 192])
def test_one_core_pinned_in_the_kernel_is_seen_after_three_seconds(count):
    host = Host(count)
    host.poll()
    pinned = {count - 1: {"system": 99, "idle": 1}}
    assert host.second(pinned) == []
    assert host.second(pinned) == []
    (seen,) = host.second(pinned)
    assert (seen.kind, seen.core, seen.severity) == ("cpu.core_pinned", count - 1, "warning")
    assert seen.begin == at(0)
    assert seen.fields["kernel_percent"] == 99.0
    assert seen.fields["others_percent"] == 20.0
    others = "the other core" if count == 2 else f"the other {count - 1} cores"
    assert seen.text == (
        f"core {count - 1} was 99 % busy for 3 s, 100 % of it in the kernel, while {others} averaged 20 %"
    )
    host.second(pinned)
    (seen,) = host.second(pinned)
    assert seen.severity == "critical"
    assert seen.begin == at(0)


KERNEL = {"system": 97, "user": 3}
SHARED = {"system": 50, "user": 50}  # half of the core is left to a worker of the load
USER = {"user": 100}


def seen_as(host: Host, spent: dict[int, dict[str, int]], seconds: int, idle: int = 80) -> list:
    """Return kind, core and severity of what is seen in the last of these seconds."""
    for _ in range(seconds):
        seen = host.second(spent, idle)
    return [(each.kind, each.core, str(each.severity)) for each in seen]


@pytest.mark.parametrize("busy", [60, 75, 90])
@pytest.mark.parametrize("spent", [KERNEL, SHARED])
def test_a_core_in_the_kernel_stands_out_however_busy_the_others_are(spent, busy):
    host = Host(16)
    host.poll()
    assert seen_as(host, {5: spent}, 2, 100 - busy) == []
    assert seen_as(host, {5: spent}, 1, 100 - busy) == [("cpu.core_pinned", 5, "warning")]
    (seen,) = host.second({5: spent}, 100 - busy)
    share = 97 if spent is KERNEL else 50
    assert seen.text == (
        f"core 5 was 100 % busy for 4 s, {share} % of it in the kernel,"
        f" while the other 15 cores averaged {busy} %, 0 % in the kernel (median)"
    )
    assert seen_as(host, {5: spent}, 1, 100 - busy) == [("cpu.core_pinned", 5, "critical")]


def test_cores_that_are_all_in_the_kernel_do_not_stand_out():
    host = Host(16)
    host.poll()
    work = {"system": 40, "user": 30, "idle": 30}
    for _ in range(3):
        host.second(dict.fromkeys(range(16), work))
    more = dict.fromkeys(range(16), work) | {3: {"system": 60, "user": 40}}
    assert seen_as(host, more, 6) == [("cpu.core_pinned", 3, "info")]


@pytest.mark.parametrize(
    ("signal", "row", "severity"),
    [
        ("processes", {"7 loop": (90, 0, 1, 5, 0, 82, 0, 0)}, "info"),
        ("processes", {"7 loop": (90, 0, 1, 5, 0, 82, 1, 50)}, "critical"),  # SCHED_FIFO
        ("processes", {"7 loop": (90, 0, 1, 4, 0, 82, 1, 50)}, "info"),  # on another core
        ("schedstat", {"5": (1000, 3000, 9), "4": (1000, 100, 9)}, "critical"),
        ("schedstat", {"5": (1000, 3000, 9), "4": (1000, 2900, 9)}, "info"),  # so is the other
    ],
)
def test_a_core_filled_in_user_space_is_an_alarm_only_if_others_wait_for_it(signal, row, severity):
    host = Host(8)
    host.poll()
    for second in range(1, 7):
        rows = {key: tuple(v * second if n < 2 else v for n, v in enumerate(values)) for key, values in row.items()}  # fmt: skip
        host.watch.check(signal, at(second), rows)
        seen = host.second({5: USER})
    assert [(each.core, str(each.severity)) for each in seen] == [(5, severity)]


def test_a_fault_that_recurs_every_minute_stays_an_alarm():
    host = Host(8)
    host.poll()
    for _ in range(20):
        assert seen_as(host, {2: KERNEL}, 6, 40) == [("cpu.core_pinned", 2, "critical")]
        seen_as(host, {}, 54, 40)


def test_a_host_that_is_in_the_kernel_much_of_the_time_has_ordinary_stretches():
    """Of these only one that is longer than any before is reported, as info."""
    host = Host(8)
    host.poll()
    for core in range(6):
        seen_as(host, {core: KERNEL}, 30, 40)
    assert seen_as(host, {7: KERNEL}, 29, 40) == []
    seen_as(host, {}, 1, 40)
    assert seen_as(host, {7: KERNEL}, 31, 40) == [("cpu.core_pinned", 7, "info")]
    seen_as(host, {}, 601, 40)
    assert seen_as(host, {7: KERNEL}, 6, 40) == [("cpu.core_pinned", 7, "critical")]


@pytest.mark.parametrize(("cores", "busy", "alarm"), [(12, 4, True), (12, 5, False), (96, 11, True), (96, 12, False)])  # fmt: skip
def test_many_cores_in_the_kernel_at_once_are_workers(cores, busy, alarm):
    host = Host(cores)
    host.poll()
    severities = {severity for _, _, severity in seen_as(host, dict.fromkeys(range(busy), KERNEL), 6, 10)}  # fmt: skip
    assert ("critical" in severities) is alarm


def test_on_a_busy_host_a_filled_core_stands_out_only_by_lasting():
    """The first is reported, because nothing like it was seen before; then only those of three times its length."""
    host = Host(8)
    host.poll()
    assert seen_as(host, {1: USER}, 4, 30) == [("cpu.core_pinned", 1, "info")]
    assert seen_as(host, {2: USER}, 11, 30) == []
    assert seen_as(host, {2: USER}, 1, 30) == [("cpu.core_pinned", 2, "info")]
    assert seen_as(host, {3: USER}, 30, 30) == []


def test_jobs_that_fill_a_core_one_after_the_other_are_reported_until_they_are_ordinary():
    host = Host(8)
    host.poll()
    reported = [bool(seen_as(host, {job % 8: USER}, 30)) for job in range(10)]
    assert reported == [True] * 5 + [False] * 5


def test_a_core_already_full_that_goes_into_the_kernel_is_an_event_of_its_own():
    host = Host(8)
    host.poll()
    assert seen_as(host, {5: USER}, 60) == [("cpu.core_pinned", 5, "info")]
    seen_as(host, {5: KERNEL}, 5)
    (seen,) = host.second({5: KERNEL})
    assert (seen.begin, seen.severity, seen.fields["seconds"]) == (at(60), "critical", 6.0)


@pytest.mark.parametrize(
    ("spent", "severity"), [(USER, "info"), ({"system": 80, "user": 20}, "warning")]
)
def test_a_host_with_all_cores_at_their_limit_is_saturated(spent, severity):
    host = Host(16)
    host.poll()
    nearly_all = dict.fromkeys(range(15), spent)
    assert seen_as(host, nearly_all, 9) == []
    assert seen_as(host, nearly_all, 1) == [("cpu.host_saturated", -1, severity)]
    (seen,) = host.second(nearly_all)
    assert seen.text.startswith("15 of 16 cores were 100 % busy for 11 s, ")


def test_two_pinned_cores_of_many_are_two_sightings():
    host = Host(8)
    host.poll()
    both = {1: {"user": 100}, 6: {"softirq": 92, "idle": 8}}
    host.second(both)
    host.second(both)
    assert [sighting.core for sighting in host.second(both)] == [1, 6]


def test_an_idle_second_restarts_the_count():
    host = Host(2)
    host.poll()
    pinned = {0: {"user": 100}}
    host.second(pinned)
    host.second(pinned)
    assert host.second() == []
    host.second(pinned)
    host.second(pinned)
    (seen,) = host.second(pinned)
    assert seen.begin == at(3)


def test_steal_is_not_busy():
    """A core that the hypervisor takes most of is stolen, not pinned."""
    host = Host(2)
    host.poll()
    for _ in range(5):
        seen = host.second({0: {"user": 40, "steal": 60}})
    assert [sighting.kind for sighting in seen] == ["cpu.core_stolen"]


def test_waiting_for_a_disk_is_not_busy():
    host = Host(2)
    host.poll()
    for _ in range(5):
        assert host.second({0: {"iowait": 100}}) == []


def test_stolen_time_is_reported_separately():
    host = Host(2)
    host.poll()
    stolen = {0: {"steal": 60, "user": 40}}
    host.second(stolen)
    host.second(stolen)
    (seen,) = host.second(stolen)
    assert (seen.kind, seen.core) == ("cpu.core_stolen", 0)


def test_a_pause_of_the_agent_is_not_evidence():
    host = Host(2)
    host.poll()
    pinned = {0: {"user": 100}}
    host.second(pinned)
    host.second(pinned)
    host.now += 10
    assert host.second({0: {"user": 1000}}) == []
    assert host.second(pinned) == []


def test_a_core_that_goes_off_line_is_forgotten():
    host = Host(3)
    host.poll()
    pinned = {2: {"user": 100}}
    host.second(pinned)
    host.second(pinned)
    row = host.ticks.pop("2")
    assert host.second() == []
    host.ticks["2"] = row
    assert host.second(pinned) == []
    assert host.second(pinned) == []


def test_idle_time_that_decreases_is_not_load():
    host = Host(2)
    host.ticks["0"][3] = 1000
    host.poll()
    for _ in range(5):
        assert host.second({0: {"idle": -1, "user": 0}}) == []


def test_a_pinned_core_with_all_receive_work_reports_skew_and_process():
    host = Host(4)
    host.poll()
    pinned = {3: {"softirq": 100}}
    for second in range(1, 3):
        host.watch.check(
            "softirqs", at(second), {str(c): (0, 0, 0, 9000 * second * (c == 3)) for c in range(4)}
        )
        host.watch.check(
            "processes",
            at(second),
            {"7 a b:c": (0, 50 * second, 1, 3, 0, 82, 0, 0), "8 x": (5, 0, 1, 3, 0, 82, 0, 0)},
        )
        host.second(pinned)
    pinned_core, skew = host.second(pinned)
    assert pinned_core.process == "a b:c[7]"
    assert skew.kind == "net.interrupt_skew"
    assert skew.fields["receive_percent"] == 100.0
