from __future__ import annotations

import os
import pathlib
import tomllib

import pytest

from overnight import errors
from overnight.agent import task_config
from overnight.model.host_changes import Builtin

EXAMPLE = "\n".join(
    line[4:] for line in (task_config.__doc__ or "").splitlines() if line.startswith("    ")
)


def test_the_example_is_valid() -> None:
    config = task_config.parse(tomllib.loads(EXAMPLE))
    assert "record" in config.allow
    assert "load" not in config.allow
    assert config.labels == {"rack": "b12"}
    command, builtin = (config.changes[name] for name in ("mask-scout", "mask-ember"))
    assert isinstance(command, task_config.Command)
    assert command.undo[1] == "unmask"
    assert builtin == task_config.BuiltinChange(Builtin.MASK_UNIT, ("ember-*.service",))
    assert config.instruments["softnet"].seconds == 60


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[task]", r"\[task\] is not one of"),
        ("tasks = 1", r"\[tasks\] is not one of"),
        ("[tasks]\nalow = []", "unknown key 'alow'"),
        ("[tasks]\nallow = ['shell']", "'shell'; kinds are record,"),
        ("[tasks]\nallow = 'record'", "allow is not a list"),
        ("[tasks]\nmax_seconds = 0", "max_seconds"),
        ("[labels]\nrack = 3", "label rack"),
        ("[instruments.x]\nargv = 'ls /'", "not a list of texts"),
        ("[instruments.x]\nargv = []", "not a list of texts"),
        ("[instruments.x]\nargv = ['ls']", "not an absolute path"),
        ("[instruments.x]\nargv = ['/bin/ls']\nundo = ['/bin/ls']", "other keys"),
        ("[instruments.x]\nargv = ['/bin/ls']\nseconds = true", "seconds of"),
        ("[instruments]\nx = 3", "other keys"),
        ("[tasks]\ninstruments = 'all'", "not a list of names"),
        ("[tasks]\ninstruments = [3]", "not a list of names"),
        ("[changes.x]\nargv = ['/bin/ls']", r"undo of \[changes.x\] is missing"),
        ("[changes.x]\nargv = ['/bin/ls']\nundo = ['rm']", "not an absolute path"),
        ("[changes.x]\nbuiltin = 'shell'", r"builtin of \[changes.x\] is 'shell'; use purge,"),
        ("[changes.x]\nbuiltin = ['purge']", "builtin of"),
        ("[changes.x]\nbuiltin = 'purge'\nargv = ['/bin/ls']", "other keys than builtin, targets"),
        ("[changes.x]\nbuiltin = 'mask-unit'\ntargets = 'a.service'", "not a list of patterns"),
        ("[changes.x]\nbuiltin = 'mask-unit'\ntargets = ['']", "not a list of patterns"),
        ("[changes.x]\nbuiltin = 'reboot'\ntargets = ['*']", "has targets, but reboot takes none"),
        ("[changes.x]\nbuiltin = 'reboot'\nseconds = 0", "seconds of"),
    ],
)
def test_mistakes_are_named(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        task_config.parse(tomllib.loads(text))


@pytest.mark.parametrize(
    ("builtin", "patterns", "target", "problem"),
    [
        ("mask-unit", ["ember-*.service"], "ember-scout.service", ""),
        ("mask-unit", ["ember-*.service"], "sshd.service", "no pattern of targets allows 'sshd"),
        ("mask-unit", ["*"], "../sshd.service", "is not a service"),
        ("mask-unit", [], "ember-scout.service", "no pattern of targets allows"),
        ("mask-unit", ["*"], "", "takes a service"),
        ("cap-cpu", ["/batch/*"], "/batch/a 50%", ""),
        ("cap-cpu", ["/batch/*"], "/batch/../x 50%", "is not a unit, or a cgroup"),
        ("cap-cpu", ["/batch/* 50%"], "/batch/a 50%", "no pattern of targets allows '/batch/a'"),
        ("move-irq", ["4[0-9]"], "45 3", ""),
        ("move-irq", ["4[0-9]"], "50 3", "no pattern"),
        ("purge", [], "", ""),
        ("purge", [], "all", "takes no target"),
    ],
)
def test_a_target_needs_a_pattern(builtin: str, patterns: list[str], target: str, problem: str) -> None:  # fmt: skip
    change = task_config.BuiltinChange(Builtin(builtin), tuple(patterns))
    if not problem:
        assert change.check(target).target == target
        return
    with pytest.raises(ValueError, match=problem):
        change.check(target)


def test_without_a_file_only_harmless_tasks_are_allowed(tmp_path: pathlib.Path) -> None:
    config = task_config.read(tmp_path / "agent.toml")
    assert config.allow == {"snapshot", "upload-window"}
    assert not config.instruments
    assert not config.changes


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "agent.toml"
    path.write_text(EXAMPLE)
    path.chmod(0o644)
    tmp_path.chmod(0o755)
    return path


@pytest.mark.needs_root
def test_a_file_of_root_is_read(file: pathlib.Path) -> None:
    assert task_config.read(file).max_seconds == 3600


@pytest.mark.needs_root
@pytest.mark.parametrize("change", ["owner", "group", "others", "folder", "link"])
def test_a_file_that_others_can_change_is_refused(file: pathlib.Path, change: str) -> None:
    match change:
        case "owner":
            os.chown(file, 12345, 0)
        case "group":
            file.chmod(0o664)
        case "others":
            file.chmod(0o646)
        case "folder":
            file.parent.chmod(0o777)
        case "link":
            file.rename(file.with_name("other"))
            file.symlink_to("other")
    with pytest.raises(errors.CannotError) as caught:
        task_config.read(file)
    if change != "link":
        assert "chown root:root" in caught.value.todo
        assert "chmod go-w" in caught.value.todo


@pytest.mark.needs_root
def test_a_file_that_is_not_valid_is_refused(file: pathlib.Path) -> None:
    file.write_text("[tasks\n")
    with pytest.raises(errors.CannotError, match="is not valid"):
        task_config.read(file)
