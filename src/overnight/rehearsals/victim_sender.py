"""Sends the victim its packets: numbered, with a timestamp, at a constant rate."""

from __future__ import annotations

import random
import socket
import time

from overnight.load import controller
from overnight.rehearsals import processes, victim_worker

TICK_SECONDS = 0.01


def main() -> None:
    settings = processes.begin()
    to = (settings["address"], victim_worker.PORT)
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    filling = random.Random(settings["fill"]).randbytes(settings["payload"])  # noqa: S311 - no secret
    number = 0
    for due in controller.amounts_due(settings["rate"], TICK_SECONDS):
        while number + 1 <= due:
            out.sendto(victim_worker.HEAD.pack(number, time.monotonic_ns()) + filling, to)
            number += 1


if __name__ == "__main__":
    main()
