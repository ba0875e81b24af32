"""Whether a systemd runs this host, what state it says it is in, and which machines run in it."""

from __future__ import annotations

import pathlib

from overnight import sources

__all__ = ["booted", "machines", "manager_state"]


def booted(root: pathlib.Path = sources.ROOT) -> bool:
    """Whether systemd is PID 1: sd_booted(3) defines it by this folder."""
    return (root / "run/systemd/system").is_dir()


def manager_state() -> str | None:
    """`running`, `degraded`, `offline` …; None when systemctl is missing or does not answer."""
    import shutil
    import subprocess

    if shutil.which("systemctl") is None:
        return None
    try:
        done = subprocess.run(
            ["systemctl", "is-system-running"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return None
    return done.stdout.strip() or None


def machines(root: pathlib.Path = sources.ROOT) -> dict[str, int]:
    """The machines inside this one and the process that is their PID 1, by name.

    Those that machined knows, and every other systemd that is PID 1 of a PID namespace: containers
    that are registered nowhere have crash loops too. Costs a read for each process.
    """
    found = {}
    for path in _entries(root / "run/systemd/machines"):
        # `unit:…` are links to the same files; `.host` is this host.
        if path.name.startswith((".", "unit:")):
            continue
        words = dict(line.partition("=")[::2] for line in _text(path).splitlines())
        if words.get("LEADER", "").isdigit():
            found[words.get("NAME") or path.name] = int(words["LEADER"])
    leaders = set(found.values())
    for path in _entries(root / "proc"):
        if (
            path.name.isdigit()
            and int(path.name) not in leaders
            and _text(path / "comm") == "systemd\n"
            and _is_first(_text(path / "status"))
        ):
            found[_name(_text(path / "cgroup")) or path.name] = int(path.name)
    return found


def _is_first(status: str) -> bool:
    """Whether it is PID 1, and not of the namespace that we look from."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            pids = line.split()[1:]
            return len(pids) > 1 and pids[-1] == "1"
    return False


def _name(cgroup: str) -> str:
    """A machine's name, by the cgroup of its PID 1.

    >>> _name("1:name=systemd:/machine.slice/machine-db.scope/payload/init.scope\\n0::/\\n")
    'db'
    """
    paths = {}
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths[controllers] = path
    for path in (paths.get("name=systemd", ""), paths.get("", "")):
        parts = [part for part in path.split("/") if part and part not in ("init.scope", "payload")]
        if parts:
            return parts[-1].removesuffix(".scope").removeprefix("machine-")
    return ""


def _entries(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
