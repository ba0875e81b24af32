"""Units and values of the kernel are undone only where a change of overnight has made them so."""

from __future__ import annotations

import json
import pathlib

import pytest

from overnight.model import process_identity
from overnight.undo import journal, operations, settings

RUN = "overnight-0123abcd"
VALUE = {"before": "0-1", "after": "1", "boot": "b"}
OWN = (
    {"kind": "unit-stopped", "target": "ember.service"},
    {"kind": "unit-masked", "target": "ember@1.timer"},
    {"kind": "drop-in", "target": f"/run/systemd/system/ember.service.d/90-{RUN}.conf"},
    {"kind": "value", "target": "/proc/irq/45/smp_affinity_list", **VALUE},
    {"kind": "value", "target": "/sys/fs/cgroup/batch/cpu.max", **VALUE, "before": "max 100000", "after": "5000 100000"},
    {"kind": "value", "target": "/sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", **VALUE, "before": "-1", "after": "5000"},
)  # fmt: skip
FOREIGN = (
    {"kind": "unit-stopped", "target": "--all"},
    {"kind": "unit-stopped", "target": "a b.service"},
    {"kind": "unit-masked", "target": "../ember.service"},
    {"kind": "unit-masked", "target": "ember.service/../../x.service"},
    {"kind": "unit-masked", "target": "default.target"},
    {"kind": "drop-in", "target": "."},
    {"kind": "drop-in", "target": ""},
    {"kind": "drop-in", "target": "/run/systemd/system/ember.service.d/90-overnight-4567cdef.conf"},
    {"kind": "drop-in", "target": f"/run/systemd/system/../ember.service.d/90-{RUN}.conf"},
    {"kind": "drop-in", "target": f"/etc/systemd/system/ember.service.d/90-{RUN}.conf"},
    {"kind": "value", "target": "/proc/sys/kernel/core_pattern", **VALUE},
    {"kind": "value", "target": "/proc/irq/../sys/45/smp_affinity_list", **VALUE},
    {"kind": "value", "target": "/proc/irq/45/smp_affinity", **VALUE},
    {"kind": "value", "target": "/proc/irq/45/smp_affinity_list"},
    {"kind": "value", "target": "/proc/irq/45/smp_affinity_list", **VALUE, "before": "|/bin/sh"},
    {"kind": "value", "target": "/proc/irq/45/smp_affinity_list", **VALUE, "before": "1\n"},
    {"kind": "value", "target": "/sys/fs/cgroup/../../etc/cpu.max", **VALUE},
    {"kind": "value", "target": "/sys/fs/cgroup/batch/cgroup.procs", **VALUE},
    {"kind": "value", "target": "/sys/fs/cgroup/cpu.max", **VALUE},
    {"kind": "value", "target": "/tmp/cpu.max", **VALUE},
)  # fmt: skip


@pytest.mark.parametrize("change", OWN, ids=str)
def test_targets_of_changes_are_accepted(change: dict[str, str]) -> None:
    operations.check(change, RUN)


@pytest.mark.parametrize("change", FOREIGN, ids=str)
def test_other_targets_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is not a"):
        operations.check(change, RUN)


@pytest.fixture
def irq(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(settings, "IRQS", tmp_path / "irq")
    path = tmp_path / "irq/45/smp_affinity_list"
    path.parent.mkdir(parents=True)
    path.write_text("0-1\n")
    return path


@pytest.mark.parametrize(
    ("now", "boot", "then"),
    [
        ("1", "", "0-1"),
        ("0-1", "", "0-1"),  # killed before it was made
        ("3", "", "3"),  # irqbalance moved it since
        ("1", "another", "1"),  # maybe another device has this number
    ],
)
def test_a_value_is_restored_in_the_same_boot_if_nobody_changed_it(
    irq: pathlib.Path, tmp_path: pathlib.Path, now: str, boot: str, then: str
) -> None:
    run = journal.Journal("a change", tmp_path / "undo")
    run.write_value(irq, "0-1", "1")
    line = json.loads(run.path.read_text().splitlines()[-1])
    assert line["boot"] == process_identity.read_boot()
    if boot:
        text = run.path.read_text().replace(json.dumps(line), json.dumps(line | {"boot": boot}))
        run.path.write_text(text)
    run.keep()
    irq.write_text(now)
    assert journal.clean(tmp_path / "undo", kept=True)[1] == []
    assert irq.read_text().strip() == then
    assert not run.path.exists()


def test_a_value_that_is_gone_needs_no_undo(irq: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with journal.Journal("a change", tmp_path / "undo") as run:
        run.write_value(irq, "0-1", "1")
        irq.unlink()
    assert not run.problems


def test_a_systemctl_that_fails_stays_in_the_journal(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "systemctl"
    tool.write_text("#!/bin/sh\necho no bus >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with journal.Journal("a change", tmp_path / "undo") as run:
        run.write("unit-stopped", "ember.service")
    assert "no bus" in run.problems[0]
    assert run.path.exists()
    monkeypatch.setattr(settings, "SECONDS", 0.1)
    tool.write_text("#!/bin/sh\nexec sleep 5\n")
    with pytest.raises(TimeoutError, match="did not end"):
        settings.systemctl("daemon-reload")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="not installed"):
        settings.systemctl("daemon-reload")
