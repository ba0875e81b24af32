"""The data home may be written by its owner and root only.

A root process trusts what it reads there (changes to undo, PIDs, rules) and writes below it, so another user who can
write to it, or place a link in it, could act as root.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import grp
import os
import pathlib
import pwd
import shlex
import stat
import struct
from collections.abc import Collection, Iterator

from overnight import errors
from overnight.model import files

# Read back or appended to later: checked with all of their contents.
TRUSTED = (
    "arms.jsonl",
    "audit",
    "instruments",
    "loads",
    "profiles",
    "rules",
    "signals",
    "snapshots",
    "spool",
    "uplink",
)
MAX_LINKS = 40  # as the kernel's
ACL_USER, ACL_GROUP, ACL_WRITE = 2, 8, 2  # of linux/posix_acl.h
# Machines in them have files of other users: only the folders themselves are checked.
OPAQUE = ("blobs", "investigations", "pools", "rehearsals", "undo")


def prepare(home: pathlib.Path, trusted: Collection[str] = TRUSTED) -> None:
    """Create the data home, or check it and make it private; call this before any write to it.

    `trusted` are the names below it to check with their contents.
    Raise MissingPermissionError if it cannot be written, and CannotError if another user could have changed it.
    """
    why = "you may not write to it, or the file system is read-only"
    try:
        check_way(home)
        files.make_folder(home)
        check_way(home)  # others may have been the first to create a part, below a sticky folder
        _check(home, trusted)
        if os.access(home, os.W_OK | os.X_OK):
            _tighten(home)
            return
    except OSError as error:
        why = str(error)
    raise errors.MissingPermissionError(
        f"the data home {home} is not writable",
        why=why,
        todo="choose another folder with --home DIR, or OVERNIGHT_HOME",
    )


def check_way(home: pathlib.Path) -> None:
    """Raise CannotError if another user could put another folder in place of the home, also of one that is missing."""
    if where := find_unsafe_way(home):
        raise errors.CannotError(
            f"refusing to use the data home {home}: {where}",
            why="another user could put another folder in its place while this process runs",
            todo="choose one below folders that only root and this user can write: --home DIR",
        )


def find_unsafe_way(path: pathlib.Path) -> str:
    """Return which folder or link above a path another user could replace, and why; '' without one.

    From the root down: whoever could replace an entry is found in the folder that has it, before the entry is read.
    """
    *above, _ = _walk(path.absolute())
    for name, status in above:
        if problem := _find_problem(name, status, is_way=True):
            return f"{name} {problem}"
    return ""


def belongs_to_root(home: pathlib.Path) -> bool:
    """Return whether a recorder of root could use a data home: it refuses one that another user could replace."""
    try:
        return all(status.st_uid == 0 for _, status in _walk(home.absolute()))
    except PermissionError:  # a folder of root's on the way
        return True


def _walk(path: pathlib.Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what the kernel passes on the way to a path, links and their targets, too, as far as it exists."""
    here, left, links = "/", list(path.parts[:0:-1]), 0
    yield here, os.lstat(here)
    while left:
        name = left.pop()
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - links are resolved up to here
            continue
        entry = os.path.join(here, name)  # noqa: PTH118
        try:
            status = os.lstat(entry)
        except FileNotFoundError:
            yield entry, os.lstat(here)
            return
        yield entry, status
        if not stat.S_ISLNK(status.st_mode):
            here = entry
            continue
        if (links := links + 1) > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), entry)
        target = pathlib.Path(entry).readlink()
        here = "/" if target.is_absolute() else here
        left += reversed(target.parts[target.is_absolute() :])


def _check(home: pathlib.Path, trusted: Collection[str]) -> None:
    for path, status in _entries(home, trusted):
        if not (problem := _find_problem(path, status, is_link_fine=path == str(home))):
            continue
        name, sudo = shlex.quote(str(home)), "" if os.geteuid() == 0 else "sudo "
        repair = f"{sudo}chown -hR {os.geteuid()} {name} && {sudo}chmod -R go-w {name}"
        if stat.S_ISLNK(status.st_mode):
            repair = f"{sudo}rm {shlex.quote(path)}"
        raise errors.CannotError(
            f"refusing to write to the data home {home}: {path} {problem}",
            why="another user could make this process change files or end processes of its owner",
            todo=f"choose another folder with --home DIR, or, if you trust its contents: {repair}",
        )


def _entries(home: pathlib.Path, trusted: Collection[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the home and what is trusted below it, a folder before its contents, without following links."""
    yield str(home), home.lstat()
    yield str(home), home.stat()  # a link of ours or root's to the home is fine: systemd places one
    for name in (*TRUSTED, *OPAQUE):
        with contextlib.suppress(FileNotFoundError):
            path = home / name
            yield str(path), path.lstat()
            if name in trusted:
                yield from _below(str(path))


def _below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    # Files vanish meanwhile: a recording trims what it stores.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                yield entry.path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    yield from _below(entry.path)


def _find_problem(
    path: str, status: os.stat_result, *, is_link_fine: bool = False, is_way: bool = False
) -> str:
    """Return how another user could change a file; with `is_way`, how they could rename what is in a folder."""
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {_user_name(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode):
        return "" if is_link_fine or is_way else "is a symbolic link"
    if is_way and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & 0o002:
        return "is writable by every user"
    if status.st_mode & 0o020:  # of its group, or the mask of an ACL
        if _is_shared_by_acl(path):
            return "is writable by those in its access control list"
        if not any(_is_private_group(uid, status.st_gid) for uid in {0, os.geteuid()}):
            return f"is writable by group {status.st_gid}"
    return ""


def _is_shared_by_acl(path: str) -> bool:
    try:
        entries = os.getxattr(path, "system.posix_acl_access")[4:]  # without the version
    except OSError:  # it has none, or its file system has none
        return False
    return any(
        tag in (ACL_USER, ACL_GROUP) and right & ACL_WRITE
        for tag, right, _ in struct.iter_unpack("<HHI", entries)
    )


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@functools.cache
def _is_private_group(uid: int, gid: int) -> bool:
    """Whether a group has only that user, as on distributions with umask 002."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    members = {*group.gr_mem, *(each.pw_name for each in pwd.getpwall() if each.pw_gid == gid)}
    return group.gr_name == user.pw_name and members <= {user.pw_name}


def _tighten(home: pathlib.Path) -> None:
    """Take access to a home of an older version from others; a folder with other contents is left as it is."""
    known = {*TRUSTED, *OPAQUE}
    status = home.stat()
    mode = files.folder_mode(home)
    if (
        status.st_uid == os.geteuid()
        and stat.S_IMODE(status.st_mode) != mode
        and all(path.name in known or path.name.startswith("overnight-") for path in home.iterdir())
    ):
        home.chmod(mode)
