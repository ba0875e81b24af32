"""The labels of a host: kernel, image, machine type, cloud. They separate failing hosts from healthy ones.

All come from files, without the network. Only `read_metadata` queries the cloud's metadata service,
and only when the user asked for it.
"""

from __future__ import annotations

import contextlib
import pathlib

from overnight import sources
from overnight.model import cgroups, meminfo

Labels = dict[str, str | int | float | bool]

MAX_LABEL = 200
LONG = 1 << 20
MAX_INTERFACES = 64
METADATA = "169.254.169.254"
METADATA_PATHS = {
    "instance": "instance-id",
    "instance_type": "instance-type",
    "image": "ami-id",
    "zone": "placement/availability-zone",
    "region": "placement/region",
    "life_cycle": "instance-life-cycle",
}
# The only keys read of cloud-init's instance data: it holds user data and credentials too.
PUBLIC = {
    "instance_id": "instance",
    "cloud_name": "cloud",
    "cloud-name": "cloud",
    "region": "region",
    "availability_zone": "zone",
    "availability-zone": "zone",
    "machine": "machine",
}
PUBLIC_META_DATA = {
    **dict.fromkeys(("ami-id", "ami_id", "image", "imageId"), "image"),
    "instance-type": "instance_type",
}
SYSTEM = {
    "PRETTY_NAME": "system",
    "IMAGE_ID": "image",
    "IMAGE_VERSION": "image_version",
    "BUILD_ID": "image_build",
}
DMI = {
    "sys_vendor": "vendor",
    "product_name": "product",
    "bios_version": "bios",
    "board_asset_tag": "asset",
}
INSTANCE_FILES = (
    "run/cloud-init/instance-data.json",
    "var/lib/cloud/instance/instance-data.json",
)
IMAGE_FILES = ("etc/ec2_version", "etc/image-id", "opt/aws/dlami/info/dlami-release", "etc/dlami-release", "etc/build-id")  # fmt: skip


def parse_instance_data(text: str) -> dict[str, str]:
    """Parse the public labels of cloud-init's instance-data.json.

    >>> parse_instance_data('{"v1": {"region": "us-east-1", "availability_zone": "us-east-1a"}}')
    {'region': 'us-east-1', 'zone': 'us-east-1a'}
    """
    import json

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    labels: dict[str, str] = {}
    v1, meta_data = _table(document, "v1"), _table(_table(document, "ds"), "meta_data")
    for table, names in ((v1, PUBLIC), (meta_data, PUBLIC_META_DATA)):
        for key, label in names.items():
            value = table.get(key)
            if isinstance(value, str) and value:
                labels.setdefault(label, _word(value))
    return labels


def _table(document: object, key: str) -> dict[str, object]:
    table = document.get(key) if isinstance(document, dict) else None
    return table if isinstance(table, dict) else {}


def read_host(root: pathlib.Path = sources.ROOT) -> dict[str, Labels]:
    """Read the host's labels under "", and those of each hardware interface under its name."""
    labels: Labels = {**_boot(root), **_kernel(root), **_image(root), **_machine(root)}
    labels.update(_cloud(root))
    # The manufacturer's product name, where no cloud provides an instance type.
    if "instance_type" not in labels and "product" in labels:
        labels["instance_type"] = labels["product"]
    labels = {name: value for name, value in labels.items() if value != ""}
    if not labels:
        raise sources.NoDataError(f"{root} shows neither /proc nor /sys")
    facts = {"": labels}
    for name in sources.hardware_interfaces(root)[:MAX_INTERFACES]:
        facts[sources.clean(name)] = _interface(root / "sys/class/net" / name)
    return facts


def _boot(root: pathlib.Path) -> Labels:
    labels: Labels = {"boot": _read(root / "proc/sys/kernel/random/boot_id")}
    for line in _read(root / "proc/stat", LONG).splitlines():
        if line.startswith("btime "):
            # The boot time and not the uptime: a fact that changes is stored each time.
            labels["booted_at"] = int(line.split()[1])
    return labels


