r"""Collapsed stacks: `root;…;leaf count`; `_[k]` marks a kernel function.

Characters that would break a line become `\x3b` (a semicolon), `\x0a` (a new line) and so on.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from overnight.model.flame import Folded, Frame, FrameKind

# The last alternative: a name that ends like a kernel function's mark.
BREAKING = re.compile(r"[;\x00-\x1f\x7f]|^ | $|(?<=_)\[(?=[kjiw]\]$)")


def write(folded: Folded, file: BinaryIO) -> None:
    names = [_name(frame) for frame in folded.frames]
    for path, count in folded.stacks():
        stack = ";".join(names[frame] for frame in path)
        file.write(f"{stack} {count}\n".encode("utf-8", "replace"))


def _name(frame: Frame) -> str:
    name = BREAKING.sub(lambda match: f"\\x{ord(match[0]):02x}", frame.name) or "[unknown]"
    return name + "_[k]" if frame.kind == FrameKind.KERNEL else name
