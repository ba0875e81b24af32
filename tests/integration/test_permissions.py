"""Who may read a data home: its owner, and a group if the administrator chooses one."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import nights
import otherusers
import pytest

from overnight import errors
from overnight.app import pools
from overnight.app.audit import changes
from overnight.interfaces import cli
from overnight.model import data_home
from overnight.store import loads

READERS = 61235


@pytest.fixture
def open_folder() -> Iterator[pathlib.Path]:
    """A folder that every user can enter; pytest's folders are only for their owner."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="overnight-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def lax_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def exposed(home: pathlib.Path, bits: int = 0o077) -> dict[str, str]:
    """Return what has one of the mode bits, with its mode."""
    modes = {str(path): path.lstat().st_mode & 0o7777 for path in (home, *home.rglob("*"))}
    return {path: oct(mode) for path, mode in modes.items() if mode & bits}


@pytest.mark.usefixtures("lax_umask")
def test_everything_that_is_stored_is_private_under_a_lax_umask(tmp_path: pathlib.Path) -> None:
    home, image = tmp_path / "new/home", tmp_path / "image"
    image.mkdir()
    nights.build(home)
    loads.LoadWriter(home, "db-7", "cpu", (0,), 1, {}).close()
    changes.apply((changes.Step("mask", "/etc/systemd/system/x.service", "", "/dev/null"),), image, home)  # fmt: skip
    assert pools.Pools(home).plane.list() == ()
    for words in (
        ["age", "uptime"],
        ["snapshot"],
        ["store", "pin", "night", "--why", "a test"],
        ["record", "--for", "1s", "--signals-only"],
    ):
        assert cli.main(["--home", str(home), *words]) == 0
    assert exposed(home) == {}
    names = {path.name for path in home.iterdir()}
    assert names == {"arms.jsonl", "audit", "loads", "pools", "profiles", "signals", "snapshots", "spool"}  # fmt: skip


