"""Cached directory entries: negative dentries (names that do not exist), or those of real files.

A host that looks up missing files (search paths, temporary names) keeps each name as a negative dentry,
without bound, until memory is short; walks and reclaim then take long.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import TYPE_CHECKING

from overnight import errors, sources
from overnight.load import host_state
from overnight.model import meminfo, sizes

if TYPE_CHECKING:
    from overnight.undo import journal

NAME = "dentries"
ABOUT = "negative dentries, of names that do not exist (with --positive: of empty files)"
TAKES = frozenset({"positive", "folder"})
STEP = 5_000
DENTRY_BYTES = 192
INODE_BYTES = 1_300  # of ext4, with its dentry
TRIED = 1_000  # after this many it is known whether the file system caches them


def age(request: host_state.Request, journal: journal.Journal) -> host_state.Aged:
    """Create them in a folder of the run, below `folder` or the data home."""
    positive = "positive" in request.options
    free = meminfo.read_available()
    most = int(free * request.share)
    above, each = _check_host(request, most)
    folder = above / f"{journal.run}-dentries"
    before = count()
    _make_folder(folder, journal)
    created = 0
    while created < request.count and not request.stop.is_set():
        upto = min(request.count, created + (STEP if created else TRIED))
        for i in range(created, upto):
            (_touch if positive else _look_up)(f"{folder}/{i}")
        created = upto
        _check(folder, before, created, free - most, positive=positive)
        request.on_progress(
            created, f"{sizes.format_size(free - meminfo.read_available())} less available"
        )
    counts = "dentries" if positive or "negative_dentries" not in before else "negative_dentries"
    return host_state.Aged(created, str(folder), each, counts)


def plan(request: host_state.Request) -> host_state.Aged:
    above, each = _check_host(request, int(meminfo.read_available() * request.share))
    return host_state.Aged(0, str(above / "RUN-dentries"), each, "dentries")


def _check_host(request: host_state.Request, most: int) -> tuple[pathlib.Path, int]:
    """Return the folder above, and the memory that one takes; raise where `most` bytes are too few."""
    positive = "positive" in request.options
    above = pathlib.Path(request.options.get("folder", request.home)).resolve()
    each = INODE_BYTES if positive else DENTRY_BYTES
    host_state.check_cost(NAME, request.count, each, most)
    if positive:
        _need_inodes(above, request.count)
    return above, each


def count(root: pathlib.Path = sources.ROOT) -> dict[str, int]:
    try:
        return parse_dentry_state((root / "proc/sys/fs/dentry-state").read_text())
    except OSError:
        return {}


def remains(root: pathlib.Path = sources.ROOT) -> str:
    try:
        held, room, size = parse_slab((root / "proc/slabinfo").read_text())
    except OSError:
        return "the size of the dentry slab is unknown: only root can read /proc/slabinfo"
    return (
        f"the dentry slab takes {sizes.format_size(room * size)}, {sizes.format_size(held * size)} of it in use; "
        "the kernel keeps the rest, and entries of other folders, until memory is short"
    )


def parse_dentry_state(text: str) -> dict[str, int]:
    """Parse the counts; kernels before 5.0 report 0 negative ones.

    >>> parse_dentry_state("553107\\t551294\\t45\\t0\\t65165\\t0\\n")
    {'dentries': 553107, 'negative_dentries': 65165}
    """
    fields = [int(field) for field in text.split()]
    counts = {"dentries": fields[0]} if fields else {}
    if len(fields) > 4 and fields[4]:
        counts["negative_dentries"] = fields[4]
    return counts


def parse_slab(slabinfo: str) -> tuple[int, int, int]:
    """Return dentries in use, dentries allocated, and the size of one.

    >>> parse_slab("dentry  60000  63000  192  21  1 : tunables 0 0 0 : slabdata 3000 3000 0\\n")
    (60000, 63000, 192)
    """
    for line in slabinfo.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[0] == "dentry":
            return int(fields[1]), int(fields[2]), int(fields[3])
    return 0, 0, DENTRY_BYTES


def _make_folder(folder: pathlib.Path, journal: journal.Journal) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        journal.write("folder", folder)
        folder.mkdir(mode=0o700)
    except (OSError, ValueError) as error:
        raise errors.CannotError(
            f"cannot create {folder}: {error}",
            why="the entries need a folder of their own, so that they can be removed with it",
            todo="choose another folder with --folder DIR",
        ) from error


def _look_up(path: str) -> None:
    # access, not stat: it raises no exception for each missing name.
    os.access(path, os.F_OK)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _check(
    folder: pathlib.Path, before: dict[str, int], created: int, floor: int, *, positive: bool
) -> None:
    if meminfo.read_available() < floor:
        host_state.raise_short_memory(NAME, created, floor)
    grown = count().get("dentries", 0) - before.get("dentries", 0)
    if not positive and created == TRIED and "dentries" in before and grown < TRIED // 2:
        raise errors.CannotError(
            f"the file system of {folder.parent} does not cache missing names",
            why=f"{TRIED:,} lookups added {grown:,} dentries; tmpfs never caches missing names",
            todo="use a folder on a disk (--folder /var/tmp), or --positive",
        )


def _need_inodes(above: pathlib.Path, count: int) -> None:
    with contextlib.suppress(OSError):
        room = os.statvfs(above)
        if room.f_files and room.f_favail < count * 2:
            raise errors.CannotError(
                f"{above} has room for {room.f_favail:,} more files",
                why="overnight uses at most half of the free inodes",
                todo="create fewer, choose another --folder, or omit --positive",
            )
