"""The records of an open block. Few imports: the uplink of an agent follows them in 20 MB."""

from __future__ import annotations

import struct

# Checksum of the rest, length of what follows the kind, kind.
RECORD = struct.Struct("<IIB")
# Table, wall and monotonic clock in µs, planes, whether the body is packed.
READING = struct.Struct("<HqqBB")
HEAD, ROWS, DELTAS, FACTS = range(4)
