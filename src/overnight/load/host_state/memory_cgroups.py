"""Dying (zombie) memory cgroups, as a crash-looping agent leaks them: removed, with one page still charged.

The page belongs to a file on /dev/shm, so only its removal frees them. One file holds all pages: an undo
removes one file and one directory, however many were created.
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
from typing import TYPE_CHECKING

from overnight import errors, sources
from overnight.load import host_state
from overnight.load.host_state import _zombie_maker
from overnight.model import cgroups, meminfo, mounts, sizes
from overnight.sources.memorycgroups import counts, parents

if TYPE_CHECKING:
    from overnight.undo import journal

NAME = "memory-cgroups"
ABOUT = "dying memory cgroups: removed, but kept by the kernel because of one page each"
TAKES = frozenset({"under", "limit", "rate"})
SHM = pathlib.Path("/dev/shm")  # noqa: S108 - a random name of 32 bits, opened with O_EXCL
END_SECONDS = 10.0
CHILD = "z"  # the name of every zombie
PAGE = os.sysconf("SC_PAGE_SIZE")


def age(request: host_state.Request, journal: journal.Journal) -> host_state.Aged:
    """Create them below a parent of the run, with `limit` bytes of room above their own memory."""
    layout = _layout()
    limit = request.options.get("limit")
    room = None if limit is None else sizes.parse_size(limit)
    parent = parent_of(layout, journal.run, request.options.get("under", "/"))
    created, each = make(parent, request, journal)
    remarks: tuple[str, ...] = ()
    if room is not None:
        whole = sizes.format_size(set_limit(parent, room))
        remarks = (f"memory limit {whole}: their own and {sizes.format_size(room)}",)
    return host_state.Aged(created, _key(layout, parent), each, "dying", remarks)


def plan(request: host_state.Request) -> host_state.Aged:
    layout, _, _ = _check_host(request)
    sizes.parse_size(request.options.get("limit", "0"))
    parent = parent_of(layout, "RUN", request.options.get("under", "/"))
    return host_state.Aged(0, _key(layout, parent), parents.dying_cost(), "dying")


def _key(layout: cgroups.Layout, parent: pathlib.Path) -> str:
    inside = parent.relative_to(counts.folder_of(layout, sources.ROOT))
    return cgroups.key_of(os.fsencode(f"/{inside}"))


def count(root: pathlib.Path = sources.ROOT) -> dict[str, int]:
    """Count as `overnight census` does."""
    try:
        return dataclasses.asdict(counts.read_census(counts.read_layout(root), root))
    except sources.NoDataError:
        return {}


def remains(root: pathlib.Path = sources.ROOT) -> str:
    """Nothing: the kernel frees what is no longer counted."""
    del root
    return ""


def parent_of(layout: cgroups.Layout, run: str, under: str = "/") -> pathlib.Path:
    """Return the path of a run's own parent below `under`, which must exist."""
    top = pathlib.Path(counts.folder_of(layout, sources.ROOT))
    inside = pathlib.PurePosixPath("/" + under).parts[1:]
    place = top.joinpath(*inside)
    if ".." in inside or not place.is_dir():
        raise errors.UsageError(
            f"there is no memory cgroup {under}",
            why=f"{place} does not exist",
            todo="name an existing one, as systemd-cgls shows it: --under /system.slice",
        )
    return place / run


def make(
    parent: pathlib.Path, request: host_state.Request, journal: journal.Journal
) -> tuple[int, int]:
    """Create zombies below a new `parent`; return how many, and what the kernel charges for one.

    Every change is in the journal first. When `request.stop` is set it ends with those created so far.
    """
    layout, free, most = _check_host(request)
    _own(parent, layout, journal)
    pages = SHM / f"{journal.run}-{secrets.token_hex(4)}"
    journal.write("file", pages)
    used = "memory.usage_in_bytes" if layout.memory_version == 1 else "memory.current"
    plan = {
        "child": str(parent / CHILD), "leave": _home(layout), "pages": str(pages), "count": request.count,
        "usage": str(parent / used), "rate": float(request.options.get("rate", 0)),
        "floor": free - most, "most": most,
    }  # fmt: skip
    last = _run(plan, request, journal)
    created = int(last["made"])
    each = max(0, int(last["charged"])) / max(1, created)
    if last["why"] == "cost":
        host_state.check_cost(NAME, request.count, each, most)
    if last["why"] == "floor":
        host_state.raise_short_memory(NAME, created, free - most)
    return created, round(each)


def _check_host(request: host_state.Request) -> tuple[cgroups.Layout, int, int]:
    """Return the layout, the available memory, and how much of it may be used; raise where it cannot be."""
    if os.geteuid() != 0:
        raise errors.MissingPermissionError(
            "cannot create memory cgroups without root",
            why=f"this process runs as user {os.geteuid()}",
            todo="sudo overnight age memory-cgroups 15000",
        )
    layout = _layout()
    free = meminfo.read_available()
    most = int(free * request.share)
    host_state.check_cost(NAME, request.count, parents.dying_cost(), most)
    _need_tmpfs(request.count)
    return layout, free, most


def set_limit(parent: pathlib.Path, room: int) -> int:
    """Limit a parent to its usage and `room` bytes; return the limit. Set earlier, their cost would use it up."""
    v1 = (parent / "memory.limit_in_bytes").exists()
    used, limit = ("memory.usage_in_bytes", "memory.limit_in_bytes") if v1 else ("memory.current", "memory.max")  # fmt: skip
    whole = int((parent / used).read_text()) + room
    (parent / limit).write_text(str(whole))
    return whole


