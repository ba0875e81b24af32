"""How bad an event is, and the order of that."""

from __future__ import annotations

import enum


class Severity(enum.StrEnum):
    """Stored and shown by its name; compare two with `rank`."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for `info`, 2 for `critical`."""
        return tuple(Severity).index(self)

    @classmethod
    def of(cls, text: str) -> Severity:
        """Read a stored severity; a name that a newer version wrote counts as `info`.

        >>> Severity.of("critical").rank, Severity.of("apocalyptic")
        (2, <Severity.INFO: 'info'>)
        """
        return cls(text) if text in tuple(cls) else cls.INFO
