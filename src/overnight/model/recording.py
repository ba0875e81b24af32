"""The summary of one recording, and what it cost the host."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.model.event import Event


SCHEMA = "overnight.recording/1"


@dataclasses.dataclass(frozen=True)
class CoreSummary:
    """One core in percent of its own time: mean, peak second, and the last seconds."""

    core: int
    busy_mean: float
    busy_peak: float
    kernel_peak: float
    busy: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class ProcessShare:
    """The use of all processes of one name, by three denominators."""

    process: str
    samples: int
    share_of_samples: float  # of the samples that are not idle
    share_of_capacity: float  # of all cores for the whole time
    cores: float  # mean number of cores used


@dataclasses.dataclass(frozen=True)
class Profile:
    """The stack samples in short."""

    recorder: str
    frequency: int
    segments: int
    samples: int  # not idle
    idle_samples: int
    lost: int
    processes: tuple[ProcessShare, ...]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What the recording cost: the recorder, and separately ingest."""

    cpu_percent: float  # of one core
    rss_bytes: int
    raw_bytes: int
    ingest_cpu_percent: float
    stored_bytes: int


@dataclasses.dataclass(frozen=True)
class Signals:
    """What the flight recorder recorded, and what it cost."""

    signals: int  # read at least once
    events: int
    cpu_percent: float  # of one core
    rss_bytes: int
    missing: tuple[str, ...]  # signals that this host lacks, and why


class Part(enum.StrEnum):
    """Parts of a recording that fail independently."""

    FLIGHT_RECORDER = "flight-recorder"
    PROFILER = "profiler"
    INGEST = "ingest"


@dataclasses.dataclass(frozen=True)
class Failure:
    """A part that ended before the recording did."""

    part: Part
    why: str
    time_us: int


@dataclasses.dataclass(frozen=True)
class Recording:
    """One recording; `gaps` are what it could not record."""

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
    failures: tuple[Failure, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Schema docs/schemas/recording-1.json."""
        summary = dataclasses.asdict(dataclasses.replace(self, events=()))
        return {"schema": SCHEMA, **summary, "events": [e.as_json() for e in self.events]}
