from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING

import images
import rings
import uplinks

from overnight.agent import task_config
from overnight.app import agent_inventory
from overnight.model import uplink
from overnight.model.event import Event
from overnight.store import added_events
from overnight.store.ring import reader

if TYPE_CHECKING:
    import pytest


def test_labels_are_those_of_host_administrator_and_operators(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    ring.second()
    facts = {"": {"zone": "a", "kernel": "6.1\n", "cores": 4}, "eth0": {"driver": "ena"}}
    ring.ring.facts("host", rings.clock.Clock(ring.wall_ns, ring.mono_ns), facts)
    fields = {"gpu": "h100", "zone": "b"}
    labels = Event(5_000_000, added_events.HOST_LABELS, host=uplinks.HOST, id="host.labels-1", source="operator", fields=fields)  # fmt: skip
    added_events.add(tmp_path, [labels])
    config = task_config.TaskConfig(labels={"rack": "b12", "bad name": "x", "gpu": "none"})
    found = agent_inventory.read_labels(reader.Reader(tmp_path), uplinks.HOST, config)
    assert found == {"zone": "b", "kernel": "6.1 ", "driver": "ena", "rack": "b12", "gpu": "h100"}
    assert uplink.parse_labels(found) == found


def test_observed_time_before_the_uplink_is_read_from_the_ring(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    ring.seconds(30)
    (spell,) = agent_inventory.read_spells(reader.Reader(tmp_path), uplinks.HOST)
    assert spell["boot"] == uplinks.BOOT[:8]
    assert (int(str(spell["end_us"])) - int(str(spell["begin_us"]))) == 29_000_000
    assert agent_inventory.read_spells(reader.Reader(tmp_path), "other") == []


def test_files_are_written_when_they_change(tmp_path: pathlib.Path) -> None:
    ring = uplinks.LiveRing(tmp_path)
    ring.seconds(2)
    words = [str(tmp_path), uplinks.HOST, str(tmp_path / "none.toml")]
    folder = tmp_path / "uplink"
    agent_inventory.write(*map(pathlib.Path, words[:1]), words[1], pathlib.Path(words[2]))
    snapshot = json.loads((folder / "snapshot.json").read_text())
    assert snapshot["schema"] == "overnight.snapshot/1"
    assert len(list((tmp_path / "snapshots").rglob("*.json"))) == 1
    before = (folder / "labels.json").stat().st_mtime_ns
    snapshot["header"]["taken_at"] = "another time"
    (folder / "snapshot.json").write_text(json.dumps(snapshot))
    agent_inventory.write(tmp_path, words[1], pathlib.Path(words[2]))
    assert (folder / "labels.json").stat().st_mtime_ns == before


def test_an_audit_is_written_each_time_where_there_are_units(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, file = tmp_path / "root", tmp_path / "uplink/audit.json"
    file.parent.mkdir()
    root.mkdir()
    agent_inventory.write_audit(tmp_path, root)
    assert not file.exists()
    assert "no systemd units" in capsys.readouterr().err
    images.deep_learning(root)
    examined = []
    for _ in range(2):
        agent_inventory.write_audit(tmp_path, root)
        document = json.loads(file.read_text())
        sent = {"version": 1, "sent_us": 1, "boot": "a", "uptime_us": 1, "audit": document}
        found = uplink.Report.from_json(sent).audit
        assert found is not None
        assert found.to_turn_off == ("ecs.service",)
        examined.append(found.examined_us)
    assert examined[0] < examined[1]
    monkeypatch.setattr(uplink, "MAX_AUDIT_BYTES", 1000)
    agent_inventory.write_audit(tmp_path, root)
    assert json.loads(file.read_text())["examined_us"] == examined[1]
    assert "the audit is not sent" in capsys.readouterr().err
