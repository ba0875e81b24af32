"""What one recording of a host holds, in short, and what it cost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.event import Event

__all__ = [
    "SCHEMA",
    "CoreSummary",
    "Cost",
    "ProcessShare",
    "Profile",
    "Recording",
    "Signals",
]

SCHEMA = "overnight.recording/1"


@dataclasses.dataclass(frozen=True)
class CoreSummary:
    """One core: percent of its own time, the mean, the fullest second, and the last seconds."""

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
    """What the stack samples say."""

    recorder: str
    frequency: int
    segments: int
    samples: int  # not idle
    idle_samples: int
    lost: int
    processes: tuple[ProcessShare, ...]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What recording took from the host: the recorder, and separately the ingest behind it."""

    cpu_percent: float  # of one core
    rss_bytes: int
    raw_bytes: int
    ingest_cpu_percent: float
    stored_bytes: int


@dataclasses.dataclass(frozen=True)
class Signals:
    """What the flight recorder did beside, and what it took from the host."""

    signals: int  # that were seen
    events: int
    cpu_percent: float  # of one core
    rss_bytes: int
    missing: tuple[str, ...]  # signals that this host does not have, and why


@dataclasses.dataclass(frozen=True)
class Recording:
    """One recording, and what it could not see."""

    host: str
    home: str
    begin_us: int
    end_us: int
    seconds: float
    cores: tuple[CoreSummary, ...]
    profile: Profile | None
    cost: Cost | None
    gaps: tuple[str, ...]
    signals: Signals | None = None
    events: tuple[Event, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The stable form; docs/schemas/recording-1.json describes it."""
        told = dataclasses.asdict(dataclasses.replace(self, events=()))
        return {"schema": SCHEMA, **told, "events": [one.as_json() for one in self.events]}
