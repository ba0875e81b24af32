"""A real machine inside this one: systemd booted by systemd-nspawn on a small tree of its own.

The tree has the host's /usr, read-only, and nothing else of it; the machine runs in cgroups of its
own, has no network, and is registered nowhere. It boots in about a second, and all of it is gone
afterwards, however the test ended.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping

from overnight.sources import cgroups

BOOT_SECONDS = 60
STOP_SECONDS = 20


@dataclasses.dataclass(frozen=True)
class Machine:
    """One that has booted. `leader` is its PID 1 as the host counts; `cgroup` its path there."""

    name: str
    leader: int
    cgroup: str
    tree: pathlib.Path
    folders: tuple[pathlib.Path, ...]

    def run(self, *command: str, check: bool = True) -> str:
        """A command inside it; returns what it printed."""
        done = subprocess.run(
            ["nsenter", "--target", str(self.leader), "--all", "--", *command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def path(self, inside: str) -> pathlib.Path:
        """A file of it, as the host reaches it."""
        return pathlib.Path(f"/proc/{self.leader}/root{inside}")


def unit(run: str, *, service: str = "", wanted: bool = True) -> str:
    """The text of a service that runs a shell command, and may be started as often as it likes."""
    text = f"""\
        [Unit]
        Description=A service of a test
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/sh -c '{run}'
        {service.strip().replace(chr(10), chr(10) + " " * 8)}
        [Install]
        WantedBy={"multi-user.target" if wanted else ""}
        """
    return textwrap.dedent(text)


@contextlib.contextmanager
def machine(
    units: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None
) -> Iterator[Machine]:
    """Boots a machine with these units (all enabled that are wanted), until the block is left."""
    name = f"overnight-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    with contextlib.ExitStack() as undo:
        tree = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-"))
        undo.callback(shutil.rmtree, tree)
        _plant(tree, units or {})
        for inside, text in (files or {}).items():
            (tree / inside).write_text(text)
        folders = tuple(top / name for top in _tops())
        for folder in folders:
            folder.mkdir()
            undo.callback(_remove_cgroups, folder)
        yield _boot(name, tree, folders, undo)


def _tops() -> tuple[pathlib.Path, ...]:
    """Where a machine's own systemd makes cgroups: systemd's hierarchy and the unified one."""
    layout = cgroups.read_layout()
    places = dict.fromkeys((layout.systemd, layout.unified))
    return tuple(pathlib.Path(str(place)) for place in places if place is not None)


def _plant(tree: pathlib.Path, units: Mapping[str, str]) -> None:
    for folder in ("usr", "etc/systemd/system/multi-user.target.wants", "var", "run", "proc", "sys", "dev", "tmp", "root"):  # fmt: skip
        (tree / folder).mkdir(parents=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        if (target := pathlib.Path("/") / link).is_symlink():
            (tree / link).symlink_to(target.readlink())
    shutil.copy("/etc/passwd", tree / "etc")
    shutil.copy("/etc/group", tree / "etc")
    (tree / "etc/os-release").write_text('ID=overnight-test\nPRETTY_NAME="A test"\n')
    (tree / "etc/machine-id").touch()
    folder = tree / "etc/systemd/system"
    # What a test has no use for, and takes its time.
    for masked in ("dbus.service", "dbus.socket", "systemd-logind.service", "systemd-user-sessions.service", "systemd-sysctl.service", "systemd-networkd.service", "systemd-resolved.service", "systemd-timesyncd.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "console-getty.service", "getty.target"):  # fmt: skip
        (folder / masked).symlink_to("/dev/null")
    for title, text in units.items():
        (folder / title).write_text(text)
        if "WantedBy=multi-user.target" in text:
            (folder / "multi-user.target.wants" / title).symlink_to(f"../{title}")


def _boot(
    name: str, tree: pathlib.Path, folders: tuple[pathlib.Path, ...], undo: contextlib.ExitStack
) -> Machine:
    told = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    address = f"{tree}.notify"
    told.bind(address)
    undo.callback(pathlib.Path(address).unlink)
    told.settimeout(BOOT_SECONDS)
    log = undo.enter_context((tree / "log").open("w+b"))

    nspawn = subprocess.Popen(
        ["sh", "-c", 'for f in $CGROUPS; do echo 0 > "$f/cgroup.procs"; done; exec systemd-nspawn "$@"', "nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--private-network",
         "--console=pipe", "--notify-ready=yes", f"--machine={name}", f"--directory={tree}",
         "--bind-ro=/usr", "--link-journal=no", "systemd.unit=multi-user.target"],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        env={"PATH": os.environ["PATH"], "NOTIFY_SOCKET": address, "CGROUPS": " ".join(map(str, folders))},
    )  # fmt: skip
    leader = 0

    def stop() -> None:
        # PID 1 of a PID namespace takes everything in it along; nspawn then clears up behind itself.
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader or nspawn.pid, signal.SIGKILL if leader else signal.SIGTERM)
        try:
            nspawn.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            nspawn.kill()
            nspawn.wait()

    undo.callback(stop)
    deadline = time.monotonic() + BOOT_SECONDS
    while True:
        try:
            lines = told.recv(4096).decode().splitlines()
        except TimeoutError:
            lines = []
        words = dict(line.partition("=")[::2] for line in lines)
        leader = int(words.get("X_NSPAWN_LEADER_PID", leader))
        if leader and words.get("READY") == "1":
            break
        if time.monotonic() > deadline or nspawn.poll() is not None:
            log.seek(0)
            raise AssertionError(
                f"the machine did not boot: {log.read().decode(errors='replace')[-2000:]}"
            )
    return Machine(name, leader, f"/{name}", tree, folders)


def _remove_cgroups(top: pathlib.Path) -> None:
    """From the leaves up; one whose last process has just ended is busy for a moment."""
    deadline = time.monotonic() + STOP_SECONDS
    while top.exists():
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                pathlib.Path(folder).rmdir()
        if top.exists():
            assert time.monotonic() < deadline, f"{top} stays busy"
            time.sleep(0.02)
