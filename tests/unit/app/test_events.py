"""The events use case, as HTTP and MCP call it."""

from __future__ import annotations

import pathlib
import threading
import time

import pytest
import rings

from overnight import errors
from overnight.app import events
from overnight.model.event import Event
from overnight.store import added_events as store


def make_event(second: float, kind: str, **fields: object) -> Event:
    values = {"host": rings.HOST, "boot": rings.BOOT, "id": f"{kind}-{second:.0f}", **fields}
    return Event(rings.us(second), kind, **values)  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(20))
    writer.event(make_event(5, "cpu.core_pinned", severity="critical", core=3))
    writer.event(make_event(7, "clock.unsynchronised", severity="info"))
    writer.event(make_event(9, "future.kind", severity="apocalyptic"))
    writer.tick(rings.at(20))
    writer.close()
    return tmp_path


def test_a_listing_has_events_hosts_and_gaps(home: pathlib.Path) -> None:
    listing = events.list_events(events.Request(home, severity="warning"))
    assert [event.kind for event in listing.events] == ["cpu.core_pinned"]
    assert listing.hosts == (rings.HOST,)
    document = listing.as_json()
    assert document["schema"] == "overnight.events/1"
    assert not document["gaps"]


def test_a_severity_of_a_newer_version_counts_as_info(home: pathlib.Path) -> None:
    listing = events.list_events(events.Request(home))
    assert [event.kind for event in listing.events][-1] == "future.kind"


def test_events_are_chosen_by_label(home: pathlib.Path) -> None:
    """Operators' labels and the recorder's fields; an empty answer names labels that exist."""
    stored = [
        make_event(second, "job.failed", fields={"job": job, "gpu": "h100", "queue": 5})
        for second, job in ((11, "train-7"), (12, "train-8"))
    ]
    store.add(home, stored)
    for labels, found in (
        (("gpu=h100",), 2),
        (("gpu=h100", "job=train-7"), 1),
        (("queue=5",), 2),
        (("gpu=a100",), 0),
    ):
        listing = events.list_events(events.Request(home, labels=labels))
        assert len(listing.events) == found, labels
    assert "--label gpu=a100" in str(listing.empty)
    assert "gpu=h100" in str(listing.empty)
    with pytest.raises(errors.UsageError, match="is not a label"):
        events.list_events(events.Request(home, labels=("gpu",)))


def test_an_event_that_is_not_stored_is_an_error(home: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError, match="no event 'x'"):
        events.list_events(events.Request(home, event_id="x"))


def test_following_yields_new_events_and_their_changes(tmp_path: pathlib.Path) -> None:
    writer = rings.open_writer(tmp_path)
    rings.record(writer, range(3))
    writer.tick(rings.at(3))
    stop = threading.Event()
    later = time.time_ns() // 1000 + 500_000
    first = Event(later, "net.driver_reset", host=rings.HOST, boot=rings.BOOT, id="a", count=1)
    second = Event(later, "net.driver_reset", host=rings.HOST, boot=rings.BOOT, id="a", count=2)
    seen = []
    following = events.follow(events.Request(tmp_path), stop)
    threading.Timer(0.2, lambda: writer.event(first)).start()
    for event, before in following:
        seen.append((event.count, before and before.count))
        if event.count == 1:
            writer.event(second)
        else:
            stop.set()
    writer.close()
    assert seen == [(1, None), (2, 1)]
