from __future__ import annotations

import datetime
import json
import pathlib

import plantedhost
import pytest

from overnight import errors
from overnight.app import snapshot
from overnight.sources.image import devices

NOON = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)


@pytest.fixture
def host(tmp_path: pathlib.Path) -> pathlib.Path:
    root = tmp_path / "host"
    plantedhost.build(root)
    return root


def test_a_snapshot_has_no_secrets(host: pathlib.Path) -> None:
    text = json.dumps(snapshot.take(host).as_json())
    for secret in plantedhost.PLANTED:
        assert secret not in text, text[max(0, text.find(secret) - 200) :][:300]


def test_every_scrubbed_part_has_a_planted_secret(host: pathlib.Path) -> None:
    """Without the scrubber, the test above fails: every part has a planted secret."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("overnight.app.snapshot._safe", lambda part, key, name, value: value)
        patch.setattr("overnight.app.snapshot._safe_name", lambda name, plain=False: name)
        parts = snapshot.take(host).as_json()["parts"]
    for name in (
        "listening",
        "os",
        "kernel",
        "cmdline",
        "cpu",
        "units",
        "presets",
        "modules",
        "sysctl",
        "mounts",
    ):
        assert any(secret in json.dumps(parts[name]) for secret in plantedhost.PLANTED), name


def test_a_snapshot_has_the_facts_of_the_host(host: pathlib.Path) -> None:
    parts = snapshot.take(host).parts
    assert parts["packages"] == {"bash:amd64": {"version": "5.2-1"}}
    assert parts["sysctl"]["vm.swappiness"] == "60"
    assert "net.ipv6.conf.veth1234.mtu" not in parts["sysctl"]
    assert not any("random" in key or "secret" in key for key in parts["sysctl"])
    assert parts["modules"]["ena"] == {
        "version": "2.11.0g",
        "srcversion": "0123456789ABCDEF0123456",
    }
    assert parts["nics"]["eth0"] == {"driver": "ena", "module version": "2.11.0g", "mtu": "9001"}
    assert parts["kernel"]["nvidia"] == "NVRM version: NVIDIA UNIX 535.104.05"
    assert parts["cmdline"]["root"] == "/dev/sda1"
    assert parts["cmdline"]["db.password"] == "(masked)"
    assert parts["cgroups"]["controller memory"] == {"hierarchy": "0", "enabled": "1"}
    assert parts["memory"]["transparent_hugepage/enabled"] == "[always] madvise never"
    assert parts["clock"]["current_clocksource"] == "tsc"
    assert parts["units"]["a.service"]["state"] == "static"
    assert parts["loaded"] == {"ena": {"state": "live", "taint": "OE"}, "xfs": {"state": "live"}}
    assert parts["taint"] == {"out-of-tree module": "O", "unsigned module": "E"}
    (program,) = parts["listening"].values()
    assert program["tcp"] == "22"
    stage = parts["bootstrap"]["cloud-init modules-final"]
    assert (stage["result"], stage["failed modules"]) == ("failed", "scripts_user")
    assert stage["error"].startswith(
        "('scripts_user', RuntimeError('--password (masked) token=(masked)"
    )
    assert "running" not in parts  # nobody asks the systemd of another host
    assert "/" in parts["mounts"]
    assert not any("docker" in where for where in parts["mounts"])


def test_snapshots_of_an_unchanged_host_differ_only_in_the_header(host: pathlib.Path) -> None:
    first, second = (snapshot.take(host, now=NOON + datetime.timedelta(hours=n)).as_json() for n in (0, 1))  # fmt: skip
    assert first["header"] != second["header"]
    first["header"] = second["header"]
    assert json.dumps(first) == json.dumps(second)


@pytest.mark.timeout(10)
def test_unreadable_files_are_gaps(host: pathlib.Path) -> None:
    plantedhost.spoil(host)
    taken = snapshot.take(host)
    gaps = {(gap.part, gap.what): gap.why for gap in taken.gaps}
    assert "larger than" in gaps["sysctl", "kernel.huge"]
    assert gaps["sysctl", "kernel.fifo"] == "it is not a plain file"
    assert "symbolic links" in gaps["sysctl", "kernel.loop"]
    assert gaps["cpu", "/proc/cpuinfo"] == "it is not a plain file"
    assert "larger than" in gaps["packages", "/var/lib/dpkg/status"]
    assert ("os", "/etc/os-release") in gaps
    text = json.dumps(taken.as_json())
    assert "root:x:0:0" not in text
    assert "\\u001b" not in text
    assert "\\udc" not in text


def test_parts_that_need_a_kernel_are_gaps_of_an_image(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=x\n")
    (tmp_path / "usr/bin").mkdir(parents=True)
    marker = tmp_path / "ran"
    (tmp_path / "usr/bin/kubelet").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (tmp_path / "usr/bin/kubelet").chmod(0o755)
    taken = snapshot.take(tmp_path)
    assert "sysctl" not in taken.parts
    parts = {"sysctl", "modules", "cpu", "versions", "running", "bootstrap", "listening", "taint"}
    assert {gap.part for gap in taken.gaps} >= parts
    assert not marker.exists()  # programs of an image are not run


def test_a_program_that_hangs_or_never_stops_printing_is_killed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "MAX_SECONDS", 0.2)
    loud, quiet = tmp_path / "loud", tmp_path / "quiet"
    loud.write_text("#!/bin/sh\nexec yes version 1.2.3\n")
    quiet.write_text("#!/bin/sh\nexec sleep 60\n")
    for program in (loud, quiet):
        program.chmod(0o755)
    assert devices._version(devices._output([str(loud)])) == "1.2.3"
    with pytest.raises(ValueError, match="printed nothing"):
        devices._output([str(quiet)])


def test_snapshot_files_are_named_by_host_and_time(
    tmp_path: pathlib.Path, host: pathlib.Path
) -> None:
    taken = snapshot.take(host, now=NOON)
    place = snapshot.default_file(tmp_path, taken)
    assert place == tmp_path / "snapshots/host/20261115T120000Z.json"
    snapshot.save(taken, place, parents=True)
    assert place.stat().st_mode & 0o777 == 0o600
    assert snapshot.load(place).as_json() == taken.as_json()
    hostile = snapshot.take(host, now=NOON)
    hostile.header["host"] = "../../x"
    assert snapshot.default_file(tmp_path, hostile).is_relative_to(tmp_path / "snapshots")


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 5000, '{"schema": "overnight.top/1"}'])
def test_other_files_are_refused(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(errors.CannotError, match="cannot be read as a snapshot"):
        snapshot.load(tmp_path / "x")
