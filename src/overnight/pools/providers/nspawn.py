"""Members that are machines inside this one: a real systemd, booted on an overlay by systemd-nspawn.

A member is a folder (`members/OWNER/MEMBER`, made in one step with its tags) and cgroups of its name; whatever
runs in those is the machine, whoever started it. The overlay and what nspawn keeps of itself are mounted
where only the machine sees them, so they end with its last process. Nothing else is ever left to clear up.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from overnight import errors, pools
from overnight.machines import container
from overnight.pools.providers import _capacity, _folder_lock, _images
from overnight.undo import operations

__all__ = ["NAME", "Machines", "create"]

NAME = "nspawn"
START_SECONDS = 30.0
TAIL = 600
KEEP_SECONDS = 86400.0  # the log of one that died may be wanted
NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,47}")  # what a host may be called
SIZE = re.compile(r"([1-9][0-9]{0,6})([MG])")
LIMITS = ("memory.max", "memory.limit_in_bytes")  # v2, v1
# In mounts of its own, so that the host has none of them. `slave`: what the host unmounts goes here too.
START = container.ENTER + 'exec unshare --mount --propagation slave /bin/sh -c "$MOUNT" nspawn "$@"'
MOUNT = """
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=upper,workdir=work" root || exit
mount -t tmpfs -o mode=0755 tmpfs /run/systemd/nspawn || exit
exec systemd-nspawn "$@"
"""


def create(home: pathlib.Path) -> Machines:
    """The provider of a data home."""
    return Machines(home / "pools")


class Machines:
    """Machines outlive whoever booted them, and end as if their power went.

    `on_step` is called at each step of a launch; tests kill the launcher there.
    """

    name = NAME
    inventory_lag_seconds = 0.0

    def __init__(
        self, folder: pathlib.Path, on_step: Callable[[str], None] = lambda _step: None
    ) -> None:
        self._folder = folder / NAME
        self._members = self._folder / "members"
        self._trees = _images.Images(self._folder / "trees", folder / "templates")
        self._steps = on_step

    def check(self, order: pools.Order) -> None:
        """An instance type that is none is refused at the door; its template may come later."""
        _limit(order.instance_type)

    def launch(self, order: pools.Order) -> pools.Machine:
        """Boot the machine of one member; the same member twice is the same machine."""
        _require()
        limit = _limit(order.instance_type)
        place = self._members / _word(order.owner) / _word(order.member_id)
        layers = self._trees.template(order.template)
        try:
            with _folder_lock.locked(place):
                self._steps("folder")
                if (running := _machine(place)) is not None:
                    return running
                try:
                    return self._start(place, order, layers, limit)
                except (OSError, pools.ProviderError) as error:
                    _end(place)  # raises where something is left
                    self._trees.drop_unless(self._members)
                    raise _failed(error, nothing_made=True) from error
        except OSError as error:
            raise _failed(error, nothing_made=False) from error

    def _start(
        self, place: pathlib.Path, order: pools.Order, layers: list[pathlib.Path], limit: int
    ) -> pools.Machine:
        _clear(place)  # what a launch that was cut off has left
        _capacity.require(place)
        _plant(place, [*layers, self._trees.base()], order)
        self._steps("planted")
        for cgroup in _cgroups(place):
            cgroup.mkdir()
        _set_limit(place, limit)
        self._steps("cgroups")
        started = _spawn(place)
        # Waited for in the background: a child of ours that ended must not look alive.
        threading.Thread(target=started.wait, name=f"reap {started.pid}", daemon=True).start()
        self._steps("spawned")
        deadline = time.monotonic() + START_SECONDS
        while not (leader := container.leader(container.processes(_cgroups(place)[:1]))):
            if started.poll() is not None or time.monotonic() > deadline:
                raise _not_started(place)
            time.sleep(0.01)
        self._steps("booting")
        return _told(place, leader)

    def terminate(self, machine_id: str) -> None:
        """End it at once; nothing is left of it."""
        name = _word(machine_id)
        try:
            for owner in _listed(self._members):
                with _folder_lock.locked(owner / name, make=False) as there:
                    if there:
                        _end(owner / name)
            self._trees.drop_unless(self._members)
        except OSError as error:
            raise pools.ProviderError("provider_error", f"{name} does not end: {error}") from error

    def inventory(self, owner: str) -> Sequence[pools.Machine]:
        """Every machine of the owner that runs; what is left of others is cleared up on the way."""
        mine = self._members / _word(owner)
        try:
            places = _listed(mine)
            found = [_machine(place) or _bury(place) for place in places]
            if places and not any(found):
                self._trees.drop_unless(self._members)
        except OSError as error:
            raise pools.ProviderError(
                "provider_error", f"machines cannot be looked for: {error}"
            ) from error
        return [machine for machine in found if machine is not None]


def _listed(folder: pathlib.Path) -> list[pathlib.Path]:
    """What is in a folder that may be removed at any moment."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _require() -> None:
    """Booting takes root, nspawn and cgroups: without those a machine would not be found again."""
    try:
        container.require()
        if not container.tops():
            raise errors.CannotError(
                "no machine can be booted", why="no cgroups are mounted", todo=""
            )
    except errors.CannotError as error:
        raise pools.ProviderError(
            "provider_not_available",
            f"{error.what}: {error.why}",
            todo="install systemd-container and run `overnight pool serve` as root; overnight doctor",
            nothing_made=True,
        ) from error


