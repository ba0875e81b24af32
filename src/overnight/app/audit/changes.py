"""Turning units off for real, and back on again: files in an image, systemctl on a running host.

What was done is kept in the data home, one small record a root, so that `--undo` knows it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import posixpath
import shutil
import subprocess
from typing import TYPE_CHECKING

from overnight import errors
from overnight.app.audit import fixes
from overnight.sources import systemd
from overnight.sources.image import tree as trees
from overnight.sources.image import units

if TYPE_CHECKING:
    from overnight.model.audit import Report

__all__ = ["Step", "apply", "plan", "undo"]

NULL = "/dev/null"
RECORD = 1


@dataclasses.dataclass(frozen=True)
class Step:
    """One change; `before` and `after` are a link's target, a file's text, or a unit's state."""

    kind: str  # unlink, mask, preset, systemctl
    path: str
    before: str
    after: str

    def __str__(self) -> str:
        match self.kind:
            case "unlink":
                return f"remove the link {self.path} -> {self.before}"
            case "mask":
                return f"link {self.path} -> {NULL}"
            case "preset":
                return f"write {self.path}"
        return f"systemctl {self.after} {self.path}"


def plan(report: Report, root: pathlib.Path) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """What would be changed, and what cannot be: pure reading."""
    chosen = report.to_turn_off
    if report.live and systemd.booted():
        return tuple(_live_steps(chosen, root)), ()
    tree = trees.Tree(root)
    loaded = units.Units(tree)
    steps: list[Step] = []
    cannot = []
    for name in chosen:
        unit = loaded.unit(name)
        steps += [
            Step("unlink", link.path, link.target, "")
            for link in unit.links
            if link.path.startswith(units.CONFIG + "/")
        ]
        mask = f"{units.CONFIG}/{name}"
        standing = tree.link(mask)
        if standing is not None and standing != NULL:
            steps.append(Step("unlink", mask, standing, ""))
        if standing == NULL:
            continue
        if standing is None and tree.stat(mask, follow=False) is not None:
            cannot.append(f"{mask} is a file of its own, so {name} is disabled and not masked")
        else:
            steps.append(Step("mask", mask, "", NULL))
    if chosen:
        try:
            before = tree.text(fixes.PRESET)
        except FileNotFoundError:
            before = ""
        steps.append(Step("preset", fixes.PRESET, before, fixes.preset_text(report, chosen)))
    return tuple(steps), tuple(cannot)


def _live_steps(names: tuple[str, ...], root: pathlib.Path) -> list[Step]:
    loaded = units.Units(trees.Tree(root))
    steps = []
    for name in names:
        state = loaded.unit(name).state
        steps += [Step("systemctl", name, state, "disable"), Step("systemctl", name, state, "mask")]
    return steps


def apply(steps: tuple[Step, ...], root: pathlib.Path, home: pathlib.Path) -> pathlib.Path:
    """Do it. Each step is in the record before it is done: a crash between leaves nothing unknown."""
    record = _record(root, home)
    done = list(_load(record))
    tree = trees.Tree(root)
    for step in steps:
        done.append(step)
        _save(record, root, done)
        _do(tree, step)
    return record


