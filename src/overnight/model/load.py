"""A load that ran on a host, and whether its footprint was constant."""

from __future__ import annotations

import dataclasses
import enum


class Constancy(enum.StrEnum):
    """Whether a load had a constant footprint. The values are stored."""

    CONSTANT = "constant"
    NOT_CONSTANT = "not constant"
    UNKNOWN = "cannot tell"
    REPLAYED = "as recorded"  # it followed a recorded profile, which is not constant


# The workload of the processes that a rehearsal starves; nothing judges it.
VICTIM = "rehearsal-victim"


@dataclasses.dataclass(frozen=True)
class Worker:
    """A process of a load. Pids are reused, but not with the same start."""

    pid: int
    started_us: int


@dataclasses.dataclass(frozen=True)
class Load:
    """One run of `overnight load`, or of a load or the victim in a rehearsal."""

    id: str
    host: str
    workload: str
    cores: tuple[int, ...]
    began_us: int  # wall clock
    until_us: int  # the last second that was stored
    ended: bool  # with a final verdict; False: cut off, or still running
    running: bool  # its process exists on this machine
    status: str  # a value of Constancy; "" before the first verdict
    says: str  # the figures, for people
    crossed: tuple[str, ...]  # the limits that were exceeded, in words
    workers: tuple[Worker, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Schema docs/schemas/loads-1.json."""
        return dataclasses.asdict(self)
