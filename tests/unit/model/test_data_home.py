"""A data home that another user could have changed is refused, with the command that repairs it."""

from __future__ import annotations

import os
import pathlib
import subprocess

import otherusers
import pytest

from overnight import errors
from overnight.model import data_home

MODE = 0o7777


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """A home as older versions left it."""
    home = tmp_path / "home"
    (home / "spool/pins").mkdir(parents=True)
    (home / "profiles/v1").mkdir(parents=True)
    (home / "spool/status.json").write_text("{}")
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return home


def test_a_home_of_an_older_version_is_accepted_and_closed_to_others(home: pathlib.Path) -> None:
    data_home.prepare(home)
    assert home.stat().st_mode & MODE == 0o700
    assert (home / "spool/status.json").read_text() == "{}"


def test_a_home_that_a_group_may_read_stays_readable(home: pathlib.Path) -> None:
    home.chmod(0o2755)
    data_home.prepare(home)
    assert home.stat().st_mode & MODE == 0o2750


def test_the_mode_of_a_folder_with_other_contents_is_left(home: pathlib.Path) -> None:
    (home / "etc").mkdir()
    data_home.prepare(home)
    assert home.stat().st_mode & MODE == 0o755


@pytest.mark.parametrize("path", ["", "spool", "spool/pins", "spool/status.json", "profiles/v1"])
def test_what_every_user_may_write_is_refused_until_repaired(home: pathlib.Path, path: str) -> None:
    (home / path).chmod(0o777)
    with pytest.raises(errors.CannotError, match=f"{home / path} is writable by every") as raised:
        data_home.prepare(home)
    command = raised.value.todo.partition("if you trust its contents: ")[2].replace("sudo ", "")
    subprocess.run(["sh", "-c", command], check=True)
    data_home.prepare(home)


