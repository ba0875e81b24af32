"""Events as JSON lines: for a log shipper, or `| jq`."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from overnight.agent import outlets
    from overnight.model.event import Event


class JsonLines:
    """Writes one line per event; a reader that goes away ends the lines, not the agent."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def event(self, event: Event) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(json.dumps(event.as_json(), ensure_ascii=True) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None

    def tick(self, status: outlets.HostStatus) -> None:
        """Do nothing: only events are written."""

    def close(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.flush()
