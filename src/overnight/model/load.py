"""A load that ran on a host, as it was written down, and whether its footprint was constant."""

from __future__ import annotations

import dataclasses

__all__ = ["CANNOT_TELL", "CONSTANT", "NOT_CONSTANT", "Load"]

CONSTANT, NOT_CONSTANT, CANNOT_TELL = "constant", "not constant", "cannot tell"


@dataclasses.dataclass(frozen=True)
class Load:
    """One run of `overnight load`, or of a load in a rehearsal."""

    id: str
    host: str
    workload: str
    cores: tuple[int, ...]
    began_us: int  # wall clock
    until_us: int  # its last second that was written
    ended: bool  # in order, with a last verdict; else it was cut off, or still runs
    running: bool  # its process is there, on this machine
    status: str  # one of the three above; "" before there was any verdict
    says: str  # the figures, for people
    crossed: tuple[str, ...]  # which limits were, in words

    def as_json(self) -> dict[str, object]:
        """The stable form, as in docs/schemas/loads-1.json."""
        return {
            **dataclasses.asdict(self),
            "cores": list(self.cores),
            "crossed": list(self.crossed),
        }
