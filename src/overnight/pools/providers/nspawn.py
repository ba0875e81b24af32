"""Members as machines inside this host: a real systemd, booted on an overlay by systemd-nspawn.

A member is a folder (`members/OWNER/MEMBER`, whose path holds its tags) and cgroups of its name; whatever runs
in those is the machine, whoever started it. The overlay and nspawn's own state are mounted in a private mount
namespace, so they end with the last process, and nothing else has to be cleaned up.
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
from collections.abc import Callable, Mapping, Sequence

from overnight import errors, pools
from overnight.machines import container
from overnight.model import files
from overnight.model.pool import Reason
from overnight.pools.providers import _capacity, _folder_lock, _host_name, _images
from overnight.undo import operations

NAME = "nspawn"
START_SECONDS = 30.0
TAIL = 600
CONSOLE_BYTES = 16384
JOURNAL = ("--lines=60", "--quiet", "--no-pager", "--no-hostname", "--output=short")
JOURNAL_SECONDS = 5.0
KEEP_SECONDS = 86400.0  # the log of a dead machine may be needed
NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,47}")  # a valid host name
SIZE = re.compile(r"([1-9][0-9]{0,6})([MG])")
LIMITS = ("memory.max", "memory.limit_in_bytes")  # v2, v1
# In a mount namespace of its own, so that the host sees none of it. `slave`: unmounts on the host propagate.
START = container.ENTER + 'exec unshare --mount --propagation slave /bin/sh -c "$MOUNT" nspawn "$@"'
MOUNT = """
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=upper,workdir=work" root || exit
mount -t tmpfs -o mode=0755 tmpfs /run/systemd/nspawn || exit
exec systemd-nspawn "$@"
"""


def create(home: pathlib.Path) -> Machines:
    return Machines(home / "pools")


class Machines(pools.Provider):
    """Machines that outlive their launcher, which tests kill in `on_step`, and end like a power cut."""

    name = NAME
    fixed: Mapping[str, object] = {
        "lifecycle_class": "ephemeral", "region": "", "preferred_regions": (),
    }  # fmt: skip

    def __init__(
        self, folder: pathlib.Path, on_step: Callable[[str], None] = lambda _step: None
    ) -> None:
        self._folder = folder / NAME
        self.members = self._folder / "members"
        self._images = _images.Images(self._folder / "trees", folder / "templates")
        self._on_step = on_step

    def host(self, *, create: bool = False) -> str | None:
        return _host_name.read(self._folder.parent, create=create)

    def check(self, order: pools.Order) -> None:
        """Refuse an invalid instance type; the template may be added later."""
        _parse_limit(order.instance_type)

    def require(self, order: pools.Order) -> list[pathlib.Path]:
        """Return the layers of the order's template; raises for an order that cannot be launched now."""
        _require()
        self.check(order)
        return self._images.template(order.template)

    def launch(self, order: pools.Order) -> pools.Machine:
        """Boot the machine of one member; the same member always gets the same machine."""
        layers, limit = self.require(order), _parse_limit(order.instance_type)
        place = self.members / _check_name(order.owner) / _check_name(order.member_id)
        try:
            with _folder_lock.locked(place):
                self._on_step("folder")
                if (running := find_machine(place)) is not None:
                    return running
                try:
                    return self._start(place, order, layers, limit)
                except (OSError, pools.ProviderError) as error:
                    _end(place)  # raises if something is left
                    self._images.drop_unless(self.members)
                    raise _failed(error, nothing_made=True) from error
        except OSError as error:
            raise _failed(error, nothing_made=False) from error

    def _start(
        self, place: pathlib.Path, order: pools.Order, layers: list[pathlib.Path], limit: int
    ) -> pools.Machine:
        _clear(place)  # left by an interrupted launch
        _capacity.require(place)
        _plant(place, [*layers, self._images.base()], order)
        self._on_step("planted")
        for cgroup in _cgroups(place):
            cgroup.mkdir()
        _set_limit(place, limit)
        self._on_step("cgroups")
        started = _spawn(place)
        # Wait in the background, so that a dead child does not stay a zombie.
        threading.Thread(target=started.wait, name=f"reap {started.pid}", daemon=True).start()
        self._on_step("spawned")
        deadline = time.monotonic() + START_SECONDS
        while not (leader := container.leader(container.processes(_cgroups(place)[:1]))):
            if started.poll() is not None or time.monotonic() > deadline:
                raise _not_started(place)
            time.sleep(0.01)
        self._on_step("booting")
        return _build_machine(place, leader)

    def terminate(self, machine_id: str) -> None:
        """Kill the machine and delete everything of it."""
        name = _check_name(machine_id)
        try:
            for owner in _list_folder(self.members):
                with _folder_lock.locked(owner / name, make=False) as there:
                    if there:
                        _end(owner / name)
            self._images.drop_unless(self.members)
        except OSError as error:
            raise pools.ProviderError(
                Reason.ERROR, f"{name} could not be terminated: {error}"
            ) from error

    def console(self, machine_id: str) -> str:
        """Return the end of the machine's log and, while it runs, of its journal."""
        name = _check_name(machine_id)
        text = ""
        for place in (owner / name for owner in _list_folder(self.members)):
            text += files.read_tail(place / "log", CONSOLE_BYTES)
            if leader := container.leader(container.processes(_cgroups(place))):
                text += _read_journal(leader)
        return text

    def inventory(self, owner: str) -> Sequence[pools.Machine]:
        """List the owner's running machines, and clean up after the others."""
        try:
            places = _list_folder(self.members / _check_name(owner))
            machines = [find_machine(place) or _clean_up(place) for place in places]
            if places and not any(machines):
                self._images.drop_unless(self.members)
        except OSError as error:
            raise pools.ProviderError(
                Reason.ERROR, f"the machines could not be listed: {error}"
            ) from error
        return [machine for machine in machines if machine is not None]


