"""What is seen again is the same event; floods stay bounded."""

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


def book() -> event_tracker.EventTracker:
    return event_tracker.EventTracker("db-7", "0123", at(0))


def test_the_first_sighting_is_told_at_once_with_both_clocks():
    (made,) = book().track([sighting(5, core=39, fields={"a": 1})], at(8), "core-pinned")
    assert (made.time_us, made.monotonic_ns) == (WALL // 1000 + 5_000_000, 5 * SECOND)
    assert (made.host, made.boot, made.core, made.source) == ("db-7", "0123", 39, "core-pinned")
    assert made.until_us == WALL // 1000 + 8_000_000
    assert made.id.startswith("cpu.core_pinned-")


def test_what_goes_on_is_one_event_and_its_last_word_is_told_when_it_ended():
    events = book()
    (first,) = events.track([sighting(5)], at(8), "w")
    assert events.track([sighting(5, fields={"seconds": 4})], at(9), "w") == []
    assert events.expire(at(12)) == []
    (last,) = events.expire(at(40))
    assert last.id == first.id
    assert (last.count, last.until_us, last.fields) == (2, WALL // 1000 + 9_000_000, {"seconds": 4})
    assert events.open == ()


def test_growing_worse_and_learning_the_core_are_told_at_once():
    events = book()
    events.track([sighting(5, severity="warning")], at(8), "w")
    (worse,) = events.track([sighting(5, severity="critical", text="worse")], at(9), "w")
    assert (worse.severity, worse.text) == ("critical", "worse")
    (wiser,) = events.track([sighting(5, severity="info", core=3)], at(9.5), "w")
    assert (wiser.core, wiser.severity) == (3, "critical")
    assert events.counts == {
        ("cpu.core_pinned", "warning"): 1,
        ("cpu.core_pinned", "critical"): 1,
    }


def test_a_stretch_that_goes_on_has_its_newest_words_and_other_sightings_do_not():
    events = book()
    events.track([sighting(5, text="for 3 s")], at(8), "w")
    events.track([sighting(5, text="for 4 s")], at(9), "w")
    events.track([sighting(9.5, text="another line")], at(9.5), "w")
    (last,) = events.close()
    assert (last.text, last.count) == ("for 4 s", 3)


def test_an_event_is_of_its_first_queue():
    told = book()
    first = {"queue": 3, "cpu": 7, "since_napi_us": 5_700_000}
    told.track([sighting(0, core=7, fields=first)], at(0), "w")
    told.track([sighting(5, core=-1, fields={"total_resets": 2})], at(5), "w")
    told.track([sighting(9, core=2, fields={"queue": 6, "cpu": 2, "since_napi_us": 1})], at(9), "w")
    (known,) = told.open
    assert known.core == 7
    assert known.fields == {**first, "total_resets": 2, "queues": "3,6"}


def test_after_a_rest_it_is_a_new_event():
    events = book()
    (first,) = events.track([sighting(5)], at(8), "w")
    (second,) = events.track([sighting(30)], at(30), "w")
    assert first.id != second.id


def test_a_long_event_is_told_again_but_not_each_second():
    events = book()
    told = []
    for second in range(8, 68):
        told += events.track([sighting(5)], at(second), "w")
    assert 10 <= len(told) <= 13
    assert len({one.id for one in told}) == 1


def test_a_flood_of_different_events_is_capped_and_counted():
    events = book()
    told = [
        one
        for number in range(5000)
        for one in events.track([sighting(5, key=str(number))], at(8 + number / 1000), "w")
    ]
    assert len(told) == event_tracker.MAX_NEW_A_MINUTE
    assert events.capped == {"cpu.core_pinned": 5000 - event_tracker.MAX_NEW_A_MINUTE}
    assert len(events.track([sighting(90, key="later")], at(90), "w")) == 1


def test_another_kind_is_told_through_the_flood():
    events = book()
    for number in range(100):
        events.track([sighting(5, key=str(number))], at(8), "w")
    assert events.track([sighting(9, kind="net.driver_reset")], at(9), "w")


def test_the_skew_is_how_far_the_clock_was_set():
    (made,) = book().track([sighting(5)], at(8, step=3600), "w")
    assert made.skew_us == 3_600_000_000


def test_hostile_sightings_stay_small():
    fields = {str(number): number for number in range(1000)}
    (made,) = book().track([sighting(5, text="x" * 100_000, fields=fields)], at(8), "w")
    assert len(made.text) == event_tracker.MAX_TEXT
    assert len(made.fields) == event_tracker.MAX_FIELDS
