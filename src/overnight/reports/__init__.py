"""Results as files for people and other tools. Each module that writes stacks is a `Writer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from overnight.model.flame import Folded


class Writer(Protocol):
    def write(self, folded: Folded, file: BinaryIO) -> None:
        """Write the whole file; the same value gives the same bytes."""
