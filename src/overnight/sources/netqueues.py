"""Traffic of the network interfaces, and transmit queues that timed out.

/proc/net/dev, sixteen counters per interface::

      eth0: 3160908978  114601 0 0 0 0 0 0  7895239   88975 0 0 0 0 0 0

/sys/class/net/eth0/carrier_changes counts each time that the link went down or came up.
/sys/class/net/eth0/queues/tx-5/tx_timeout counts the timeouts that `NETDEV WATCHDOG` logs: older kernels log
only the first of a boot, but count each one, for every driver.
"""

from __future__ import annotations

import os
import pathlib

from overnight import sources

# A host with containers has hundreds of interfaces that come and go with them.
MAX_INTERFACES = 64
# bytes, packets, errors and drops of both directions, among the sixteen
_KEPT = (0, 1, 2, 3, 8, 9, 10, 11)


def parse_interfaces(data: bytes) -> dict[bytes, tuple[int, ...]]:
    """Parse bytes, packets, errors and drops received, then sent, of each interface.

    >>> parse_interfaces(b"a |\\n b |\\n  lo:  6438  59 1 2 0 0 0 0  6438  59 3 4 0 0 0 0\\n")
    {b'lo': (6438, 59, 1, 2, 6438, 59, 3, 4)}
    """
    rows = {}
    for line in data.split(b"\n"):
        name, colon, rest = line.rpartition(b":")
        fields = rest.split()
        if colon and len(fields) >= 16:
            rows[name.lstrip(b" ")] = tuple(int(fields[i]) for i in _KEPT)
    return rows


def open_interfaces(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of the interfaces: all hardware, then others up to 64."""
    # /proc/net is the reader's own network namespace: in a container, read that of the host's PID 1.
    own_namespace = root == sources.ROOT or not (root / "proc/1/net/dev").exists()
    file = sources.KeptFile(
        root / ("proc/net/dev" if own_namespace else "proc/1/net/dev"), room=65536
    )
    folder = os.fspath(root / "sys/class/net")
    kept: dict[bytes, str] = {}

    def read() -> sources.Rows:
        counters = parse_interfaces(file.read())
        for name in [name for name in kept if name not in counters]:
            del kept[name]
        new = [name for name in counters if name not in kept]
        if new and len(kept) < MAX_INTERFACES:
            hardware = set(map(os.fsencode, sources.hardware_interfaces(root)))
            new.sort(key=lambda name: name not in hardware)
            for name in new[: MAX_INTERFACES - len(kept)]:
                kept[name] = sources.clean(name)
        rows = {}
        for name, key in kept.items():
            changes = sources.read_once(f"{folder}/{os.fsdecode(name)}/carrier_changes")
            rows[key] = (int(changes or 0), *counters[name])
        return rows

    return read


def open_timeouts(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """Open a reader of every transmit queue of the hardware interfaces.

    No file stays open: a host may have more queues than a process may have files.
    """
    folder = os.fspath(root / "sys/class/net")

    def read() -> sources.Rows:
        rows: dict[str, tuple[int, ...]] = {}
        interfaces = sources.hardware_interfaces(root)
        if not interfaces:
            raise sources.NoDataError("no network interface here has a device behind it")
        for name in interfaces:
            queues = f"{folder}/{name}/queues"
            for queue in sources.list_folder(queues):
                text = queue.startswith("tx-") and sources.read_once(f"{queues}/{queue}/tx_timeout")
                if text:
                    rows[f"{sources.clean(name)} q{queue[3:]}"] = (int(text),)
        return rows

    return read


TRAFFIC = ("bytes", "packets", "errors", "dropped")
COLUMNS = ("carrier_changes", *(f"{way}_{what}" for way in ("rx", "tx") for what in TRAFFIC))
SIGNALS = (
    sources.Signal("interfaces", 10.0, "interface", COLUMNS, open_interfaces),
    sources.Signal("tx-timeouts", 10.0, "interface queue", ("timeouts",), open_timeouts),
)
