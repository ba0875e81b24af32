"""The operating system, packages, mounts and cgroups of a host or an image.

Each reader returns text by name and reports what it could not read to `gaps`.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator

from overnight import sources
from overnight.model.text import decode_octal
from overnight.sources.image import tree as trees

Part = dict[str, str | dict[str, str]]
Gaps = Callable[[str, str], None]  # what, why

DPKG = "/var/lib/dpkg/status"
DPKG_LIMIT = 64 << 20
MAX_PACKAGES = 30_000
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
# Mounts that come and go with containers are not part of the inventory.
PASSING = re.compile(
    r"^(/var/lib/(docker|containerd|containers|kubelet/pods|rancher)|/run/(docker|containerd|netns|user|credentials|containers)|/run/k3s|/proc/)(/|$)"
)


@contextlib.contextmanager
def report_errors(gaps: Gaps, what: str) -> Iterator[None]:
    """Report an OSError of the block as a gap; what follows the block is done all the same."""
    try:
        yield
    except OSError as error:
        gaps(what, trees.why(error))


def list_names(tree: trees.Tree, gaps: Gaps, path: str, what: str = "") -> tuple[str, ...]:
    """List the names in a folder; one that cannot be read is a gap and has none."""
    try:
        return tree.names(path)
    except OSError as error:
        gaps(what or path, trees.why(error))
        return ()


def read_os(tree: trees.Tree, gaps: Gaps) -> Part:
    labels: Part = {}
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        with report_errors(gaps, path):
            labels |= sources.parse_os_release(tree.text(path, 1 << 16))
            break
    for path in LABELS:
        with report_errors(gaps, path), contextlib.suppress(FileNotFoundError):
            text = tree.text(path, 1 << 16)
            labels[path] = sources.parse_os_release(text) or text.strip()[:1024]
    return labels


def parse_dpkg(text: str) -> Part:
    """Parse /var/lib/dpkg/status: each package's version, and its state unless it is `installed`.

    >>> parse_dpkg("Package: a\\nStatus: install ok installed\\nVersion: 1\\nArchitecture: all\\n\\n")
    {'a:all': {'version': '1'}}
    """
    packages: Part = {}
    for block in text.split("\n\n"):
        fields = {}
        for line in block.splitlines():
            key, colon, value = line.partition(":")
            if colon and key in ("Package", "Status", "Version", "Architecture"):
                fields[key] = value.strip()
        states = fields.get("Status", "").split()
        if "Package" not in fields or not states or states[-1] in ("not-installed", "config-files"):
            continue
        package = {"version": fields.get("Version", "")}
        if states != ["install", "ok", "installed"]:
            package["state"] = " ".join(states)
        packages[f"{fields['Package']}:{fields.get('Architecture', '')}"] = package
    return packages


def read_packages(tree: trees.Tree, gaps: Gaps, *, live: bool) -> Part:
    """Read dpkg's packages from its file and, on a running host, rpm's from rpm itself."""
    packages: Part = {}
    with report_errors(gaps, DPKG), contextlib.suppress(FileNotFoundError):
        packages = parse_dpkg(tree.text(DPKG, DPKG_LIMIT))
    if any(tree.exists(path) for path in ("/var/lib/rpm", "/usr/lib/sysimage/rpm")):
        if not live:
            gaps("rpm", "the rpm database can be read on a running host only")
        elif shutil.which("rpm"):
            packages |= _rpm(gaps)
        else:
            gaps("rpm", "there is an rpm database, but no rpm command to read it")
    if len(packages) > MAX_PACKAGES:
        gaps("packages", f"more than {MAX_PACKAGES}: the rest is left out")
        packages = dict(sorted(packages.items())[:MAX_PACKAGES])
    return packages


def _rpm(gaps: Gaps) -> Part:
    query_format = "%{NAME}:%{ARCH} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n"
    try:
        completed = sources.run_command(["rpm", "-qa", "--qf", query_format], timeout=30)
    except sources.NoDataError as error:
        gaps("rpm", str(error))
        return {}
    if completed.returncode:
        gaps("rpm", f"rpm -qa: exit status {completed.returncode}")
        return {}
    pairs = (line.split(" ", 1) for line in completed.stdout.splitlines() if " " in line)
    return {name: {"version": version} for name, version in pairs}


def parse_mounts(text: str) -> Part:
    r"""Parse /proc/mounts, without the mounts that come and go with containers.

    >>> parse_mounts("/dev/sda1 /a\\040b ext4 rw,relatime 0 0\\n")
    {'/a b': {'source': '/dev/sda1', 'type': 'ext4', 'options': 'rw,relatime'}}
    """
    mounts: Part = {}
    for line in text.splitlines():
        fields = list(map(decode_octal, line.split(" ")))
        if len(fields) >= 4 and not PASSING.match(fields[1]):
            source, mount_point, kind, options = fields[:4]
            # A second mount on the same directory hides the first.
            mounts[mount_point] = {"source": source, "type": kind, "options": options}
    return mounts


def read_mounts(tree: trees.Tree, gaps: Gaps) -> Part:
    """Read the mounts of PID 1's namespace; this process's own where that is not permitted."""
    for path in ("/proc/1/mounts", "/proc/self/mounts"):
        try:
            return parse_mounts(tree.text(path))
        except OSError as error:
            last = trees.why(error)
    gaps("/proc/mounts", last)
    return {}


def read_cgroups(tree: trees.Tree, gaps: Gaps) -> Part:
    """Read the cgroup version (1, 2 or both), the controllers and their mounts; no counts."""
    cgroups: Part = {}
    kinds = set()
    for mount_point, mount in read_mounts(tree, gaps).items():
        if isinstance(mount, dict) and mount["type"] in ("cgroup", "cgroup2"):
            kinds.add(mount["type"])
            cgroups[mount_point] = {"type": mount["type"], "options": mount["options"]}
    versions = ["v1"] * ("cgroup" in kinds) + ["v2"] * ("cgroup2" in kinds)
    cgroups["layout"] = "hybrid" if len(versions) == 2 else "".join(versions) or "none"
    with report_errors(gaps, "/proc/cgroups"):
        for line in tree.text("/proc/cgroups", 1 << 16).splitlines():
            fields = line.split()
            if len(fields) == 4 and not line.startswith("#"):
                cgroups[f"controller {fields[0]}"] = {"hierarchy": fields[1], "enabled": fields[3]}
    if unified := tree.line("/sys/fs/cgroup/cgroup.controllers"):
        cgroups["unified controllers"] = unified
    return cgroups
