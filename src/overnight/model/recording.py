"""What one recording of a host holds, in short."""

from __future__ import annotations

import dataclasses

__all__ = ["SCHEMA", "CoreSummary", "ProcessShare", "Profile", "Recording"]

SCHEMA = "overnight.recording/1"


@dataclasses.dataclass(frozen=True)
class CoreSummary:
    """One core: percent of its own time, the mean and each second."""

    core: int
    busy_mean: float
    busy_peak: float
    kernel_peak: float
    busy: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class ProcessShare:
    """One process name, against three denominators that are never mixed up."""

    process: str
    samples: int
    share_of_samples: float  # of the samples that were not idle
    share_of_capacity: float  # of all cores for the whole time
    cores: float  # as many cores' worth of time


@dataclasses.dataclass(frozen=True)
class Profile:
    """What the stack samples say. Idle is what ran as the idle task, interrupts included."""

    samples: int
    idle_samples: int
    lost: int
    frequency: int
    bytes: int
    processes: tuple[ProcessShare, ...]


@dataclasses.dataclass(frozen=True)
class Recording:
    """One recording, where it lies, and what it could not see."""

    host: str
    folder: str
    started: str
    seconds: float
    cores: tuple[CoreSummary, ...]
    profile: Profile | None
    gaps: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """The stable form; schemas/recording-1.json describes it."""
        return {"schema": SCHEMA, **dataclasses.asdict(self)}
