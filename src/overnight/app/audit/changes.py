"""Disable and mask units, and undo it: files in an image, systemctl on a running host.

The changes are recorded in the data home, one file for each root, so that `--undo` can revert them.
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
from overnight.app import home as homes
from overnight.app.audit import fixes
from overnight.model import files
from overnight.sources import systemd
from overnight.sources.image import tree as trees
from overnight.sources.image import units

if TYPE_CHECKING:
    from overnight.model.audit import Report

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


@dataclasses.dataclass(frozen=True)
class Change:
    """What was applied or undone, and what was left as it is."""

    root: pathlib.Path
    done: str  # applied or undone
    steps: tuple[Step, ...]
    left: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "schema": "overnight.audit-change/1",
            "root": str(self.root),
            "done": self.done,
            "steps": [str(step) for step in self.steps],
            "left": list(self.left),
        }


def plan(report: Report, root: pathlib.Path) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return what would be changed, and what cannot be changed and why."""
    names, cannot = report.to_turn_off, fixes.describe_unmaskable(report)
    tree = trees.Tree(root)
    loaded = units.Units(tree)
    if report.live and systemd.booted():
        return tuple(
            Step("systemctl", name, loaded.unit(name).state, verb)
            for name in names
            for verb in report.verbs(name)
        ), cannot
    steps: list[Step] = []
    for name in names:
        unit = loaded.unit(name)
        steps += [
            Step("unlink", link.path, link.target, "")
            for link in unit.links
            if link.path.startswith(units.CONFIG + "/")
        ]
        mask = f"{units.CONFIG}/{name}"
        target = tree.link(mask)
        if target is not None and target != NULL:
            steps.append(Step("unlink", mask, target, ""))
        if target != NULL and "mask" in report.verbs(name):
            steps.append(Step("mask", mask, "", NULL))
    if names:
        try:
            before = tree.text(fixes.PRESET)
        except FileNotFoundError:
            before = ""
        steps.append(Step("preset", fixes.PRESET, before, fixes.preset_text(report, names)))
    return tuple(steps), cannot


def apply(steps: tuple[Step, ...], root: pathlib.Path, home: pathlib.Path) -> pathlib.Path:
    """Carry out the steps, each recorded before it is done; return the file that records them."""
    homes.need_writable(home)
    record = _record(root, home)
    tree = trees.Tree(root)
    with files.locked(home):  # another run must not replace the record
        done = list(_load(record))
        for step in steps:
            done.append(step)
            _save(record, root, done)
            _do(tree, step)
    return record


