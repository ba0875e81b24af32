"""Events that operators add: what is accepted, stored once, read like any other, and removed."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
import rings

from overnight import errors
from overnight.app import added_events, events
from overnight.model.event import Event
from overnight.store import added_events as store
from overnight.store import check, segments
from overnight.store.ring import reader

AT = "2026-11-15T03:14:07Z"
LINE: dict[str, object] = {
    "kind": "job.failed",
    "at": AT,
    "host": rings.HOST,
    "labels": {"job": "t-7", "gpu": "h100"},
}


def lines(*entries: object) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def add(home: pathlib.Path, *entries: object, **defaults: object) -> added_events.Added:
    read = added_events.read_events(lines(*entries), {"labels": {}, **defaults})
    return added_events.add(home, read)


def test_an_added_event_is_listed_and_found_like_any_other(tmp_path: pathlib.Path) -> None:
    ring = rings.open_writer(tmp_path)  # the recorder runs, and holds its lock
    rings.record(ring, range(5))
    full = LINE | {"text": "lost a worker", "severity": "critical", "core": 3, "process": "ray", "unit": "ray.service"}  # fmt: skip
    (event,) = add(tmp_path, full).events
    assert (event.core, event.process, event.unit, event.source) == (3, "ray", "ray.service", "operator")  # fmt: skip
    assert event.fields == {"job": "t-7", "gpu": "h100"}
    listing = events.list_events(events.Request(tmp_path, kinds=("job.",)))
    assert listing.events == (event,)
    assert events.find_event(tmp_path, event.short_id[:6]) == event
    assert reader.Reader(tmp_path).events(event.time_us, event.time_us + 1) == (event,)
    ring.close()
    assert not check.check(segments.Catalogue(tmp_path)).problems


def test_the_same_line_is_one_event_also_in_one_file(tmp_path: pathlib.Path) -> None:
    assert add(tmp_path, LINE, LINE, LINE | {"labels": {"job": "t-8"}}).added == 2
    again = add(tmp_path, LINE, LINE | {"host": "db-8"})
    assert (again.added, again.as_json()["known"]) == (1, 1)
    assert len(events.list_events(events.Request(tmp_path)).events) == 3


def test_options_are_defaults_of_lines_and_labels_are_merged(tmp_path: pathlib.Path) -> None:
    added = add(
        tmp_path,
        {"at": 1794712447.25},
        {"at": AT, "host": "db-9", "labels": {"gpu": "a100", "retries": 2, "spot": True}},
        kind="job.failed", host="db-8", labels={"gpu": "h100", "team": "x"},
    )  # fmt: skip
    first, second = added.events
    assert (first.host, first.time_us, first.text) == ("db-8", 1794712447250000, "gpu=h100 team=x")
    assert (second.host, dict(second.fields)) == ("db-9", {"gpu": "a100", "team": "x", "retries": "2", "spot": "true"})  # fmt: skip
    assert added.unrecorded == ("db-8", "db-9")


# What is changed in a valid line, and what the error says.
INVALID: list[tuple[dict[str, object], str]] = [
    ({"kind": "failed"}, "kind 'failed' is not a dotted name"),
    ({"kind": "job.failed\x1b[2J"}, "\\x1b"),
    ({"kind": ["job.failed"]}, "kind is not a text"),
    ({"kind": None}, "kind is missing"),
    ({"host": ""}, "host is missing"),
    ({"host": "x" * 256}, "host is not a text of at most 255"),
    ({"at": "soon"}, "'soon' is not a time"),
    ({"at": True}, "at is not a text"),
    ({"at": 1794712447250}, "in the future"),
    ({"at": "10m"}, "before 2000"),
    ({"severity": "bad"}, "severity 'bad' is not one of info"),
    ({"core": -1}, "core -1 is not"),
    ({"core": True}, "core True is not"),
    ({"core": "3"}, "core '3' is not"),
    ({"labels": ["gpu"]}, "labels is not an object"),
    ({"labels": {"a b": "c"}}, "label name 'a b'"),
    ({"labels": {"gpu": ""}}, "label gpu is not"),
    ({"labels": {"gpu": "x" * 129}}, "label gpu is not"),
    ({"labels": {"gpu": {"a": 1}}}, "label gpu is not"),
    ({"labels": {f"l{n}": "x" for n in range(17)}}, "labels is not an object of at most 16"),
    ({"colour": "red"}, "unknown field 'colour'"),
    ({"text": 5}, "text is not a text"),
]


def test_an_invalid_line_is_named_and_nothing_is_added(tmp_path: pathlib.Path) -> None:
    for change, says in INVALID:
        with pytest.raises(errors.UsageError) as refused:
            add(tmp_path, LINE, {}, LINE | change)
        assert "line 2: kind is missing; line 3: " in refused.value.why, change
        assert says in refused.value.why, change
        assert refused.value.why.isprintable()
    for data in (b"[]\n", b"{\n", b'{"kind": NaN}', b"\xff\xfe", b"[" * 100_000):
        with pytest.raises(errors.UsageError, match="invalid lines"):
            added_events.read_events(data, {"labels": {}})
    assert not (tmp_path / "signals").exists()


def test_only_the_first_problems_are_listed() -> None:
    with pytest.raises(errors.UsageError) as refused:
        added_events.read_events(b"x\n" * 500, {"labels": {}})
    assert refused.value.why.count("line ") == added_events.MAX_PROBLEMS


def test_a_home_has_a_bounded_number_of_label_names_and_bytes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_LABELS", 3)
    add(tmp_path, LINE)
    add(tmp_path, LINE | {"labels": {"job": "t-8", "rack": "r1"}})
    with pytest.raises(errors.CannotError, match="too many labels: a, b would make 5"):
        add(tmp_path, LINE | {"labels": {"a": "1", "b": "2"}})
    assert add(tmp_path, LINE | {"labels": {"rack": "r2"}}).added == 1
    monkeypatch.setattr(store, "MAX_FILE_BYTES", 700)
    with pytest.raises(errors.CannotError, match="do not fit"):
        add(tmp_path, *(LINE | {"text": str(n)} for n in range(5)))
    assert len(events.list_events(events.Request(tmp_path)).events) == 3


def test_the_longest_event_is_read_back(tmp_path: pathlib.Path) -> None:
    wide = "\U0001f600"  # twelve characters of JSON
    labels = {f"l{n:062}": wide * added_events.MAX_VALUE for n in range(added_events.MAX_LABELS)}
    entry = LINE | {"labels": labels, "host": wide * 255, "process": wide * 255, "unit": wide * 255}
    (event,) = add(tmp_path, entry).events
    assert events.list_events(events.Request(tmp_path)).events == (event,)


def test_removing_is_for_added_events_only_and_leaves_the_others(tmp_path: pathlib.Path) -> None:
    ring = rings.open_writer(tmp_path)
    rings.record(ring, range(5))
    # One of the recorder, and one that a bundle brought.
    ring.event(Event(rings.us(2), "net.driver_reset", host=rings.HOST, id="net.driver_reset-aa"))
    ring.event(Event(rings.us(3), "app.slow", host=rings.HOST, id="app.slow-aa", source=store.SOURCE))  # fmt: skip
    ring.close()
    first, _ = add(tmp_path, LINE, LINE | {"host": "db-8"}).events
    for other in ("net.driver_reset-aa", "app.slow-aa"):
        with pytest.raises(errors.CannotError, match=f"{other} cannot be removed"):
            added_events.remove(tmp_path, [first.id, other])
    assert added_events.remove(tmp_path, [first.short_id]).ids == (first.id,)
    left = events.list_events(events.Request(tmp_path)).events
    assert {event.kind for event in left} == {"net.driver_reset", "app.slow", "job.failed"}
    with pytest.raises(errors.CannotError, match="no event"):
        added_events.remove(tmp_path, [first.id])
    # A host that was added by mistake is gone; a recorded one stays.
    (other,) = (event for event in left if event.host == "db-8")
    assert added_events.remove(tmp_path, [other.id]).ids == (other.id,)
    assert reader.Reader(tmp_path).hosts() == (rings.HOST,)
    assert not (tmp_path / "signals/db-8").exists()
    assert add(tmp_path, LINE).added == 1


def test_a_line_cut_off_by_a_crash_is_added_again(tmp_path: pathlib.Path) -> None:
    first, second = add(tmp_path, LINE, LINE | {"text": "other"}).events
    (path,) = (tmp_path / "signals" / rings.HOST).glob("events-202611-added.jsonl")
    os.truncate(path, path.stat().st_size - 20)
    assert add(tmp_path, LINE, LINE | {"text": "other"}).added == 1
    assert set(events.list_events(events.Request(tmp_path)).events) == {first, second}


def test_hostile_host_names_stay_inside_the_home(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    (event,) = add(home, LINE | {"host": "../../etc\x1b[31m"}).events
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert events.list_events(events.Request(home)).events[0].host == event.host
