"""Run the uplink: `python -m overnight.agent.uplink`, started by `overnight agent`.

Reads its options, with the token, as one line of JSON from standard input. When that ends, or on SIGTERM, it sends
what is left and ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys

from overnight import errors
from overnight.agent.uplink import loop


def main() -> int:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent ends first, and then this

    def wait(seconds: float) -> bool:
        return bool(stopped or select.select([sys.stdin], [], [], seconds)[0] or stopped)

    try:
        line = b""
        while not line.endswith(b"\n") and (data := os.read(0, 65536)):  # unbuffered, for select
            line += data
        loop.Uplink(loop.Options(**json.loads(line)), loop.log_line).run(wait)
    except errors.OvernightError as error:
        loop.log_line(f"{error.what}: {error.why}; {error.todo}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
