"""Events grouped into few objects, and requests limited by a token bucket."""

from __future__ import annotations

import dataclasses
import random

import pytest

from overnight.agent.outlets import kubernetes
from overnight.app.node_events import similar_events, writer


def make_event(
    name: str, message: str = "text", count: int = 1, second: int = 1
) -> kubernetes.NodeEvent:
    time = f"2026-01-01T00:00:{second:02}Z"
    return kubernetes.NodeEvent(name, "node-1", "Reason", message, "Warning", time, time, count)


def send_all(events: similar_events.SimilarEvents, now: float) -> list[similar_events.Group]:
    sent = []
    while group := events.find_due(now):
        events.note_sent(group, now)
        sent.append(group)
    return sent


def test_events_with_the_same_text_are_one_object() -> None:
    events = similar_events.SimilarEvents()
    events.add(make_event("a", count=2, second=5), 0)
    events.add(make_event("b", count=3, second=7), 0)
    events.add(make_event("a", count=6, second=9), 0)  # the newer state of the first
    (group,) = send_all(events, 0)
    assert (group.count, group.event.first_timestamp[-3:], group.event.last_timestamp[-3:]) == (
        9,
        "05Z",
        "09Z",
    )
    assert group.event.name.startswith("node-1.")


def test_an_object_is_updated_once_a_minute_and_only_if_it_changed() -> None:
    events = similar_events.SimilarEvents()
    events.add(make_event("a"), 0)
    assert len(send_all(events, 0)) == 1
    events.add(make_event("a"), 1)
    assert send_all(events, 100) == []
    events.add(make_event("a", count=2), 101)
    events.add(make_event("a", count=3), 102)
    assert [group.count for group in send_all(events, 102)] == [3]
    events.add(make_event("a", count=4), 103)
    assert send_all(events, 161) == []
    assert [group.count for group in send_all(events, 162)] == [4]


def test_a_restarted_process_finds_the_same_names() -> None:
    names = []
    for _ in range(2):
        events = similar_events.SimilarEvents()
        for number in range(30):
            events.add(make_event(f"e-{number}", f"text {number}"), 0)
        names.append([group.event.name for group in send_all(events, 0)])
    assert names[0] == names[1]
    assert len(set(names[0])) == similar_events.MAX_SIMILAR + 1


def test_a_storm_is_bounded_and_every_event_is_counted_once() -> None:
    chance = random.Random(5)
    events = similar_events.SimilarEvents()
    counts: dict[str, int] = {}
    for step in range(20_000):
        name = f"e-{step // 4 + chance.randrange(8)}"
        counts[name] = counts.get(name, 1) + chance.randrange(3)
        events.add(make_event(name, f"text {name}", counts[name]), step / 1000)
    groups = send_all(events, 20)
    assert len(groups) == similar_events.MAX_SIMILAR + 1
    assert sum(group.count for group in groups) == sum(counts.values())
    assert len(events._by_id) == similar_events.MAX_IDS
    (combined,) = [g for g in groups if g.event.message.startswith(similar_events.COMBINED)]
    assert combined.event.message.count(similar_events.COMBINED) == 1


def test_after_an_hour_a_text_gets_a_new_object() -> None:
    events = similar_events.SimilarEvents()
    events.add(make_event("a"), 0)
    (old,) = send_all(events, 0)
    events.add(make_event("b"), similar_events.KEEP_SECONDS + 1)
    (new,) = send_all(events, similar_events.KEEP_SECONDS + 1)
    assert new.event.name != old.event.name
    assert new.count == 1


@pytest.mark.parametrize("length", [1, 200, 253])
def test_names_of_objects_fit(length: int) -> None:
    events = similar_events.SimilarEvents()
    events.add(dataclasses.replace(make_event("a"), node="n" * length), 0)
    (group,) = send_all(events, 0)
    assert len(group.event.name) <= 253


def test_a_bucket_never_gives_more_than_its_rate() -> None:
    chance = random.Random(7)
    bucket = writer.Bucket(25, 5.0)
    now = began = 1000.0
    taken = 0
    for _ in range(5000):
        now += chance.choice([0.0, 0.01, 1.0, 30.0])
        taken += bucket.take(now)
        assert taken <= 25 + (now - began) / 5.0
    assert taken > 25