@pytest.mark.needs_perf
@pytest.mark.together
@pytest.mark.usefixtures("lax_umask")
def test_recorded_stacks_are_private_under_a_lax_umask(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    assert cli.main(["--home", str(home), "record", "--for", "2s", "--profiles-only"]) == 0
    assert list(home.glob("profiles/v1/*/*/*/samples.parquet"))
    assert exposed(home) == {}


@pytest.mark.needs_root
@pytest.mark.parametrize("group", [READERS, 0], ids=["reader", "stranger"])
def test_only_the_group_of_a_shared_home_reads_it(open_folder: pathlib.Path, group: int) -> None:
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, 0, READERS)
    home.chmod(0o2750)
    nights.build(home)
    record = [sys.executable, "-m", "overnight", "--home", str(home), "age", "uptime"]
    subprocess.run(record, capture_output=True, check=True)
    assert exposed(home, 0o027) == {}
    assert home.stat().st_mode & 0o7777 == 0o2750
    for words in (["events"], ["top"], ["heatmap"], ["diagnose", "--host", "db-7"]):
        arguments = ["--home", str(home), *words, "-O", "json"]
        user = otherusers.command(open_folder, *arguments, uid=otherusers.STRANGER, group=group)
        done = subprocess.run(user, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        assert (done.returncode in (0, 1)) == bool(group), (words, done.stderr)
        assert ("db-7" in done.stdout) == bool(group)


@pytest.mark.usefixtures("lax_umask")
def test_files_of_o_are_private_under_a_lax_umask(tmp_path: pathlib.Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    event = nights.build(home)
    out.mkdir()
    out.chmod(0o2775)
    for name, words in {
        "report.html": ["diagnose", event.id, "-O", "html"],
        "report.json": ["diagnose", event.id, "-O", "json"],
        "night.svg": ["heatmap", "-O", "svg"],
        "stacks.pb.gz": ["flame", "-O", "pprof"],
        "top.json": ["top", "-O", "json"],
        "cpu.csv": ["cpu", "--host", "db-7", "--every", "1m", "-O", "csv"],
        "evidence.overnight": ["bundle", "create", event.id],
        "host.json": ["snapshot"],
    }.items():
        assert cli.main(["--home", str(home), *words, "-o", str(out / name)]) == 0, words
        assert (out / name).stat().st_mode & 0o777 == 0o600, words
    assert len(list(out.iterdir())) == 8


@pytest.mark.needs_root
@pytest.mark.parametrize("hidden", ["home", "parent", "signals"])
def test_what_a_user_may_not_read_is_named_with_sudo(
    open_folder: pathlib.Path, hidden: str
) -> None:
    home = open_folder / "parent" / "home"
    nights.build(home)
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    home.parent.chmod(0o755)
    {"home": home, "parent": home.parent, "signals": home / "signals"}[hidden].chmod(0o700)
    for words in (
        ["events", "--kind", "x"],
        ["cpu"],
        ["diagnose"],
        ["pool", "list"],
        ["store", "check"],
    ):
        if hidden == "signals" and words[0] == "pool":
            continue
        user = otherusers.command(open_folder, "--home", str(home), *words)
        done = subprocess.run(user, capture_output=True, text=True, check=False)
        assert done.returncode == 3, (words, done.stderr)
        assert f"do:    sudo overnight --home {home} {' '.join(words)}" in done.stderr, done.stderr


@pytest.mark.needs_root
def test_a_user_who_is_not_root_undoes_and_leaves_nothing(open_folder: pathlib.Path) -> None:
    home = open_folder / "user"
    home.mkdir(mode=0o700)
    os.chown(home, otherusers.NOBODY, otherusers.NOBODY)
    state = home / "state"
    environment = {name: value for name, value in os.environ.items() if name != "OVERNIGHT_UNDO"}
    for words in (["dentries", "1000"], ["--undo"]):
        arguments = ["--home", str(home / "data"), "age", *words, "--yes", "-O", "json"]
        done = subprocess.run(
            otherusers.command(open_folder, *arguments),
            env={**environment, "XDG_STATE_HOME": str(state)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        if words != ["--undo"]:
            assert [path.suffix for path in (state / "overnight/undo").iterdir()] == [".undo"]
            assert exposed(state) == {}
            created = pathlib.Path(json.loads(done.stdout)["where"])
            assert created.is_dir()
    assert not created.exists()
    assert list(state.iterdir()) == []


@pytest.mark.needs_root
@pytest.mark.parametrize("more", [[], ["--allow-partial"]], ids=["asked for all", "partial"])
@pytest.mark.parametrize("place", ["user", "root"])
def test_a_user_without_permission_is_told_so_before_anything_is_recorded(
    open_folder: pathlib.Path, more: list[str], place: str
) -> None:
    home = open_folder / "folder"
    home.mkdir(mode=0o777)
    if place == "user":
        os.chown(home, otherusers.STRANGER, otherusers.STRANGER)
    home.chmod(0o1777)
    words = ["--home", str(home / "data"), "record", "--for", "2s", *more]
    done = subprocess.run(
        otherusers.command(open_folder, *words, uid=otherusers.STRANGER),
        env={**os.environ, "COLUMNS": "60"}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    said = " ".join(done.stderr.split())
    assert "cannot record stacks (perf_event_open: E" in said
    assert "the kernel log (Operation not permitted)" in said
    assert done.returncode == (0 if more else errors.ExitCode.CANNOT)
    assert ("recording the rest" in said) == bool(more)
    assert (home / "data").exists() == bool(more)
    assert "show the stacks" not in done.stdout
    if more:
        assert f"(see `overnight --home {home}/data doctor`)" in done.stdout
        return
    # The same recording, and in that data home only where root could use it.
    named = f"--home {home}/data " * (place == "root")
    assert f"do: `sudo overnight {named}record --for 2s`, or" in said
    assert f"`overnight --home {home}/data doctor`" in said
    try:
        data_home.prepare(home / "data")
    except errors.CannotError:
        assert not named
    else:
        assert named
