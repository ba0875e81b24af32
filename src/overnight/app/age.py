"""Use cases of `overnight age`: put state on this host, note its experiment arm, and undo the state."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, cast

from overnight import app, errors, sources
from overnight.app import census
from overnight.app import home as homes
from overnight.load import host_state
from overnight.model import stop_signals, times
from overnight.sources import kernel, perf
from overnight.store import arms
from overnight.undo import journal

if TYPE_CHECKING:
    from overnight.sources.memorycgroups import parents

SCHEMA = "overnight.age/1"
WHAT = "age "  # prefix of the journals of this command
ENOUGH = 0.95  # other processes create and free some meanwhile
SETTLE_SECONDS = 10.0
STEADY_SECONDS = 0.5
YOUNG_SECONDS = 3600.0
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Report:
    did: str
    arm: str | None
    before: Mapping[str, int]
    after: Mapping[str, int]
    asked: int = 0
    aged: host_state.Aged | None = None
    run: str = ""
    seconds: float = 0.0
    dying_below: tuple[parents.Parent, ...] = ()  # where dying memory cgroups are
    undone: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    runs: tuple[journal.Left, ...] = ()
    dry_run: bool = False

    @property
    def verified(self) -> bool:
        """Whether the host counts what was created; for an undo, whether it is complete."""
        if self.aged is None:
            return not self.problems
        name, enough = self.aged.counts, ENOUGH * self.aged.made
        below = [parent for parent in self.dying_below if parent.path == self.aged.where]
        grown = self.after.get(name, 0) - self.before.get(name, 0)
        return max([grown, *map(_count_held, below)]) >= enough

    def as_json(self) -> dict[str, object]:
        """Schema age-1."""
        document: dict[str, object] = {
            "schema": SCHEMA, "did": self.did, "arm": self.arm, "before": dict(self.before),
            "after": dict(self.after), "verified": self.verified, "run": self.run,
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 3), "undone": list(self.undone),
            "problems": list(self.problems), "remarks": list(self.remarks),
            "hang": [dataclasses.asdict(parent) for parent in self.dying_below],
            "runs": [{"run": run.run, "what": run.what, "state": run.state} for run in self.runs],
        }  # fmt: skip
        if self.aged is not None:
            document |= {
                "asked": self.asked, "made": self.aged.made, "where": self.aged.where,
                "bytes_each": self.aged.bytes_each,
            }  # fmt: skip
        return document


def _count_held(parent: parents.Parent) -> int:
    """Count by the kernel, or on v1 by the pages that no living cgroup holds."""
    return parent.dying if parent.counted else parent.held_bytes // PAGE


def kinds() -> dict[str, host_state.Kind]:
    modules = cast("tuple[host_state.Kind, ...]", app.discover(host_state))
    return {kind.NAME: kind for kind in modules}


@dataclasses.dataclass(frozen=True)
class Request:
    """What to put on this host. `options` holds those that the kind takes, as text."""

    state: str
    count: int
    home: pathlib.Path
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    arm: str | None = None  # None: hot
    note: str = ""


def put_on_host(
    request: Request, on_progress: Callable[[int, str], None] = host_state.ignore_progress
) -> Report:
    """Create the state, and leave it recorded in the undo journal; on an error nothing is left."""
    kind = _find_kind(request)
    homes.need_writable(request.home)
    before = counts()
    began = time.monotonic()
    wanted = host_state.Request(
        request.count, request.home, request.options, on_progress=on_progress
    )
    what = f"{WHAT}{request.state} {request.count}"
    with stop_signals.interrupt_on_signals(), journal.Journal(what) as run_journal:
        aged = kind.age(wanted, run_journal)
        if wanted.stop.is_set():
            raise KeyboardInterrupt
        took = time.monotonic() - began
        after = counts()
        run_journal.keep()
    report = Report(
        request.state, request.arm or "hot", before, after, request.count, aged, run_journal.run,
        took, _dying_below(aged.counts), remarks=aged.remarks,
    )  # fmt: skip
    _note(request.home, report, request.note)
    return report


def plan(request: Request) -> Report:
    """Return what `put_on_host` would create; raises as it would, and changes nothing."""
    kind = _find_kind(request)
    planned = kind.plan(host_state.Request(request.count, request.home, request.options))
    now = counts()
    return Report(request.state, None, now, now, request.count, planned, dry_run=True)


def plan_undo(*, purge: bool = False) -> Report:
    """Return the runs that an undo, or a purge, would undo."""
    now = counts()
    drops = "would drop the page, dentry and inode caches of the whole host"
    return Report(
        "purge" if purge else "undo", None, now, now, runs=runs(),
        remarks=(drops,) if purge else (), dry_run=True,
    )  # fmt: skip


def note_uptime(home: pathlib.Path, *, arm: str | None = None, text: str = "") -> Report:
    """Note uptime, boot, kernel and arm: uptime cannot be created."""
    homes.need_writable(home)
    now = counts()
    identity = perf.read_identity()
    up = times.format_duration(round(kernel.read_uptime()))
    remark = f"{identity.host}: up {up}, boot {identity.boot}, kernel {platform.release()}"
    report = Report("uptime", arm or _current_arm(home), now, now, remarks=(remark,))
    _note(home, report, text)
    return report


def purge(
    home: pathlib.Path, *, arm: str | None = None, text: str = "", root: pathlib.Path = sources.ROOT
) -> Report:
    """Undo what age did, then drop the caches of the whole host; only a reboot clears the rest."""
    homes.need_writable(home)
    before = counts(root)
    drop = root / "proc/sys/vm/drop_caches"
    # Checked first: without permission the host must stay as it is.
    with _explain_refusal():
        os.close(os.open(drop, os.O_WRONLY | os.O_CLOEXEC))
    done, problems = journal.clean(kept=True, what=WHAT)
    with _explain_refusal():
        # Dentries and inodes first: each holds pages that can only be freed afterwards.
        for caches in ("2", "3"):
            drop.write_text(caches)
    after = _settled(root)
    remarks: tuple[str, ...] = ()
    if dying := after.get("dying"):
        held = f"{dying:,} memory cgroups are still dying, held by memory that other processes keep"
        remarks = (f"{held} (files on tmpfs, locked pages, sockets); a reboot frees them",)
    report = Report(
        "purge", arm or "purged", before, after, undone=tuple(done), problems=tuple(problems),
        remarks=remarks, dying_below=_dying_below("dying", root),
    )  # fmt: skip
    _note(home, report, text)
    return report


@contextlib.contextmanager
def _explain_refusal() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.MissingPermissionError(
            f"cannot drop the caches: {error}",
            why="this needs root, and the host itself rather than a container",
            todo="sudo overnight age purge --yes",
        ) from error


def undo(home: pathlib.Path, *, arm: str | None = None, text: str = "") -> Report:
    """Undo everything that age did on this host, also after kill -9. Safe to repeat."""
    before = counts()
    known = runs()
    running = tuple(run for run in known if run.state == "running")
    done, problems = journal.clean(kept=True, what=WHAT)
    after = _settled() if done else counts()
    remarks = tuple(
        remark
        for name, kind in kinds().items()
        if any(run.what.startswith(f"{WHAT}{name} ") for run in known)
        and (remark := kind.remains())
    )
    report = Report(
        "undo", arm, before, after, undone=tuple(done), problems=tuple(problems), remarks=remarks,
        dying_below=_dying_below("dying"), runs=running,
    )  # fmt: skip
    if done or arm or text:
        try:
            _note(home, report, text)
        except OSError as error:  # the undo itself succeeded
            remark = f"cannot note the arm: {error}"
            report = dataclasses.replace(report, remarks=(*remarks, remark))
    return report


def list_states() -> Report:
    now = counts()
    known = tuple(f"{name}: {kind.ABOUT}" for name, kind in kinds().items())
    return Report("list", None, now, now, runs=runs(), remarks=known)


def runs() -> tuple[journal.Left, ...]:
    """Return the runs of age that are not undone."""
    return journal.runs(what=WHAT)


def counts(root: pathlib.Path = sources.ROOT) -> dict[str, int]:
    return {name: n for kind in kinds().values() for name, n in kind.count(root).items()}


def _find_kind(request: Request) -> host_state.Kind:
    known = kinds()
    if request.state not in known:
        raise errors.UsageError(
            f"there is no state {request.state!r}",
            why=f"states: {', '.join(known)}, uptime, purge",
            todo="`overnight age --list` describes them",
        )
    if not request.count:
        raise errors.UsageError(
            f"no number of {request.state} was given",
            why="a state needs a number above 0",
            todo=f"overnight age {request.state} 15000",
        )
    kind = known[request.state]
    for option in request.options:
        if option not in kind.TAKES:
            takes = ", ".join(f"--{name}" for name in sorted(kind.TAKES))
            raise errors.UsageError(
                f"{request.state} does not take --{option}",
                why=f"it takes {takes}",
                todo=f"omit --{option}",
            )
    return kind


def _dying_below(counted: str, root: pathlib.Path = sources.ROOT) -> tuple[parents.Parent, ...]:
    """Return the cgroups with dying ones below them, as the census counts them."""
    if counted != "dying":
        return ()
    try:
        return census.take(root, seconds=0.0).parents
    except errors.CannotError:
        return ()


def _settled(root: pathlib.Path = sources.ROOT) -> dict[str, int]:
    """Return the counts once they are steady: the kernel frees cgroups in the background."""
    now = counts(root)
    steady = end = time.monotonic()
    while time.monotonic() < min(end + SETTLE_SECONDS, steady + STEADY_SECONDS):
        time.sleep(0.05)
        before, now = now, counts(root)
        if now.get("dying", 0) < before.get("dying", 0):
            steady = time.monotonic()
    return now


def _current_arm(home: pathlib.Path) -> str:
    """Return the arm last noted in this boot, else one by uptime."""
    last = arms.last_of(arms.read(home), perf.read_identity().boot)
    if last is not None and last.arm is not None:
        return last.arm
    return "cold" if kernel.read_uptime() < YOUNG_SECONDS else "hot"


def _note(home: pathlib.Path, report: Report, text: str) -> None:
    identity = perf.read_identity()
    arms.append(
        home,
        arms.Arm(
            times.now_us(), identity.host, identity.boot, platform.release(), kernel.read_uptime(),
            report.arm, report.did, report.run, text, report.after,
        ),
    )  # fmt: skip
