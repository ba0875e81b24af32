"""The snapshot of a simulated host, where `overnight snapshot` would write it."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from overnight.app import snapshot as saving
from overnight.model.snapshot import Part, Snapshot

if TYPE_CHECKING:
    from scenarios import nights


def write(
    home: pathlib.Path,
    host: nights.Host,
    at_us: int,
    units: Mapping[str, Mapping[str, str]],
    *,
    packages: Mapping[str, str] | None = None,
    sysctl: Mapping[str, str] | None = None,
    runtime: Mapping[str, Part] | None = None,
) -> pathlib.Path:
    """Write the snapshot of that time; `units` as in `nights.Night`, `packages` by version.

    `runtime` are the parts of what runs; an older version did not record them.
    """
    taken_at = datetime.datetime.fromtimestamp(at_us // 1_000_000, datetime.UTC)
    mount = "/sys/fs/cgroup" if host.cgroups == "v2" else "/sys/fs/cgroup/memory"
    parts: dict[str, Part] = {
        "os": {"PRETTY_NAME": "Amazon Linux 2", "VERSION_ID": "2"},
        "kernel": {"release": host.kernel, "tainted": "0"},
        "cpu": {"cores": str(host.cores)},
        "memory": {"MemTotal": "64000000 kB"},
        "packages": {name: {"version": version} for name, version in (packages or {}).items()},
        "units": {
            name: {
                "state": unit.get("file", "enabled"),
                "preset": unit.get("preset", "enabled"),
                "Type": "simple",
                "Restart": unit.get("restart", "on-failure"),
            }
            for name, unit in units.items()
        },
        "modules": {"ena": {"version": host.driver}},
        "sysctl": {"vm.swappiness": "60", "kernel.sched_rt_runtime_us": "950000", **(sysctl or {})},
        "cgroups": {mount: {"type": "cgroup2" if host.cgroups == "v2" else "cgroup"}},
        "nics": {host.interface: {"driver": "ena", "driver version": host.driver, "mtu": "9001"}},
    }
    parts |= runtime or {}
    header: dict[str, object] = {
        "host": host.name,
        "taken_at": taken_at.isoformat(timespec="seconds"),
        "overnight": "0.1.0",
        "root": "/",
        "live": True,
        "as_root": True,
    }
    snapshot = Snapshot(header, parts, ())
    path = saving.default_file(home, snapshot)
    saving.save(snapshot, path, parents=True)
    return path
