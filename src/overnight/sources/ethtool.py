"""A network driver's own counters and version, from the SIOCETHTOOL ioctl: what `ethtool -S` and `-i` show.

A driver names its counters itself, hundreds of them on a host with many queues, most of them traffic::

    tx_timeout: 0
    suspected_poll_starvation: 1
    total_resets: 1
    queue_5_tx_missed_tx: 0
    bw_in_allowance_exceeded: 0

Only those are kept whose name tells trouble (TROUBLE). The names are asked for once, and again when
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

__all__ = [
    "SIGNALS",
    "Counters",
    "Door",
    "Driver",
    "is_trouble",
    "open_drivers",
    "open_ethtool",
    "parse_driver",
    "parse_names",
    "read_drivers",
    "read_ethtool",
]

# include/uapi/linux/ethtool.h and sockios.h
SIOCETHTOOL = 0x8946
GDRVINFO, GSTRINGS, GSTATS, GSSET_INFO = 0x03, 0x1B, 0x1D, 0x37
STATISTICS = 1  # ETH_SS_STATS
NAME = 32  # ETH_GSTRING_LEN
DRIVER_INFO = 196  # sizeof(struct ethtool_drvinfo)

# A counter is kept when its name has one of the words of TROUBLE and none of HARMLESS.
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
# A driver that counts per queue on a large host has thousands: no more than this is kept of one.
MOST_COUNTERS = 512

Ask = Callable[[str, "array.array[int]"], None]
Driver = sources.Fact


def is_trouble(name: str) -> bool:
    """Whether a counter of that name is kept.

    >>> [is_trouble(n) for n in ("suspected_poll_starvation", "queue_5_tx_bytes", "rx_drops")]
    [True, False, True]
    """
    low = name.lower()
    return any(word in low for word in TROUBLE) and not any(word in low for word in HARMLESS)


def parse_names(data: bytes) -> list[str]:
    """The names in an answer of ETHTOOL_GSTRINGS: 32 bytes each, ended by a zero."""
    return [
        sources.clean(data[at : at + NAME].partition(b"\0")[0]) for at in range(0, len(data), NAME)
    ]


def parse_driver(data: bytes) -> Driver:
    """Driver, its version, firmware and bus address, of an answer of ETHTOOL_GDRVINFO."""
    words = [
        sources.clean(data[begin:end].partition(b"\0")[0])
        for begin, end in ((4, 36), (36, 68), (68, 100), (100, 132))
    ]
    return dict(zip(("driver", "version", "firmware", "bus"), words, strict=True))


class Door:
    """Asks the kernel about interfaces of the network namespace in which it was made."""

    def __init__(self) -> None:
        import socket  # 5 ms, and not needed by whoever only reads the names

        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __call__(self, interface: str, answer: array.array[int]) -> None:
        """Have the question that `answer` begins with answered in its place."""
        # struct ifreq: the name, then a pointer to what is asked and answered
        request = struct.pack("@16sP16x", os.fsencode(interface)[:15], answer.buffer_info()[0])
        fcntl.ioctl(self._socket, SIOCETHTOOL, request)

    def __del__(self) -> None:
        self._socket.close()


def _same_namespace(root: pathlib.Path) -> bool:
    """Whether the interfaces under that root are those that this process can ask about."""
    if root == sources.ROOT:
        return True
    try:
        return (root / "proc/1/ns/net").samefile("/proc/self/ns/net")
    except OSError:
        return False


class Counters:
    """The counters of one interface that tell trouble."""

    def __init__(self, interface: str, ask: Ask) -> None:
        self._interface = interface
        self._ask = ask
        self._count = -1
        self._kept: list[tuple[str, int]] = []  # key, place among the answered numbers
        self._answer = array.array("Q")

    def read(self) -> dict[str, tuple[int, ...]]:
        """Each counter under "interface name"; nothing where the driver has none."""
        count = self._how_many()
        if count != self._count:
            self._learn(count)
        if not self._kept:
            return {}
        answer = self._answer
        answer[0] = struct.unpack("@Q", struct.pack("@II", GSTATS, self._count))[0]
        self._ask(self._interface, answer)
        if struct.unpack("@II", struct.pack("@Q", answer[0]))[1] != self._count:
            self._count = -1  # queues were added just now: learn the names at the next look
            return {}
        # Counters of 64 bits; the top bit has never been seen set, and what is kept has 63.
        return {key: (answer[place] & 0x7FFFFFFFFFFFFFFF,) for key, place in self._kept}

    def _how_many(self) -> int:
        answer = array.array("I", (GSSET_INFO, 0, 0, 0, 0))
        struct.pack_into("@Q", answer, 8, 1 << STATISTICS)
        self._ask(self._interface, answer)
        (told,) = struct.unpack_from("@Q", answer, 8)
        return answer[4] if told else 0

    def _learn(self, count: int) -> None:
        self._count, self._kept = count, []
        if not count:
            return
        # The kernel writes as many as the driver has now, not as many as were asked for: there is room
        # for queues that are added between the two questions. Some drivers have 19,000 counters.
        room = 2 * count + 1024
        strings = array.array("B", bytes(12 + NAME * room))
        struct.pack_into("@III", strings, 0, GSTRINGS, STATISTICS, count)
        self._ask(self._interface, strings)
        names = parse_names(strings[12 : 12 + NAME * count].tobytes())
        label = sources.clean(self._interface)
        self._kept = [
            (f"{label} {name}", place) for place, name in enumerate(names, 1) if is_trouble(name)
        ][:MOST_COUNTERS]
        self._answer = array.array("Q", bytes(8 * (room + 1)))


def open_ethtool(
    root: pathlib.Path = sources.ROOT,
    interfaces: Callable[[], list[str]] | None = None,
    ask: Ask | None = None,
) -> sources.Reader:
    """The look at every interface that is hardware, or at those that `interfaces` tells."""
    listed = interfaces or (lambda: sources.hardware_interfaces(root))
    if ask is None and not _same_namespace(root):
        ask = _elsewhere
    ask = ask or Door()
    known: dict[str, Counters] = {}

    def read() -> sources.Rows:
        rows: dict[str, tuple[int, ...]] = {}
        now = listed()
        if not now:
            raise sources.NoDataError("no network interface here has a device behind it")
        for gone in known.keys() - set(now):
            del known[gone]
        for interface in now:
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


def _elsewhere(_interface: str, _answer: array.array[int]) -> None:
    raise sources.NoDataError("the interfaces are in another network namespace than this process")


def read_ethtool(root: pathlib.Path = sources.ROOT) -> sources.Rows:
    """One look at the counters, now."""
    return open_ethtool(root)()


def open_drivers(
    root: pathlib.Path = sources.ROOT,
    interfaces: Callable[[], list[str]] | None = None,
    ask: Ask | None = None,
) -> sources.FactReader:
    """The look at which driver, version and firmware each interface has."""
    listed = interfaces or (lambda: sources.hardware_interfaces(root))
    if ask is None and not _same_namespace(root):
        ask = _elsewhere
    ask = ask or Door()

    def read() -> sources.Facts:
        facts: dict[str, sources.Fact] = {}
        now = listed()
        if not now:
            raise sources.NoDataError("no network interface here has a device behind it")
        for interface in now:
            answer = array.array("B", bytes(DRIVER_INFO))
            struct.pack_into("@I", answer, 0, GDRVINFO)
            try:
                ask(interface, answer)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENODEV):
                    raise
                continue
            facts[sources.clean(interface)] = parse_driver(answer.tobytes())
        return facts

    return read


def read_drivers(root: pathlib.Path = sources.ROOT) -> sources.Facts:
    """One look at the drivers, now."""
    return open_drivers(root)()


SIGNALS = (
    sources.Signal(
        "ethtool",
        10.0,
        "interface counter",
        (sources.Column("value"),),
        open_ethtool,
        "SIOCETHTOOL: the driver's counters of resets, timeouts, starvation, drops and exceeded allowances",
    ),
    sources.FactSignal(
        "nic-drivers",
        60.0,
        "interface",
        open_drivers,
        "SIOCETHTOOL: driver, its version and firmware; what a reset's kernel-log lines mean depends on them",
    ),
)
