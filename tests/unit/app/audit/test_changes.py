from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pathlib
import threading
from typing import TYPE_CHECKING

import images
import pytest

from overnight import errors
from overnight.app import audit
from overnight.app.audit import changes, fixes

if TYPE_CHECKING:
    from overnight.sources.image.tree import Tree

LINK = "etc/systemd/system/multi-user.target.wants/ecs.service"
MASK = "etc/systemd/system/ecs.service"


def read_tree(root: pathlib.Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def change(root: pathlib.Path, home: pathlib.Path) -> None:
    steps, cannot = changes.plan(audit.examine(root), root)
    assert cannot == ()
    changes.apply(steps, root, home)


def test_changes_to_an_image_are_undone(tmp_path: pathlib.Path) -> None:
    root, home = tmp_path / "image", tmp_path / "home"
    images.deep_learning(root)
    before = read_tree(root)
    change(root, home)
    after = read_tree(root)
    assert after[MASK] == "/dev/null"
    assert LINK not in after
    assert "disable ecs.service" in after[fixes.PRESET.lstrip("/")]
    assert "ecs.service" not in audit.examine(root).to_turn_off
    undone, left = changes.undo(root, home)
    assert read_tree(root) == before
    assert (len(undone), left) == (3, ())
    with pytest.raises(errors.CannotError, match="nothing to undo"):
        changes.undo(root, home)


def test_one_undo_reverts_two_applies(tmp_path: pathlib.Path) -> None:
    root, home = tmp_path / "image", tmp_path / "home"
    image = images.deep_learning(root)
    image.file("sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
    before = read_tree(root)
    change(root, home)
    agent = "google-guest-agent.service"
    image.unit(agent, images.SSH, enabled=True)
    change(root, home)
    assert read_tree(root)[f"etc/systemd/system/{agent}"] == "/dev/null"
    changes.undo(root, home)
    after = read_tree(root)
    assert {name: after[name] for name in before} == before
    assert {name for name in after if "overnight" in name} == set()


def test_undo_keeps_later_changes(tmp_path: pathlib.Path) -> None:
    root, home = tmp_path / "image", tmp_path / "home"
    images.deep_learning(root)
    change(root, home)
    (root / MASK).unlink()
    (root / MASK).write_text("[Service]\nExecStart=/mine\n")
    (root / fixes.PRESET.lstrip("/")).write_text("enable mine.service\n")
    _, left = changes.undo(root, home)
    assert len(left) == 2
    assert "/mine" in (root / MASK).read_text()


def test_a_local_unit_file_is_not_masked(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "image"
    images.deep_learning(root).file(MASK, images.ECS)
    report = audit.examine(root)
    steps, cannot = changes.plan(report, root)
    assert [step.kind for step in steps] == ["unlink", "preset"]
    assert "not masked" in cannot[0]
    # systemctl on a running host refuses it, too.
    monkeypatch.setattr(changes.systemd, "booted", lambda: True)
    steps, cannot = changes.plan(dataclasses.replace(report, live=True), root)
    assert [step.after for step in steps] == ["disable"]
    assert "not masked" in cannot[0]
    for form in (fixes.Form.SHELL, fixes.Form.PACKER, fixes.Form.CLOUD_INIT):
        commands = fixes.write_fix(report, form)
        assert "disable" in commands
        assert "systemctl mask" not in commands
        assert "systemctl, mask" not in commands
        assert f"# by hand: {cannot[0]}" in commands


def test_nothing_is_written_outside_a_hostile_image(tmp_path: pathlib.Path) -> None:
    root, home, outside = tmp_path / "image", tmp_path / "home", tmp_path / "outside"
    outside.mkdir()
    images.deep_learning(root)
    (root / "etc/systemd/system-preset").symlink_to(outside)
    with pytest.raises(errors.CannotError, match="could not write"):
        change(root, home)
    assert list(outside.iterdir()) == []
    changes.undo(root, home)  # the steps before it
    assert (root / LINK).is_symlink()
    (root / "etc/systemd/system-preset").unlink()
    (root / "etc/systemd/system-preset").mkdir()
    (outside / "victim").write_text("mine")
    (root / fixes.PRESET.lstrip("/")).symlink_to(outside / "victim")
    change(root, home)
    assert (outside / "victim").read_text() == "mine"


def test_a_damaged_record_is_an_error(tmp_path: pathlib.Path) -> None:
    root, home = tmp_path / "image", tmp_path / "home"
    images.deep_learning(root)
    change(root, home)
    record = next((home / "audit").iterdir())
    assert json.loads(record.read_text())["version"] == 1
    record.write_text("{")
    with pytest.raises(errors.CannotError, match="cannot be read"):
        changes.undo(root, home)


@pytest.mark.parametrize(
    "step",
    [
        changes.Step("preset", "/etc/cron.d/x", "* * * * * root id\n", ""),
        changes.Step("unlink", "/etc/ld.so.preload", "/tmp/x.so", ""),
        changes.Step("unlink", "/etc/systemd/system/../../cron.d/x", "/tmp/x", ""),
        changes.Step("mask", "/etc/shadow", "", "/dev/null"),
        changes.Step("mask", "/etc/systemd/system/a/b.service", "", "/dev/null"),
        changes.Step("mask", "/etc/systemd/system/ssh.service", "", "/tmp/x.service"),
        changes.Step("systemctl", "ssh.service", "", "start"),
        changes.Step("systemctl", "/tmp/x.service", "enabled", "disable"),
        changes.Step("write", "/etc/systemd/system/x.service", "", ""),
    ],
    ids=str,
)
def test_undo_touches_nothing_that_apply_never_changes(
    tmp_path: pathlib.Path, step: changes.Step
) -> None:
    root, home = tmp_path / "image", tmp_path / "home"
    images.deep_learning(root)
    change(root, home)
    before = read_tree(root)
    record = changes._record(root, home)
    changes._save(record, root, [*changes._load(record), step])
    with pytest.raises(errors.CannotError, match="cannot be read") as raised:
        changes.undo(root, home)
    assert "is not a change that audits make" in raised.value.why
    assert read_tree(root) == before


def test_every_form_of_the_fix_names_the_unit(tmp_path: pathlib.Path) -> None:
    images.deep_learning(tmp_path)
    report = audit.examine(tmp_path)
    preset, shell, packer, cloud = (fixes.write_fix(report, form) for form in fixes.Form)
    assert preset.splitlines()[-1] == "disable ecs.service"
    assert "systemctl mask -- ecs.service\n" in shell
    assert '"sudo systemctl disable -- ecs.service",' in packer
    assert cloud.startswith("#cloud-config\n")
    assert '- [systemctl, mask, --now, --, "ecs.service"]' in cloud


def test_a_hostile_name_is_quoted_in_every_form() -> None:
    from overnight.model.audit import Belonging, Finding, Report, Risk

    name = "a\nrm -rf x;$(reboot)${y}.service"
    finding = Finding("x", name, Risk.HIGH, "w\nat", "why", "fix", (), turn_off=True)
    unknown = Belonging("", "", (), {})
    report = Report("h", "/", False, 0, 1, 1, unknown, unknown, (finding,), ())
    assert "disable -- 'a\nrm -rf x;$(reboot)${y}.service'" in fixes.write_fix(
        report, fixes.Form.SHELL
    )
    assert "$${y}" in fixes.write_fix(report, fixes.Form.PACKER)
    assert "\nrm" not in fixes.write_fix(report, fixes.Form.CLOUD_INIT)


def test_systemctl_is_called_on_a_running_host(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake systemctl records its arguments, because PID 1 of the test host is not systemd."""
    log = tmp_path / "log"
    fake = tmp_path / "bin/systemctl"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\n[ "$1" != mask ] || [ ! -e {tmp_path}/fail ]\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    steps = (
        changes.Step("systemctl", "ecs.service", "enabled", "disable"),
        changes.Step("systemctl", "ecs.service", "enabled", "mask"),
    )
    changes.apply(steps, pathlib.Path("/"), tmp_path / "home")
    changes.undo(pathlib.Path("/"), tmp_path / "home")
    assert log.read_text().splitlines() == [
        "disable -- ecs.service",
        "mask -- ecs.service",
        "unmask -- ecs.service",
        "enable -- ecs.service",
    ]
    (tmp_path / "fail").touch()
    with pytest.raises(errors.CannotError, match=r"mask ecs\.service failed"):
        changes.apply(steps, pathlib.Path("/"), tmp_path / "home")


def test_a_second_apply_waits_and_keeps_the_record_of_the_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, home = tmp_path / "image", tmp_path / "home"
    images.deep_learning(root)
    before = read_tree(root)
    do, wait = changes._do, fcntl.flock
    second = changes.Step("mask", "/etc/systemd/system/second.service", "", "/dev/null")
    other = threading.Thread(target=changes.apply, args=((second,), root, home))
    waits = threading.Event()

    def flock(handle: int, operation: int) -> None:
        if threading.current_thread() is other:
            waits.set()
        wait(handle, operation)

    def start_other_and_do(tree: Tree, step: changes.Step) -> None:
        if not other.ident:
            other.start()
            assert waits.wait(10)
        assert step == second or threading.current_thread() is not other
        do(tree, step)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(changes, "_do", start_other_and_do)
    change(root, home)
    other.join()
    undone, left = changes.undo(root, home)
    assert (len(undone), left, read_tree(root)) == (4, (), before)
