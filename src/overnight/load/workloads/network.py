"""UDP packets at a constant rate between two processes, over loopback or a veth pair."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from typing import TYPE_CHECKING

from overnight import errors, load
from overnight.load import controller
from overnight.machines import network

if TYPE_CHECKING:
    from overnight.load import worker
    from overnight.undo import journal

RATE = 5000.0
SIZE = 512
MAX_SIZE = 1472  # a datagram in one Ethernet frame
PERIOD = 0.01
SENT, PACKETS, BYTES = 0, 1, 2
# Documentation addresses (RFC 5737), used in private namespaces.
HERE, THERE, PORT = "192.0.2.1", "192.0.2.2", 9


class Network:
    """Pairs of a sender and a receiver; each pair takes two cores, or shares the only one."""

    name = "network"
    about = "UDP at a constant packet and byte rate, over loopback or a veth pair (--veth)"
    takes = ("rate", "size", "veth")

    def metrics(self, options: load.Options) -> tuple[load.Metric, ...]:
        """Measure what arrives: lost packets show as a rate below the target."""
        rate, size = _rate_and_size(options)
        pairs = len(_pairs(options.cores))
        return (
            load.Metric("packets", "/s", str(PACKETS), target=rate * pairs),
            load.Metric("bytes", "B/s", str(BYTES), target=rate * pairs * size),
            load.Metric("sent", "/s", str(SENT), gated=False),
            load.Metric("cpu", "cores", "cpu", gated=False),
        )

    def prepare(self, options: load.Options, journal: journal.Journal) -> tuple[load.Job, ...]:
        """With `veth`, each pair gets two network namespaces, removed after the run."""
        rate, size = _rate_and_size(options)
        name = options.name or "load-net"
        jobs = []
        for n, (sender, receiver) in enumerate(_pairs(options.cores)):
            if options.veth:
                here, there = _create_veth(journal, n)
                to: tuple[str, int] = (THERE, PORT)
                receiver_settings: dict[str, object] = {"bind": to}
                files: tuple[int, ...] = ()
            else:
                here = there = ""
                receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                receiving.bind(("127.0.0.1", 0))
                to = receiving.getsockname()
                files = (receiving.detach(),)
                receiver_settings = {"file": files[0]}
            sender_settings = {"to": to, "rate": rate, "size": size}
            wait = 0.1 + PERIOD * n / len(options.cores)
            jobs += [
                load.Job(
                    f"{name}-rx-{n}", (receiver,), receiver_settings, netns=there, files=files
                ),
                load.Job(f"{name}-tx-{n}", (sender,), sender_settings, netns=here, wait=wait),
            ]
        return tuple(jobs)

    def work(self, link: worker.Link) -> None:
        if "to" in link.settings:
            _send(link)
        else:
            _receive(link)


def _rate_and_size(options: load.Options) -> tuple[float, int]:
    rate = RATE if options.rate is None else options.rate
    size = SIZE if options.size is None else options.size
    if not 0 < rate <= 1e6 or not 1 <= size <= MAX_SIZE:
        raise errors.UsageError(
            f"--rate {rate:g} --size {size} is out of range",
            why=f"the rate is above 0 and at most 1000000 packets/s, a packet has 1 to {MAX_SIZE} bytes",
            todo="write them like --rate 5000 --size 512",
        )
    return rate, size


def _pairs(cores: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return pairs of sender core and receiver core.

    >>> _pairs((0, 1, 2)), _pairs((3,))
    ([(0, 1)], [(3, 3)])
    """
    return list(zip(cores[::2], cores[1::2], strict=False)) or [(cores[0], cores[0])]


def _send(link: worker.Link) -> None:
    rate, packet = float(link.settings["rate"]), bytes(int(link.settings["size"]))
    host, port = link.settings["to"]
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.connect((host, int(port)))
    link.ready()
    sent = 0
    for due in controller.amounts_due(rate, PERIOD):
        while sent + 1 <= due:
            # The receiver is not listening yet, or has ended.
            with contextlib.suppress(ConnectionRefusedError):
                out.send(packet)
            sent += 1
        link.count(SENT, sent)


def _receive(link: worker.Link) -> None:
    if "file" in link.settings:
        receiving = socket.socket(fileno=int(link.settings["file"]))
    else:
        host, port = link.settings["bind"]
        receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiving.bind((host, int(port)))
    link.ready()
    room = bytearray(MAX_SIZE)
    packets = size = 0
    while True:
        size += receiving.recv_into(room)
        packets += 1
        link.count(PACKETS, packets)
        link.count(BYTES, size)


def _create_veth(journal: journal.Journal, n: int) -> tuple[str, str]:
    """Create two namespaces with a veth pair between them; return their paths."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise errors.MissingPermissionError(
            "cannot create a veth pair",
            why="network namespaces need root and the program ip (iproute2)",
            todo="run it as root: `sudo overnight load network --veth`; or leave --veth out for loopback",
        )
    here, there = (f"{journal.run}-{n}{end}" for end in "ab")
    return network.connect(journal, (here, "out", HERE), (there, "in", THERE))


WORKLOAD = Network()
