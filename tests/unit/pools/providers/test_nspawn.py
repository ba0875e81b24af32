"""Refusals of the nspawn provider, its locks and its trees; tests/integration boots machines."""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
from collections.abc import Callable

import pytest

from overnight import pools
from overnight.database import engine
from overnight.pools import control
from overnight.pools.providers import _capacity, _folder_lock, _images, nspawn


def order(**changes: str) -> pools.Order:
    fields = {"owner": "me", "member_id": "m-1", "pool": "ci", "template": "plain", **changes}
    return pools.Order(endpoint="http://127.0.0.1:9", token="5" * 64, **fields)


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this host can boot machines."""
    monkeypatch.setattr(nspawn.container, "require", lambda: None)


def refused(folder: pathlib.Path, refused_order: pools.Order) -> pools.ProviderError:
    with pytest.raises(pools.ProviderError) as caught:
        nspawn.create(folder).launch(refused_order)
    return caught.value


@pytest.mark.parametrize("lacks", ["root", "nspawn", "cgroups"])
def test_a_host_that_cannot_boot_machines_is_an_error_with_a_hint(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    container = nspawn.container
    monkeypatch.setattr(container.os, "geteuid", lambda: 1000 if lacks == "root" else 0)
    path = None if lacks == "nspawn" else "/usr/bin/systemd-nspawn"
    monkeypatch.setattr(container.shutil, "which", lambda _: path)
    if lacks == "cgroups":
        monkeypatch.setattr(container, "tops", lambda **_: ())
    error = refused(tmp_path, order())
    assert error.reason == "provider_not_available"
    assert "systemd-container" in error.todo
    assert "as root" in error.todo
    assert error.nothing_made
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"template": "runner"}, "template_not_found"),
        ({"template": "../../etc"}, "template_not_found"),
        ({"instance_type": "t3.micro"}, "instance_type_unknown"),
        ({"instance_type": "0G"}, "instance_type_unknown"),
        ({"instance_type": "-5M"}, "instance_type_unknown"),
        ({"member_id": "../x"}, "provider_error"),
        ({"member_id": ""}, "provider_error"),
        ({"member_id": "a.b"}, "provider_error"),
        ({"owner": "a/b"}, "provider_error"),
    ],
)
def test_an_invalid_order_creates_nothing(
    tmp_path: pathlib.Path, changes: dict[str, str], reason: str
) -> None:
    assert refused(tmp_path, order(**changes)).reason == reason
    assert list(tmp_path.iterdir()) == []


def test_an_instance_type_is_a_memory_limit() -> None:
    assert nspawn._parse_limit("") == 0
    assert nspawn._parse_limit("512M") == 512 * 1024**2
    assert nspawn._parse_limit("2G") == 2 * 1024**3


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 10**6, 10**6, 100, 10, 10, 10, 0, 255))
    monkeypatch.setattr(_capacity.os, "statvfs", lambda _: full)


def full_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_capacity.meminfo, "read_available", lambda: 5 << 20)


def no_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_capacity, "_has_watchers", lambda count: count < 4)


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize(
    ("fill", "what", "todo"),
    [
        (full_disk, "0 MiB of disk", "free some disk"),
        (full_memory, "5 MiB of memory", "free some memory"),
        (no_watchers, "inotify", "sysctl fs.inotify.max_user_instances"),
    ],
)
def test_no_capacity_has_its_reason_and_creates_nothing(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    fill: Callable[[pytest.MonkeyPatch], None],
    what: str,
    todo: str,
) -> None:
    fill(monkeypatch)
    error = refused(tmp_path, order())
    assert error.reason == "provider_quota_exceeded"
    assert what in error.what
    assert todo in error.todo
    assert error.nothing_made
    assert not (tmp_path / "pools/nspawn").exists()


def test_checking_the_capacity_leaves_no_open_files() -> None:
    def descriptors() -> set[str]:
        return {path.name for path in pathlib.Path("/proc/self/fd").iterdir()}

    before = descriptors()
    assert _capacity._has_watchers(2)
    assert _capacity.meminfo.read_available() > 0
    assert descriptors() == before


@pytest.mark.usefixtures("able")
def test_a_disk_that_fills_up_during_a_launch_is_a_quota_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(nspawn, "_plant", full)
    error = refused(tmp_path, order())
    assert (error.reason, error.nothing_made) == ("provider_quota_exceeded", True)
    assert not (tmp_path / "pools/nspawn").exists()


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("mount: root: No space left on device.", "provider_quota_exceeded"),
        ("Failed to create inotify object: Too many open files", "provider_quota_exceeded"),
        ("mount: unknown filesystem type 'overlay'.", "provider_error"),
        ("", "provider_error"),
    ],
)
def test_the_log_of_a_machine_says_why_it_did_not_boot(
    tmp_path: pathlib.Path, log: str, reason: str
) -> None:
    (tmp_path / "log").write_text(log)
    error = nspawn._not_started(tmp_path)
    assert error.reason == reason
    assert (log or "its log is empty") in error.what


def test_the_console_is_the_log_whoever_owns_the_machine(tmp_path: pathlib.Path) -> None:
    provider = nspawn.create(tmp_path)
    place = provider.members / "overnight-1/m-1"
    place.mkdir(parents=True)
    (place / "log").write_text("[FAILED] Failed to start prepare.service.\n")
    assert "prepare.service" in provider.console("m-1")
    assert provider.console("m-2") == ""
    with pytest.raises(pools.ProviderError):
        provider.console("../m-1")


def test_without_members_the_inventory_is_empty(tmp_path: pathlib.Path) -> None:
    provider = nspawn.create(tmp_path)
    assert provider.inventory("me") == []
    provider.terminate("m-never")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../x", ".hidden", "/etc", "a b", "m-1/.."])
def test_names_outside_the_folder_are_refused(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(pools.ProviderError):
        nspawn.create(tmp_path).terminate(name)


def test_an_inventory_that_fails_is_not_an_empty_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pools/nspawn/members/me/m-1").mkdir(parents=True)

    def denied(_: pathlib.Path) -> None:
        raise PermissionError("not for you")

    monkeypatch.setattr(nspawn, "find_machine", denied)
    with pytest.raises(pools.ProviderError, match="not for you"):
        nspawn.create(tmp_path).inventory("me")


def test_a_failed_launch_is_cleared_up_and_its_log_is_kept_for_a_day(
    tmp_path: pathlib.Path,
) -> None:
    members = tmp_path / "pools/nspawn/members"
    for name in ("m-half", "m-died", "m-old"):
        (members / "me" / name / "upper/etc").mkdir(parents=True)
        (members / "me" / name / "lower0").symlink_to("/etc")
    for name, when in (("m-died", None), ("m-old", (1, 1))):
        (members / "me" / name / "log").write_text("bye")
        os.utime(members / "me" / name / "log", when)
    (members / "you/m-half").mkdir(parents=True)
    assert nspawn.create(tmp_path).inventory("me") == []
    left = {str(path.relative_to(members)) for path in members.rglob("*")}
    assert left == {"me", "me/m-died", "me/m-died/log", "you", "you/m-half"}


def test_a_folder_that_cannot_be_cleared_up_stays_in_the_inventory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pools/nspawn/members/me/m-1").mkdir(parents=True)

    def stuck(_: pathlib.Path) -> None:
        raise OSError("it is not empty")

    monkeypatch.setattr(nspawn, "_clear", stuck)
    [machine] = nspawn.create(tmp_path).inventory("me")
    assert machine.member_id == "m-1"
    with pytest.raises(pools.ProviderError, match="it is not empty"):
        nspawn.create(tmp_path).terminate("m-1")


# locks


def test_a_locked_folder_is_left_alone(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "pools/nspawn/members/me/m-1"
    with _folder_lock.locked(place) as exists:
        assert exists
        assert nspawn.create(tmp_path).inventory("me") == []
        assert place.is_dir()
        with pytest.raises(BlockingIOError), _folder_lock.locked(place, wait=False):
            pytest.fail("two at once")
    assert nspawn.create(tmp_path).inventory("me") == []
    assert not place.exists()


def test_a_lock_on_a_removed_folder_is_taken_on_the_new_one(
    tmp_path: pathlib.Path,
) -> None:
    place = tmp_path / "a/b"
    waiting, inside = threading.Event(), threading.Event()

    def second() -> None:
        waiting.set()
        with _folder_lock.locked(place) as exists:
            assert exists
            (place / "mine").touch()
            inside.set()

    other = threading.Thread(target=second)
    with _folder_lock.locked(place):
        other.start()
        waiting.wait(5)
        assert not inside.is_set()
        place.rmdir()
        with contextlib.suppress(OSError):  # the other one may have made the folder again
            place.parent.rmdir()
    other.join(5)
    assert (place / "mine").exists()
    with _folder_lock.locked(tmp_path / "never", make=False) as exists:
        assert not exists


# trees


def test_a_base_tree_is_made_once_and_again_when_its_sources_change(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = _images.Images(tmp_path / "trees", tmp_path / "templates")
    first = trees.base()
    assert trees.base() == first
    agent = first / "opt/overnight/member.py"
    assert agent.read_bytes() == _images.AGENT.read_bytes()
    unit = first / "etc/systemd/system/multi-user.target.wants/overnight-member.service"
    assert "After=multi-user.target" in unit.read_text()
    other = tmp_path / "agent.py"
    other.write_text("pass\n")
    monkeypatch.setattr(_images, "AGENT", other)
    (tmp_path / "trees/new").mkdir()  # left by a process killed while making it
    assert trees.base() not in (first, tmp_path / "trees/new")
    assert first.is_dir()  # a machine may be running on it


def test_trees_are_removed_with_the_last_member(tmp_path: pathlib.Path) -> None:
    trees = _images.Images(tmp_path / "nspawn/trees", tmp_path / "templates")
    members = tmp_path / "nspawn/members"
    (members / "me/m-1").mkdir(parents=True)
    tree = trees.base()
    trees.drop_unless(members)
    assert tree.is_dir()
    (members / "me/m-1").rmdir()
    (members / "me").rmdir()
    trees.drop_unless(members)
    assert list(tmp_path.iterdir()) == []
    trees.drop_unless(members)


def test_a_template_is_a_layer_over_the_base(tmp_path: pathlib.Path) -> None:
    trees = _images.Images(tmp_path / "trees", tmp_path / "templates")
    (tmp_path / "templates/runner-2").mkdir(parents=True)
    assert trees.template("runner-2") == [tmp_path / "templates/runner-2"]
    assert trees.template("plain") == []
    with pytest.raises(pools.ProviderError, match="template 'runner-3' not found"):
        trees.template("runner-3")


def test_creating_a_pool_with_an_invalid_instance_type_is_refused(tmp_path: pathlib.Path) -> None:
    where = engine.Database(f"sqlite:///{tmp_path / 'pools.db'}")
    plane = control.ControlPlane(where, {"nspawn": nspawn.create(tmp_path)})
    fields = {"name": "lab", "template": "later", "target_size": 1, "provider": "nspawn"}
    with pytest.raises(pools.ProviderError, match="5X"):
        plane.create(**fields, instance_type="5X")
    assert plane.list() == ()
    plane.create(**fields, instance_type="512M")
    where.close()
