"""The format of speedscope, a flame graph viewer: one "sampled" profile."""

from __future__ import annotations

import json
from typing import BinaryIO

from overnight.model.flame import Folded, Frame, FrameKind

SCHEMA = "https://www.speedscope.app/file-format-schema.json"  # required by the format


def write(folded: Folded, file: BinaryIO) -> None:
    """Write one profile, weighted by CPU time if the sampled event measures it, else by samples."""
    stacks = list(folded.stacks())
    each = folded.nanoseconds
    weights = [count * (each or 1) for _, count in stacks]
    document = {
        "$schema": SCHEMA,
        "name": folded.title,
        "exporter": "overnight",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(frame) for frame in folded.frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": f"{folded.host} {folded.event}".strip(),
                "unit": "nanoseconds" if each else "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": [path for path, _ in stacks],
                "weights": weights,
            }
        ],
    }
    file.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")


def _frame(frame: Frame) -> dict[str, str]:
    """Speedscope colours frames by file."""
    file = frame.module or ("[kernel]" if frame.kind == FrameKind.KERNEL else "")
    return {"name": frame.name, "file": file} if file else {"name": frame.name}
