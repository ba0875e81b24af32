"""Results as files for people and other tools: a module a format, each a `Writer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from overnight.model.flame import Folded

__all__ = ["Writer"]


class Writer(Protocol):
    """One format. A module of this package is a writer."""

    NAME: str
    SUFFIX: str

    def write(self, folded: Folded, file: BinaryIO) -> None:
        """The whole file; the same value gives the same bytes."""
