"""Network devices with driver and firmware, and the versions of programs that matter."""

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

__all__ = ["BINARIES", "parse_drvinfo", "read_nics", "read_versions"]

SIOCETHTOOL = 0x8946
ETHTOOL_GDRVINFO = 3
DRVINFO = struct.Struct("=I32s32s32s32s32s12sIIIII")
NICS = 256
SECONDS = 3.0
OUTPUT = 4096

# Each prints its version and ends: none of them talks to a daemon.
BINARIES = (
    ("kubelet", "--version"),
    ("containerd", "--version"),
    ("runc", "--version"),
    ("crun", "--version"),
    ("crio", "--version"),
    ("docker", "--version"),
    ("dockerd", "--version"),
    ("podman", "--version"),
    ("systemctl", "--version"),
    ("python3", "--version"),
    ("perf", "--version"),
    ("ethtool", "--version"),
)
FOLDERS = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/opt/bin",
)
VERSION = re.compile(r"v?\d+(?:\.\d+)+[0-9A-Za-z.+~_-]{0,40}|\b\d{2,5}\b")


def parse_drvinfo(raw: bytes) -> dict[str, str]:
    """Struct ethtool_drvinfo: driver, version, firmware."""
    _, driver, version, firmware, *_ = DRVINFO.unpack(raw)
    names = ("driver", "driver version", "firmware")
    texts = (field.split(b"\0", 1)[0].decode("utf-8", "replace") for field in (driver, version, firmware))  # fmt: skip
    return {name: text for name, text in zip(names, texts, strict=True) if text}


def read_nics(tree: trees.Tree, gaps: inventory.Gaps, *, live: bool) -> inventory.Part:
    """Interfaces that have a device: driver, firmware, queues, MTU. No addresses."""
    found: inventory.Part = {}
    base = "/sys/class/net"
    try:
        names = tree.names(base)[:NICS]
    except OSError as error:
        gaps(base, trees.why(error))
        return found
    for name in names:
        link = tree.link(f"{base}/{name}/device/driver")
        if not tree.exists(f"{base}/{name}/device"):
            continue
        said = {"driver": posixpath.basename(link)} if link else {}
        if live:
            try:
                said |= _ask(name)
            except OSError as error:
                gaps(f"{name} firmware", trees.why(error))
        if link and (version := tree.line(f"/sys/module/{said['driver']}/version")):
            said.setdefault("module version", version)
        if mtu := tree.line(f"{base}/{name}/mtu"):
            said["mtu"] = mtu
        try:
            queues = tree.names(f"{base}/{name}/queues")
            for kind in ("rx", "tx"):
                said[f"{kind} queues"] = str(sum(queue.startswith(f"{kind}-") for queue in queues))
        except OSError:
            pass  # older kernels, and some virtual devices, have none
        found[name] = said
    return found


def _ask(name: str) -> dict[str, str]:
    buffer = array.array("B", DRVINFO.pack(ETHTOOL_GDRVINFO, *([b""] * 6), *([0] * 5)))
    request = struct.pack("16sP16x", os.fsencode(name)[:15], buffer.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        fcntl.ioctl(channel, SIOCETHTOOL, request)
    return parse_drvinfo(buffer.tobytes())


def read_versions(tree: trees.Tree, gaps: inventory.Gaps, *, live: bool) -> inventory.Part:
    """Versions of programs, by running them. Those of an image are never run."""
    found: inventory.Part = {}
    for name, option in BINARIES:
        paths = [f"{folder}/{name}" for folder in FOLDERS]
        path = next((one for one in paths if tree.is_executable(one)), None)
        if path is None:
            continue
        if not live:
            gaps(name, "an image's programs are not run; its package says the version")
            continue
        try:
            found[name] = {"path": path, "version": _version(_output([path, option]))}
        except (OSError, ValueError) as error:
            gaps(name, trees.why(error) if isinstance(error, OSError) else str(error))
    return found


def _version(text: str) -> str:
    """Only what looks like a version, of the first line that has one: the rest is nobody's business."""
    match = VERSION.search(text)
    if match is None:
        raise ValueError("it prints no version")
    return match[0]


def _output(command: list[str]) -> str:
    """What a program prints first, of whatever length and duration it would like."""
    clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/nonexistent"}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=clean, start_new_session=True, bufsize=0,
    )  # fmt: skip
    assert process.stdout is not None
    read = b""
    end = time.monotonic() + SECONDS
    try:
        while len(read) < OUTPUT and (left := end - time.monotonic()) > 0:
            if not select.select([process.stdout], [], [], left)[0]:
                break
            part = os.read(process.stdout.fileno(), OUTPUT)
            if not part:
                break
            read += part
    finally:
        process.stdout.close()
        process.kill()
        process.wait()
    if not read and time.monotonic() >= end:
        raise ValueError(f"it printed nothing in {SECONDS:g} s")
    return read.decode("utf-8", "replace")
