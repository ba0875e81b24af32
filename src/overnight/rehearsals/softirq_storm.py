"""A packet flood whose softirqs take the victim's core.

Small packets go to a multicast group that many sockets have joined, as in a market feed or a discovery
protocol. The kernel delivers each packet to every socket in the receiving core's softirq, so little sending
causes much receiving. The packets pass a veth pair between two network namespaces; RPS on the receiving end
selects the victim's core.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

from overnight import rehearsals
from overnight.machines import network
from overnight.model import cpu as modes
from overnight.rehearsals import processes
from overnight.sources import cpu

if TYPE_CHECKING:
    from overnight.model.truth import Truth

FROM, TO = "198.51.100.1", "198.51.100.2"  # documentation addresses: never routed
PORT = 5005
TICK_SECONDS = 0.0005
MEASURE_SECONDS = 0.3
# With more at once the kernel leaves the rest to ksoftirqd, which competes with the victim on equal terms.
MAX_AT_ONCE = 48
DRAIN_SECONDS = 0.02
MAX_SECONDS = 180
FIRST_COST = 100e-6  # CPU seconds per packet: start gently


class SoftirqStorm:
    name = "softirq-storm"
    about = "A packet flood keeps the victim's core busy with network softirqs."
    needs = ("root", "kmsg", "netns")
    has_event = True

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Create two namespaces with a veth pair, and steer its packets to the victim's core."""
        chance, facts = stage.chance, stage.facts
        facts["process"] = chance.choice(("feed", "ticks", "beacon", "quotes")) + "-out"
        facts["subscribers"] = chance.randrange(160, 280, 10)
        facts["payload_bytes"] = chance.randrange(32, 480, 16)
        facts["softirq_share"] = round(chance.uniform(0.76, 0.86), 3)
        facts["group"] = f"239.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}.7"
        link = chance.choice(("feed", "mcast", "tap")) + str(chance.randrange(10))
        near, far = f"{stage.journal.run}-c", f"{stage.journal.run}-d"
        ends = (near, link, FROM), (far, link, TO)
        facts["from"], facts["to"] = network.connect(stage.journal, *ends)
        queue = f"/sys/class/net/{link}/queues/rx-0/rps_cpus"
        # /sys shows the devices of the namespace that mounted it: `ip netns exec` mounts one.
        network.run_ip("netns", "exec", far, "sh", "-c", f"echo {core_mask(stage.core)} > {queue}")

    def strike(self, stage: rehearsals.Stage) -> None:
        facts = stage.facts

        def start(name: str, netns: object) -> subprocess.Popen[bytes]:
            settings = {**facts, "netns": netns, "target_core": stage.core}
            module = "overnight.rehearsals.softirq_storm"
            return processes.start(
                stage, module, name=name, core=stage.spare, seconds=MAX_SECONDS, **settings
            )

        name = str(facts["process"])
        receiver = start(name.replace("-out", "-in"), facts["to"])
        processes.end_with_fault(stage, receiver, start(name, facts["from"]))

    def truth(self, stage: rehearsals.Stage) -> Truth:
        return rehearsals.starved(stage, ("net.softirq_storm", {"core": stage.core}))


def core_mask(core: int) -> str:
    """Return the kernel's CPU mask of one core: groups of 32, the highest first.

    >>> core_mask(33)
    '00000002,00000000'
    """
    groups = [0] * (core // 32 + 1)
    groups[core // 32] = 1 << core % 32
    return ",".join(f"{group:08x}" for group in reversed(groups))


class Pace:
    """The packet rate that gives the wanted softirq share, from the measured cost of a packet."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._cost = FIRST_COST

    @property
    def rate(self) -> float:
        """Packets per second."""
        return self._share / self._cost

    def learn(self, packets: int, softirq_seconds: float) -> None:
        """Update the cost from a measurement."""
        if packets and softirq_seconds > 0:
            cost = softirq_seconds / packets
            # Ticks are coarse, so one measurement may only halve or double the cost.
            self._cost = min(2 * self._cost, max(self._cost / 2, 0.5 * self._cost + 0.5 * cost))


def main() -> None:
    settings = processes.begin()
    (_join if settings["netns"] == settings["to"] else _send)(settings)


def _join(settings: dict[str, Any]) -> None:
    """Open sockets that are never read: their queues fill at once, and the kernel's work stays constant."""
    member = socket.inet_aton(settings["group"]) + socket.inet_aton(TO)
    subscribers = []
    for _ in range(settings["subscribers"]):
        subscriber = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        subscriber.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        subscriber.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        subscriber.bind((settings["group"], PORT))
        subscriber.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        subscribers.append(subscriber)
    signal.pause()


def _send(settings: dict[str, Any]) -> None:
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(FROM))
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    out.connect((settings["group"], PORT))
    out.setblocking(False)
    filling = os.urandom(settings["payload_bytes"])
    pace = Pace(settings["softirq_share"])
    debt, sent = 0.0, 0
    last = measured = time.monotonic()
    before = _softirq_seconds(settings["target_core"])
    while True:
        now = time.monotonic()
        debt = min(debt + (now - last) * pace.rate, MAX_AT_ONCE)
        last = now
        try:
            while debt >= 1:
                out.send(filling)
                debt -= 1
                sent += 1
            time.sleep(TICK_SECONDS)
        except BlockingIOError:
            # ksoftirqd took over the backlog; it sleeps again once the backlog is gone.
            debt = 0.0
            time.sleep(DRAIN_SECONDS)
        if now - measured >= MEASURE_SECONDS:
            used = _softirq_seconds(settings["target_core"])
            pace.learn(sent, used - before)
            sent, measured, before = 0, now, used


def _softirq_seconds(core: int) -> float:
    row = cpu.read_ticks().get(core)
    return row[modes.MODES.index("softirq")] / os.sysconf("SC_CLK_TCK") if row else 0.0


REHEARSALS = (SoftirqStorm(),)

if __name__ == "__main__":
    main()