def undo(root: pathlib.Path, home: pathlib.Path) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Take back what `apply` did here, last first; what has changed since is left and told."""
    record = _record(root, home)
    steps = _load(record)
    if not steps:
        raise errors.CannotError(
            f"nothing was applied to {root}",
            why=f"there is no record of it in {record.parent}",
            todo="use the --home and --root that --apply was run with",
        )
    tree = trees.Tree(root)
    taken: list[Step] = []
    left: list[Step] = []
    for step in reversed(steps):
        try:
            (taken if _take_back(tree, step) else left).append(step)
        except OSError as error:
            raise _cannot(step, error) from error
    record.unlink()
    return tuple(taken), tuple(f"changed since, left as it is: {step.path}" for step in left)


def _do(tree: trees.Tree, step: Step) -> None:
    try:
        match step.kind:
            case "unlink":
                with tree.folder(posixpath.dirname(step.path)) as folder:
                    os.unlink(posixpath.basename(step.path), dir_fd=folder)
            case "mask":
                with tree.folder(posixpath.dirname(step.path)) as folder:
                    os.symlink(step.after, posixpath.basename(step.path), dir_fd=folder)
            case "preset":
                _write(tree, step.path, step.after)
            case _:
                _systemctl(step.after, step.path)
    except OSError as error:
        raise _cannot(step, error) from error


def _take_back(tree: trees.Tree, step: Step) -> bool:
    folder, name = posixpath.split(step.path)
    if step.kind == "unlink":
        if tree.stat(step.path, follow=False) is not None:
            return tree.link(step.path) == step.before
        with tree.folder(folder) as opened:
            os.symlink(step.before, name, dir_fd=opened)
    elif step.kind == "mask":
        if tree.link(step.path) != step.after:
            return tree.stat(step.path, follow=False) is None
        with tree.folder(folder) as opened:
            os.unlink(name, dir_fd=opened)
    elif step.kind == "preset":
        standing = tree.stat(step.path) is not None
        if standing and tree.text(step.path) != step.after:
            return False
        if step.before:
            _write(tree, step.path, step.before)
        elif standing:
            with tree.folder(folder) as opened:
                os.unlink(name, dir_fd=opened)
    elif step.after == "mask":
        _systemctl("unmask", step.path)
    elif step.before.startswith("enabled"):
        _systemctl("enable", step.path)
    return True


def _write(tree: trees.Tree, path: str, text: str) -> None:
    """A file that appears when it is whole; a link in its place is replaced, not followed."""
    folder, name = posixpath.split(path)
    fresh = f".{name}.new"
    with tree.folder(folder) as opened:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=opened)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(fresh, flags, 0o644, dir_fd=opened), "w") as file:
            file.write(text)
        os.rename(fresh, name, src_dir_fd=opened, dst_dir_fd=opened)


def _systemctl(verb: str, unit: str) -> None:
    if shutil.which("systemctl") is None:
        raise errors.MissingToolError(
            "there is no systemctl",
            why="a running host is changed through it",
            todo="install systemd",
        )
    done = subprocess.run(
        ["systemctl", verb, "--", unit], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise errors.CannotError(
            f"systemctl {verb} {unit} failed",
            why=done.stderr.strip() or f"exit code {done.returncode}",
            todo="run it as root; --undo takes back what was done before",
        )


def _cannot(step: Step, error: OSError) -> errors.OvernightError:
    kind = (
        errors.MissingPermissionError if isinstance(error, PermissionError) else errors.CannotError
    )
    return kind(
        f"could not {step}",
        why=error.strerror or str(error),
        todo="run it as root; --undo takes back what was done before",
    )


def _record(root: pathlib.Path, home: pathlib.Path) -> pathlib.Path:
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return home / "audit" / f"applied-{name}.json"


def _load(record: pathlib.Path) -> tuple[Step, ...]:
    try:
        document = json.loads(record.read_text())
        return tuple(Step(**step) for step in document["steps"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise errors.CannotError(
            f"{record} cannot be read",
            why=str(error),
            todo="it says what --apply did; put it right or remove it",
        ) from error


def _save(record: pathlib.Path, root: pathlib.Path, steps: list[Step]) -> None:
    document = {
        "version": RECORD,
        "root": str(root.resolve()),
        "steps": [dataclasses.asdict(step) for step in steps],
    }
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        fresh = record.with_name(f".{record.name}.new")
        fresh.write_text(json.dumps(document, indent=2) + "\n")
        fresh.replace(record)
    except OSError as error:
        raise errors.CannotError(
            f"{record} cannot be written, so nothing was changed",
            why=error.strerror or str(error),
            todo="choose another --home",
        ) from error
