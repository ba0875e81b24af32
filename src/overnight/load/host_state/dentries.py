"""Directory entries that the kernel remembers: names that were looked up and are not there, or files.

A host that looks for files that are not there (search paths, temporary names) remembers each name as a
negative dentry, without bound, until memory is short; walks and reclaim then take long.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.load import host_state
from overnight.model import sizes

if TYPE_CHECKING:
    from overnight.undo import journal

__all__ = ["ABOUT", "NAME", "TAKES", "age", "count", "parse_dentry_state", "parse_slab", "remains"]

NAME = "dentries"
ABOUT = "names that were looked up and are not there (or, with --positive, empty files)"
TAKES = frozenset({"positive", "folder"})
STEP = 5_000
DENTRY_BYTES = 192
INODE_BYTES = 1_300  # of ext4, with its dentry
TRIED = 1_000  # so many tell whether the file system remembers at all


def age(request: host_state.Request, journal: journal.Journal) -> host_state.Aged:
    """In a folder of the run, below `folder` or the data home."""
    positive = "positive" in request.options
    above = pathlib.Path(request.options.get("folder", request.home)).resolve()
    folder = above / f"{journal.run}-dentries"
    free = host_state.available()
    most = int(free * request.share)
    host_state.refuse_more_than(most, request.count, INODE_BYTES if positive else DENTRY_BYTES, "of them")  # fmt: skip
    if positive:
        _need_inodes(above, request.count)
    before = count()
    _make_folder(folder, journal)
    made = 0
    while made < request.count and not request.stop.is_set():
        upto = min(request.count, made + (STEP if made else TRIED))
        for i in range(made, upto):
            (_touch if positive else _look_up)(f"{folder}/{i}")
        made = upto
        _check(folder, before, made, free - most, positive=positive)
        request.tell(made, f"{sizes.format_size(free - host_state.available())} less available")
    each = INODE_BYTES if positive else DENTRY_BYTES
    counts = "dentries" if positive or "negative_dentries" not in before else "negative_dentries"
    return host_state.Aged(made, str(folder), each, counts)


def count(root: pathlib.Path = host_state.ROOT) -> dict[str, int]:
    """From /proc/sys/fs/dentry-state."""
    try:
        return parse_dentry_state((root / "proc/sys/fs/dentry-state").read_text())
    except OSError:
        return {}


def remains(root: pathlib.Path = host_state.ROOT) -> str:
    """Slabs of dentries that are partly empty."""
    try:
        held, room, size = parse_slab((root / "proc/slabinfo").read_text())
    except OSError:
        return "what of the dentry slab stays until memory is short is known to root alone: /proc/slabinfo"
    return (
        f"the dentry slab has {sizes.format_size(room * size)} for {sizes.format_size(held * size)} in use; "
        "the kernel keeps the rest, and entries of other folders, until memory is short"
    )


def parse_dentry_state(text: str) -> dict[str, int]:
    """The counts; negative ones are counted since 5.0, and 0 before.

    >>> parse_dentry_state("553107\\t551294\\t45\\t0\\t65165\\t0\\n")
    {'dentries': 553107, 'negative_dentries': 65165}
    """
    fields = [int(field) for field in text.split()]
    counts = {"dentries": fields[0]} if fields else {}
    if len(fields) > 4 and fields[4]:
        counts["negative_dentries"] = fields[4]
    return counts


def parse_slab(slabinfo: str) -> tuple[int, int, int]:
    """Dentries in use, those that there is room for, and the size of one.

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
            f"{folder} cannot be made: {error}",
            why="the entries belong to a folder of their own, so that they can be removed with it",
            todo="give another: --folder DIR",
        ) from error


def _look_up(path: str) -> None:
    # access, not stat: no exception is made for each.
    os.access(path, os.F_OK)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _check(
    folder: pathlib.Path, before: dict[str, int], made: int, floor: int, *, positive: bool
) -> None:
    if host_state.available() < floor:
        raise errors.CannotError(
            f"memory became short after {made:,} of them",
            why=f"less than {sizes.format_size(floor)} was available, and the host must not suffer",
            todo="find out what else takes memory, or ask for fewer",
        )
    grown = count().get("dentries", 0) - before.get("dentries", 0)
    if not positive and made == TRIED and "dentries" in before and grown < TRIED // 2:
        raise errors.CannotError(
            f"the file system of {folder.parent} remembers no names that are not there",
            why=f"{TRIED:,} were looked up, and the kernel has {grown:,} more; tmpfs never keeps them",
            todo="give a folder on a disk: --folder /var/tmp, or --positive",
        )


def _need_inodes(above: pathlib.Path, count: int) -> None:
    with contextlib.suppress(OSError):
        room = os.statvfs(above)
        if room.f_files and room.f_favail < count * 2:
            raise errors.CannotError(
                f"{above} has room for {room.f_favail:,} more files",
                why="overnight takes at most half of it",
                todo="ask for fewer, give another --folder, or leave --positive out",
            )
