"""Repeated sightings are one event; floods stay bounded."""

from __future__ import annotations

from overnight.agent import event_tracker, watches
from overnight.model import clock

SECOND = 1_000_000_000
WALL = 1_700_000_000 * SECOND


def at(second: float, step: float = 0.0) -> clock.Clock:
    return clock.Clock(WALL + round((second + step) * SECOND), round(second * SECOND))


def sighting(second: float, key: str = "39", **changes) -> watches.Sighting:
    values = {"kind": "cpu.core_pinned", "key": key, "begin": at(second), "text": "pinned"}
    return watches.Sighting(**{**values, **changes})


def new_tracker() -> event_tracker.EventTracker:
    return event_tracker.EventTracker("db-7", "0123", at(0))


def test_the_first_sighting_is_emitted_at_once_with_both_clocks():
    (event,) = new_tracker().track([sighting(5, core=39, fields={"a": 1})], at(8), "core-pinned")
    assert (event.time_us, event.monotonic_ns) == (WALL // 1000 + 5_000_000, 5 * SECOND)
    assert (event.host, event.boot, event.core, event.source) == ("db-7", "0123", 39, "core-pinned")
    assert event.until_us == WALL // 1000 + 8_000_000
    assert event.id.startswith("cpu.core_pinned-")


def test_a_lasting_event_is_emitted_again_when_it_has_ended():
    tracker = new_tracker()
    (first,) = tracker.track([sighting(5)], at(8), "w")
    assert tracker.track([sighting(5, fields={"seconds": 4})], at(9), "w") == []
    assert tracker.expire(at(12)) == []
    (last,) = tracker.expire(at(40))
    assert last.id == first.id
    assert (last.count, last.until_us, last.fields) == (2, WALL // 1000 + 9_000_000, {"seconds": 4})
    assert tracker.open == ()


def test_a_higher_severity_and_a_known_core_are_emitted_at_once():
    tracker = new_tracker()
    tracker.track([sighting(5, severity="warning")], at(8), "w")
    (worse,) = tracker.track([sighting(5, severity="critical", text="worse")], at(9), "w")
    assert (worse.severity, worse.text) == ("critical", "worse")
    (updated,) = tracker.track([sighting(5, severity="info", core=3)], at(9.5), "w")
    assert (updated.core, updated.severity) == (3, "critical")
    assert tracker.counts == {
        ("cpu.core_pinned", "warning"): 1,
        ("cpu.core_pinned", "critical"): 1,
    }


def test_a_continued_sighting_has_its_latest_text_and_others_do_not():
    tracker = new_tracker()
    tracker.track([sighting(5, text="for 3 s")], at(8), "w")
    tracker.track([sighting(5, text="for 4 s")], at(9), "w")
    tracker.track([sighting(9.5, text="another line")], at(9.5), "w")
    (last,) = tracker.close()
    assert (last.text, last.count) == ("for 4 s", 3)


def test_an_event_keeps_its_first_queue():
    tracker = new_tracker()
    first = {"queue": 3, "cpu": 7, "since_napi_us": 5_700_000}
    tracker.track([sighting(0, core=7, fields=first)], at(0), "w")
    tracker.track([sighting(5, core=-1, fields={"total_resets": 2})], at(5), "w")
    tracker.track(
        [sighting(9, core=2, fields={"queue": 6, "cpu": 2, "since_napi_us": 1})], at(9), "w"
    )
    (known,) = tracker.open
    assert known.core == 7
    assert known.fields == {**first, "total_resets": 2, "queues": "3,6"}


def test_a_sighting_after_a_pause_is_a_new_event():
    tracker = new_tracker()
    (first,) = tracker.track([sighting(5)], at(8), "w")
    (second,) = tracker.track([sighting(30)], at(30), "w")
    assert first.id != second.id


def test_a_long_event_is_emitted_again_but_not_each_second():
    tracker = new_tracker()
    emitted = []
    for second in range(8, 68):
        emitted += tracker.track([sighting(5)], at(second), "w")
    assert 10 <= len(emitted) <= 13
    assert len({event.id for event in emitted}) == 1


def test_a_flood_of_different_events_is_capped():
    tracker = new_tracker()
    emitted = [
        event
        for number in range(5000)
        for event in tracker.track([sighting(5, key=str(number))], at(8 + number / 1000), "w")
    ]
    assert len(emitted) == event_tracker.MAX_NEW_A_MINUTE
    assert sum(tracker.counts.values()) == event_tracker.MAX_NEW_A_MINUTE
    assert tracker.dropped.total() == 5000 - event_tracker.MAX_NEW_A_MINUTE
    assert len(tracker.track([sighting(90, key="later")], at(90), "w")) == 1


def test_another_kind_is_emitted_during_a_flood():
    tracker = new_tracker()
    for number in range(100):
        tracker.track([sighting(5, key=str(number))], at(8), "w")
    assert tracker.track([sighting(9, kind="net.driver_reset")], at(9), "w")


def test_the_skew_is_how_far_the_clock_was_set():
    (event,) = new_tracker().track([sighting(5)], at(8, step=3600), "w")
    assert event.skew_us == 3_600_000_000


def test_hostile_sightings_stay_small():
    fields = {str(number): number for number in range(1000)}
    (event,) = new_tracker().track([sighting(5, text="x" * 100_000, fields=fields)], at(8), "w")
    assert len(event.text) == event_tracker.MAX_TEXT
    assert len(event.fields) == event_tracker.MAX_FIELDS
