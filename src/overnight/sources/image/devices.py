"""Network devices with driver and firmware, and the versions of system programs."""

from __future__ import annotations

import array
import fcntl
import os
import posixpath
import re
import select
import socket
import struct
import subprocess
import time

from overnight.sources.image import inventory
from overnight.sources.image import tree as trees

SIOCETHTOOL = 0x8946
ETHTOOL_GDRVINFO = 3
DRVINFO = struct.Struct("=I32s32s32s32s32s12sIIIII")
MAX_NICS = 256
MAX_SECONDS = 3.0
MAX_OUTPUT = 4096

# Each prints its version with --version and exits; none contacts a daemon.
BINARIES = ("kubelet", "containerd", "runc", "crun", "crio", "docker", "dockerd", "podman", "systemctl", "python3", "perf", "ethtool")  # fmt: skip
FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin")  # fmt: skip
VERSION = re.compile(r"v?\d+(?:\.\d+)+[0-9A-Za-z.+~_-]{0,40}|\b\d{2,5}\b")


def parse_drvinfo(raw: bytes) -> dict[str, str]:
    """Parse struct ethtool_drvinfo: driver, version, firmware."""
    _, driver, version, firmware, *_ = DRVINFO.unpack(raw)
    names = ("driver", "driver version", "firmware")
    texts = (field.split(b"\0", 1)[0].decode("utf-8", "replace") for field in (driver, version, firmware))  # fmt: skip
    return {name: text for name, text in zip(names, texts, strict=True) if text}


def read_nics(tree: trees.Tree, gaps: inventory.Gaps, *, live: bool) -> inventory.Part:
    """Read driver, firmware, queues and MTU of each hardware interface. Addresses are left out."""
    nics: inventory.Part = {}
    base = "/sys/class/net"
    try:
        names = tree.names(base)[:MAX_NICS]
    except OSError as error:
        gaps(base, trees.why(error))
        return nics
    for name in names:
        link = tree.link(f"{base}/{name}/device/driver")
        if not tree.exists(f"{base}/{name}/device"):
            continue
        nic = {"driver": posixpath.basename(link)} if link else {}
        if live:
            try:
                nic |= _ask(name)
            except OSError as error:
                gaps(f"{name} firmware", trees.why(error))
        if link and (version := tree.line(f"/sys/module/{nic['driver']}/version")):
            nic.setdefault("module version", version)
        if mtu := tree.line(f"{base}/{name}/mtu"):
            nic["mtu"] = mtu
        try:
            queues = tree.names(f"{base}/{name}/queues")
            for kind in ("rx", "tx"):
                nic[f"{kind} queues"] = str(sum(queue.startswith(f"{kind}-") for queue in queues))
        except OSError:
            pass  # older kernels, and some virtual devices, have none
        nics[name] = nic
    return nics


def _ask(name: str) -> dict[str, str]:
    buffer = array.array("B", DRVINFO.pack(ETHTOOL_GDRVINFO, *([b""] * 6), *([0] * 5)))
    request = struct.pack("16sP16x", os.fsencode(name)[:15], buffer.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        fcntl.ioctl(channel, SIOCETHTOOL, request)
    return parse_drvinfo(buffer.tobytes())


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
