"""`overnight audit` under a running systemd: a machine booted on an overlay of this one."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import noise
import pytest

import overnight
from overnight.app.audit import runtime

CGROUPS = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
SOURCE = pathlib.Path(overnight.__file__).parents[1]

BOOT = """set -eu
for place in {cgroups}; do echo $$ > $place/cgroup.procs; done
mount -t tmpfs tmpfs {mount}
mkdir {mount}/upper {mount}/work {mount}/root
mount -t overlay overlay -o lowerdir=/,upperdir={mount}/upper,workdir={mount}/work {mount}/root
cd {mount}/root
rm -rf etc/systemd/system/*
mkdir -p etc/kubernetes etc/systemd/system/multi-user.target.wants
echo x > etc/kubernetes/kubelet.conf
: > etc/machine-id
cp {shared}/*.service usr/lib/systemd/system/
for unit in ecs fails never waits probe bootstrap; do
  ln -s /usr/lib/systemd/system/$unit.service etc/systemd/system/multi-user.target.wants/
done
exec systemd-nspawn -q -D . --boot --register=no --keep-unit --private-network --console=pipe \\
  --machine=overnight-test-{pid} --bind-ro={python} --bind-ro={source}:/mnt/source --bind={shared}:/mnt/shared \\
  systemd.unit=multi-user.target < /dev/null
"""
INSTALL = "[Install]\nWantedBy=multi-user.target\n"
UNITS = {
    # 5 x 2 s are the 10 s that the limit looks back: it can never trip.
    "ecs": f"[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=2\n{INSTALL}",
    "fails": f"[Service]\nExecStart=/bin/false\n{INSTALL}",
    "never": f"[Unit]\nRequires=gone.service\n[Service]\nExecStart=/bin/sleep inf\n{INSTALL}",
    "bootstrap": f"[Service]\nType=oneshot\nExecStart=/bin/sh -c 'exit 3'\n{INSTALL}",
    "waits": f"[Service]\nType=notify\nExecStart=/bin/sleep inf\nTimeoutStartSec=infinity\n{INSTALL}",
    "probe": f"[Service]\nType=oneshot\nEnvironment=PYTHONPATH=/mnt/source HOME=/root\nExecStart=/bin/sh /mnt/shared/probe\nExecStopPost=/usr/bin/systemctl poweroff --no-block\n{INSTALL}",
}
PROBE = """cd /mnt/shared
# More than the limit would allow: the sixth restart is past what five in ten seconds permit.
until [ "$(systemctl show -P NRestarts ecs.service)" -ge 6 ]; do sleep 0.2; done
{python} -m overnight audit -O json > audit.json 2> errors
echo $? > code
{python} -m overnight snapshot -o snapshot.json > /dev/null 2>> errors
cat /proc/uptime > uptime
systemctl is-active never.service > never
systemctl stop never.service
systemctl start never.service 2>> never
{python} -m overnight audit --apply --yes 2>> errors
systemctl is-enabled ecs.service > applied
{python} -m overnight audit --undo --yes 2>> errors
systemctl is-enabled ecs.service > undone
"""


@pytest.fixture
def cgroups() -> object:
    """Cgroups of the test, removed with everything that the machine leaves in them."""
    groups = []
    for place in CGROUPS:
        if (pathlib.Path(place) / "cgroup.procs").exists():
            group = pathlib.Path(place) / f"overnight-test-{os.getpid()}"
            group.mkdir()
            groups.append(group)
    yield groups
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                pathlib.Path(folder).rmdir()


@pytest.mark.long
@pytest.mark.needs_root
@pytest.mark.skipif(shutil.which("systemd-nspawn") is None, reason="needs systemd-nspawn")
def test_findings_under_a_running_systemd(
    tmp_path: pathlib.Path, cgroups: list[pathlib.Path]
) -> None:
    shared, mount = tmp_path / "shared", tmp_path / "mount"
    shared.mkdir()
    mount.mkdir()
    for name, text in UNITS.items():
        (shared / f"{name}.service").write_text(text)
    (shared / "probe").write_text(PROBE.format(python=sys.executable))
    script = BOOT.format(
        cgroups=" ".join(map(str, cgroups)), mount=mount, shared=shared, pid=os.getpid(),
        python=pathlib.Path(sys.executable).parents[1], source=SOURCE,
    )  # fmt: skip
    with subprocess.Popen(
        ["unshare", "--mount", "bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as machine:  # fmt: skip
        try:
            output, _ = machine.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            machine.terminate()
            output, _ = machine.communicate(timeout=noise.HANG_SECONDS)
    assert (shared / "code").exists(), output
    assert (shared / "code").read_text() == "1\n"
    findings = {(finding["unit"], finding["id"]): finding for finding in json.loads((shared / "audit.json").read_text())["findings"]}  # fmt: skip
    looping = findings["ecs.service", "looping"]
    says = " ".join(fact["says"] for fact in looping["evidence"])
    assert "NRestarts=" in says
    assert "restart counter is at" in says
    assert ("ecs.service", "endless-restart") in findings
    assert ("ecs.service", "foreign-orchestrator") in findings
    assert ("fails.service", "failing") in findings
    assert ("gone.service", "wanted-missing") in findings
    parts = json.loads((shared / "snapshot.json").read_text())["parts"]
    assert parts["bootstrap"]["bootstrap.service"] == {"exit status": "3", "result": "exit-code"}
    assert parts["bootstrap"]["probe.service"] == {"result": "not finished"}
    assert int(parts["running"]["ecs.service"]["restarts"]) >= 6
    assert parts["running"]["fails.service"]["active"] == "failed"
    assert parts["running"]["waits.service"]["ran"] == "never"
    uptime = float((shared / "uptime").read_text().split()[0])
    assert (("waits.service", "never-active") in findings) == (uptime > runtime.SETTLED)
    started, refused = (shared / "never").read_text().splitlines()[:2]
    assert started == "active"
    assert "gone.service not found" in refused
    assert (shared / "applied").read_text() == "masked\n"
    assert (shared / "undone").read_text() == "enabled\n"
