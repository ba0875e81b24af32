"""Unit states read by overnight and by systemd agree on the same trees."""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import subprocess

import images
import pytest

from overnight.app import audit
from overnight.app.audit import fixes
from overnight.sources.image import presets, tree, units

pytestmark = pytest.mark.skipif(shutil.which("systemctl") is None, reason="needs systemctl")

NAMES = ("a.service", "b.service", "a@.service", "a@x.service", "a@y.service", "c.timer", "b-c-d.service")  # fmt: skip
FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")  # fmt: skip
PATTERNS = (*NAMES, "*", "a*", "[ab].service", "[^a].service", "a@?.service")


def read_with_systemctl(root: pathlib.Path) -> dict[str, tuple[str, str | None]]:
    command = ["systemctl", f"--root={root}", "list-unit-files", "-o", "json"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return {
        unit["unit_file"]: (unit["state"], unit["preset"]) for unit in json.loads(process.stdout)
    }


def read_with_overnight(root: pathlib.Path) -> dict[str, tuple[str, str]]:
    image = tree.Tree(root)
    unit_files = units.Units(image)
    rules = presets.read_presets(image, lambda *_: None)
    return {
        name: (unit_files.unit(name).state, presets.decide(rules, name)[0])
        for name in unit_files.names()
    }


def assert_agree(root: pathlib.Path) -> None:
    expected = read_with_systemctl(root)
    # systemd omits the preset of static and alias units.
    states = {name: (state, preset if expected.get(name, ("", ""))[1] is not None else None) for name, (state, preset) in read_with_overnight(root).items()}  # fmt: skip
    assert states == expected


def test_they_agree_on_the_incident_image(tmp_path: pathlib.Path) -> None:
    images.deep_learning(tmp_path)
    assert read_with_systemctl(tmp_path)["ecs.service"] == ("enabled", "enabled")
    assert_agree(tmp_path)


def test_they_agree_on_a_plain_debian(tmp_path: pathlib.Path) -> None:
    images.debian(tmp_path)
    assert_agree(tmp_path)


def test_they_agree_on_this_machine() -> None:
    states = read_with_overnight(pathlib.Path("/"))
    expected = read_with_systemctl(pathlib.Path("/"))
    assert len(expected) > 20
    assert {name: state for name, (state, _) in states.items()} == {name: state for name, (state, _) in expected.items()}  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_they_agree_on_random_trees(tmp_path: pathlib.Path, seed: int) -> None:
    for number in range(12):
        root = tmp_path / str(number)
        build(random.Random(seed * 1000 + number), root)
        assert_agree(root)


def build(rng: random.Random, root: pathlib.Path) -> None:
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    if rng.random() < 0.5:
        (root / "lib").symlink_to("usr/lib")
    for _ in range(rng.randint(1, 9)):
        _unit(rng, root, root / rng.choice(FOLDERS) / rng.choice(NAMES))
    for _ in range(rng.randint(0, 5)):
        name = rng.choice(NAMES)
        target = name if rng.random() < 0.6 else rng.choice(NAMES)
        kind = rng.choice(("wants", "requires"))
        place = root / rng.choice(FOLDERS) / f"multi-user.target.{kind}" / name
        place.parent.mkdir(exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(f"/{rng.choice(FOLDERS)}/{target}")
    for _ in range(rng.randint(0, 2)):
        folder = root / rng.choice(FOLDERS) / f"{rng.choice(NAMES)}.d"
        folder.mkdir(exist_ok=True)
        install = rng.choice(("WantedBy=", "Alias=zz.service", "WantedBy=k.target"))
        (folder / "x.conf").write_text(f"[Install]\n{install}\n")
    for _ in range(rng.randint(0, 3)):
        folder = root / rng.choice(FOLDERS).replace("/system", "/system-preset", 2).replace("system-presetd", "systemd")  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{rng.choice(('enable', 'disable', '  enable', '# enable', '; disable'))} {rng.choice(PATTERNS)}" for _ in range(rng.randint(1, 4))]  # fmt: skip
        (folder / rng.choice(("10-a.preset", "20-b.preset", "99.preset"))).write_text("\n".join(lines) + "\n")  # fmt: skip


def _unit(rng: random.Random, root: pathlib.Path, path: pathlib.Path) -> None:
    if path.exists() or path.is_symlink():
        return
    kind = rng.random()
    if kind < 0.6:
        lines = ["[Service]", "ExecStart=/bin/true", "[Install]"]
        for share, line in ((0.7, "WantedBy=multi-user.target"), (0.2, f"Alias={rng.choice(NAMES)}"), (0.2, f"Also={rng.choice(NAMES)}"), (0.3, "DefaultInstance=x")):  # fmt: skip
            if rng.random() < share:
                lines.append(line)
        path.write_text("" if rng.random() < 0.1 else "\n".join(lines) + "\n")
    elif kind < 0.7:
        path.symlink_to("/dev/null")
    elif kind < 0.9:
        folder = rng.choice((f"/{rng.choice(FOLDERS)}/", "", "../" * 9 + f"{rng.choice(FOLDERS)}/"))  # fmt: skip
        path.symlink_to(folder + rng.choice(NAMES))
    else:
        (root / "opt").mkdir(exist_ok=True)
        (root / "opt" / path.name).write_text("[Install]\nWantedBy=x.target\n")
        path.symlink_to(f"/opt/{path.name}")


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("command", "missing"),
    [("/opt/gone", True), ("/opt/here --x", False), ('"/opt/he\\x72e" a', False), ("/opt/gone \\\n --x", True), ("-/opt/gone", False)],
)  # fmt: skip
def test_missing_programs_are_those_of_systemd_analyze(
    tmp_path: pathlib.Path, command: str, missing: bool
) -> None:
    image = images.Image(tmp_path).program("opt/here")
    image.unit("a.service", f"[Service]\nExecStart={command}\n[Install]\nWantedBy=multi-user.target\n", enabled=True)  # fmt: skip
    image.file("usr/lib/systemd/system/sysinit.target", "[Unit]\nDescription=x\n")
    # It leaves a time stamp in /run/systemd; a separate mount namespace discards it.
    script = f"mount -t tmpfs tmpfs /run && exec systemd-analyze --root={tmp_path} verify a.service"
    process = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    refused = "is not executable" in process.stderr
    findings = [finding for finding in audit.examine(tmp_path).findings if finding.id == "missing-binary" and finding.risk != "low"]  # fmt: skip
    assert refused == missing or command.startswith("-")
    assert bool(findings) == missing


@pytest.mark.needs_root
def test_systemd_reads_the_mask_and_preset_of_apply(tmp_path: pathlib.Path) -> None:
    from overnight.interfaces import cli

    root, home = tmp_path / "image", tmp_path / "home"
    images.deep_learning(root)
    assert cli.main(["--home", str(home), "audit", "--root", str(root), "--apply", "--yes"]) == 0
    assert read_with_systemctl(root)["ecs.service"] == ("masked", "disabled")
    assert_agree(root)
    preset = ["systemctl", f"--root={root}", "preset-all"]
    subprocess.run(preset, capture_output=True, check=False, timeout=60)
    assert read_with_systemctl(root)["ecs.service"][0] == "masked"
    assert str((root / "etc/systemd/system/ecs.service").readlink()) == "/dev/null"
    assert cli.main(["--home", str(home), "audit", "--root", str(root), "--undo", "--yes"]) == 0
    assert read_with_systemctl(root)["ecs.service"] == ("enabled", "enabled")


def test_the_shell_fix_turns_off_every_unit_also_beside_a_local_one(tmp_path: pathlib.Path) -> None:
    """The command `systemctl mask` refuses a unit whose file is where the mask would be."""
    root = tmp_path / "image"
    image = images.deep_learning(root)
    image.file("etc/systemd/system/ecs.service", images.ECS)
    image.file("sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
    image.unit("google-guest-agent.service", images.SSH, enabled=True)
    systemctl = tmp_path / "bin/systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(f'#!/bin/sh\nexec {shutil.which("systemctl")} --root={root} "$@"\n')
    systemctl.chmod(0o755)
    report = audit.examine(root)
    assert report.to_turn_off == ("ecs.service", "google-guest-agent.service")
    script = fixes.write_fix(report, fixes.Form.SHELL)
    environment = {**os.environ, "PATH": f"{systemctl.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh"], input=script, text=True, env=environment, check=True, timeout=60)
    states = read_with_systemctl(root)
    assert states["ecs.service"][0] == "disabled"
    assert states["google-guest-agent.service"][0] == "masked"
