"""Zombie memory cgroups, as a crash-looping agent leaks them: their directories gone, a page still charged.

The page is one of a file on /dev/shm, so nothing but its removal lets them go. One file holds the pages of
all: the undoing is to remove a file and a directory, however far the making came.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from overnight import errors, sources
from overnight.load import host_state
from overnight.load.host_state import _zombie_maker
from overnight.model import cgroups, sizes
from overnight.sources.memorycgroups import counts, parents

if TYPE_CHECKING:
    from overnight.undo import journal

__all__ = ["ABOUT", "NAME", "TAKES", "Made", "age", "count", "make", "parent_of", "remains", "set_limit"]  # fmt: skip

NAME = "memory-cgroups"
ABOUT = "zombie memory cgroups: removed, and kept by the kernel for one page each"
TAKES = frozenset({"under", "limit", "rate"})
SHM = pathlib.Path("/dev/shm")  # noqa: S108 - a name with 32 bits of chance, opened with O_EXCL
END_SECONDS = 10.0
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Made:
    """What came of it. `charged_each` is what the kernel charges to the parent for one of them."""

    parent: pathlib.Path
    count: int
    seconds: float
    charged_each: int


def age(request: host_state.Request, journal: journal.Journal) -> host_state.Aged:
    """Below a parent of the run's own, with `limit` bytes of room above what they hold."""
    layout = _layout()
    rate = request.options.get("rate")
    limit = request.options.get("limit")
    room = None if limit is None else sizes.parse_size(limit)
    made = make(
        parent_of(layout, journal.run, request.options.get("under", "/")), request.count, journal,
        rate=None if rate is None else float(rate), stop=request.stop, tell=request.tell, share=request.share,
    )  # fmt: skip
    remarks: tuple[str, ...] = ()
    if room is not None:
        whole = set_limit(made.parent, room)
        remarks = (f"limited to {sizes.format_size(whole)}: what they hold and {sizes.format_size(room)}",)  # fmt: skip
    where = "/" + str(made.parent.relative_to(counts.folder_of(layout, host_state.ROOT)))
    # As the census writes it.
    key = cgroups.key_of(os.fsencode(where))
    return host_state.Aged(made.count, key, made.charged_each, "dying", remarks)


def count(root: pathlib.Path = host_state.ROOT) -> dict[str, int]:
    """As `overnight census` counts."""
    try:
        return dataclasses.asdict(counts.read_census(counts.read_layout(root), root))
    except sources.NoDataError:
        return {}


def remains(root: pathlib.Path = host_state.ROOT) -> str:
    """Nothing: what is gone from the count is freed."""
    del root
    return ""


def parent_of(layout: cgroups.Layout, run: str, under: str = "/") -> pathlib.Path:
    """The parent that a run may call its own, below `under`, which must be there already."""
    top = pathlib.Path(counts.folder_of(layout, host_state.ROOT))
    inside = pathlib.PurePosixPath("/" + under).parts[1:]
    place = top.joinpath(*inside)
    if ".." in inside or not place.is_dir():
        raise errors.UsageError(
            f"there is no memory cgroup {under}",
            why=f"it would be {place}",
            todo="name one that is there, as systemd-cgls shows it: --under /system.slice",
        )
    return place / run


def make(
    parent: pathlib.Path,
    count: int,
    journal: journal.Journal,
    *,
    rate: float | None = None,
    stop: threading.Event | None = None,
    tell: Callable[[int, str], None] = host_state.silence,
    share: float = host_state.SHARE,
    name: str = "z",
) -> Made:
    """So many zombies below `parent`, which is made where it is not there; `rate` a second at most.

    Everything is in the ledger before it is made. When `stop` is set it ends with those made so far.
    CannotError before more than `share` of the available memory is taken.
    """
    _need_root()
    layout = _layout()
    free = host_state.available()
    most = int(free * share)
    host_state.refuse_more_than(
        most, count, parents.own_cost(os.cpu_count() or 1) + PAGE, "of them"
    )
    _need_tmpfs(count)
    _own(parent, parent / name, layout, journal)
    pages = SHM / f"{journal.run}-{secrets.token_hex(4)}"
    journal.write("file", pages)
    used = "memory.usage_in_bytes" if layout.memory_version == 1 else "memory.current"
    plan = {
        "child": str(parent / name), "leave": _home(layout), "pages": str(pages), "count": count,
        "usage": str(parent / used), "rate": rate or 0, "floor": free - most, "most": most,
    }  # fmt: skip
    began = time.monotonic()
    last = _run(plan, journal, stop or threading.Event(), tell)
    made, charged = int(last["made"]), int(last["charged"])
    each = max(0, charged) / max(1, made)
    if last["why"] == "cost":
        host_state.refuse_more_than(most, count, each, "of them")
    if last["why"] == "floor":
        raise errors.CannotError(
            f"memory became short after {made:,} of them",
            why=f"less than {sizes.format_size(free - most)} was available, and the host must not suffer",
            todo="find out what else takes memory, or ask for fewer",
        )
    return Made(parent, made, time.monotonic() - began, round(each))


def set_limit(parent: pathlib.Path, room: int) -> int:
    """Limit a parent to what is charged there and `room` bytes. The limit.

    From the usage *after* they were made: one that is set before is used up by what they cost.
    """
    v1 = (parent / "memory.limit_in_bytes").exists()
    used, limit = ("memory.usage_in_bytes", "memory.limit_in_bytes") if v1 else ("memory.current", "memory.max")  # fmt: skip
    whole = int((parent / used).read_text()) + room
    (parent / limit).write_text(str(whole))
    return whole


