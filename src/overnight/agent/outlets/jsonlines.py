"""Events as JSON lines: for a log shipper, or `| jq`."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from overnight.agent import outlets
    from overnight.model.event import Event

__all__ = ["JsonLines"]


class JsonLines:
    """One line an event; a reader that went away ends the lines, not the agent."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def event(self, told: Event) -> None:
        """Write it at once."""
        if self._stream is None:
            return
        try:
            self._stream.write(json.dumps(told.as_json(), ensure_ascii=True) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None

    def tick(self, standing: outlets.Standing) -> None:
        """Levels are not told here."""

    def close(self) -> None:
        """Write what is buffered."""
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.flush()
