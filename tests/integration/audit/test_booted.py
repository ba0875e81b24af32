"""`overnight audit` where systemd really runs: a machine booted on an overlay of this one."""

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
cp {given}/*.service usr/lib/systemd/system/
for unit in ecs fails never waits probe; do
  ln -s /usr/lib/systemd/system/$unit.service etc/systemd/system/multi-user.target.wants/
done
exec systemd-nspawn -q -D . --boot --register=no --keep-unit --private-network --console=pipe \\
  --machine=overnight-test-{pid} --bind-ro={python} --bind-ro={source}:/mnt/source --bind={given}:/mnt/given \\
  systemd.unit=multi-user.target < /dev/null
"""
INSTALL = "[Install]\nWantedBy=multi-user.target\n"
UNITS = {
    # 5 x 2 s are the 10 s that the limit looks back: it can never trip.
    "ecs": f"[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=2\n{INSTALL}",
    "fails": f"[Service]\nExecStart=/bin/false\n{INSTALL}",
    "never": f"[Unit]\nRequires=gone.service\n[Service]\nExecStart=/bin/sleep inf\n{INSTALL}",
    "waits": f"[Service]\nType=notify\nExecStart=/bin/sleep inf\nTimeoutStartSec=infinity\n{INSTALL}",
    "probe": f"[Service]\nType=oneshot\nEnvironment=PYTHONPATH=/mnt/source HOME=/root\nExecStart=/bin/sh /mnt/given/probe\nExecStopPost=/usr/bin/systemctl poweroff --no-block\n{INSTALL}",
}
PROBE = """cd /mnt/given
# More than the limit would allow: the sixth restart is past what five in ten seconds permit.
until [ "$(systemctl show -P NRestarts ecs.service)" -ge 6 ]; do sleep 0.2; done
{python} -m overnight audit -O json > audit.json 2> errors
echo $? > code
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
    """Groups of our own: what the machine leaves in them is removed with them."""
    made = []
    for place in CGROUPS:
        if (pathlib.Path(place) / "cgroup.procs").exists():
            group = pathlib.Path(place) / f"overnight-test-{os.getpid()}"
            group.mkdir()
            made.append(group)
    yield made
    for group in made:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                pathlib.Path(folder).rmdir()


@pytest.mark.long
@pytest.mark.needs_root
@pytest.mark.skipif(shutil.which("systemd-nspawn") is None, reason="needs systemd-nspawn")
def test_what_a_running_manager_says(tmp_path: pathlib.Path, cgroups: list[pathlib.Path]) -> None:
    given, mount = tmp_path / "given", tmp_path / "mount"
    given.mkdir()
    mount.mkdir()
    for name, text in UNITS.items():
        (given / f"{name}.service").write_text(text)
    (given / "probe").write_text(PROBE.format(python=sys.executable))
    script = BOOT.format(
        cgroups=" ".join(map(str, cgroups)), mount=mount, given=given, pid=os.getpid(),
        python=pathlib.Path(sys.executable).parents[1], source=SOURCE,
    )  # fmt: skip
    with subprocess.Popen(
        ["unshare", "--mount", "bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as machine:  # fmt: skip
        try:
            said, _ = machine.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            machine.terminate()
            said, _ = machine.communicate(timeout=noise.HANG_SECONDS)
    assert (given / "code").exists(), said
    assert (given / "code").read_text() == "1\n"
    found = {(one["unit"], one["id"]): one for one in json.loads((given / "audit.json").read_text())["findings"]}  # fmt: skip
    looping = found["ecs.service", "looping"]
    says = " ".join(one["says"] for one in looping["evidence"])
    assert "NRestarts=" in says
    assert "restart counter is at" in says
    assert ("ecs.service", "endless-restart") in found
    assert ("ecs.service", "foreign-orchestrator") in found
    assert ("fails.service", "failing") in found
    assert ("gone.service", "wanted-missing") in found
    uptime = float((given / "uptime").read_text().split()[0])
    assert (("waits.service", "never-active") in found) == (uptime > runtime.SETTLED)
    started, refused = (given / "never").read_text().splitlines()[:2]
    assert started == "active"
    assert "gone.service not found" in refused
    assert (given / "applied").read_text() == "masked\n"
    assert (given / "undone").read_text() == "enabled\n"
