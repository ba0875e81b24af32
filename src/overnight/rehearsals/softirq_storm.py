"""A flood of packets whose soft interrupts take the victim's core.

One small packet is sent to a multicast group that many sockets have joined, as a market feed or a discovery
protocol does it. The kernel hands each packet to every one of them in the receiving core's soft interrupt,
so little sending makes much receiving. The packets go through a veth pair of two network namespaces; that
they are received on the victim's core is set on our own end of it (RPS).
"""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

from overnight import errors, rehearsals
from overnight.rehearsals import processes, victim_worker

if TYPE_CHECKING:
    from overnight.model.truth import Truth

__all__ = ["REHEARSALS", "Pace", "SoftirqStorm", "core_mask", "main"]

NETNS = pathlib.Path("/run/netns")
FROM, TO = "198.51.100.1", "198.51.100.2"  # for documentation: nobody routes them
PORT = 5005
TICK_SECONDS = 0.0005
LOOK_SECONDS = 0.3
# More at once, and the kernel would leave the rest to ksoftirqd, which has no more right to the core
# than the victim.
MOST_AT_ONCE = 48
DRAIN_SECONDS = 0.02
LONGEST_SECONDS = 180
TICKS = 100  # a second, in /proc/stat
FIRST_COST = 100e-6  # seconds of the core for one packet: begin gently


class SoftirqStorm:
    """A `Rehearsal`."""

    name = "softirq-storm"
    about = "A packet flood keeps the victim's core in the network's soft interrupts."
    needs = ("root", "kmsg", "netns")
    has_event = True

    def prepare(self, stage: rehearsals.Stage) -> None:
        """Two namespaces, a veth pair between them, and the core that takes its packets."""
        chance = stage.chance
        facts = stage.facts
        facts["process"] = chance.choice(("feed", "ticks", "beacon", "quotes")) + "-out"
        facts["subscribers"] = chance.randrange(160, 280, 10)
        facts["payload_bytes"] = chance.randrange(32, 480, 16)
        facts["softirq_share"] = round(chance.uniform(0.76, 0.86), 3)
        facts["group"] = f"239.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}.7"
        link = chance.choice(("feed", "mcast", "tap")) + str(chance.randrange(10))
        run = stage.journal.run
        names = (f"{run}-c", f"{run}-d")
        for name in names:
            stage.journal.write("netns", name)
            _ip("netns", "add", name)
        near, far = names
        _ip("link", "add", link, "netns", near, "type", "veth", "peer", "name", link, "netns", far)
        for name, address in ((near, FROM), (far, TO)):
            _ip("-n", name, "address", "add", f"{address}/30", "dev", link)
            _ip("-n", name, "link", "set", link, "up")
        queue = f"/sys/class/net/{link}/queues/rx-0/rps_cpus"
        # The folder shows the devices of whoever mounted it: ip mounts one for the namespace.
        _ip("netns", "exec", far, "sh", "-c", f"echo {core_mask(stage.core)} > {queue}")
        facts["from"], facts["to"] = str(NETNS / near), str(NETNS / far)

    def strike(self, stage: rehearsals.Stage) -> None:
        """The sockets join, the flood begins."""
        facts = stage.facts
        joined = processes.start(
            stage,
            "overnight.rehearsals.softirq_storm",
            name=str(facts["process"]).replace("-out", "-in"),
            core=stage.spare,
            netns=facts["to"],
            subscribers=facts["subscribers"],
            seconds=LONGEST_SECONDS,
            group=facts["group"],
        )
        sends = processes.start(
            stage,
            "overnight.rehearsals.softirq_storm",
            name=str(facts["process"]),
            core=stage.spare,
            netns=facts["from"],
            subscribers=0,
            payload=facts["payload_bytes"],
            target_core=stage.core,
            share=facts["softirq_share"],
            seconds=LONGEST_SECONDS,
            group=facts["group"],
        )
        processes.ends_with_fault(stage, joined, sends)

    def truth(self, stage: rehearsals.Stage) -> Truth:
        """The storm, the full core, the reset."""
        return rehearsals.starved(stage, ("net.softirq_storm", {"core": stage.core}))


def core_mask(core: int) -> str:
    """One core as the kernel writes sets of them: 32 in each group, the highest first.

    >>> core_mask(33)
    '00000002,00000000'
    """
    groups = [0] * (core // 32 + 1)
    groups[core // 32] = 1 << core % 32
    return ",".join(f"{group:08x}" for group in reversed(groups))


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise errors.CannotError(
            "the network of the flood could not be made",
            why=f"ip {' '.join(words)}: {done.stderr.strip()}",
            todo="run it as root, on a kernel with network namespaces, veth and RPS",
        )


class Pace:
    """How many packets a second give the wanted share of soft interrupts, from what they cost."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._cost = FIRST_COST

    @property
    def rate(self) -> float:
        """Packets a second."""
        return self._share / self._cost

    def learn(self, packets: int, softirq_seconds: float) -> None:
        """So many packets made so many seconds of soft interrupts."""
        if packets and softirq_seconds > 0:
            cost = softirq_seconds / packets
            # Ticks are coarse: no single look may carry it away.
            self._cost = min(2 * self._cost, max(self._cost / 2, 0.5 * self._cost + 0.5 * cost))


def main() -> None:
    """The process: those who joined, or the one who sends."""
    told = processes.begin()
    victim_worker.enter(told["netns"])
    if told["subscribers"]:
        _join(told)
    else:
        _send(told)


def _join(told: dict[str, Any]) -> None:
    """Sockets that nobody reads: their queues are full at once, and the kernel's work stays the same."""
    member = socket.inet_aton(told["group"]) + socket.inet_aton(TO)
    made = []
    for _ in range(told["subscribers"]):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        one.bind((told["group"], PORT))
        one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        made.append(one)
    signal.pause()


def _send(told: dict[str, Any]) -> None:
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(FROM))
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    out.connect((told["group"], PORT))
    out.setblocking(False)
    filling = os.urandom(told["payload"])
    pace = Pace(told["share"])
    debt, sent = 0.0, 0
    last = looked = time.monotonic()
    before = _softirq_seconds(told["target_core"])
    while True:
        now = time.monotonic()
        debt = min(debt + (now - last) * pace.rate, MOST_AT_ONCE)
        last = now
        try:
            while debt >= 1:
                out.send(filling)
                debt -= 1
                sent += 1
            time.sleep(TICK_SECONDS)
        except BlockingIOError:
            # So many wait that ksoftirqd took over: once they are gone, it goes back to sleep.
            debt = 0.0
            time.sleep(DRAIN_SECONDS)
        if now - looked >= LOOK_SECONDS:
            used = _softirq_seconds(told["target_core"])
            pace.learn(sent, used - before)
            sent, looked, before = 0, now, used


def _softirq_seconds(core: int) -> float:
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{core} "):
            return int(line.split()[7]) / TICKS
    return 0.0


REHEARSALS = (SoftirqStorm(),)

if __name__ == "__main__":
    main()
