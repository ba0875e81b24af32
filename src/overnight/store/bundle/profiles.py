"""Copies segments and masks names that hold a secret."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil

from overnight import errors
from overnight.model.flame import FrameKind
from overnight.store import parquet, parquet_writer, process_tables, segments
from overnight.store.bundle import scrubber

DESCRIPTION = "segment.json"
TASKS = ("pid", "tid", "thread", "process", "unit", "busy", "kernel", "idle")
FRAMES = ("name", "module", "kind", "own", "whole")
# How the texts of a process are masked, and where they are counted.
_NAME, _UNIT = ((scrubber.Scrubber.name, place) for place in ("process names", "unit names"))
MASKS = {
    process_tables.PROCESSES: {
        "name": _NAME,
        "comm": _NAME,
        "executable": (scrubber.Scrubber.function, "module names"),
        "command": (scrubber.Scrubber.text, "command lines"),
        "user": (scrubber.Scrubber.name, "user names"),
        "cgroup": _UNIT,
        "unit": _UNIT,
        "pod": _UNIT,
    },
    process_tables.SPAWNS: {"name": _NAME},
}


def copy_segment(
    segment: segments.Segment, home: pathlib.Path, target: pathlib.Path, masks: scrubber.Scrubber
) -> str:
    """Copy a segment into the home `target`, or nothing of it; return what was wrong with it, or ''."""
    place = target / segment.path.relative_to(home)
    place.mkdir(parents=True, exist_ok=True)
    meta = None
    try:
        meta = segment.meta()
        why = segment.find_damage(meta, (*segments.FILES, *process_tables.FILES))
        if not why:
            for name in (DESCRIPTION, *segments.FILES, *_process_files(meta)):
                _link(segment.path / name, place / name)
            _mask(dataclasses.replace(segment, path=place), masks)
    except (FileNotFoundError, errors.OvernightError) as error:
        why = str(error)
    if why:
        shutil.rmtree(place)
        return str(segment.damage(why, meta))
    return ""


def _link(source: pathlib.Path, target: pathlib.Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or a file of another owner
        shutil.copyfile(source, target)  # raises FileNotFoundError as well


def _mask(segment: segments.Segment, masks: scrubber.Scrubber) -> None:
    """Rewrite the files that hold a secret; the others stay unchanged."""
    meta = segment.meta()
    path = segment.path / "tasks.parquet"
    extra = _process_files(meta)
    tasks = parquet.read(path, (*TASKS, "row", "launcher") if extra else TASKS)
    columns = ("thread", "process", "unit", *(("launcher",) if extra else ()))
    named = {c: [masks.name(f"{c} names", text) for text in tasks[c].tolist()] for c in columns}
    changed = [path] * _rewrite(path, tasks, named)
    path = segment.path / "frames.parquet"
    frames = parquet.read(path, FRAMES)
    names = [
        masks.name("process names", name)
        if kind == FrameKind.PROCESS
        else masks.function("function names", name)
        for name, kind in zip(frames["name"].tolist(), frames["kind"].tolist(), strict=True)
    ]
    modules = [masks.function("module names", module) for module in frames["module"].tolist()]
    changed += [path] * _rewrite(path, frames, {"name": names, "module": modules})
    for name in extra:
        path = segment.path / name
        table = parquet.read(path, tuple(parquet.columns(name)))
        masked = {
            column: [mask(masks, place, text) for text in table[column].tolist()]
            for column, (mask, place) in MASKS[name].items()
        }
        changed += [path] * _rewrite(path, table, masked)
    stored = {name: meta.files[name] for name in (*segments.FILES, *extra) if name in meta.files}
    fresh = dataclasses.replace(
        meta,
        notes=tuple(masks.text("notes of segments", note) for note in meta.notes),
        source=masks.text("notes of segments", meta.source),
        unknown={masks.function("module names", name): why for name, why in meta.unknown.items()},
        gaps=tuple((a, b, masks.text("notes of segments", why)) for a, b, why in meta.gaps),
        files=stored | {path.name: segments.measure_file(path) for path in changed},
        crc32=meta.crc32 | {path.name: segments.sum_file(path) for path in changed},
    )
    if fresh != meta:
        path = segment.path / DESCRIPTION
        path.unlink()
        path.write_text(json.dumps(fresh.as_json(), indent=1))


def _process_files(meta: segments.Meta) -> tuple[str, ...]:
    return process_tables.FILES if meta.files.keys() >= set(process_tables.FILES) else ()


def _rewrite(path: pathlib.Path, columns: parquet.Columns, masked: dict[str, list[str]]) -> bool:
    """Write the masked columns where they differ; return whether they do."""
    if all(columns[name].tolist() == texts for name, texts in masked.items()):
        return False
    path.unlink()  # it may be a hard link to the store's file
    parquet_writer.write(path, {**columns, **masked})
    return True
