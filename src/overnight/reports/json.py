"""Stacks as JSON for programs: every frame once, each stack as indices into them, root first."""

from __future__ import annotations

import dataclasses
import json
from typing import BinaryIO

from overnight.model.flame import Folded, FrameKind

SCHEMA = "overnight.stacks/1"
# Fields of Folded.
COPIED = ("title", "host", "begin_ns", "end_ns", "frequency", "cores", "event", "lost", "notes")


def write(folded: Folded, file: BinaryIO) -> None:
    document = {
        "schema": SCHEMA,
        **{name: getattr(folded, name) for name in COPIED},
        "samples": folded.total,
        "empty": dataclasses.asdict(folded.empty) if folded.empty else None,
        "unknown": dataclasses.asdict(folded.unknown) if folded.unknown else None,
        "frames": [
            {
                "name": frame.name,
                "module": frame.module,
                "kind": "kernel" if frame.kind == FrameKind.KERNEL else "user",
            }
            for frame in folded.frames
        ],
        "stacks": [{"frames": path, "count": count} for path, count in folded.stacks()],
    }
    file.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")
