"""What is installed and mounted: operating system, packages, mounts, cgroups. Pure parsers, then readers.

Each reader gives plain text by name; what it could not read it adds to the gaps.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable

from overnight.sources.image import tree as trees

__all__ = ["Gaps", "Part", "parse_dpkg", "parse_mounts", "parse_os_release", "read_cgroups", "read_mounts", "read_os", "read_packages"]  # fmt: skip

Part = dict[str, str | dict[str, str]]
Gaps = Callable[[str, str], None]  # what, why

DPKG = "/var/lib/dpkg/status"
DPKG_LIMIT = 64 << 20
PACKAGES = 30_000
LABELS = (
    "/etc/image-id",
    "/etc/eks/release",
    "/etc/cloud/build.info",
    "/etc/system-release",
    "/etc/debian_version",
    "/etc/amazon-linux-release",
    "/opt/aws/dlami/info",
    "/etc/image-release",
)
# Made and removed with every container: no inventory of the host.
PASSING = re.compile(
    r"^(/var/lib/(docker|containerd|containers|kubelet/pods|rancher)|/run/(docker|containerd|netns|user|credentials|containers)|/run/k3s|/proc/)(/|$)"
)
OCTAL = re.compile(r"\\([0-7]{3})")


def parse_os_release(text: str) -> dict[str, str]:
    """os-release(5) and other files of NAME=value or NAME: value.

    >>> parse_os_release('NAME="Debian GNU/Linux"\\nVERSION_ID=12\\n# no\\nbuild_name: server\\n')
    {'NAME': 'Debian GNU/Linux', 'VERSION_ID': '12', 'build_name': 'server'}
    """
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*[=:]\s*(.*?)\s*$", line)
        if match:
            found[match[1]] = match[2].strip("\"'")
    return found


def read_os(tree: trees.Tree, gaps: Gaps) -> Part:
    """Which system and which image."""
    found: Part = {}
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            found |= parse_os_release(tree.text(path, 1 << 16))
            break
        except OSError as error:
            gaps(path, trees.why(error))
    for path in LABELS:
        try:
            text = tree.text(path, 1 << 16)
        except FileNotFoundError:
            continue
        except OSError as error:
            gaps(path, trees.why(error))
            continue
        found[path] = parse_os_release(text) or text.strip()[:1024]
    return found


def parse_dpkg(text: str) -> Part:
    """Packages of /var/lib/dpkg/status: version, and the state where it is not `installed`.

    >>> parse_dpkg("Package: a\\nStatus: install ok installed\\nVersion: 1\\nArchitecture: all\\n\\n")
    {'a:all': {'version': '1'}}
    """
    found: Part = {}
    for block in text.split("\n\n"):
        fields = {}
        for line in block.splitlines():
            key, colon, value = line.partition(":")
            if colon and key in ("Package", "Status", "Version", "Architecture"):
                fields[key] = value.strip()
        states = fields.get("Status", "").split()
        if "Package" not in fields or not states or states[-1] in ("not-installed", "config-files"):
            continue
        said = {"version": fields.get("Version", "")}
        if states != ["install", "ok", "installed"]:
            said["state"] = " ".join(states)
        found[f"{fields['Package']}:{fields.get('Architecture', '')}"] = said
    return found


def read_packages(tree: trees.Tree, gaps: Gaps, *, live: bool) -> Part:
    """Dpkg's from its file; rpm's from rpm itself, on a running host alone."""
    found: Part = {}
    try:
        found = parse_dpkg(tree.text(DPKG, DPKG_LIMIT))
    except FileNotFoundError:
        pass
    except OSError as error:
        gaps(DPKG, trees.why(error))
    if any(tree.exists(path) for path in ("/var/lib/rpm", "/usr/lib/sysimage/rpm")):
        if not live:
            gaps("rpm", "its database is read on a running host alone")
        elif shutil.which("rpm"):
            found |= _rpm(gaps)
        else:
            gaps("rpm", "there is a database and no rpm to read it")
    if len(found) > PACKAGES:
        gaps("packages", f"more than {PACKAGES}: the rest is left out")
        found = dict(sorted(found.items())[:PACKAGES])
    return found


def _rpm(gaps: Gaps) -> Part:
    form = "%{NAME}:%{ARCH} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n"
    try:
        done = subprocess.run(
            ["rpm", "-qa", "--qf", form],
            capture_output=True, stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=30, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        gaps("rpm", f"rpm -qa: {type(error).__name__}")
        return {}
    pairs = (line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return {name: {"version": version} for name, version in pairs}


def parse_mounts(text: str) -> Part:
    r"""/proc/mounts without what containers come and go with.

    >>> parse_mounts("/dev/sda1 /a\\040b ext4 rw,relatime 0 0\\n")
    {'/a b': {'source': '/dev/sda1', 'type': 'ext4', 'options': 'rw,relatime'}}
    """
    found: Part = {}
    for line in text.splitlines():
        fields = [OCTAL.sub(lambda m: chr(int(m[1], 8)), field) for field in line.split(" ")]
        if len(fields) >= 4 and not PASSING.match(fields[1]):
            source, where, kind, options = fields[:4]
            # A second mount on the same place covers the first: only the last is in force.
            found[where] = {"source": source, "type": kind, "options": options}
    return found


def read_mounts(tree: trees.Tree, gaps: Gaps) -> Part:
    """What is mounted in the namespace of PID 1, where it may be read."""
    for path in ("/proc/1/mounts", "/proc/self/mounts"):
        try:
            return parse_mounts(tree.text(path))
        except OSError as error:
            last = trees.why(error)
    gaps("/proc/mounts", last)
    return {}


def read_cgroups(tree: trees.Tree, gaps: Gaps) -> Part:
    """Version 1, 2 or both; controllers and where they are mounted. Counts are no part of it."""
    found: Part = {}
    kinds = set()
    for where, said in read_mounts(tree, gaps).items():
        if isinstance(said, dict) and said["type"] in ("cgroup", "cgroup2"):
            kinds.add(said["type"])
            found[where] = {"type": said["type"], "options": said["options"]}
    found["layout"] = {
        frozenset(): "none",
        frozenset({"cgroup"}): "v1",
        frozenset({"cgroup2"}): "v2",
    }.get(frozenset(kinds), "hybrid")
    try:
        for line in tree.text("/proc/cgroups", 1 << 16).splitlines():
            fields = line.split()
            if len(fields) == 4 and not line.startswith("#"):
                found[f"controller {fields[0]}"] = {"hierarchy": fields[1], "enabled": fields[3]}
    except OSError as error:
        gaps("/proc/cgroups", trees.why(error))
    unified = tree.line("/sys/fs/cgroup/cgroup.controllers")
    if unified:
        found["unified controllers"] = unified
    return found
