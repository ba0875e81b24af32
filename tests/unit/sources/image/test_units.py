from __future__ import annotations

import pathlib

import images
import pytest

from overnight.sources.image import presets, tree, units


def load(root: pathlib.Path) -> units.Units:
    return units.Units(tree.Tree(root))


def test_the_first_folder_wins_and_drop_ins_are_sorted_by_name(tmp_path: pathlib.Path) -> None:
    image = images.Image(tmp_path)
    image.file("usr/lib/systemd/system/a-b.service", "[Service]\nExecStart=/vendor\nRestart=no\n")
    image.file("etc/systemd/system/a-b.service", "[Service]\nExecStart=/admin\n")
    image.file("usr/lib/systemd/system/service.d/10-x.conf", "[Service]\nRestart=always\n")
    image.file("usr/lib/systemd/system/a-.service.d/20-y.conf", "[Service]\nExecStart=/second\n")
    image.file(
        "etc/systemd/system/a-b.service.d/30-z.conf", "[Service]\nExecStart=\nExecStart=/last\n"
    )
    image.file("usr/lib/systemd/system/a-b.service.d/30-z.conf", "[Service]\nRestart=no\n")
    image.link("etc/systemd/system/a-b.service.d/20-y.conf", "/dev/null")
    unit = load(tmp_path).unit("a-b.service")
    assert unit.files == (
        "/etc/systemd/system/a-b.service",
        "/usr/lib/systemd/system/service.d/10-x.conf",
        "/etc/systemd/system/a-b.service.d/30-z.conf",
    )
    assert [entry.value for entry in unit.settings.all("Service", "ExecStart")] == ["/last"]
    assert unit.settings.value("Service", "Restart") == "always"


def test_an_instance_has_its_template_and_its_own_drop_ins(tmp_path: pathlib.Path) -> None:
    image = images.debian(tmp_path)
    image.file("etc/systemd/system/getty@tty1.service.d/x.conf", "[Service]\nRestart=no\n")
    unit = load(tmp_path).unit("getty@tty1.service")
    assert (unit.state, unit.path) == ("enabled", "/lib/systemd/system/getty@.service")
    assert unit.settings.value("Service", "Restart") == "no"
    assert unit.settings.value("Service", "RestartSec") == "0"


def test_aliases_masks_and_missing_units(tmp_path: pathlib.Path) -> None:
    image = images.debian(tmp_path)
    image.link("etc/systemd/system/gone.service", "/dev/null")
    image.link("etc/systemd/system/multi-user.target.wants/never.service", "/usr/lib/x")
    loaded = load(tmp_path)
    assert {name: loaded.unit(name).state for name in ("sshd.service", "ssh.service", "gone.service", "never.service", "systemd-networkd.service")} == {
        "sshd.service": "alias",
        "ssh.service": "enabled",
        "gone.service": "masked",
        "never.service": "not-found",
        "systemd-networkd.service": "disabled",
    }  # fmt: skip
    assert "never.service" in {unit.name for unit in loaded.all()}


def test_links_to_a_units_own_template_and_own_name(tmp_path: pathlib.Path) -> None:
    image = images.debian(tmp_path)
    image.link("etc/systemd/system/getty@tty7.service", "/usr/lib/systemd/system/getty@.service")
    image.unit("same.service", images.SSH)
    image.link("etc/systemd/system/same.service", "/lib/systemd/system/same.service")
    image.link("etc/systemd/system/self.service", "self.service")
    loaded = load(tmp_path)
    assert loaded.unit("getty@tty7.service").state == "enabled"
    assert loaded.unit("same.service").state == "bad"
    assert loaded.unit("same.service").settings.value("Service", "Restart") == "on-failure"
    assert loaded.unit("self.service").state == "bad"


@pytest.mark.timeout(20)
def test_a_hostile_image_reveals_nothing_from_outside(tmp_path: pathlib.Path) -> None:
    root, outside = tmp_path / "image", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    images.hostile(root, outside)
    loaded = load(root)
    every = loaded.all()
    assert "leaked" not in repr([(unit, unit.settings._by_key) for unit in every])
    assert loaded.unit("absolute.service").state == "bad"
    assert loaded.unit("one.service").state == "bad"
    assert loaded.unit("fifo.service").state in ("bad", "not-found")
    assert any("larger than" in why for why in loaded.gaps.values())


PRESETS = (
    presets.parse_presets("enable a.service\ndisable b*.service\nenable t@.service x y\n", "10")
    + presets.parse_presets("disable a.service\nignore i.service\ndisable *\n", "20")
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "decision"),
    [("a.service", "enabled"), ("bb.service", "disabled"), ("t@x.service", "enabled"), ("t@z.service", "disabled"), ("t@.service", "enabled"), ("i.service", "ignored"), ("z.timer", "disabled")],
)  # fmt: skip
def test_the_first_matching_preset_decides(name: str, decision: str) -> None:
    assert presets.decide(PRESETS, name)[0] == decision


def test_a_unit_without_a_preset_is_enabled() -> None:
    assert presets.decide((), "a.service") == ("enabled", None)


def test_preset_files_are_sorted_by_name_and_the_first_folder_wins(
    tmp_path: pathlib.Path,
) -> None:
    image = images.Image(tmp_path)
    image.file("usr/lib/systemd/system-preset/10-a.preset", "enable vendor.service\n")
    image.file("etc/systemd/system-preset/10-a.preset", "enable admin.service\n")
    image.file("etc/systemd/system-preset/50-b.preset", "disable *\n")
    image.file("usr/lib/systemd/system-preset/20-c.preset", "enable c.service\n")
    image.file("usr/lib/systemd/system-preset/30-off.preset", "enable off.service\n")
    image.link("etc/systemd/system-preset/30-off.preset", "/dev/null")
    image.file("usr/lib/systemd/system-preset/readme", "enable readme.service\n")
    gaps: dict[str, str] = {}
    rules = presets.read_presets(tree.Tree(tmp_path), gaps.__setitem__)
    assert [rule.pattern for rule in rules] == ["admin.service", "c.service", "*"]
    assert gaps == {}
