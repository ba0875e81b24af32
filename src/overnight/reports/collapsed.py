r"""Collapsed stacks: `root;…;leaf count`, a kernel function marked `_[k]`.

What would break a line is written as `\x3b` (a semicolon), `\x0a` (a new line) and so on.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from overnight.model.flame import Folded, Frame, FrameKind

__all__ = ["NAME", "SUFFIX", "write"]

NAME = "collapsed"
SUFFIX = ".collapsed"

# The last: a bracket of a name that would pass for the mark of a kernel function.
BREAKING = re.compile(r"[;\x00-\x1f\x7f]|^ | $|(?<=_)\[(?=[kjiw]\]$)")


def write(folded: Folded, file: BinaryIO) -> None:
    """Write one line per stack."""
    names = [_name(frame) for frame in folded.frames]
    for path, count in folded.stacks():
        stack = ";".join(names[frame] for frame in path)
        file.write(f"{stack} {count}\n".encode("utf-8", "replace"))


def _name(frame: Frame) -> str:
    name = BREAKING.sub(lambda match: f"\\x{ord(match[0]):02x}", frame.name) or "[unknown]"
    return name + "_[k]" if frame.kind == FrameKind.KERNEL else name
