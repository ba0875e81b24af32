"""What the network interfaces carried, and transmit queues that timed out.

/proc/net/dev, sixteen counters an interface::

      eth0: 3160908978  114601 0 0 0 0 0 0  7895239   88975 0 0 0 0 0 0

/sys/class/net/eth0/carrier_changes counts each time that the link went or came.
/sys/class/net/eth0/queues/tx-5/tx_timeout counts what `NETDEV WATCHDOG` tells in the kernel log: there
it is told once in a boot by older kernels, here each one is counted, for every driver.
"""

from __future__ import annotations

import os
import pathlib

from overnight import sources

__all__ = [
    "SIGNALS",
    "open_interfaces",
    "open_timeouts",
    "parse_interfaces",
]

# A host with containers has hundreds of interfaces that come and go with them.
MOST_INTERFACES = 64
# bytes, packets, errors and drops of both directions, among the sixteen
_KEPT = (0, 1, 2, 3, 8, 9, 10, 11)


def parse_interfaces(data: bytes) -> dict[bytes, tuple[int, ...]]:
    """Bytes, packets, errors and drops received, then sent, of each interface.

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
    """The look at the interfaces: all that are hardware, then others until there are 64."""
    # /proc/net is the reader's own network namespace: a container that looks at its host asks for
    # that of the host's first process.
    own = root == sources.ROOT or not (root / "proc/1/net/dev").exists()
    file = sources.KeptFile(root / ("proc/net/dev" if own else "proc/1/net/dev"), room=65536)
    folder = os.fspath(root / "sys/class/net")
    chosen: dict[bytes, str] = {}

    def read() -> sources.Rows:
        found = parse_interfaces(file.read())
        for name in [name for name in chosen if name not in found]:
            del chosen[name]
        new = [name for name in found if name not in chosen]
        if new and len(chosen) < MOST_INTERFACES:
            hardware = set(map(os.fsencode, sources.hardware_interfaces(root)))
            new.sort(key=lambda name: name not in hardware)
            for name in new[: MOST_INTERFACES - len(chosen)]:
                chosen[name] = sources.clean(name)
        return {
            key: (_carrier_changes(f"{folder}/{os.fsdecode(name)}"), *found[name])
            for name, key in chosen.items()
        }

    return read


def _carrier_changes(interface: str) -> int:
    return int(sources.read_once(f"{interface}/carrier_changes") or 0)


def open_timeouts(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """The look at every transmit queue of every interface that is hardware.

    Nothing stays open: a host may have more queues than a process may have files.
    """
    folder = os.fspath(root / "sys/class/net")

    def read() -> sources.Rows:
        rows: dict[str, tuple[int, ...]] = {}
        interfaces = sources.hardware_interfaces(root)
        if not interfaces:
            raise sources.NoDataError("no network interface here has a device behind it")
        for name in interfaces:
            queues = f"{folder}/{name}/queues"
            key = sources.clean(name)
            for queue in sources.list_folder(queues):
                if queue.startswith("tx-") and (
                    text := sources.read_once(f"{queues}/{queue}/tx_timeout")
                ):
                    rows[f"{key} q{queue[3:]}"] = (int(text),)
        return rows

    return read


SIGNALS = (
    sources.Signal(
        "interfaces",
        10.0,
        "interface",
        (
            sources.Column("carrier_changes"),
            *(
                sources.Column(f"{way}_{what}", unit=what if what in ("bytes", "packets") else "")
                for way in ("rx", "tx")
                for what in ("bytes", "packets", "errors", "dropped")
            ),
        ),
        open_interfaces,
        "/proc/net/dev, /sys/class/net/*/carrier_changes: traffic, errors and drops, a link that flaps",
    ),
    sources.Signal(
        "tx-timeouts",
        10.0,
        "interface queue",
        (sources.Column("timeouts"),),
        open_timeouts,
        "/sys/class/net/*/queues/tx-*/tx_timeout: a transmit queue that did not move, whatever the driver",
    ),
)
