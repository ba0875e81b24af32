"""The mounts that this process sees."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from overnight.model.text import decode_octal


class Mount(NamedTuple):
    path: str
    type: str
    options: tuple[str, ...]  # of the file system, not of the mount
    root: str  # the part of the file system that is mounted


def parse_mounts(mountinfo: str) -> Iterator[Mount]:
    r"""Parse /proc/self/mountinfo, one mount per line; of two on one path the later one is visible.

    >>> next(parse_mounts("31 24 0:27 / /a\\040b rw,relatime shared:9 - cgroup cgroup rw,memory"))
    Mount(path='/a b', type='cgroup', options=('rw', 'memory'), root='/')
    """
    # The kernel writes only blanks, newlines and backslashes in octal: a path may hold any other white space.
    for line in mountinfo.split("\n"):
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) >= 5 and len(kind) >= 3:
            yield Mount(decode_octal(fields[4]), kind[0], tuple(kind[2].split(",")), fields[3])


def read_mounts(root: pathlib.Path = pathlib.Path("/")) -> Iterator[Mount]:
    """Read the mounts; their paths are decoded like all file names, also those that are not UTF-8."""
    return parse_mounts(os.fsdecode((root / "proc/self/mountinfo").read_bytes()))
