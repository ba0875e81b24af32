"""A network driver that answers ethtool's requests."""

from __future__ import annotations

import array
import struct

from overnight.sources import ethtool

ENA = [
    "total_resets", "reset_fail", "tx_timeout", "wd_expired", "admin_q_pause", "bw_in_allowance_exceeded",
    "suspected_poll_starvation", "missing_tx_cmpl",
    *(f"queue_{q}_tx_{counter}" for q in range(32) for counter in ("cnt", "bytes", "missed_tx", "napi_comp", "doorbells")),
]  # fmt: skip


class Driver:
    """Answer as the kernel does, by writing into the given buffer."""

    def __init__(self, names: list[str | bytes]) -> None:
        self.names = names
        self.values = list(range(len(names)))
        self.requests: list[int] = []
        self.error: int | None = None
        self.grow_before_numbers = False

    def __call__(self, interface: str, answer: array.array) -> None:
        if self.error:
            raise OSError(self.error, "said the kernel")
        (command,) = struct.unpack_from("@I", answer)
        self.requests.append(command)
        if command == ethtool.GSSET_INFO:
            if self.names:
                struct.pack_into("@QI", answer, 8, 2, len(self.names))
            else:
                struct.pack_into("@Q", answer, 8, 0)
        elif command == ethtool.GSTRINGS:
            for i, name in enumerate(self.names):
                struct.pack_into(
                    "@32s", answer, 12 + 32 * i, name if isinstance(name, bytes) else name.encode()
                )
        elif command == ethtool.GSTATS:
            if self.grow_before_numbers:
                self.names = [*self.names, *self.names]
                self.values *= 2
                self.grow_before_numbers = False
            struct.pack_into(f"=I{len(self.values)}Q", answer, 4, len(self.values), *self.values)
        else:
            struct.pack_into("@32s32s32s32s", answer, 4, b"ena", b"2.11.0g", b"", b"0000:20:03.0")