def _failed(error: OSError | pools.ProviderError, *, nothing_made: bool) -> pools.ProviderError:
    if isinstance(error, OSError):
        reason = "provider_quota_exceeded" if error.errno in NO_ROOM else "provider_error"
        error = pools.ProviderError(reason, str(error))
    error.nothing_made = nothing_made
    return error


def _word(name: str) -> str:
    if not WORD.fullmatch(name):
        raise pools.ProviderError("provider_error", f"{name!r} is no name of ours")
    return name


def _limit(instance_type: str) -> int:
    """Bytes of memory; 0 for as much as there is."""
    if not instance_type:
        return 0
    size = SIZE.fullmatch(instance_type)
    if size is None:
        raise pools.ProviderError(
            "instance_type_unknown",
            f"{instance_type!r} is no size of a machine",
            todo="an instance type of nspawn is its memory, like 512M or 2G; or leave it out",
            nothing_made=True,
        )
    return int(size[1]) << {"M": 20, "G": 30}[size[2]]


def _plant(place: pathlib.Path, layers: list[pathlib.Path], order: pools.Order) -> None:
    """What the machine is mounted from; its order is where only its root can read it."""
    for name, mode in (("upper", 0o755), ("work", 0o700), ("root", 0o755)):
        (place / name).mkdir()
        (place / name).chmod(mode)
    for number, layer in enumerate(layers):
        # By a link: the options of a mount take no colon and no comma in a path.
        (place / f"lower{number}").symlink_to(layer.resolve())
    folder = place / "upper/var/lib/overnight"
    folder.mkdir(parents=True)
    for path, mode in ((folder, 0o700), (folder.parent, 0o755), (folder.parent.parent, 0o755)):
        path.chmod(mode)
    asked = {
        "member_id": order.member_id, "pool": order.pool, "template": order.template,
        "endpoint": order.endpoint, "token": order.token,
    }  # fmt: skip
    (folder / "order.json").touch(mode=0o600)
    (folder / "order.json").write_text(json.dumps(asked))


def _spawn(place: pathlib.Path) -> subprocess.Popen[bytes]:
    operations.NSPAWN.mkdir(parents=True, exist_ok=True)
    lower = sorted(path.name for path in place.glob("lower*"))
    _, bound = container.interpreter()
    words = container.nspawn_arguments(_name(place), place / "root", read_only=bound)
    with (place / "log").open("ab") as log:
        # A session of its own: Ctrl-C at a terminal is not for it.
        return subprocess.Popen(
            ["/bin/sh", "-c", START, "nspawn", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            cwd=place, umask=0o022,
            env={**container.environment(), "CGROUPS": " ".join(map(str, _cgroups(place))),
                 "LOWER": ":".join(lower), "MOUNT": MOUNT},
        )  # fmt: skip


def _not_started(place: pathlib.Path) -> pools.ProviderError:
    said = (place / "log").read_text(errors="replace")[-TAIL:].strip() or "it said nothing"
    no_room = any(os.strerror(number).lower() in said.lower() for number in NO_ROOM)
    return pools.ProviderError(
        "provider_quota_exceeded" if no_room else "provider_error",
        f"the machine {place.name} did not boot: {said}",
        todo="overnight doctor says what booting a machine takes",
    )


def _name(place: pathlib.Path) -> str:
    return f"{operations.MACHINES}{place.name}"


def _cgroups(place: pathlib.Path) -> tuple[pathlib.Path, ...]:
    return tuple(top / _name(place) for top in container.tops(memory=True))


def _set_limit(place: pathlib.Path, limit: int) -> None:
    if not limit:
        return
    for path in (cgroup / name for cgroup in _cgroups(place) for name in LIMITS):
        if path.exists():
            path.write_text(str(limit))
            return
    raise pools.ProviderError(
        "instance_type_unknown",
        "this host has no memory controller that could limit a machine",
        todo="leave the instance type out",
    )


def _machine(place: pathlib.Path) -> pools.Machine | None:
    """The machine of a folder, if anything of it runs."""
    running = container.processes(_cgroups(place))
    return _told(place, container.leader(running)) if running else None


def _told(place: pathlib.Path, leader: int) -> pools.Machine:
    address = f"127.0.0.1#{leader}" if leader else "127.0.0.1"
    return pools.Machine(id=place.name, member_id=place.name, address=address)


def _clear(place: pathlib.Path) -> None:
    """End what runs, and remove all but the log; raises where that cannot be done."""
    cgroups = _cgroups(place)
    # PID 1 takes everything of its machine along, even what has left the cgroups.
    if leader := container.leader(container.processes(cgroups)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader, signal.SIGKILL)
    for cgroup in cgroups:
        operations.remove_cgroups(str(cgroup))
    for path in place.iterdir():
        if path.is_symlink():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)


def _end(place: pathlib.Path) -> None:
    """Under its lock: nothing is left, not even the folder of its owner where that is empty."""
    _clear(place)
    shutil.rmtree(place)
    with contextlib.suppress(OSError):
        place.parent.rmdir()


def _bury(place: pathlib.Path) -> pools.Machine | None:
    """Clear up after one that does not run, unless somebody is at it; its log is kept for a day.

    What cannot be cleared up is told as a machine, so that somebody is woken for it.
    """
    try:
        with _folder_lock.locked(place, make=False, wait=False) as there:
            if not there:
                return None
            if (running := _machine(place)) is not None:
                return running
            _clear(place)
            log = place / "log"
            if not log.exists() or time.time() - log.stat().st_mtime > KEEP_SECONDS:
                _end(place)
    except BlockingIOError:
        return None
    except OSError:
        return _told(place, 0)
    return None
