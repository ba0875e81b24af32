"""Sends the victim its packets: numbered, stamped, at a constant rate, a few at a time."""

from __future__ import annotations

import random
import socket
import time

from overnight.rehearsals import processes, victim_worker

__all__ = ["main"]

TICK_SECONDS = 0.01


def main() -> None:
    """The process."""
    told = processes.begin()
    if told["netns"]:
        victim_worker.enter(told["netns"])
    to = (told["address"], victim_worker.PORT)
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    filling = random.Random(told["fill"]).randbytes(told["payload"])  # noqa: S311 - no secret
    number, begin = 0, time.monotonic()
    while True:
        due = int((time.monotonic() - begin) * told["rate"])
        if due - number > told["rate"]:
            # We were kept from sending for a second: what was not sent is not sent late, either.
            begin += (due - number) / told["rate"]
            continue
        while number < due:
            out.sendto(victim_worker.HEAD.pack(number, time.monotonic_ns()) + filling, to)
            number += 1
        time.sleep(TICK_SECONDS)


if __name__ == "__main__":
    main()
