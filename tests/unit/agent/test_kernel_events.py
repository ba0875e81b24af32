from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import strategies as st

from overnight.agent import event_tracker, kernel_events
from overnight.model import clock
from overnight.sources import kmsg
from overnight.sources.kernelrules import rulefiles

if TYPE_CHECKING:
    from overnight.model.event import Event

RULES = rulefiles.built_in()
PAUSED = "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1"
STARVED = "ena 0000:20:03.0 eth0: napi handler hasn't been called for a long time but is scheduled"
TRIGGER = "ena 0000:20:03.0 eth0: Trigger reset is on"
DONE = "ena 0000:20:03.0: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g"
LINK = "ixgbe 0000:04:00.0 eth1: NIC Link is Down"


def at(seconds: float) -> clock.Clock:
    ns = round(seconds * 1e9)
    return clock.Clock(1_000_000 * 10**9 + ns, ns)


def line(text: str, seconds: float = 100.0, facility: int = 0) -> kmsg.Record:
    return kmsg.Record(1, round(seconds * 1e6), 3, facility, text, read_at=at(seconds))


@pytest.fixture
def watch() -> kernel_events.KernelWatch:
    return kernel_events.KernelWatch(RULES)


def test_the_lines_of_the_incident(watch: kernel_events.KernelWatch) -> None:
    lines = [line(text) for text in (PAUSED, STARVED, TRIGGER, DONE)]
    reset, starved = watch.check(lines, at(100.1))
    assert (reset.kind, reset.key, reset.severity) == (
        "net.driver_reset",
        "0000:20:03.0",
        "critical",
    )
    assert (reset.text, reset.count, reset.core) == (PAUSED, 3, -1)
    assert reset.begin == at(100)
    assert reset.fields["queue"] == 5
    assert reset.fields["interface"] == "eth0"
    assert reset.fields["device"] == "0000:20:03.0"
    assert reset.fields["driver_version"] == "2.11.0g"
    assert reset.fields["rule"] == "ena-tx-paused"
    assert "written_by_process" not in reset.fields
    assert (starved.kind, starved.fields["queue"]) == ("net.driver_starved", 5)


def test_the_line_before_a_kill_has_the_cgroup_and_is_not_a_kill(
    watch: kernel_events.KernelWatch,
) -> None:
    cgroup = "/kubepods/burstable/pod7f/3fa9"
    before = f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods/burstable/pod7f,task_memcg={cgroup},task=python3,pid=4242,uid=0"
    kill = "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB"
    (event,) = watch.check([line(before), line(kill)], at(100))
    assert (event.kind, event.severity, event.text, event.count) == ("memory.oom_kill", "warning", kill, 1)  # fmt: skip
    assert (event.process, event.fields["cgroup"]) == ("python3", cgroup)


def test_a_later_line_has_the_queue_of_the_earlier_line(watch: kernel_events.KernelWatch) -> None:
    watch.check([line(STARVED)], at(100))
    watch.check([line(PAUSED, 101)], at(101))
    (grown,) = watch.check([line(STARVED, 102)], at(102))
    assert (grown.kind, grown.fields["queue"]) == ("net.driver_starved", 5)


def test_hundreds_of_lines_are_one_event(watch: kernel_events.KernelWatch) -> None:
    tracker = event_tracker.EventTracker("db-7", "boot", at(0))
    emitted = []
    for n in range(600):
        now = at(100 + n / 100)
        emitted += tracker.track(
            watch.check([line(TRIGGER, 100 + n / 100)], now), now, "kernel-log"
        )
    emitted += tracker.track(watch.finish(at(107)), at(107), "kernel-log") + tracker.close()
    assert {event.id for event in emitted} == {emitted[0].id}
    assert emitted[-1].count == 600
    assert len(emitted) <= 4
    counts = watch.counts["ena-trigger-reset"]
    assert (counts.matched, counts.capped) == (600, 0)


def test_folded_lines_are_reported_without_a_further_line(watch: kernel_events.KernelWatch) -> None:
    assert len(watch.check([line(TRIGGER)], at(100))) == 1
    assert watch.check([line(TRIGGER)] * 5, at(100.5)) == []
    (more,) = watch.check([], at(101.2))
    assert more.count == 5
    assert watch.check([], at(103)) == []


def test_a_line_after_a_pause_is_a_new_incident(watch: kernel_events.KernelWatch) -> None:
    watch.check([line(PAUSED)], at(100))
    (again,) = watch.check([line(DONE, 120)], at(120))
    assert again.begin == at(120)
    assert "queue" not in again.fields, "the last incident's fields are not kept"


