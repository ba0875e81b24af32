"""Sends the victim its packets: numbered, with a timestamp, at a constant rate."""

from __future__ import annotations

import random
import socket
import time

from overnight.rehearsals import processes, victim_worker

TICK_SECONDS = 0.01


def main() -> None:
    settings = processes.begin()
    to = (settings["address"], victim_worker.PORT)
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    filling = random.Random(settings["fill"]).randbytes(settings["payload"])  # noqa: S311 - no secret
    number, begin = 0, time.monotonic()
    while True:
        due = int((time.monotonic() - begin) * settings["rate"])
        if due - number > settings["rate"]:
            # After a stall of a second the missed packets are dropped.
            begin += (due - number) / settings["rate"]
            continue
        while number < due:
            out.sendto(victim_worker.HEAD.pack(number, time.monotonic_ns()) + filling, to)
            number += 1
        time.sleep(TICK_SECONDS)


if __name__ == "__main__":
    main()