def undo(root: pathlib.Path, home: pathlib.Path) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Undo what `apply` did, last step first; report and leave what has changed since."""
    homes.need_private(home)
    with files.locked(home) if home.exists() else contextlib.nullcontext():
        return _undo(root, _record(root, home))


def _undo(root: pathlib.Path, record: pathlib.Path) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    steps = _load(record)
    if not steps:
        raise errors.CannotError(
            f"nothing to undo in {root}",
            why=f"{record.parent} has no record of changes to it",
            todo="use the --home and --root of the run with --apply",
        )
    tree = trees.Tree(root)
    undone: list[Step] = []
    left: list[Step] = []
    for step in reversed(steps):
        try:
            (undone if _undo_step(tree, step) else left).append(step)
        except OSError as error:
            raise _cannot(step, error) from error
    if any(step.kind == "systemctl" for step in undone):  # systemctl does not sync
        for folder in pathlib.Path(units.CONFIG).glob("**/"):
            files.sync(folder)
    files.remove(record)
    return tuple(undone), tuple(f"left unchanged, modified since: {step.path}" for step in left)


def _do(tree: trees.Tree, step: Step) -> None:
    try:
        match step.kind:
            case "unlink":
                _unlink(tree, step.path)
            case "mask":
                _symlink(tree, step.after, step.path)
            case "preset":
                _write(tree, step.path, step.after)
            case _:
                _systemctl(step.after, step.path)
    except OSError as error:
        raise _cannot(step, error) from error


def _undo_step(tree: trees.Tree, step: Step) -> bool:
    if step.kind == "unlink":
        if tree.stat(step.path, follow=False) is not None:
            return tree.link(step.path) == step.before
        _symlink(tree, step.before, step.path)
    elif step.kind == "mask":
        if tree.link(step.path) != step.after:
            return tree.stat(step.path, follow=False) is None
        _unlink(tree, step.path)
    elif step.kind == "preset":
        exists = tree.stat(step.path) is not None
        if exists and tree.text(step.path) != step.after:
            return False
        if step.before:
            _write(tree, step.path, step.before)
        elif exists:
            _unlink(tree, step.path)
    elif step.after == "mask":
        _systemctl("unmask", step.path)
    elif step.before.startswith("enabled"):
        _systemctl("enable", step.path)
    return True


def _unlink(tree: trees.Tree, path: str) -> None:
    folder, name = posixpath.split(path)
    with tree.folder(folder) as opened:
        os.unlink(name, dir_fd=opened)


def _symlink(tree: trees.Tree, target: str, path: str) -> None:
    folder, name = posixpath.split(path)
    with tree.folder(folder) as opened:
        os.symlink(target, name, dir_fd=opened)


def _write(tree: trees.Tree, path: str, text: str) -> None:
    """Write a file atomically inside the tree; a link in its place is replaced, not followed."""
    folder, name = posixpath.split(path)
    fresh = f".{name}.new"
    with tree.folder(folder) as opened:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=opened)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(fresh, flags, 0o644, dir_fd=opened), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, name, src_dir_fd=opened, dst_dir_fd=opened)


def _systemctl(verb: str, unit: str) -> None:
    if shutil.which("systemctl") is None:
        raise errors.MissingToolError(
            "systemctl is not installed",
            why="units of a running host are changed with it",
            todo="install systemd",
        )
    done = subprocess.run(
        ["systemctl", verb, "--", unit], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise errors.CannotError(
            f"systemctl {verb} {unit} failed",
            why=done.stderr.strip() or f"exit code {done.returncode}",
            todo="run as root; --undo reverts what was done so far",
        )


def _cannot(step: Step, error: OSError) -> errors.OvernightError:
    denied = isinstance(error, PermissionError)
    return (errors.MissingPermissionError if denied else errors.CannotError)(
        f"could not {step}",
        why=error.strerror or str(error),
        todo="run as root; --undo reverts what was done so far",
    )


def _record(root: pathlib.Path, home: pathlib.Path) -> pathlib.Path:
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    return home / "audit" / f"applied-{name}.json"


def _load(record: pathlib.Path) -> tuple[Step, ...]:
    try:
        document = json.loads(record.read_text())
        steps = tuple(Step(**step) for step in document["steps"])
        for step in steps:
            _check(step)
        return steps
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError) as error:
        todo = "it records what --apply did; repair it, or remove it"
        raise errors.unreadable(record, error, todo) from error


def _check(step: Step) -> None:
    """Raise ValueError for a step that `plan` never makes: undo must not change anything else."""
    folder, name = posixpath.split(step.path)
    match step.kind:
        case "unlink":
            below = step.path == posixpath.normpath(step.path)
            valid = below and step.path.startswith(units.CONFIG + "/")
        case "mask":
            valid = folder == units.CONFIG and name not in ("", ".", "..") and step.after == NULL
        case "preset":
            valid = step.path == fixes.PRESET
        case "systemctl":
            valid = not folder and step.after in ("disable", "mask")
        case _:
            valid = False
    if not valid:
        raise ValueError(f"{step.kind} {step.path} is not a change that audits make")


def _save(record: pathlib.Path, root: pathlib.Path, steps: list[Step]) -> None:
    document = {
        "version": RECORD,
        "root": str(root.resolve()),
        "steps": [dataclasses.asdict(step) for step in steps],
    }
    try:
        files.make_folder(record.parent)
        files.write_atomically(record, json.dumps(document, indent=2) + "\n")
    except OSError as error:
        raise errors.CannotError(
            f"{record} cannot be written, so nothing was changed",
            why=error.strerror or str(error),
            todo="choose another --home",
        ) from error