def test_lines_written_by_a_process_are_marked_and_kept_apart(
    watch: kernel_events.KernelWatch,
) -> None:
    real, fake = watch.check([line(DONE), line(PAUSED.replace("q 5", "q 9"), facility=1)], at(100))
    assert "queue" not in real.fields
    assert "written_by_process" not in real.fields
    assert (fake.kind, fake.fields["queue"]) == ("net.driver_reset", 9)
    assert fake.fields["written_by_process"] is True
    assert real.key != fake.key


def test_the_first_queue_stays_and_the_others_are_listed(watch: kernel_events.KernelWatch) -> None:
    lines = [line(PAUSED.replace("q 5", f"q {queue}")) for queue in (7, 5, 7, 9)]
    (sighting,) = watch.check(lines, at(100))
    assert (sighting.fields["queue"], sighting.fields["queues"]) == (7, "7,5,9")


def test_the_core_and_the_wait_are_those_of_the_first_queue(
    watch: kernel_events.KernelWatch,
) -> None:
    """Two queues of a device may be paused at once, each with a core of its own."""
    template = "ena 0000:20:03.0 eth0: TX q {} is paused for too long (threshold 5000000). usecs since napi {}."
    more = " napi scheduled: 1. napi CPU: {}. msecs since interrupt: 5344"
    lines = [
        line((template + more).format(7, 5340000, 3)),
        line((template + more).format(9, 6600000, 1)),
    ]
    (sighting,) = watch.check(lines, at(100))
    assert (sighting.core, sighting.fields["cpu"], sighting.fields["queue"]) == (3, 3, 7)
    assert (sighting.fields["since_napi_us"], sighting.fields["queues"]) == (5340000, "7,9")


@pytest.mark.parametrize("batches", [1, 4])
def test_the_wait_is_the_one_until_the_first_line_of_the_event(batches: int) -> None:
    """Until the reset succeeds, the driver repeats its line each second: amzn-drivers #220 counts from 5.7 to 21.6 s."""
    watch = kernel_events.KernelWatch(RULES)
    lines = [line(LINK, 99.0)]
    for second in (100.0, 105.0, 111.0, 116.0):
        us = round(6_596_000 + (second - 100) * 1e6)
        lines += [line(PAUSED.replace("6596000", str(us)), second), line(STARVED, second + 1e-3)]
    seen = {}
    size = -(-len(lines) // batches)
    for n in range(0, len(lines), size):
        seen |= {each.kind: each for each in watch.check(lines[n : n + size], at(117 + n))}
    for kind in ("net.driver_reset", "net.driver_starved"):
        assert seen[kind].begin.monotonic_ns < 101e9
        assert seen[kind].fields["since_napi_us"] == 6596000


def test_a_later_incident_has_its_own_wait(watch: kernel_events.KernelWatch) -> None:
    """Lines of the family that come in between keep its fields alive."""
    watch.check([line(PAUSED, 100.0), line(STARVED, 109.0)], at(109))
    later = [
        line(STARVED, 117.0),
        line(TRIGGER, 118.0),
        line(PAUSED.replace("6596000", "5100000"), 118.01),
    ]
    seen = {each.kind: each for each in watch.check(later, at(119))}
    assert seen["net.driver_reset"].begin.monotonic_ns == 118e9
    assert seen["net.driver_reset"].fields["since_napi_us"] == 5100000


def test_the_core_comes_from_the_line(watch: kernel_events.KernelWatch) -> None:
    text = "watchdog: BUG: soft lockup - CPU#39 stuck for 22s! [kubelet:4711]"
    (sighting,) = watch.check([line(text)], at(100))
    assert (sighting.core, sighting.process, sighting.fields["seconds"]) == (39, "kubelet", 22)
    (longer,) = watch.check([line(text.replace("22s", "45s"), 102)], at(102))
    assert longer.fields["seconds"] == 45


@pytest.mark.parametrize("cpu", ["-1", "99999999"])
def test_an_invalid_core_is_unknown(watch: kernel_events.KernelWatch, cpu: str) -> None:
    text = PAUSED.replace("Time since last napi 6596000 usec", "usecs since napi 6596000")
    (sighting,) = watch.check([line(f"{text}. napi CPU: {cpu}")], at(100))
    assert sighting.core == -1


def test_a_higher_severity_is_reported_at_once(watch: kernel_events.KernelWatch) -> None:
    xid = "NVRM: Xid (PCI:0000:65:00): {}, pid=1"
    (first,) = watch.check([line(xid.format(13))], at(100))
    (worse,) = watch.check([line(xid.format(48), 100.2)], at(100.2))
    assert (first.severity, worse.severity) == ("warning", "critical")
    assert worse.text == xid.format(48)


def test_confidence_below_certain_is_reported() -> None:
    watch = kernel_events.KernelWatch(RULES)
    (likely,) = watch.check([line("gve 0000:00:04.0: Device requested reset.")], at(100))
    (sure,) = watch.check([line(DONE)], at(100))
    assert likely.fields["confidence"] == "likely"
    assert "confidence" not in sure.fields


def test_no_flood_hides_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_events, "MAX_A_RULE", 10)
    monkeypatch.setattr(kernel_events, "MAX_TOGETHER", 15)
    watch = kernel_events.KernelWatch(RULES)
    flood = [line(LINK), line("CPU39: Core temperature above threshold, cpu clock throttled")]
    lines = flood * 10_000
    lines.insert(15_000, line(PAUSED))
    sightings = watch.check(lines, at(100))
    assert [
        sighting.fields.get("queue")
        for sighting in sightings
        if sighting.kind == "net.driver_reset"
    ] == [5]
    link, thermal = watch.counts["link-down"], watch.counts["thermal-throttle"]
    assert (link.matched + thermal.matched, link.capped + thermal.capped) == (15, 19_985)
    again = watch.check([line(LINK, 101)], at(101))
    assert [sighting.kind for sighting in again if sighting.kind == "net.link_down"] == [
        "net.link_down"
    ]


