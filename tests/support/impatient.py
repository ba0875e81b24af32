"""`overnight`, as a program whose servers take over after seconds from one that was killed."""

from __future__ import annotations

import sys

from overnight.interfaces import cli
from overnight.investigations import context as of_investigations
from overnight.reservations import context as of_reservations

COMMAND = (sys.executable, __file__)

if __name__ == "__main__":
    of_investigations.DRIVER_SECONDS = of_reservations.DRIVER_SECONDS = 8
    sys.exit(cli.main(sys.argv[1:]))