@pytest.mark.parametrize("path", ["spool", "spool/current.json", "profiles/v1/web-1", "pools"])
def test_a_link_below_the_home_is_refused(
    home: pathlib.Path, tmp_path: pathlib.Path, path: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    if (home / path).exists():
        (home / path).rename(tmp_path / "aside")
    (home / path).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(errors.CannotError, match="is a symbolic link") as raised:
        data_home.prepare(home)
    assert f"rm {home / path}" in raised.value.todo


def test_a_link_of_ours_to_the_home_is_followed(home: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Systemd links /var/lib/NAME to /var/lib/private/NAME for a unit with DynamicUser=."""
    (tmp_path / "link").symlink_to(home)
    data_home.prepare(tmp_path / "link")
    assert home.stat().st_mode & MODE == 0o700


def test_machines_below_the_home_are_not_examined(home: pathlib.Path) -> None:
    (home / "pools/machines/m-1").mkdir(parents=True)
    (home / "pools").chmod(0o700)
    (home / "pools/machines/m-1/lower0").symlink_to("/usr")
    data_home.prepare(home)


def test_only_a_group_without_other_members_may_write(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On distributions with umask 002, folders belong to a group of the user alone."""
    home.chmod(0o775)
    monkeypatch.setattr(data_home, "_is_private_group", lambda *_: True)
    data_home.prepare(home)
    home.chmod(0o775)
    monkeypatch.setattr(data_home, "_is_private_group", lambda *_: False)
    with pytest.raises(errors.CannotError, match=f"is writable by group {os.getgid()}"):
        data_home.prepare(home)


def test_a_group_is_private_if_it_is_named_after_its_only_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names, members = {1000: "ada", 100: "users"}, {1000: ["ada"], 100: [], 1001: ["eve"]}
    ada, bob = (type("User", (), {"pw_name": n, "pw_gid": 1000})() for n in ("ada", "bob"))
    users = [ada]
    monkeypatch.setattr(data_home.pwd, "getpwuid", lambda _: ada)
    monkeypatch.setattr(data_home.pwd, "getpwall", lambda: users)

    def group(gid: int) -> object:
        return type("G", (), {"gr_name": names.get(gid, "ada"), "gr_mem": members[gid]})

    monkeypatch.setattr(data_home.grp, "getgrgid", group)
    private = data_home._is_private_group.__wrapped__
    assert [private(1000, gid) for gid in (1000, 100, 1001)] == [True, False, False]
    users.append(bob)  # it is his first group, which does not list him
    assert not private(1000, 1000)
    monkeypatch.undo()
    assert not private(61234, 61234)  # neither is known here


@pytest.mark.parametrize(("mode", "is_safe"), [(0o755, True), (0o1777, True), (0o777, False), (0o775, False), (0o1775, True)])  # fmt: skip
@pytest.mark.parametrize("place", ["home", "missing/home", "link/home", "link/../{}/home"])
def test_nobody_else_may_replace_a_folder_above_the_home(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_safe: bool, place: str
) -> None:
    monkeypatch.setattr(data_home, "_is_private_group", lambda *_: False)
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    (tmp_path / "link").symlink_to(above)
    home = above / place if place.startswith(("home", "missing")) else tmp_path / place.format("above")  # fmt: skip
    assert bool(data_home.find_unsafe_way(home)) != is_safe
    if not is_safe:
        with pytest.raises(errors.CannotError, match=f"{above} is writable by "):
            data_home.prepare(home)
        assert not home.exists()


@pytest.mark.parametrize("path", ["..", "", "spool/status.json"])
def test_what_another_user_may_write_by_an_access_control_list_is_refused(
    home: pathlib.Path, path: str
) -> None:
    """The mode has its mask as the rights of the group, here one that is the user's alone."""
    allowed = (home / path).resolve()
    otherusers.allow(allowed)
    with pytest.raises(errors.CannotError, match=f"{allowed} is writable by those in its access"):
        data_home.prepare(home)
    allowed.chmod(allowed.stat().st_mode & ~0o020)  # takes the right from the mask
    data_home.prepare(home)


@pytest.mark.parametrize(("rights", "is_safe"), [(5, True), (1, True), (7, False), (3, False)])
def test_an_access_control_list_that_lets_nobody_write_is_accepted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, rights: int, is_safe: bool
) -> None:
    """With umask 002, a web server that may read a folder has an entry, and the mask has the right of the group."""
    monkeypatch.setattr(data_home, "_is_private_group", lambda *_: True)
    tmp_path.chmod(0o775)
    otherusers.allow(tmp_path, rights=rights)
    assert tmp_path.stat().st_mode & 0o020
    assert bool(data_home.find_unsafe_way(tmp_path / "home")) is not is_safe


@pytest.mark.needs_root
def test_a_folder_of_root_that_the_users_own_group_may_write_is_accepted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a service: `install -d -g app -m 775 /srv/app`."""
    tmp_path.chmod(0o775)
    monkeypatch.setattr(data_home.os, "geteuid", lambda: 4711)
    private = {(4711, os.getgid())}
    monkeypatch.setattr(data_home, "_is_private_group", lambda uid, gid: (uid, gid) in private)
    assert data_home.find_unsafe_way(tmp_path / "home") == ""
    private.clear()
    assert "is writable by group" in data_home.find_unsafe_way(tmp_path / "home")


@pytest.mark.needs_root
def test_a_folder_that_another_user_creates_above_a_missing_home_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder such as /tmp, between the check and the creation of the home."""
    tmp_path.chmod(0o1777)
    home = tmp_path / "missing/home"

    def create(_: pathlib.Path) -> None:
        home.mkdir(parents=True)
        os.chown(home.parent, otherusers.STRANGER, -1)

    monkeypatch.setattr(data_home.files, "make_folder", create)
    with pytest.raises(errors.CannotError, match=f"{home.parent} belongs to user"):
        data_home.prepare(home)


def test_a_link_above_the_home_leads_through_the_folders_of_its_target(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "open/inner").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to(tmp_path / "open/inner")
    assert data_home.find_unsafe_way(tmp_path / "one/home").startswith(f"{tmp_path}/open is writable")  # fmt: skip
    (tmp_path / "open").chmod(0o755)
    assert data_home.find_unsafe_way(tmp_path / "one/home") == ""


def test_links_in_a_circle_are_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(errors.MissingPermissionError):
        data_home.prepare(tmp_path / "one/home")


@pytest.mark.needs_root
def test_a_folder_or_link_of_another_user_above_the_home_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o1755)
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("theirs", "link"):
        os.chown(tmp_path / name, 61234, -1, follow_symlinks=False)
        with pytest.raises(errors.CannotError, match=f"{tmp_path / name} belongs to user 61234"):
            data_home.prepare(tmp_path / name / "home")
    assert not any((tmp_path / "theirs").iterdir())
