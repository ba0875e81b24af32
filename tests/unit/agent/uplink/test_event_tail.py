from __future__ import annotations

import json
import pathlib

import pytest
import uplinks

from overnight.agent.uplink import event_tail
from overnight.model import uplink
from overnight.model.event import Event
from overnight.store import added_events


def ids(tail: event_tail.EventTail, limit: int = 100) -> list[str]:
    events, places = tail.take(limit)
    tail.commit(places)
    return [event["id"] for event in events]


def test_events_come_once_and_in_order(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    ring.seconds(1)
    tail = event_tail.EventTail(ring.folder, {})
    assert not tail.has_new()
    names = [ring.event(str(n)).id for n in range(5)]
    assert tail.has_new()
    assert ids(tail, 3) == names[:3]
    assert ids(tail) == names[3:]
    assert not tail.has_new()
    late = ring.event("late").id
    assert ids(event_tail.EventTail(ring.folder, tail.places)) == [late]


def test_what_is_not_committed_comes_again(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    name = ring.event("a").id
    tail = event_tail.EventTail(ring.folder, {})
    assert [event["id"] for event in tail.take(9)[0]] == [name]
    assert [event["id"] for event in tail.take(9)[0]] == [name]


def test_of_an_event_the_last_line_counts(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    first = ring.event("a")
    ring.event("b")
    ring.ring.event(uplinks.replace(first, count=7))
    events, _ = event_tail.EventTail(ring.folder, {}).take(9)
    assert [(event["text"], event["count"]) for event in events] == [("event b", 1), ("event a", 7)]


def test_a_line_that_is_being_written_waits_and_a_broken_one_is_skipped(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "events-202611.jsonl"
    line = json.dumps(Event(1, "test.event", id="test.event-1").as_json()).encode()
    path.write_bytes(line[:40])
    tail = event_tail.EventTail(tmp_path, {})
    assert ids(tail) == []
    path.write_bytes(line[:40] + b"\n" + line + b"\n[]\n{}\n" + line.replace(b"-1", b"-2"))
    assert ids(tail) == ["test.event-1"]
    path.write_bytes(path.read_bytes() + b"\n")
    assert ids(tail) == ["test.event-2"]


def test_added_and_removed_events_are_noticed(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    tail = event_tail.EventTail(ring.folder, {})
    events = [
        Event(ring.wall_ns // 1000, "job.failed", host=uplinks.HOST, id=f"job.failed-{n}")
        for n in range(3)
    ]
    added_events.add(tmp_path, events)
    assert ids(tail) == [event.id for event in events]
    added_events.remove(tmp_path, [events[0].id])
    assert ids(tail) == [event.id for event in events[1:]]  # again: the server knows them
    assert ids(tail) == []


def write_events(path: pathlib.Path, *names: str, text: str = "") -> None:
    lines = (json.dumps(Event(1, "test.event", text, id=name).as_json()) + "\n" for name in names)
    path.write_text("".join(lines))


def test_a_batch_is_limited_over_all_files(tmp_path: pathlib.Path) -> None:
    """A limit of lines: three of one event in the first file leave one of the second file."""
    write_events(tmp_path / "events-202610.jsonl", "a-1", "a-1", "a-1")
    write_events(tmp_path / "events-202611.jsonl", "b-1", "b-2", "b-3")
    write_events(tmp_path / "other-202612.jsonl", "c-1")  # not of the recorder
    tail = event_tail.EventTail(tmp_path, {})
    assert [ids(tail, 4) for _ in range(3)] == [["a-1", "b-1"], ["b-2", "b-3"], []]


def test_a_batch_has_a_size_over_all_files(tmp_path: pathlib.Path) -> None:
    text = "x" * 30_000
    names = [f"{month}-{n}" for month in (10, 11) for n in range(3)]
    write_events(tmp_path / "events-202610.jsonl", *names[:3], text=text)
    write_events(tmp_path / "events-202611.jsonl", *names[3:], text=text)
    tail = event_tail.EventTail(tmp_path, {})
    batches = [ids(tail) for _ in range(4)]
    assert [name for batch in batches for name in batch] == names
    assert max(map(len, batches)) * len(text) <= event_tail.MAX_BYTES


def test_a_file_that_was_cut_off_in_place_is_read_from_its_start(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "events-202611.jsonl"
    write_events(path, "a-1", "a-2")
    tail = event_tail.EventTail(tmp_path, {})
    assert ids(tail) == ["a-1", "a-2"]
    write_events(path, "b-1")  # the same inode, shorter
    assert tail.has_new()
    assert ids(tail) == ["b-1"]


def test_places_of_files_that_are_gone_are_forgotten(tmp_path: pathlib.Path) -> None:
    for month in (10, 11):
        write_events(tmp_path / f"events-2026{month}.jsonl", f"a-{month}")
    tail = event_tail.EventTail(tmp_path, {})
    assert ids(tail) == ["a-10", "a-11"]
    (tmp_path / "events-202610.jsonl").unlink()  # it is older than what the ring keeps
    assert ids(tail) == []
    assert tail.places.keys() == {"events-202611.jsonl"}


@pytest.mark.parametrize("added", [0, 1, 5])
def test_a_file_with_a_new_inode_is_read_from_its_start(tmp_path: pathlib.Path, added: int) -> None:
    """Removing an event writes the file anew; with later events it may be as long as before, or longer."""

    def write(*names: str) -> None:
        lines = (json.dumps(Event(1, "test.event", id=name).as_json()) + "\n" for name in names)
        (tmp_path / "fresh").write_text("".join(lines))
        (tmp_path / "fresh").rename(tmp_path / "events-202611.jsonl")

    first = [f"test.event-{n}" for n in range(3)]
    write(*first)
    tail = event_tail.EventTail(tmp_path, {})
    assert ids(tail) == first
    rewritten = [f"test.other-{n}" for n in range(3 + added)]
    write(*rewritten)
    assert tail.has_new()
    assert ids(tail) == rewritten
    assert ids(tail) == []


def test_an_event_is_made_to_fit_the_limits_of_the_server(tmp_path: pathlib.Path) -> None:
    fields = {f"{n}" + "f" * 90: "v" * 2000 if n < 20 else n for n in range(80)}
    event = Event(
        5, "test.event", "x" * 9000, "h" * 400, severity="apocalyptic", id="test.event-1",
        unit="u" * 999, boot="0" * 99, fields={"nan": float("nan"), "list": [1], **fields},
    )  # fmt: skip
    (tmp_path / "events-202611.jsonl").write_text(json.dumps(event.as_json()) + "\n")
    events, _ = event_tail.EventTail(tmp_path, {}).take(9)
    arrived = uplink.parse_event(events[0])
    assert (len(arrived.text), len(arrived.fields), arrived.severity) == (4096, 64, "info")


def test_an_event_within_the_limits_is_not_changed(tmp_path: pathlib.Path) -> None:
    document = Event(5, "test.event", "a", core=3, id="test.event-1", fields={"n": 1}).as_json()
    (tmp_path / "events-202611.jsonl").write_text(json.dumps(document) + "\n")
    assert event_tail.EventTail(tmp_path, {}).take(9)[0] == [document]


def test_a_ring_that_is_not_there_has_no_events(tmp_path: pathlib.Path) -> None:
    tail = event_tail.EventTail(tmp_path / "nowhere", {})
    assert not tail.has_new()
    assert tail.take(9) == ([], {})
