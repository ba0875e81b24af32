"""Network devices with driver and firmware, and the versions of system programs."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import select
import subprocess
import time
from collections.abc import Callable, Mapping

from overnight.sources.image import inventory
from overnight.sources.image import tree as trees

DRIVER = {"driver": "driver", "version": "driver version", "firmware": "firmware"}
MAX_NICS = 256
MAX_SECONDS = 3.0
MAX_OUTPUT = 4096

# Each prints its version with --version and exits; none contacts a daemon.
BINARIES = ("kubelet", "containerd", "runc", "crun", "crio", "docker", "dockerd", "podman", "systemctl", "python3", "perf", "ethtool")  # fmt: skip
FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin")  # fmt: skip
VERSION = re.compile(r"v?\d+(?:\.\d+)+[0-9A-Za-z.+~_-]{0,40}|\b\d{2,5}\b")


def read_nics(
    tree: trees.Tree, gaps: inventory.Gaps, query: Callable[[str], Mapping[str, object]] | None
) -> inventory.Part:
    """Read driver, firmware, queues and MTU of each hardware interface. Addresses are left out.

    `query` asks a running kernel for the driver of an interface, as `ethtool.read_driver` does.
    """
    nics: inventory.Part = {}
    base = "/sys/class/net"
    for name in inventory.list_names(tree, gaps, base)[:MAX_NICS]:
        link = tree.link(f"{base}/{name}/device/driver")
        if not tree.exists(f"{base}/{name}/device"):
            continue
        nic = {"driver": posixpath.basename(link)} if link else {}
        if query is not None:
            with inventory.report_errors(gaps, f"{name} firmware"):
                facts = query(name)
                nic |= {label: str(facts[key]) for key, label in DRIVER.items() if facts[key]}
        if link and (version := tree.line(f"/sys/module/{nic['driver']}/version")):
            nic.setdefault("module version", version)
        if mtu := tree.line(f"{base}/{name}/mtu"):
            nic["mtu"] = mtu
        with contextlib.suppress(OSError):  # older kernels, and some virtual devices, have none
            queues = tree.names(f"{base}/{name}/queues")
            for kind in ("rx", "tx"):
                nic[f"{kind} queues"] = str(sum(queue.startswith(f"{kind}-") for queue in queues))
        nics[name] = nic
    return nics


def read_versions(tree: trees.Tree, gaps: inventory.Gaps, *, live: bool) -> inventory.Part:
    """Run programs to read their versions; an image's programs are never run."""
    versions: inventory.Part = {}
    for name in BINARIES:
        paths = [f"{folder}/{name}" for folder in FOLDERS]
        path = next((candidate for candidate in paths if tree.is_executable(candidate)), None)
        if path is None:
            continue
        if not live:
            gaps(name, "programs of an image are not run; see the version of its package")
            continue
        try:
            versions[name] = {"path": path, "version": _version(_output([path, "--version"]))}
        except (OSError, ValueError) as error:
            gaps(name, trees.why(error) if isinstance(error, OSError) else str(error))
    return versions


def _version(text: str) -> str:
    """Find the first version number; the rest of the output is not kept."""
    match = VERSION.search(text)
    if match is None:
        raise ValueError("it does not print a version")
    return match[0]


def _output(command: list[str]) -> str:
    """Run a program for its first MAX_OUTPUT bytes, for MAX_SECONDS at most."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=environment, start_new_session=True, bufsize=0,
    )  # fmt: skip
    assert process.stdout is not None
    output = b""
    end = time.monotonic() + MAX_SECONDS
    try:
        while len(output) < MAX_OUTPUT and (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([process.stdout], [], [], left)
            part = os.read(process.stdout.fileno(), MAX_OUTPUT) if ready else b""
            if not part:
                break
            output += part
    finally:
        process.stdout.close()
        process.kill()
        process.wait()
    if not output and time.monotonic() >= end:
        raise ValueError(f"it printed nothing in {MAX_SECONDS:g} s")
    return output.decode("utf-8", "replace")
