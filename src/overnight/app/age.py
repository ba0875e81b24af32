"""`overnight age`: state on a host before a recording, the arm it is in, and everything taken off again."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import platform
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from overnight import app, errors, sources
from overnight.app import census
from overnight.app import home as homes
from overnight.load import host_state
from overnight.model import times
from overnight.sources import perf
from overnight.store import arms
from overnight.undo import journal

if TYPE_CHECKING:
    from overnight.sources.memorycgroups import parents

__all__ = [
    "WHAT",
    "Report",
    "counts",
    "kinds",
    "listing",
    "note",
    "purge",
    "put_on_host",
    "runs",
    "undo",
]

SCHEMA = "overnight.age/1"
WHAT = "age "  # how the ledgers of this command begin to say what they are
ENOUGH = 0.95  # others make and free some meanwhile
SETTLE_SECONDS = 10.0
STEADY_SECONDS = 0.5
YOUNG_SECONDS = 3600.0
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Report:
    """What was done, and what the host counts before and after."""

    did: str
    arm: str | None
    before: Mapping[str, int]
    after: Mapping[str, int]
    asked: int = 0
    aged: host_state.Aged | None = None
    run: str = ""
    seconds: float = 0.0
    hang: tuple[parents.Parent, ...] = ()
    undone: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    runs: tuple[journal.Left, ...] = ()

    @property
    def verified(self) -> bool:
        """Whether the host counts what was made; and, of an undoing, whether all of it was done."""
        if self.aged is None:
            return not self.problems
        name, enough = self.aged.counts, ENOUGH * self.aged.made
        if any(one.path == self.aged.where and _holds(one) >= enough for one in self.hang):
            return True
        return self.after.get(name, 0) - self.before.get(name, 0) >= enough

    def as_json(self) -> dict[str, object]:
        """Schema age-1."""
        document: dict[str, object] = {
            "schema": SCHEMA, "did": self.did, "arm": self.arm, "before": dict(self.before),
            "after": dict(self.after), "verified": self.verified, "run": self.run,
            "seconds": round(self.seconds, 3), "undone": list(self.undone),
            "problems": list(self.problems), "remarks": list(self.remarks),
            "hang": [dataclasses.asdict(one) for one in self.hang],
            "runs": [{"run": one.run, "what": one.what, "state": one.state} for one in self.runs],
        }  # fmt: skip
        if self.aged is not None:
            document |= {
                "asked": self.asked, "made": self.aged.made, "where": self.aged.where,
                "bytes_each": self.aged.bytes_each,
            }  # fmt: skip
        return document


def _holds(parent: parents.Parent) -> int:
    """So many hang there as the kernel says, or on v1 as many pages as nobody who is alive has."""
    return parent.dying if parent.counted else parent.held_bytes // PAGE


def kinds() -> dict[str, host_state.Kind]:
    """Every kind of state that there is, by its name on the command line."""
    modules = cast("tuple[host_state.Kind, ...]", app.discover(host_state))
    return {kind.NAME: kind for kind in modules}


def put_on_host(
    name: str, request: host_state.Request, *, arm: str | None = None, text: str = ""
) -> Report:  # fmt: skip
    """Make the state and leave it there, in the ledger; on an error nothing of it is left."""
    kind = _kind(name, request)
    homes.need_writable(request.home)
    before = counts()
    began = time.monotonic()
    with journal.Journal(f"{WHAT}{name} {request.count}") as run_journal:
        aged = kind.age(request, run_journal)
        if request.stop.is_set():
            raise KeyboardInterrupt
        took = time.monotonic() - began
        after = counts()
        run_journal.keep()
    report = Report(
        name, arm or "hot", before, after, request.count, aged, run_journal.run, took,
        _hang(aged.counts), remarks=aged.remarks,
    )  # fmt: skip
    _note(request.home, report, text)
    return report


def note(home: pathlib.Path, *, arm: str | None = None, text: str = "") -> Report:
    """Uptime cannot be made: it is noted, with the boot, the kernel and the arm."""
    homes.need_writable(home)
    now = counts()
    who = perf.read_identity()
    up = times.format_duration(round(_uptime()))
    said = (f"{who.host}: up {up}, boot {who.boot}, kernel {platform.release()}",)
    report = Report("uptime", arm or _arm_now(home), now, now, remarks=said)
    _note(home, report, text)
    return report


def purge(
    home: pathlib.Path,
    *,
    arm: str | None = None,
    text: str = "",
    root: pathlib.Path = host_state.ROOT,
    folder: pathlib.Path | None = None,
) -> Report:
    """What age put on, then the caches of the whole host; what still stays needs a reboot."""
    homes.need_writable(home)
    before = counts(root)
    drop = root / "proc/sys/vm/drop_caches"
    # Tried first: who may not purge is to find the host as it was.
    with _told_if_refused():
        os.close(os.open(drop, os.O_WRONLY | os.O_CLOEXEC))
    done, problems = journal.clean(folder, kept=True, what=WHAT)
    with _told_if_refused():
        # Dentries and inodes first: each holds pages that only then can go.
        for what in ("2", "3"):
            drop.write_text(what)
    after = _settled(root)
    remarks = _left_by_purge(after)
    report = Report(
        "purge", arm or "purged", before, after, undone=tuple(done), problems=tuple(problems),
        remarks=remarks, hang=_hang("dying", root),
    )  # fmt: skip
    _note(home, report, text)
    return report


@contextlib.contextmanager
def _told_if_refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.MissingPermissionError(
            f"the caches cannot be dropped: {error}",
            why="that is for root alone, and for the host itself",
            todo="sudo overnight age purge --yes, outside of a container",
        ) from error


def undo(
    home: pathlib.Path,
    *,
    arm: str | None = None,
    text: str = "",
    folder: pathlib.Path | None = None,
) -> Report:
    """Everything that age did on this host, also what a kill -9 left half-made. Twice is no fault."""
    before = counts()
    running = tuple(one for one in runs(folder) if one.state == "running")
    mine = [one.what for one in runs(folder)]
    done, problems = journal.clean(folder, kept=True, what=WHAT)
    after = _settled() if done else counts()
    remarks = tuple(
        said
        for name, kind in kinds().items()
        if any(what.startswith(f"{WHAT}{name} ") for what in mine) and (said := kind.remains())
    )
    report = Report(
        "undo", arm, before, after, undone=tuple(done), problems=tuple(problems), remarks=remarks,
        hang=_hang("dying"), runs=running,
    )  # fmt: skip
    if done or arm or text:
        try:
            _note(home, report, text)
        except OSError as error:  # what was taken off is off, whatever can be written
            said = f"the arm could not be noted: {error}"
            report = dataclasses.replace(report, remarks=(*remarks, said))
    return report


def listing(folder: pathlib.Path | None = None) -> Report:
    """What is on this host, what it counts, and what can be put on."""
    now = counts()
    known = tuple(f"{name}: {kind.ABOUT}" for name, kind in kinds().items())
    return Report("list", None, now, now, runs=runs(folder), remarks=known)


def runs(folder: pathlib.Path | None = None) -> tuple[journal.Left, ...]:
    """What age did and did not take off yet."""
    return journal.runs(folder, what=WHAT)


def counts(root: pathlib.Path = host_state.ROOT) -> dict[str, int]:
    """How much of every kind of state this host has."""
    found: dict[str, int] = {}
    for kind in kinds().values():
        found |= kind.count(root)
    return found


def _kind(name: str, request: host_state.Request) -> host_state.Kind:
    known = kinds()
    if name not in known:
        raise errors.UsageError(
            f"there is no state {name!r} to put on a host",
            why=f"there are {', '.join(known)}",
            todo="overnight age --help   lists them",
        )
    for option in request.options:
        if option not in known[name].TAKES:
            takes = ", ".join(f"--{one}" for one in sorted(known[name].TAKES))
            raise errors.UsageError(
                f"{name} does not take --{option}", why=f"it takes {takes}", todo="leave it out"
            )
    return known[name]


def _hang(counted: str, root: pathlib.Path = host_state.ROOT) -> tuple[parents.Parent, ...]:
    """Below which cgroups they are, as the census says."""
    if counted != "dying":
        return ()
    try:
        return census.take(root, seconds=0.0).parents
    except errors.CannotError:
        return ()


def _settled(root: pathlib.Path = host_state.ROOT) -> dict[str, int]:
    """The counts once they fall no more: the kernel frees cgroups a moment later, in the background."""
    now = counts(root)
    steady = end = time.monotonic()
    while time.monotonic() < min(end + SETTLE_SECONDS, steady + STEADY_SECONDS):
        time.sleep(0.05)
        before, now = now, counts(root)
        if now.get("dying", 0) < before.get("dying", 0):
            steady = time.monotonic()
    return now


def _left_by_purge(after: Mapping[str, int]) -> tuple[str, ...]:
    if not after.get("dying"):
        return ()
    held = f"{after['dying']:,} memory cgroups are dying still, held by what others keep in memory"
    return (f"{held} (files on tmpfs, locked pages, sockets): only they, or a reboot, let them go",)


def _arm_now(home: pathlib.Path) -> str:
    """As last noted in this boot; else by the uptime."""
    last = arms.last_of(arms.read(home), perf.read_identity().boot)
    if last is not None and last.arm is not None:
        return last.arm
    return "cold" if _uptime() < YOUNG_SECONDS else "hot"


def _uptime() -> float:
    text = sources.read_once("/proc/uptime") or b"0"
    return float(text.split()[0])


def _note(home: pathlib.Path, report: Report, text: str) -> None:
    who = perf.read_identity()
    arms.append(
        home,
        arms.Arm(
            time.time_ns() // 1000, who.host, who.boot, platform.release(), _uptime(), report.arm,
            report.did, report.run, text, report.after,
        ),
    )  # fmt: skip
