"""Labels, snapshot and audit of this host for the uplink, at low priority.

    python -m overnight.app.agent_inventory HOME HOST CONFIG [history]

Writes HOME/uplink/labels.json and snapshot.json when they change, audit.json each time, because its age is shown, and
history.json: the time that was observed before the uplink ran.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import sys
from typing import TYPE_CHECKING

from overnight import errors, sources
from overnight.agent import task_config
from overnight.agent.uplink import tasks
from overnight.app import audit, low_priority
from overnight.app import snapshot as snapshots
from overnight.model import data_home, files, uplink
from overnight.model.times import SECOND_US
from overnight.queries import fleet
from overnight.store import added_events
from overnight.store.ring import reader

if TYPE_CHECKING:
    from overnight.model.snapshot import Snapshot

EVER = 1 << 62
MAX_SAVED = 7


def read_labels(source: reader.Reader, host: str, config: task_config.TaskConfig) -> dict[str, str]:
    """Return the host's labels: as recorded, as the administrator wrote them, as operators added them."""
    labels = {**fleet.read_labels(source, host), **config.labels}
    for event in source.events(0, EVER, (host,), (added_events.HOST_LABELS,)):
        labels |= {name: str(value) for name, value in event.fields.items()}
    kept: dict[str, str] = {}
    for name, value in labels.items():
        text = "".join(c if c.isprintable() else " " for c in value)[: uplink.MAX_LABEL_VALUE]
        with contextlib.suppress(errors.UsageError):
            kept |= uplink.parse_labels({name: text})
    return dict([*kept.items()][: uplink.MAX_LABELS])


def read_spells(source: reader.Reader, host: str) -> list[dict[str, object]]:
    """Return the observed time of a host as far as it is stored."""
    spells = fleet.fold_spells(source.stretches(host), source.gaps(host))
    return [
        {"boot": spell.boot, "begin_us": spell.begin_us, "end_us": spell.end_us, "uptime_us": round(spell.uptime * SECOND_US)}
        for spell in spells[-uplink.MAX_SPELLS // 2 :]
        if uplink.BOOT.fullmatch(spell.boot) and spell.begin_us < spell.end_us
    ]  # fmt: skip


def write(home: pathlib.Path, host: str, config: pathlib.Path) -> None:
    data_home.prepare(home)
    folder = home / "uplink"
    files.make_folder(folder)
    source = reader.Reader(home)
    labels = read_labels(source, host, _config(config))
    if tasks.read_json(folder / "labels.json") != labels:
        files.write_atomically(folder / "labels.json", json.dumps(labels))
    taken = snapshots.take()
    document = taken.as_json()
    before = tasks.read_json(folder / "snapshot.json") or {}
    if any(before.get(name) != document[name] for name in ("parts", "gaps")):
        files.write_atomically(folder / "snapshot.json", json.dumps(document))
        _keep(home, taken)


def _keep(home: pathlib.Path, taken: Snapshot) -> None:
    """Save a snapshot for bundles and drift, one a day; the agent removes those that it saved before."""
    path = home / "uplink" / "snapshots.json"
    saved = [str(name) for name in (tasks.read_json(path) or {}).get("saved", [])]
    fresh = snapshots.default_file(home, taken)
    if saved and pathlib.Path(saved[-1]).name[:8] == fresh.name[:8]:
        return
    saved.append(str(fresh.relative_to(home)))
    files.write_atomically(path, json.dumps({"saved": saved[-MAX_SAVED:]}))
    snapshots.save(taken, fresh, parents=True)
    for name in saved[:-MAX_SAVED]:
        (home / name).unlink(missing_ok=True)


def write_audit(home: pathlib.Path, root: pathlib.Path = sources.ROOT) -> None:
    """Write the audit of the units below a root; none where there are no units, as in a container."""
    try:
        document = json.dumps(audit.examine(root).as_json())
        if len(document) > uplink.MAX_AUDIT_BYTES:
            raise errors.CannotError(
                "the audit is not sent",
                why=f"it exceeds {uplink.MAX_AUDIT_BYTES >> 10} KiB",
                todo="run `overnight audit` on this host",
            )
    except errors.CannotError as error:
        sys.stderr.write(f"{error.what}: {error.why}\n")
    else:
        files.write_atomically(home / "uplink" / "audit.json", document)


def _config(path: pathlib.Path) -> task_config.TaskConfig:
    try:
        return task_config.read(path)
    except errors.OvernightError as error:
        sys.stderr.write(f"{error.what}: {error.why}\n")
        return task_config.TaskConfig()


def main(words: list[str]) -> int:
    low_priority.yield_to_others()
    home, host, config = pathlib.Path(words[0]), words[1], pathlib.Path(words[2])
    try:
        write(home, host, config)
        if words[3:] == ["history"]:
            document = json.dumps({"spells": read_spells(reader.Reader(home), host)})
            files.write_atomically(home / "uplink" / "history.json", document)
        write_audit(home)
    except errors.OvernightError as error:
        sys.stderr.write(f"{error.what}: {error.why}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