def _read_journal(leader: int) -> str:
    """Return the last lines of the journal of a machine; '' where it cannot be read."""
    command = ("journalctl", f"--root=/proc/{leader}/root", *JOURNAL)
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=JOURNAL_SECONDS
        )  # fmt: skip
        return answer.stdout.decode(errors="replace")
    return ""


def _list_folder(folder: pathlib.Path) -> list[pathlib.Path]:
    """List a folder that may be deleted at any moment."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []


def _require() -> None:
    """Raise unless this host has root, nspawn and cgroups: without them a machine could not be found again."""
    try:
        container.require()
        if not container.tops():
            raise errors.CannotError(
                "machines cannot be booted", why="no cgroups are mounted", todo=""
            )
    except errors.CannotError as error:
        raise pools.ProviderError(
            Reason.NOT_AVAILABLE,
            f"{error.what}: {error.why}",
            todo="install systemd-container, and run `overnight pool serve` as root; check with: `overnight doctor`",
            nothing_made=True,
        ) from error


def _failed(error: OSError | pools.ProviderError, *, nothing_made: bool) -> pools.ProviderError:
    if isinstance(error, OSError):
        reason = Reason.QUOTA if error.errno in NO_ROOM else Reason.ERROR
        error = pools.ProviderError(reason, str(error))
    error.nothing_made = nothing_made
    return error


def _check_name(name: str) -> str:
    if not WORD.fullmatch(name):
        raise pools.ProviderError(Reason.ERROR, f"{name!r} is not a valid name")
    return name


def _parse_limit(instance_type: str) -> int:
    """Return the memory limit in bytes; 0 for no limit."""
    if not instance_type:
        return 0
    size = SIZE.fullmatch(instance_type)
    if size is None:
        raise pools.ProviderError(
            Reason.INSTANCE_TYPE_UNKNOWN,
            f"invalid instance type {instance_type!r}",
            todo="for nspawn the instance type is the memory, such as 512M or 2G; or leave it out",
            nothing_made=True,
        )
    return int(size[1]) << {"M": 20, "G": 30}[size[2]]


def _plant(place: pathlib.Path, layers: list[pathlib.Path], order: pools.Order) -> None:
    """Create the layers of the machine; only its root can read its order."""
    for name, mode in (("upper", 0o755), ("work", 0o700), ("root", 0o755)):
        (place / name).mkdir()
        (place / name).chmod(mode)
    for number, layer in enumerate(layers):
        # A symbolic link, because mount options allow no colon and no comma in a path.
        (place / f"lower{number}").symlink_to(layer.resolve())
    if not order.endpoint:  # nobody to report to: its agent would retry for ever
        unit = container.place(place / "upper", f"etc/systemd/system/{_images.UNIT_NAME}")
        unit.symlink_to("/dev/null")
        for made in unit.parents[:3]:  # seen by every user inside, whatever the umask here
            made.chmod(0o755)
    folder = place / "upper/var/lib/overnight"
    folder.mkdir(parents=True)
    for path, mode in ((folder, 0o700), (folder.parent, 0o755), (folder.parent.parent, 0o755)):
        path.chmod(mode)
    (folder / "order.json").touch(mode=0o600)
    (folder / "order.json").write_text(json.dumps(order.as_json()))


def _spawn(place: pathlib.Path) -> subprocess.Popen[bytes]:
    operations.NSPAWN.mkdir(parents=True, exist_ok=True)
    lower = sorted(path.name for path in place.glob("lower*"))
    _, bound = container.interpreter()
    words = container.nspawn_arguments(_name(place), place / "root", read_only=bound)
    with (place / "log").open("ab") as log:
        # A session of its own, so that Ctrl-C does not reach it.
        return subprocess.Popen(
            ["/bin/sh", "-c", START, "nspawn", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            cwd=place, umask=0o022,
            env={**container.environment(), "CGROUPS": " ".join(map(str, _cgroups(place))),
                 "LOWER": ":".join(lower), "MOUNT": MOUNT},
        )  # fmt: skip


def _not_started(place: pathlib.Path) -> pools.ProviderError:
    log = (place / "log").read_text(errors="replace")[-TAIL:].strip()
    # mount(8) and systemd-nspawn have one exit code for every error: only their log has the errno's text.
    no_room = any(os.strerror(number).lower() in log.lower() for number in NO_ROOM)
    return pools.ProviderError(
        Reason.QUOTA if no_room else Reason.ERROR,
        f"machine {place.name} did not boot: {log or 'its log is empty'}",
        todo="check the requirements: `overnight doctor`",
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
        Reason.INSTANCE_TYPE_UNKNOWN,
        "this host has no memory controller, so an instance type cannot be applied",
        todo="leave the instance type out",
    )


def find_machine(place: pathlib.Path) -> pools.Machine | None:
    """Return the machine of a folder if any process of it runs."""
    running = container.processes(_cgroups(place))
    return _build_machine(place, container.leader(running)) if running else None


def _build_machine(place: pathlib.Path, leader: int) -> pools.Machine:
    address = f"127.0.0.1#{leader}" if leader else ""  # not known before PID 1 runs
    return pools.Machine(id=place.name, member_id=place.name, address=address)


def _clear(place: pathlib.Path) -> None:
    """Kill what runs and delete everything but the log; raises if that fails."""
    cgroups = _cgroups(place)
    # Killing PID 1 ends the whole machine, even processes that have left its cgroups.
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
    """Delete everything under the lock, and the owner's folder if it is empty."""
    _clear(place)
    shutil.rmtree(place)
    with contextlib.suppress(OSError):
        place.parent.rmdir()


def _clean_up(place: pathlib.Path) -> pools.Machine | None:
    """Clean up after a machine that does not run, unless it is locked; its log is kept for a day."""
    try:
        with _folder_lock.locked(place, make=False, wait=False) as there:
            if not there:
                return None
            if (running := find_machine(place)) is not None:
                return running
            _clear(place)
            log = place / "log"
            if not log.exists() or time.time() - log.stat().st_mtime > KEEP_SECONDS:
                _end(place)
    except BlockingIOError:
        return None
    except OSError:  # listed as a machine, so that it raises an alert
        return _build_machine(place, 0)
    return None
