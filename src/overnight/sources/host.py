"""What kind of host this is: the labels by which hosts that fail are told from those that do not.

All from files, without the network. The cloud's metadata service is asked only by `read_metadata`,
which nothing calls unless it was told to.
"""

from __future__ import annotations

import os
import pathlib

from overnight import sources
from overnight.model import cgroups

__all__ = ["SIGNALS", "parse_instance_data", "parse_os_release", "read_host", "read_metadata"]

LONGEST = 200
MOST_INTERFACES = 64
METADATA = "169.254.169.254"
# Of cloud-init's instance data, these and no others: user data and credentials are in it too.
PUBLIC = {
    "instance_id": "instance",
    "cloud_name": "cloud",
    "cloud-name": "cloud",
    "region": "region",
    "availability_zone": "zone",
    "availability-zone": "zone",
    "machine": "machine",
}
IMAGE_KEYS = ("ami-id", "ami_id", "image", "imageId")
IMAGE_FILES = ("etc/ec2_version", "etc/image-id", "opt/aws/dlami/info/dlami-release", "etc/dlami-release", "etc/build-id")  # fmt: skip


def parse_os_release(text: str) -> dict[str, str]:
    """Its variables, without quotes.

    >>> parse_os_release('ID=debian\\nPRETTY_NAME="Debian 12"\\n# no\\n')
    {'ID': 'debian', 'PRETTY_NAME': 'Debian 12'}
    """
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            found[name] = value.strip().strip("\"'")
    return found


def parse_instance_data(text: str) -> dict[str, str]:
    """Labels from cloud-init's instance-data.json; nothing but names that everybody may know.

    >>> parse_instance_data('{"v1": {"region": "us-east-1", "availability_zone": "us-east-1a"}}')
    {'region': 'us-east-1', 'zone': 'us-east-1a'}
    """
    import json

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    found: dict[str, str] = {}
    v1 = document.get("v1")
    for key, label in PUBLIC.items():
        value = v1.get(key) if isinstance(v1, dict) else None
        if isinstance(value, str) and value:
            found.setdefault(label, _word(value))
    data = document.get("ds")
    data = data.get("meta_data") if isinstance(data, dict) else None
    for key in IMAGE_KEYS:
        value = data.get(key) if isinstance(data, dict) else None
        if isinstance(value, str) and value:
            found.setdefault("image", _word(value))
    kind = data.get("instance-type") if isinstance(data, dict) else None
    if isinstance(kind, str) and kind:
        found["type"] = _word(kind)
    return found


def read_host(root: pathlib.Path = sources.ROOT) -> dict[str, dict[str, str | int | float | bool]]:
    """Facts by what they are about: boot, kernel, image, machine, cloud, each interface."""
    facts: dict[str, dict[str, str | int | float | bool]] = {
        "boot": _boot(root),
        "kernel": _kernel(root),
        "image": _image(root),
        "machine": _machine(root),
    }
    cloud = _cloud(root)
    if cloud:
        facts["cloud"] = dict(cloud)
    for name, driver, speed in _interfaces(root):
        facts[f"interface {_word(name)}"] = {"driver": driver, "speed_mbit": speed}
    return {key: fact for key, fact in facts.items() if fact}


def _boot(root: pathlib.Path) -> dict[str, str | int | float | bool]:
    facts: dict[str, str | int | float | bool] = {}
    boot = _read(root / "proc/sys/kernel/random/boot_id")
    if boot:
        facts["id"] = boot
    for line in _read(root / "proc/stat", 1 << 20).splitlines():
        if line.startswith("btime "):
            # When it booted, not for how long it has run: a fact that changes is stored each time.
            facts["booted_at"] = int(line.split()[1])
    return facts


def _kernel(root: pathlib.Path) -> dict[str, str | int | float | bool]:
    facts: dict[str, str | int | float | bool] = {
        "release": _read(root / "proc/sys/kernel/osrelease"),
        "version": _read(root / "proc/sys/kernel/version"),
    }
    layout = cgroups.parse_layout(_read(root / "proc/self/mountinfo", 1 << 20))
    facts["cgroups"] = layout.version
    facts["memory_controller"] = f"v{layout.memory_version}" if layout.memory_version else "none"
    return facts


