"""Stored files are private whatever the umask, and readable by a group only where its folder says so."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator

import exhaustion
import pytest

from overnight.model import files


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def store(folder: pathlib.Path) -> dict[str, int]:
    """Store a file in each way; return the modes below `folder`."""
    files.make_folder(folder / "a/b")
    files.write(folder / "a/plain", "text")
    files.write_atomically(folder / "a/atomic", "text")
    files.append_lines(folder / "a/b/lines", [b"text\n"])
    return {str(path.relative_to(folder)): mode(path) for path in folder.rglob("*")}


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_what_is_stored_is_private_under_every_umask(tmp_path: pathlib.Path, mask: int) -> None:
    with umask(mask):
        modes = store(tmp_path)
    expected = {"a": 0o700, "a/b": 0o700, "a/plain": 0o600, "a/atomic": 0o600, "a/b/lines": 0o600}
    assert modes == expected


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_the_group_of_a_shared_folder_may_read_and_not_write(
    tmp_path: pathlib.Path, mask: int
) -> None:
    tmp_path.chmod(0o2750)
    with umask(mask):
        modes = store(tmp_path)
    expected = {"a": 0o2750, "a/b": 0o2750, "a/plain": 0o640, "a/atomic": 0o640, "a/b/lines": 0o640}
    assert modes == expected
    assert {path.stat().st_gid for path in tmp_path.rglob("*")} == {tmp_path.stat().st_gid}


@pytest.mark.parametrize("shown", [0o755, 0o750, 0o2700, 0o2710])
def test_other_modes_of_a_folder_share_nothing(tmp_path: pathlib.Path, shown: int) -> None:
    tmp_path.chmod(shown)
    assert {mode & 0o077 for mode in store(tmp_path).values()} == {0}


def test_a_file_of_an_older_version_is_made_private_when_it_is_written(
    tmp_path: pathlib.Path,
) -> None:
    old = tmp_path / "gaps.jsonl"
    old.write_bytes(b"old\n")
    old.chmod(0o644)
    files.append_lines(old, [b"new\n"])
    assert (old.read_bytes(), mode(old)) == (b"old\nnew\n", 0o600)


def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: pathlib.Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        files.write(tmp_path / "link", "theirs")
    with pytest.raises(OSError, match="symbolic links"):
        files.append_lines(tmp_path / "link", [b"theirs\n"])
    files.write_atomically(tmp_path / "link", "new")
    assert target.read_text() == "mine"


def test_a_lack_of_descriptors_is_not_a_problem_of_the_disk(tmp_path: pathlib.Path) -> None:
    with exhaustion.no_descriptors():
        assert files.find_disk_problem(tmp_path) is None


def test_a_link_is_replaced_and_its_target_kept(tmp_path: pathlib.Path) -> None:
    (tmp_path / "target").write_text("theirs")
    (tmp_path / "link").symlink_to("target")
    with files.replace(tmp_path / "link") as file:
        file.write(b"evidence")
    assert (tmp_path / "target").read_text() == "theirs"
    assert not (tmp_path / "link").is_symlink()


def test_a_pipe_is_written_to_and_a_device_is_not_replaced(tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with files.replace(pipe) as file:
        file.write(b"result")
    assert os.read(reader, 100) == b"result"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(IsADirectoryError, match=str(tmp_path)), files.replace(tmp_path):
        pass
    with pytest.raises(FileExistsError, match="not a regular file"):
        files.write_atomically(pipe, "result")
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.needs_root
def test_a_file_of_dev_is_never_replaced(tmp_path: pathlib.Path) -> None:
    """In a mount namespace with a /dev of its own: standard output is redirected to a file, and /dev/stdout leads there."""
    out = tmp_path / "out"
    program = (
        "import pathlib; from overnight.model import files\n"
        "for name in ('null', 'stdout'):\n"
        "    with files.replace(pathlib.Path('/dev', name)) as file: file.write(b'result')\n"
        "    try: files.write_atomically(pathlib.Path('/dev', name), b'x')\n"
        "    except FileExistsError as error: assert error.strerror == 'it is not a regular file'\n"
        "    else: raise AssertionError(name)\n"
        "assert sorted(path.name for path in pathlib.Path('/dev').iterdir()) == ['null', 'stdout']\n"
        "assert pathlib.Path('/dev/null').is_char_device() and pathlib.Path('/dev/stdout').is_symlink()\n"
    )
    script = (
        "mount -t tmpfs tmpfs /dev && mknod /dev/null c 1 3 && ln -s /proc/self/fd/1 /dev/stdout && "
        f"exec {shlex.quote(sys.executable)} -c {shlex.quote(program)}"
    )
    with out.open("wb") as file:
        subprocess.run(["unshare", "--mount", "sh", "-c", script], stdout=file, check=True)
    assert out.read_bytes() == b"result"