def _run(
    plan: dict[str, object],
    journal: journal.Journal,
    stop: threading.Event,
    tell: Callable[[int, str], None],
) -> dict[str, str | int]:
    """The maker's last words. It carries the ledger's mark, and ends when nobody listens."""
    command = [sys.executable, "-I", str(_zombie_maker.__file__), json.dumps(plan)]
    last: dict[str, str | int] = {"made": 0, "charged": 0, "why": "failed"}
    with subprocess.Popen(
        command,
        env=journal.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as maker:
        assert maker.stdout is not None
        assert maker.stderr is not None
        try:
            rest, asked = b"", False
            while True:
                if stop.is_set() and not asked:
                    asked = (
                        True  # once: an interpreter that is about to end would die of the second
                    )
                    maker.terminate()
                if not select.select([maker.stdout], [], [], 0.05)[0]:
                    continue
                if not (read := os.read(maker.stdout.fileno(), 65536)):
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    last = json.loads(line)
                    each = int(last["charged"]) / max(1, int(last["made"]))
                    tell(int(last["made"]), f"{sizes.format_size(max(0, each))} each")
            said = maker.stderr.read().decode(errors="replace").strip().splitlines()
            code = maker.wait(END_SECONDS)
        except BaseException:
            maker.kill()
            raise
    if asked and code == -signal.SIGTERM:  # before it could listen for that: nothing was made
        return {**last, "why": "stopped"}
    if code:
        raise errors.CannotError(
            f"making memory cgroups failed after {last['made']:,}: {said[-1] if said else code}",
            why="the kernel or another program would not let it be done",
            todo="look at who else is busy in that cgroup, and at dmesg; what was made is undone",
        )
    return last


def _own(
    parent: pathlib.Path, child: pathlib.Path, layout: cgroups.Layout, journal: journal.Journal
) -> None:
    """The parent, in the ledger where it is ours; a given one stays, and only the child is ours."""
    try:
        journal.write("cgroup", child if parent.is_dir() else parent)
    except ValueError as error:
        raise errors.CannotError(
            f"{parent} is in no place where overnight makes cgroups",
            why=str(error),
            todo="mount the cgroups at /sys/fs/cgroup, as every distribution does",
        ) from error
    parent.mkdir(exist_ok=True)
    if layout.memory_version == 1:
        with contextlib.suppress(OSError):  # kernels before 5.11: else nothing is charged upwards
            (parent / "memory.use_hierarchy").write_text("1")
        return
    if "memory" not in (parent / "cgroup.controllers").read_text().split():
        above = parent.parent / "cgroup.subtree_control"
        raise errors.CannotError(
            f"the memory controller is off below {parent.parent}",
            why="cgroup v2 gives it only to those below whose parent passes it on",
            todo=f"echo +memory > {above}, or another --under",
        )
    try:
        (parent / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        raise errors.CannotError(
            f"{parent} does not pass the memory controller on: {error}",
            why="cgroup v2 does not let a cgroup have processes and children with controllers",
            todo="name a cgroup without processes of its own",
        ) from error


def _layout() -> cgroups.Layout:
    try:
        layout = counts.read_layout(host_state.ROOT)
    except sources.NoDataError as error:
        raise errors.CannotError(
            f"no memory cgroups can be made: {error}",
            why="the kernel has no memory controller here, or this is a container that sees a part of it",
            todo="run it on the host itself; with cgroup_disable=memory on its command line, boot without",
        ) from error
    top = pathlib.Path(counts.folder_of(layout, host_state.ROOT))
    if layout.memory_version == 2 and "memory" not in (top / "cgroup.controllers").read_text().split():  # fmt: skip
        raise errors.CannotError(
            "no memory cgroups can be made: cgroup v2 has no memory controller",
            why="it is off, or taken by a cgroup v1 mount that is not here",
            todo="look at cgroup_disable= in /proc/cmdline",
        )
    return layout


def _home(layout: cgroups.Layout) -> str:
    """Where the maker belongs: the memory cgroup that this process is in."""
    top = counts.folder_of(layout, host_state.ROOT)
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        wanted = number == "0" if layout.memory_version == 2 else "memory" in controllers.split(",")
        if wanted:
            return f"{top}{path.rstrip('/')}/cgroup.procs"
    return f"{top}/cgroup.procs"


def _need_root() -> None:
    if os.geteuid() != 0:
        raise errors.MissingPermissionError(
            "memory cgroups are made by root alone",
            why=f"this is user {os.geteuid()}",
            todo="sudo overnight age memory-cgroups …",
        )


def _need_tmpfs(count: int) -> None:
    """A page that nothing but its removal lets go: on tmpfs, small, and with room for all."""
    found = None
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[4:5] == [str(SHM)]:
            found = right.split()  # the last one hides the others
    if found is None or found[0] != "tmpfs":
        raise errors.CannotError(
            f"{SHM} is no tmpfs",
            why="each of them is kept by a page that is in memory alone",
            todo=f"mount -t tmpfs tmpfs {SHM}",
        )
    if any(option.startswith("huge=") and option != "huge=never" for option in found[2].split(",")):
        raise errors.CannotError(
            f"{SHM} has huge pages",
            why="a page of one would be shared by hundreds of cgroups, and keep only the first",
            todo=f"mount -o remount,huge=never {SHM}",
        )
    room = os.statvfs(SHM)
    if room.f_bavail * room.f_frsize < count * PAGE:
        raise errors.CannotError(
            f"{SHM} has no room for {count:,} pages",
            why=f"{sizes.format_size(room.f_bavail * room.f_frsize)} are free",
            todo=f"remove files there, or mount -o remount,size=… {SHM}",
        )