def _run(
    plan: dict[str, object], request: host_state.Request, journal: journal.Journal
) -> dict[str, str | int]:
    """Run the program and return its last report. It has the journal's mark, and ends when the pipe closes."""
    command = [sys.executable, "-I", str(_zombie_maker.__file__), json.dumps(plan)]
    last: dict[str, str | int] = {"made": 0, "charged": 0, "why": "failed"}
    pipe, environment = subprocess.PIPE, journal.environment()
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, bufsize=0) as maker:
        assert maker.stdout is not None
        assert maker.stderr is not None
        try:
            rest, terminated = b"", False
            while True:
                if request.stop.is_set() and not terminated:
                    # Once: a second SIGTERM would kill an interpreter that is about to end.
                    terminated = True
                    maker.terminate()
                if not select.select([maker.stdout], [], [], 0.05)[0]:
                    continue
                if not (read := os.read(maker.stdout.fileno(), 65536)):
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    last = json.loads(line)
                    each = int(last["charged"]) / max(1, int(last["made"]))
                    request.on_progress(
                        int(last["made"]), f"{sizes.format_size(max(0, each))} each"
                    )
            stderr = maker.stderr.read().decode(errors="replace").strip().splitlines()
            code = maker.wait(END_SECONDS)
        except BaseException:
            maker.kill()
            raise
    # Before it installed its handler: nothing was created.
    if terminated and code == -signal.SIGTERM:
        return {**last, "why": "stopped"}
    if code:
        raise errors.CannotError(
            f"creating memory cgroups failed after {last['made']:,}: {stderr[-1] if stderr else code}",
            why="the kernel refused, or another program interfered; everything was undone",
            todo="see dmesg, and which processes use that cgroup",
        )
    return last


def _own(parent: pathlib.Path, layout: cgroups.Layout, journal: journal.Journal) -> None:
    try:
        journal.write("cgroup", parent)
    except ValueError as error:
        raise errors.CannotError(
            f"overnight does not create cgroups at {parent}",
            why=str(error),
            todo="mount cgroups at /sys/fs/cgroup, as every distribution does",
        ) from error
    parent.mkdir(exist_ok=True)
    if layout.memory_version == 1:
        # Kernels before 5.11: else nothing is charged to the parents.
        with contextlib.suppress(OSError):
            (parent / "memory.use_hierarchy").write_text("1")
        return
    if "memory" not in (parent / "cgroup.controllers").read_text().split():
        above = parent.parent / "cgroup.subtree_control"
        raise errors.CannotError(
            f"the memory controller is off below {parent.parent}",
            why="with cgroup v2 a parent must enable it for its children",
            todo=f"echo +memory > {above}, or choose another --under",
        )
    try:
        (parent / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        raise errors.CannotError(
            f"cannot enable the memory controller below {parent}: {error}",
            why="a cgroup v2 with processes cannot have children with controllers",
            todo="choose a cgroup without processes",
        ) from error


def _layout() -> cgroups.Layout:
    try:
        layout = counts.read_layout(sources.ROOT)
    except sources.NoDataError as error:
        raise errors.CannotError(
            f"cannot create memory cgroups: {error}",
            why="the kernel has no memory controller, or this is a container that does not see it",
            todo="run it on the host itself, booted without cgroup_disable=memory",
        ) from error
    top = pathlib.Path(counts.folder_of(layout, sources.ROOT))
    if layout.memory_version == 2 and "memory" not in (top / "cgroup.controllers").read_text().split():  # fmt: skip
        raise errors.CannotError(
            "cannot create memory cgroups: cgroup v2 has no memory controller",
            why="it is disabled, or used by a cgroup v1 mount outside this container",
            todo="check cgroup_disable= in /proc/cmdline",
        )
    return layout


def _home(layout: cgroups.Layout) -> str:
    """Return cgroup.procs of this process's own memory cgroup, which the program returns to."""
    top = counts.folder_of(layout, sources.ROOT)
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        wanted = number == "0" if layout.memory_version == 2 else "memory" in controllers.split(",")
        if wanted:
            return f"{top}{path.rstrip('/')}/cgroup.procs"
    return f"{top}/cgroup.procs"


def _need_tmpfs(count: int) -> None:
    """Check that pages on /dev/shm stay until removed: tmpfs, no huge pages, room for all."""
    mount = {mount.path: mount for mount in mounts.read_mounts()}.get(str(SHM))
    if mount is None or mount.type != "tmpfs":
        raise errors.CannotError(
            f"{SHM} is not a tmpfs",
            why="a page that exists only in memory keeps each cgroup alive",
            todo=f"mount -t tmpfs tmpfs {SHM}",
        )
    if any(option.startswith("huge=") and option != "huge=never" for option in mount.options):
        raise errors.CannotError(
            f"{SHM} has huge pages",
            why="hundreds of cgroups would share a huge page, and only the first would stay",
            todo=f"mount -o remount,huge=never {SHM}",
        )
    room = os.statvfs(SHM)
    if room.f_bavail * room.f_frsize < count * PAGE:
        raise errors.CannotError(
            f"{SHM} is too small for {count:,} pages",
            why=f"{sizes.format_size(room.f_bavail * room.f_frsize)} is free",
            todo=f"remove files there, or mount -o remount,size=… {SHM}",
        )
