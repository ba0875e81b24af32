"""What is stored survives a power cut: synced before its name appears, the folder after, what it replaces removed last."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable

import captures
import durability
import images
import pytest
import rings

from overnight.app import audit
from overnight.app.audit import changes
from overnight.model import files, pins
from overnight.model.event import Event
from overnight.sources import perf
from overnight.sources.image import tree as trees
from overnight.sources.image import units
from overnight.sources.perf import recovery
from overnight.store import arms, loads, trim
from overnight.store.bundle import header, packer
from overnight.store.ring import retention
from overnight.undo import journal

HOUR_NS = 3600 * captures.SECOND


def store_ring(home: pathlib.Path) -> None:
    ring = rings.open_writer(home, block_seconds=10)
    rings.record(ring, range(30))
    ring.close()
    (home / f"signals/{rings.HOST}/host").write_bytes(b"")  # by a version that did not sync it
    rings.open_writer(home).close()


def store_events(home: pathlib.Path) -> None:
    ring = rings.open_writer(home)
    ring.event(Event(rings.us(1), "net.driver_reset", id="a", host=rings.HOST))
    ring.note_gap(rings.us(1), rings.us(2), "why")
    ring.close()


def shorten_gaps(home: pathlib.Path) -> None:
    ring = rings.open_writer(home)
    for second in range(20):
        ring.note_gap(rings.us(second), rings.us(second + 1), "x" * 60_000)
    rings.record(ring, range(1))
    ring.close()
    assert (ring.folder / "gaps.jsonl").stat().st_size < retention.MAX_GAPS_BYTES


def store_pins(home: pathlib.Path) -> None:
    kept = pins.Pins(home / "spool/pins")
    assert not kept.unpin("a")
    for end in (2, 3):
        kept.pin(pins.Pin("a", 1, end, "why"))
    kept.pin(pins.Pin("b", 1, 2, "why"))
    assert kept.unpin("b")


def store_segments(home: pathlib.Path) -> None:
    for hours in (0, 1, 0.5):  # the last one removes the file of the first hour
        begin = round(captures.NIGHT + hours * HOUR_NS)
        captures.store(home, captures.build([captures.Sample(begin)], end=begin + captures.SECOND))


def trim_segments(home: pathlib.Path) -> None:
    store_segments(home)
    catalogue = captures.store(home).catalogue
    gone = trim.trim_store(catalogue, budget_bytes=0, keep_seconds=0, now_us=1 << 62)
    assert len(gone) == 3


def publish_raw(home: pathlib.Path) -> None:
    written = home / f"x{perf.WRITING}"
    recovery.write_current(home, recovery.Current(written.name, perf.Clock(1, 1)))
    written.write_bytes(b"samples")
    perf.publish(written, perf.SegmentName("db-7", 10**18, "0123abcd"))


def store_load(home: pathlib.Path) -> None:
    load = loads.LoadWriter(home, "db-7", "cpu", (0,), 1, {})
    load.verdict(2, {}, ended=True)
    load.close()


def store_arms(home: pathlib.Path) -> None:
    for arm in ("hot", "cold"):
        arms.append(home / "new", arms.Arm(1, "db-7", "b1", "6.18", 9.5, arm, "uptime"))


def pack_bundle(home: pathlib.Path) -> None:
    about = header.Header("0.1", 1, "e1", "cpu.stall", "db-7", 1, ("db-7",), (), 0, 0, {}, ())
    (home / "data").mkdir()
    packer.pack(home / "data", home / "new.bundle", about)


def change_host(home: pathlib.Path) -> journal.Journal:
    run = journal.Journal("a test", home / "state/undo")
    for kind in ("file", "folder"):
        run.write(kind, home / f"{run.run}-{kind}")
    files.write_atomically(home / f"{run.run}-file", "")
    files.make_folder(home / f"{run.run}-folder")
    return run


def undo_changes(home: pathlib.Path) -> None:
    assert change_host(home).undo() == []


def undo_kept_changes(home: pathlib.Path) -> None:
    change_host(home).keep()
    assert journal.clean(home / "state/undo", kept=True)[1] == []


def apply_audit(home: pathlib.Path) -> None:
    root = home / "image"
    changes.apply(changes.plan(audit.examine(root), root)[0], root, home / "data")


def undo_audit(home: pathlib.Path) -> None:
    apply_audit(home)
    assert changes.undo(home / "image", home / "data")[1] == ()


# What it stores, and what need not be durable: locks, the unpacked seconds of the ring, segments being removed, a journal
# that is removed (its undo can be repeated).
CASES: dict[str, tuple[Callable[[pathlib.Path], None], tuple[str, ...]]] = {
    "ring": (store_ring, ("*.open", "*/lock")),
    "events": (store_events, ("*/lock",)),
    "gaps": (shorten_gaps, ("*.open", "*/lock")),
    "pins": (store_pins, ()),
    "segments": (store_segments, ()),
    "trim": (trim_segments, ("*.new-*", "*.hour")),
    "raw": (publish_raw, ("*.writing",)),
    "load": (store_load, ()),
    "arms": (store_arms, ()),
    "bundle": (pack_bundle, ("data",)),
    "undo": (undo_changes, ("*.undo",)),
    "kept": (undo_kept_changes, ("*.undo",)),
    "audit": (apply_audit, ()),
    "audit-undo": (undo_audit, ()),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_stored_survives_a_power_cut(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images.deep_learning(tmp_path / "image")
    act, volatile = CASES[name]
    disk = durability.Disk(tmp_path, monkeypatch, volatile)
    act(tmp_path)
    assert disk.problems == []
    assert disk.pending() == []
    assert any(step == "fsync" for step, _ in disk.steps)


def test_a_change_to_the_host_is_in_the_journal_before_it_is_made(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = durability.Disk(tmp_path, monkeypatch)
    run = journal.Journal("a test", tmp_path / "undo")
    assert [left.state for left in journal.runs(tmp_path / "undo")] == ["running"]
    assert disk.pending() == []
    for name in ("a", "b"):
        run.write("file", tmp_path / f"{run.run}-{name}")
        assert run.path.read_text().endswith(f'{run.run}-{name}"}}\n')
        assert disk.pending() == []


def test_an_audit_records_each_step_before_it_is_done(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images.deep_learning(tmp_path / "image")
    disk = durability.Disk(tmp_path, monkeypatch)
    do, seen = changes._do, []

    def check_and_do(tree: trees.Tree, step: changes.Step) -> None:
        (record,) = (tmp_path / "data/audit").iterdir()
        seen.append((len(json.loads(record.read_text())["steps"]), disk.pending()))
        do(tree, step)

    monkeypatch.setattr(changes, "_do", check_and_do)
    apply_audit(tmp_path)
    assert seen == [(1, []), (2, []), (3, [])]


def test_what_systemctl_undid_is_durable_before_the_record_is_removed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants = tmp_path / "system/multi-user.target.wants"
    wants.mkdir(parents=True)
    monkeypatch.setattr(units, "CONFIG", str(tmp_path / "system"))
    monkeypatch.setattr(changes, "_systemctl", lambda verb, _: (wants / verb).symlink_to("/x"))
    step = changes.Step("systemctl", "ecs.service", "enabled", "disable")
    changes.apply((step,), pathlib.Path("/"), tmp_path / "data")
    disk = durability.Disk(tmp_path, monkeypatch)
    changes.undo(pathlib.Path("/"), tmp_path / "data")
    assert ("symlink", "system/multi-user.target.wants/enable") in disk.steps
    assert (disk.problems, disk.pending()) == ([], [])
