"""Packets each core took from its backlog, dropped, or left for later, from /proc/net/softnet_stat.

One line a core, all in hexadecimal; 11 columns before 5.10, then 13, since 6.4 15::

    000129f2 00000000 00000001 00000000 ... 00000000 00000000 00000000 00000000 00000001 00000000 00000000
    processed dropped squeezed  zeros        collision rps    flow     backlog  core     input    process

Only cores that are on-line have a line; where it does not say which core it is (before 5.10), it is the
next one on-line (net/core/net-procfs.c). The counters have 32 bits and begin anew at zero.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable

from overnight import sources

__all__ = ["SIGNALS", "open_softnet", "parse_softnet"]

PROCESSED, DROPPED, SQUEEZED, RPS, FLOW_LIMIT, CORE = 0, 1, 2, 9, 10, 12


def parse_softnet(data: bytes, online: Callable[[], list[int]]) -> dict[str, tuple[int, ...]]:
    """Processed, dropped, squeezed, received by RPS and dropped by the flow limit, of every core.

    `online` is asked for the cores in their order, and only where the lines do not name them.

    >>> parse_softnet(b"00000010 00000001 00000002\\n", lambda: [4])
    {'4': (16, 1, 2, 0, 0)}
    """
    width = len(data.partition(b"\n")[0].split())
    # Every field has exactly eight digits, so the whole text is one row of big-endian words.
    words = bytes.fromhex(data.decode("ascii"))
    if not width or len(words) % (4 * width):
        raise ValueError("the lines of softnet_stat are not of one length")
    fields = struct.unpack(f">{len(words) // 4}I", words)
    lines = len(fields) // width
    nothing = (0,) * lines
    cores = fields[CORE::width] if width > CORE else online()
    return dict(
        zip(
            map(str, cores),
            zip(
                fields[PROCESSED::width],
                fields[DROPPED::width],
                fields[SQUEEZED::width],
                fields[RPS::width] if width > RPS else nothing,
                fields[FLOW_LIMIT::width] if width > FLOW_LIMIT else nothing,
                strict=True,
            ),
            # A core that went off-line between the two files leaves one list longer by one.
            strict=False,
        )
    )


def open_softnet(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    """The look at every online core."""
    file = sources.KeptFile(root / "proc/net/softnet_stat", room=16384)
    kept = sources.KeptFile(root / "sys/devices/system/cpu/online")

    def online() -> list[int]:
        cores: list[int] = []
        for part in kept.read().decode("ascii").strip().split(","):
            first, _, last = part.partition("-")
            cores.extend(range(int(first), int(last or first) + 1))
        return cores

    return lambda: parse_softnet(file.read(), online)


SIGNALS = (
    sources.Signal(
        "softnet",
        1.0,
        "core",
        (
            sources.Column("processed", unit="packets", keep=30.0),
            sources.Column("dropped", unit="packets"),
            sources.Column("squeezed"),
            sources.Column("received_rps"),
            sources.Column("flow_limit", unit="packets"),
        ),
        open_softnet,
        "/proc/net/softnet_stat: packets that a core's backlog dropped, polls that ran out of their time or budget",
    ),
)