def _image(root: pathlib.Path) -> dict[str, str | int | float | bool]:
    facts: dict[str, str | int | float | bool] = {}
    system = parse_os_release(_read(root / "etc/os-release", 8192))
    for name, label in (("PRETTY_NAME", "system"), ("ID", "id"), ("VERSION_ID", "version"), ("IMAGE_ID", "image"), ("IMAGE_VERSION", "image_version"), ("BUILD_ID", "build")):  # fmt: skip
        if system.get(name):
            facts[label] = _word(system[name])
    for path in IMAGE_FILES:
        text = _read(root / path, 2048)
        if text:
            facts[path.rpartition("/")[2].replace("-", "_")] = _word(text.replace("\n", "; "))
    return facts


def _machine(root: pathlib.Path) -> dict[str, str | int | float | bool]:
    facts: dict[str, str | int | float | bool] = {"name": _read(root / "proc/sys/kernel/hostname")}
    dmi = root / "sys/class/dmi/id"
    for name, label in (("sys_vendor", "vendor"), ("product_name", "product"), ("bios_version", "bios"), ("board_asset_tag", "asset")):  # fmt: skip
        if value := _read(dmi / name):
            facts[label] = value
    facts["cores"] = _read(root / "proc/stat", 1 << 20).count("\ncpu")
    for line in _read(root / "proc/meminfo", 4096).splitlines():
        if line.startswith("MemTotal:"):
            facts["memory_kb"] = int(line.split()[1])
    return facts


def _cloud(root: pathlib.Path) -> dict[str, str]:
    facts = parse_instance_data(_read(root / "run/cloud-init/instance-data.json", 1 << 20))
    if not facts:
        facts = parse_instance_data(_read(root / "var/lib/cloud/instance/instance-data.json", 1 << 20))  # fmt: skip
    instance = _read(root / "var/lib/cloud/data/instance-id")
    if instance:
        facts.setdefault("instance", instance)
    return facts


def _interfaces(root: pathlib.Path) -> list[tuple[str, str, int]]:
    """Name, driver and speed of those that have a device; bridges and tunnels come and go."""
    folder = root / "sys/class/net"
    found = []
    try:
        names = sorted(path.name for path in folder.iterdir())[:MOST_INTERFACES]
    except OSError:
        return []
    for name in names:
        try:
            driver = (folder / name / "device/driver").readlink().name
        except OSError:
            continue
        speed = _read(folder / name / "speed")
        found.append((name, _word(driver), int(speed) if speed.lstrip("-").isdigit() else -1))
    return found


def read_metadata(
    *, ask: bool = False, address: str = METADATA, port: int = 80, timeout: float = 0.3
) -> dict[str, str]:
    """Labels from the cloud's metadata service (IMDSv2), only when told to `ask`; {} when none answers.

    It is a request over the network, and some operators forbid it: so it is never made unasked.
    """
    if not ask:
        return {}
    import http.client

    wanted = {
        "instance": "instance-id",
        "type": "instance-type",
        "image": "ami-id",
        "zone": "placement/availability-zone",
        "region": "placement/region",
        "life_cycle": "instance-life-cycle",
    }
    found = {}
    connection = http.client.HTTPConnection(address, port, timeout=timeout)
    try:
        connection.request(
            "PUT", "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        )
        answer = connection.getresponse()
        token = answer.read(4096).decode("ascii", "replace").strip()
        if answer.status != http.client.OK or not token.isprintable() or not token:
            return {}
        for label, path in wanted.items():
            connection.request(
                "GET", f"/latest/meta-data/{path}", headers={"X-aws-ec2-metadata-token": token}
            )
            answer = connection.getresponse()
            text = answer.read(4096).decode("utf-8", "replace").strip()
            if answer.status == http.client.OK and text:
                found[label] = _word(text)
    except (OSError, http.client.HTTPException):
        return found
    finally:
        connection.close()
    return found


def _word(text: str) -> str:
    """Text of the host as a fact: printable and short."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii", "replace") for c in text)  # fmt: skip
    return text[:LONGEST]


def _read(path: pathlib.Path, most: int = 1024) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            text = os.read(descriptor, most)
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    decoded = text.decode("utf-8", "backslashreplace").strip()
    return decoded if most > 1024 else _word(decoded)


def open_host(root: pathlib.Path) -> sources.FactLook:
    """The look of `host`."""
    first: dict[str, str | int | float | bool] = {}

    def look() -> sources.Facts:
        facts = read_host(root)
        boot = facts.get("boot", {})
        # The kernel counts back from now: slewing the clock would move it by a second now and then.
        if not first or first.get("id") != boot.get("id"):
            first.update(boot)
        return {**facts, "boot": first} if first else facts

    return look


SIGNALS = (
    sources.FactSignal(
        "host",
        600.0,
        "about",
        open_host,
        "boot id and time, kernel, image, machine type, cores, memory, interface drivers, cloud labels; from files",
    ),
)