def test_memory_is_bounded() -> None:
    watch = kernel_events.KernelWatch(RULES)
    oom = "Memory cgroup out of memory: Killed process {} (x) total-vm:1kB"
    resets = [line(PAUSED.replace("20:03", f"{n >> 8:02x}:{n & 255:02x}")) for n in range(5000)]
    sightings = watch.check(resets + [line(oom.format(n)) for n in range(5000)], at(100))
    assert len(sightings) == kernel_events.MAX_OPEN
    # Each line is a new incident, or counted as capped, so that the recording shows it.
    capped = sum(counts.capped for counts in watch.counts.values())
    assert capped == 10_000 - kernel_events.MAX_OPEN


def events_of(records: list[kmsg.Record], batches: int = 1) -> dict[str, Event]:
    """Return the final events of lines that are all read at second 500."""
    watch = kernel_events.KernelWatch(RULES)
    tracker = event_tracker.EventTracker("db-7", "boot", at(0))
    size = -(-len(records) // batches)
    emitted = []
    for number in range(batches):
        now = at(500 + number)
        batch = records[number * size : (number + 1) * size]
        emitted += tracker.track(watch.check(batch, now), now, "kernel-log")
        emitted += tracker.expire(now)
    emitted += tracker.track(watch.finish(at(510)), at(510), "kernel-log") + tracker.close()
    return {event.id: event for event in emitted}


def test_two_resets_read_at_once_are_two_events_at_their_own_times() -> None:
    """After a start with history, or when the recorder was starved, lines are read long after they were written."""
    records = [
        line(PAUSED, 100),
        line(DONE, 100.4),
        line(PAUSED.replace("q 5", "q 7"), 130),
        line(DONE, 130.4),
    ]
    first, second = events_of(records).values()
    assert (first.monotonic_ns, second.monotonic_ns) == (100 * 10**9, 130 * 10**9)
    assert (first.fields["queue"], second.fields["queue"]) == (5, 7)
    assert (first.count, second.count) == (2, 2)
    assert "queues" not in second.fields
    assert (first.until_us - first.time_us, second.until_us - second.time_us) == (400_000, 400_000)


@pytest.mark.parametrize("batches", [1, 2, 3, 7])
def test_an_incident_read_late_is_one_event_in_any_number_of_reads(batches: int) -> None:
    records = [line(TRIGGER, 100 + 8 * n) for n in range(7)]
    (event,) = events_of(records, batches).values()
    assert (event.monotonic_ns, event.count) == (100 * 10**9, 7)
    assert event.until_us - event.time_us == 48_000_000


def test_the_fields_of_an_ended_incident_stay_with_it() -> None:
    """Both kinds of the first incident keep their queue, though only the second incident ends them."""
    starved = [
        line(PAUSED, 100),
        line(STARVED, 100.1),
        line(PAUSED.replace("q 5", "q 7"), 130),
        line(STARVED, 130.1),
    ]
    queues = {
        (e.kind, e.monotonic_ns // 10**9): e.fields["queue"] for e in events_of(starved).values()
    }
    assert queues == {
        ("net.driver_reset", 100): 5,
        ("net.driver_starved", 100): 5,
        ("net.driver_reset", 130): 7,
        ("net.driver_starved", 130): 7,
    }


@hypothesis.given(st.lists(st.tuples(st.sampled_from([PAUSED, DONE, LINK, "x"]), st.floats(0, 30))))
@hypothesis.settings(max_examples=50)
def test_every_line_is_counted_once(steps: list[tuple[str, float]]) -> None:
    watch = kernel_events.KernelWatch(RULES)
    now, counted = 100.0, 0
    for text, seconds in steps:
        now += seconds
        counted += sum(sighting.count for sighting in watch.check([line(text, now)], at(now)))
    counted += sum(sighting.count for sighting in watch.finish(at(now)))
    assert counted == sum(text != "x" for text, _ in steps)
