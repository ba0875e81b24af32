"""A network driver's own counters and version, from the SIOCETHTOOL ioctl: `ethtool -S` and `ethtool -i`.

A driver chooses its counters and their names: hundreds on a host with many queues, most about traffic::

    tx_timeout: 0
    suspected_poll_starvation: 1
    total_resets: 1
    queue_5_tx_missed_tx: 0
    bw_in_allowance_exceeded: 0

Only counters whose name points to trouble are kept (TROUBLE). The names are read once, and again when
their number changes.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import pathlib
import struct
from collections.abc import Callable

from overnight import sources

# include/uapi/linux/ethtool.h and sockios.h
SIOCETHTOOL = 0x8946
GDRVINFO, GSTRINGS, GSTATS, GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
STATISTICS = 1  # ETH_SS_STATS
NAME = 32  # ETH_GSTRING_LEN
DRIVER_INFO = 196  # sizeof(struct ethtool_drvinfo)

# A counter is kept when its name contains a word of TROUBLE and none of HARMLESS.
TROUBLE = (
    "reset",  # ena total_resets, reset_fail, device_request_reset
    "timeout",  # ena tx_timeout, ixgbe tx_timeout_count, virtio_net tx_timeouts
    "missed",  # ena missed_tx, missing_tx_cmpl; igb rx_missed_errors
    "missing",
    "starv",  # ena suspected_poll_starvation
    "expired",  # ena wd_expired
    "admin_to",
    "allowance_exceeded",  # ena bw_in_, bw_out_, pps_, conntrack_, linklocal_
    "drop",
    "discard",
    "error",
    "_err",
    "fail",
    "recover",  # mlx5 tx0_recover
    "no_buf",  # rx_no_buffer_count, rx_out_of_buffer, rx_nobuf
    "out_of_buf",
    "nobuf",
    "fault",
    "hang",
    "link_down",
    "lost",
    "stuck",
    "overrun",
    "fatal",
)
HARMLESS = ("_bytes", "xdp_", "ptp_", "errors_corrected", "phy_corrected", "fec_")
# A driver that counts per queue has thousands of counters on a large host; this many are kept.
MAX_COUNTERS = 512

Ask = Callable[[str, "array.array[int]"], None]


def is_trouble(name: str) -> bool:
    """Return whether a counter with this name is kept.

    >>> [is_trouble(n) for n in ("suspected_poll_starvation", "queue_5_tx_bytes", "rx_drops")]
    [True, False, True]
    """
    low = name.lower()
    return any(word in low for word in TROUBLE) and not any(word in low for word in HARMLESS)


def parse_names(data: bytes) -> list[str]:
    """Parse names of 32 bytes each, ended by a zero, as in the reply to ETHTOOL_GSTRINGS."""
    return [
        sources.clean(data[at : at + NAME].partition(b"\0")[0]) for at in range(0, len(data), NAME)
    ]


class InterfaceQuery:
    """Queries interfaces of the network namespace in which it was created."""

    def __init__(self) -> None:
        import socket  # takes 5 ms, and a caller that only reads names does not need it

        # Any socket does; the hardened unit allows none that could reach the network.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __call__(self, interface: str, answer: array.array[int]) -> None:
        """Send the request at the beginning of `answer`; the kernel writes its reply over it."""
        # struct ifreq: the name, then a pointer to the request and reply
        request = struct.pack("@16sP16x", os.fsencode(interface)[:15], answer.buffer_info()[0])
        fcntl.ioctl(self._socket, SIOCETHTOOL, request)

    def __del__(self) -> None:
        if hasattr(self, "_socket"):  # not where there was no descriptor for it
            self._socket.close()


def read_driver(interface: str, ask: Ask | None = None) -> sources.Fact:
    """Query an interface for driver, version, firmware and bus address; raise OSError if it has none."""
    answer = array.array("B", bytes(DRIVER_INFO))
    struct.pack_into("@I", answer, 0, GDRVINFO)
    (ask or InterfaceQuery())(interface, answer)
    names = parse_names(answer.tobytes()[4:132])
    return dict(zip(("driver", "version", "firmware", "bus"), names, strict=True))


class Counters:
    def __init__(self, interface: str, ask: Ask) -> None:
        self._interface = interface
        self._ask = ask
        self._count = -1
        self._kept: list[tuple[str, int]] = []  # key, index in the reply
        self._answer = array.array("Q")

    def read(self) -> dict[str, tuple[int, ...]]:
        """Return each counter under "interface counter"; an empty dict where the driver has none."""
        count = self._query_count()
        if count != self._count:
            self._query_names(count)
        if not self._kept:
            return {}
        answer = self._answer
        answer[0] = struct.unpack("@Q", struct.pack("@II", GSTATS, self._count))[0]
        self._ask(self._interface, answer)
        if struct.unpack("@II", struct.pack("@Q", answer[0]))[1] != self._count:
            self._count = -1  # queues were added just now: read the names at the next poll
            return {}
        # Counters have 64 bits and the store 63; the top bit has never been seen set.
        return {key: (answer[index] & 0x7FFFFFFFFFFFFFFF,) for key, index in self._kept}

    def _query_count(self) -> int:
        answer = array.array("I", (GSSET_INFO, 0, 0, 0, 0))
        struct.pack_into("@Q", answer, 8, 1 << STATISTICS)
        self._ask(self._interface, answer)
        (mask,) = struct.unpack_from("@Q", answer, 8)
        return answer[4] if mask else 0

    def _query_names(self, count: int) -> None:
        self._count, self._kept = count, []
        if not count:
            return
        # The kernel writes as many names as the driver has now, not as many as requested: leave room
        # for queues that are added between the two requests. Some drivers have 19,000 counters.
        room = 2 * count + 1024
        strings = array.array("B", bytes(12 + NAME * room))
        struct.pack_into("@III", strings, 0, GSTRINGS, STATISTICS, count)
        self._ask(self._interface, strings)
        names = parse_names(strings[12 : 12 + NAME * count].tobytes())
        label = sources.clean(self._interface)
        self._kept = [
            (f"{label} {name}", index) for index, name in enumerate(names, 1) if is_trouble(name)
        ][:MAX_COUNTERS]
        self._answer = array.array("Q", bytes(8 * (room + 1)))


def open_ethtool(
    root: pathlib.Path = sources.ROOT,
    interfaces: Callable[[], list[str]] | None = None,
    ask: Ask | None = None,
) -> sources.Reader:
    """Open a reader of the counters of every hardware interface, or of those that `interfaces` lists."""
    ask = ask or _query(root)
    known: dict[str, Counters] = {}

    def read() -> sources.Rows:
        rows: dict[str, tuple[int, ...]] = {}
        present = _list_interfaces(root, interfaces)
        for removed in known.keys() - set(present):
            del known[removed]
        for interface in present:
            counters = known.get(interface)
            if counters is None:
                counters = known[interface] = Counters(interface, ask)
            try:
                rows.update(counters.read())
            except OSError as error:
                known.pop(interface)
                if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV):
                    raise
        return rows

    return read


def _query(root: pathlib.Path) -> Ask:
    try:
        same = root == sources.ROOT or (root / "proc/1/ns/net").samefile("/proc/self/ns/net")
    except OSError:
        same = False
    return InterfaceQuery() if same else _fail_elsewhere


def _fail_elsewhere(_interface: str, _answer: array.array[int]) -> None:
    raise sources.NoDataError("the interfaces are in another network namespace than this process")


def _list_interfaces(root: pathlib.Path, interfaces: Callable[[], list[str]] | None) -> list[str]:
    names = interfaces() if interfaces else sources.hardware_interfaces(root)
    if not names:
        raise sources.NoDataError("no network interface here has a device behind it")
    return names


def open_drivers(
    root: pathlib.Path = sources.ROOT,
    interfaces: Callable[[], list[str]] | None = None,
    ask: Ask | None = None,
) -> sources.FactReader:
    """Open a reader of each interface's driver, driver version and firmware."""
    ask = ask or _query(root)

    def read() -> sources.Facts:
        facts: dict[str, sources.Fact] = {}
        for interface in _list_interfaces(root, interfaces):
            try:
                facts[sources.clean(interface)] = read_driver(interface, ask)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV):
                    raise
        return facts

    return read


SIGNALS = (
    sources.Signal("ethtool", 10.0, "interface counter", ("value",), open_ethtool),
    sources.FactSignal("nic-drivers", 60.0, "interface", open_drivers),
)
