"""Packets that each core processed, dropped, or deferred, from /proc/net/softnet_stat.

One line per core, all in hexadecimal; 11 columns before 5.10, then 13, since 6.4 15::

    000129f2 00000000 00000001 00000000 ... 00000000 00000000 00000000 00000000 00000001 00000000 00000000
    processed dropped squeezed  zeros        collision rps    flow     backlog  core     input    process

Only online cores have a line; before 5.10 it does not name the core, and is that of the next online core
(net/core/net-procfs.c). The counters have 32 bits and wrap to zero.
"""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable, Sequence

from overnight import sources

PROCESSED, DROPPED, SQUEEZED, RPS, FLOW_LIMIT, CORE = 0, 1, 2, 9, 10, 12


def parse_softnet(data: bytes, online: Callable[[], Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Parse processed, dropped, squeezed, received by RPS and dropped by the flow limit, of every core.

    `online` lists the cores in order; it is called only where the lines do not name them.

    >>> parse_softnet(b"00000010 00000001 00000002\\n", lambda: [4])
    {'4': (16, 1, 2, 0, 0)}
    """
    width = len(data.partition(b"\n")[0].split())
    # Every field has exactly eight digits, so the whole text is one row of big-endian words.
    words = bytes.fromhex(data.decode("ascii"))
    if not width or len(words) % (4 * width):
        raise ValueError("the lines of softnet_stat differ in length")
    fields = struct.unpack(f">{len(words) // 4}I", words)
    nothing = (0,) * (len(fields) // width)
    cores = fields[CORE::width] if width > CORE else online()
    kept = (PROCESSED, DROPPED, SQUEEZED, RPS, FLOW_LIMIT)
    rows = zip(*(fields[i::width] if i < width else nothing for i in kept), strict=True)
    # A core that went off-line between the two reads makes one list longer.
    return dict(zip(map(str, cores), rows, strict=False))


def open_softnet(root: pathlib.Path = sources.ROOT) -> sources.Reader:
    file = sources.KeptFile(root / "proc/net/softnet_stat", room=16384)
    online = sources.open_online(root)
    return lambda: parse_softnet(file.read(), online)


COLUMNS = ("processed", "dropped", "squeezed", "received_rps", "flow_limit")
KEEP = {"processed": 30.0}
SIGNALS = (sources.Signal("softnet", 1.0, "core", COLUMNS, open_softnet, KEEP),)
