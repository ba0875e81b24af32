"""Whether systemd runs this host, its state, and the machines inside this host."""

from __future__ import annotations

import pathlib

from overnight import sources
from overnight.model import cgroups


def booted(root: pathlib.Path = sources.ROOT) -> bool:
    """Return whether systemd is PID 1: sd_booted(3) defines it by this folder."""
    return (root / "run/systemd/system").is_dir()


def manager_state() -> str | None:
    """Return `running`, `degraded`, `offline` …; None when systemctl is missing or does not answer."""
    try:
        completed = sources.run_command(["systemctl", "is-system-running"], timeout=5)
    except sources.NoDataError:
        return None
    return completed.stdout.strip() or None


def machines(root: pathlib.Path = sources.ROOT) -> dict[str, int]:
    """List the machines inside this host by name, with the process that is their PID 1.

    Includes those that machined knows, and every other systemd that is PID 1 of a PID namespace, because
    unregistered containers have crash loops too. Costs a read for each process.
    """
    leaders_by_name = {}
    known = str(root / "run/systemd/machines")
    for name in sources.list_folder(known):
        # `unit:…` are links to the same files; `.host` is this host.
        if name.startswith((".", "unit:")):
            continue
        words = dict(line.partition("=")[::2] for line in _text(f"{known}/{name}").splitlines())
        if words.get("LEADER", "").isdigit():
            leaders_by_name[sources.clean(words.get("NAME") or name)] = int(words["LEADER"])
    leaders = set(leaders_by_name.values())
    proc = str(root / "proc")
    for name in sources.list_folder(proc):
        if (
            name.isdigit()
            and int(name) not in leaders
            and sources.read_once(f"{proc}/{name}/comm") == b"systemd\n"
            and _is_first(_text(f"{proc}/{name}/status"))
        ):
            leaders_by_name[_name(_text(f"{proc}/{name}/cgroup")) or name] = int(name)
    return leaders_by_name


def _is_first(status: str) -> bool:
    """Return whether it is PID 1 of another namespace than this process's."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            pids = line.split()[1:]
            return len(pids) > 1 and pids[-1] == "1"
    return False


def _name(cgroup: str) -> str:
    """Derive a machine's name from the cgroup of its PID 1.

    >>> _name("1:name=systemd:/machine.slice/machine-db.scope/payload/init.scope\\n0::/\\n")
    'db'
    """
    paths = cgroups.parse_membership(cgroup)
    for path in (paths.get("name=systemd", ""), paths.get("", "")):
        parts = [part for part in path.split("/") if part and part not in ("init.scope", "payload")]
        if parts:
            return sources.clean(parts[-1].removesuffix(".scope").removeprefix("machine-"))
    return ""


def _text(path: str) -> str:
    return (sources.read_once(path) or b"").decode("utf-8", "replace")
