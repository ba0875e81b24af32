"""Copies segments and masks names that hold a secret."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model.flame import FrameKind
from overnight.store import parquet, segments

if TYPE_CHECKING:
    from overnight.store.bundle import scrubber

FILES = ("samples.parquet", "nodes.parquet", "frames.parquet", "tasks.parquet", "seconds.npy")
DESCRIPTION = "segment.json"
TASKS = ("pid", "tid", "thread", "process", "unit", "busy", "kernel", "idle")
FRAMES = ("name", "module", "kind", "own", "whole")


def copy_segment(
    segment: segments.Segment, home: pathlib.Path, target: pathlib.Path, masks: scrubber.Scrubber
) -> str:
    """Copy a segment of `home` into the home `target`; return what was wrong with it, or ''.

    A segment that is damaged, or removed meanwhile, is left out entirely. Raise OSError if the disk is
    full.
    """
    place = target / segment.path.relative_to(home)
    place.mkdir(parents=True, exist_ok=True)
    try:
        for name in (DESCRIPTION, *FILES):
            _link(segment.path / name, place / name)
        _mask(segments.Segment(place, segment.host, segment.begin_us, segment.end_us), masks)
    except (FileNotFoundError, errors.OvernightError) as error:
        shutil.rmtree(place)
        return f"segment {segment.path.name} of {segment.host} was left out: {error}"
    return ""


def _link(source: pathlib.Path, target: pathlib.Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or a file of another owner
        shutil.copyfile(source, target)


def _mask(segment: segments.Segment, masks: scrubber.Scrubber) -> None:
    """Rewrite the files that hold a secret; the others stay unchanged."""
    meta = segment.meta()
    changed: dict[str, tuple[int, str]] = {}
    tasks = parquet.read(segment.path / "tasks.parquet", TASKS)
    for column in ("thread", "process", "unit"):
        if _apply(tasks, column, functools.partial(masks.name, f"{column} names")):
            changed["tasks.parquet"] = (0, "")
    frames = parquet.read(segment.path / "frames.parquet", FRAMES)
    kinds = frames["kind"].tolist()
    names = [
        masks.name("process names", name)
        if kind == FrameKind.PROCESS
        else masks.function("function names", name)
        for name, kind in zip(frames["name"].tolist(), kinds, strict=True)
    ]
    if names != frames["name"].tolist():
        frames["name"] = parquet.texts(names)
        changed["frames.parquet"] = (0, "")
    if _apply(frames, "module", functools.partial(masks.function, "module names")):
        changed["frames.parquet"] = (0, "")
    for file, columns in (("tasks.parquet", tasks), ("frames.parquet", frames)):
        if file in changed:
            path = segment.path / file
            path.unlink()  # it may be a hard link to the store's file
            parquet.write(path, columns)
            changed[file] = path.stat().st_size, _digest(path)
    fresh = dataclasses.replace(
        meta,
        notes=tuple(masks.text("notes of segments", note) for note in meta.notes),
        source=masks.text("notes of segments", meta.source),
        gaps=tuple((a, b, masks.text("notes of segments", why)) for a, b, why in meta.gaps),
        files={name: changed.get(name, meta.files[name]) for name in FILES if name in meta.files},
    )
    if fresh != meta:
        path = segment.path / DESCRIPTION
        path.unlink()
        path.write_text(json.dumps(fresh.as_json(), indent=1))


def _apply(columns: parquet.Columns, name: str, scrub: Callable[[str], str]) -> bool:
    """Mask a column of texts; return whether it changed."""
    before = columns[name].tolist()
    after = [scrub(text) for text in before]
    if after == before:
        return False
    columns[name] = parquet.texts(after)
    return True


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
