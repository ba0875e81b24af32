"""Events that operators added or imported: HOME/signals/HOST/events-YYYYMM-added.jsonl, beside those of the recorder.

Files of their own, because the recorder appends to its files without a lock while it runs. The ring's reader
reads both.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Collection, Iterator, Sequence

from overnight import errors
from overnight.model import files
from overnight.model.event import Event
from overnight.store.ring import journal, layout

SOURCE = "operator"
HOST_LABELS = "host.labels"  # the kind of event whose labels are those of its host, from then on
MAX_FILE_BYTES = 64 << 20  # of a host and month
MAX_LABELS = 64  # names in a data home; each costs statistical power where hosts are compared


def event_id(event: Event) -> str:
    """Return an id of everything an operator gave: the same line again is the same event.

    64 bits instead of the recorder's 32: a fleet has 100,000 job starts in a month.
    """
    given = json.dumps(dataclasses.replace(event, id="").as_json(), sort_keys=True)
    return f"{event.kind}-{hashlib.blake2b(given.encode(), digest_size=8).hexdigest()}"


def add(home: pathlib.Path, events: Sequence[Event]) -> int:
    """Store events under a lock; return how many are new. After a crash, run it again with the same events."""
    root = home / "signals"
    files.make_folder(root)
    with files.locked(root):
        known, labels = _read_known(home)
        fresh = {event.id: event for event in events if event.id not in known}
        given = {name for e in fresh.values() if e.source == SOURCE for name in e.fields}
        if len(given | labels) > MAX_LABELS:
            raise errors.CannotError(
                f"too many labels: {', '.join(sorted(given - labels)[:5])} would make {len(given | labels)}",
                why=f"a data home has at most {MAX_LABELS} label names",
                todo="put what differs from event to event into the value of one label: --label job=train-7",
            )
        by_path: dict[pathlib.Path, list[bytes]] = {}
        for event in fresh.values():
            folder = layout.host_folder(home, event.host)
            path = folder / f"events-{layout.month_of(event.time_us)}-added.jsonl"
            by_path.setdefault(path, []).append(_line(event))
        for path, lines in by_path.items():
            used = path.stat().st_size if path.exists() else 0
            if used + sum(map(len, lines)) > MAX_FILE_BYTES:
                raise errors.CannotError(
                    f"{len(lines)} events do not fit into {path.name}",
                    why=f"a host has at most {MAX_FILE_BYTES >> 20} MB of added events a month",
                    todo="add fewer events, or remove some: `overnight event remove ID`",
                )
        for host in {event.host for event in fresh.values()}:
            layout.name_folder(layout.host_folder(home, host), host)
        for path, lines in by_path.items():
            files.append_lines(path, lines)
    return len(fresh)


def remove(home: pathlib.Path, ids: Collection[str]) -> tuple[str, ...]:
    """Remove added events, and hosts that have nothing else; return the ids that were there."""
    removed = []
    root = home / "signals"
    if not root.is_dir():
        return ()
    with files.locked(root):
        for path in [*_paths(home)]:
            entries = [entry for _, entry in journal.read_lines(path) if entry]
            kept = [entry for entry in entries if entry.get("id") not in ids]
            removed += [str(entry["id"]) for entry in entries if entry.get("id") in ids]
            if kept and len(kept) < len(entries):
                files.write_atomically(path, b"".join(map(_dump, kept)))
            elif not kept:
                files.remove(path)
                # Of a host that was never recorded only its name is left.
                if [left.name for left in path.parent.iterdir()] == ["host"]:
                    files.remove(path.parent / "host")
                    path.parent.rmdir()
    return tuple(removed)


def read_ids(home: pathlib.Path) -> set[str]:
    return _read_known(home)[0]


def _paths(home: pathlib.Path) -> Iterator[pathlib.Path]:
    for host in layout.hosts(home):
        yield from sorted(layout.host_folder(home, host).glob("events-*-added.jsonl"))


def _read_known(home: pathlib.Path) -> tuple[set[str], set[str]]:
    """Return the ids and the label names of all added events."""
    ids: set[str] = set()
    labels: set[str] = set()
    for path in _paths(home):
        for _, entry in journal.read_lines(path):
            if entry:
                ids.add(str(entry.get("id")))
                fields = entry.get("fields") if entry.get("source") == SOURCE else None
                labels.update(fields if isinstance(fields, dict) else ())
    return ids, labels


def _line(event: Event) -> bytes:
    """Return a line without the defaults, which the reader fills in."""
    plain = Event(event.time_us, event.kind).as_json()
    line = {name: value for name, value in event.as_json().items() if value != plain[name]}
    return _dump({"time_us": event.time_us, "kind": event.kind, **line})


def _dump(entry: dict[str, object]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"