def _kernel(root: pathlib.Path) -> Labels:
    labels: Labels = {
        "kernel": _read(root / "proc/sys/kernel/osrelease"),
        "kernel_build": _read(root / "proc/sys/kernel/version"),
    }
    # Not `_read`: one read returns only the mounts that fit into a page.
    with contextlib.suppress(OSError):
        layout = cgroups.read_layout(root)
        if layout.memory_version:
            labels["cgroups"] = layout.version
            labels["memory_controller"] = f"v{layout.memory_version}"
    return labels


def _image(root: pathlib.Path) -> Labels:
    system = sources.parse_os_release(_read(root / "etc/os-release", LONG))
    labels: Labels = {label: _word(system.get(name, "")) for name, label in SYSTEM.items()}
    for path in IMAGE_FILES:
        text = _read(root / path, LONG)
        if text:
            labels[path.rpartition("/")[2].replace("-", "_")] = _word(text.replace("\n", "; "))
    return labels


def _machine(root: pathlib.Path) -> Labels:
    labels: Labels = {"name": _read(root / "proc/sys/kernel/hostname")}
    for name, label in DMI.items():
        labels[label] = _read(root / "sys/class/dmi/id" / name)
    if cores := _read(root / "proc/stat", LONG).count("\ncpu"):
        labels["cores"] = cores
    memory = meminfo.parse_meminfo(_read(root / "proc/meminfo", LONG))
    if "MemTotal" in memory:
        labels["memory_kb"] = memory["MemTotal"] // 1024
    return labels


def _cloud(root: pathlib.Path) -> dict[str, str]:
    for path in INSTANCE_FILES:
        labels = parse_instance_data(_read(root / path, LONG))
        if labels:
            return labels
    instance = _read(root / "var/lib/cloud/data/instance-id")
    return {"instance": instance} if instance else {}


def _interface(folder: pathlib.Path) -> Labels:
    try:
        driver = (folder / "device/driver").readlink().name
    except OSError:
        driver = ""
    speed = _read(folder / "speed")
    return {"driver": _word(driver), "speed_mbit": int(speed) if speed.lstrip("-").isdigit() else -1}  # fmt: skip


def read_metadata(*, ask: bool = False, address: str = METADATA, port: int = 80) -> dict[str, str]:
    """Query the cloud's metadata service (IMDSv2) for labels; {} without `ask`, or without an answer.

    This is a network request, which some operators forbid, so `ask` is off by default.
    """
    if not ask:
        return {}
    import http.client

    labels: dict[str, str] = {}
    connection = http.client.HTTPConnection(address, port, timeout=0.3)

    def query(method: str, path: str, header: str, value: str) -> str:
        connection.request(
            method, f"/latest/{path}", headers={f"X-aws-ec2-metadata-{header}": value}
        )
        answer = connection.getresponse()
        text = answer.read(4096).decode("utf-8", "replace").strip()
        return text if answer.status == http.client.OK else ""

    try:
        token = query("PUT", "api/token", "token-ttl-seconds", "60")
        if not (token.isascii() and token.isprintable() and token):
            return {}
        for label, path in METADATA_PATHS.items():
            if text := query("GET", f"meta-data/{path}", "token", token):
                labels[label] = _word(text)
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    return labels


def _word(text: str | bytes) -> str:
    return sources.clean(text)[:MAX_LABEL]


def _read(path: pathlib.Path, size: int = 1024) -> str:
    """Read a file: as text with `LONG`, else as a short printable label."""
    raw = (sources.read_once(path, size) or b"").strip()
    return raw.decode("utf-8", "backslashreplace") if size == LONG else _word(raw)


def open_host(root: pathlib.Path) -> sources.FactReader:
    booted: dict[object, object] = {}

    def read() -> sources.Facts:
        facts = read_host(root)
        labels = facts[""]
        # The kernel computes btime from the current time, so a slewed clock moves it by a second.
        if "booted_at" in labels:
            labels["booted_at"] = booted.setdefault(labels.get("boot"), labels["booted_at"])  # type: ignore[assignment]  # the value stored above
        return facts

    return read


SIGNALS = (sources.FactSignal("host", 600.0, "interface", open_host),)
