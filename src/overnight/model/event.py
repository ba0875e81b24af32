"""An event on a host: the starting point of every diagnosis."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping

Value = str | int | float | bool

# The host went down at the event: what follows is another boot.
PANIC, UNCLEAN_REBOOT = "host.panic", "host.unclean_reboot"
DEATHS = (PANIC, UNCLEAN_REBOOT)
LINES_LOST = "kernel.lines_lost"  # of the kernel log, with their sequence numbers
PARTIAL = "recorder.partial"  # an agent goes on without some of what it was to record
# A file of another tool was imported, from its first to its last reading; its field `contains` is the
# `finding.Need` that it meets: events, cpu or profiles.
IMPORTED = "evidence.imported"
# First words of the kinds that the recorder, its rules and its watches report.
NAMESPACES = (
    "clock", "container", "cpu", "evidence", "gpu", "host", "kernel", "limit", "machine", "memory", "net",
    "pressure", "rcu", "recorder", "storage", "task", "unit", "workqueue",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Event:
    """`kind` is a dotted name such as `net.driver_reset`; `core` is -1 where none is known.

    Times are microseconds since the epoch on the host's own wall clock. An event that lasts ends at
    `until_us`; an event with a known `id` replaces the earlier one.
    """

    time_us: int
    kind: str
    text: str = ""
    host: str = ""
    core: int = -1
    severity: str = "warning"  # info, warning or critical
    id: str = ""
    boot: str = ""
    monotonic_ns: int = 0
    skew_us: int = 0  # how far the wall clock was set since the recording began
    until_us: int = 0  # 0 for an instant
    count: int = 1  # lines or sightings folded into this event
    unit: str = ""
    process: str = ""
    source: str = ""  # the kernel-log rule or the watch that found it
    fields: Mapping[str, Value] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def known_core(self) -> int | None:
        """The core, None where none is known; stored events have -1 there."""
        return self.core if self.core >= 0 else None

    @property
    def origin(self) -> str:
        """What a reader must know of where its text is from: only the kernel's own lines report what the kernel saw."""
        if self.fields.get("written_by_process") is not True:
            return ""
        return "a process wrote this line to /dev/kmsg; it is not the kernel's"

    @property
    def short_id(self) -> str:
        """The part of the id that people type; the kind before it is shown anyway."""
        return self.id.rpartition("-")[2]

    @property
    def seconds(self) -> float:
        """How long it lasted; 0 for an instant."""
        return max(0, self.until_us - self.time_us) / 1e6 if self.until_us else 0.0

    def is_of(self, kind: str) -> bool:
        """Return whether it is of this kind; a kind that ends with a dot is a prefix."""
        return self.kind == kind or (kind.endswith(".") and self.kind.startswith(kind))

    def overlaps(self, begin_us: int, end_us: int) -> bool:
        return self.time_us < end_us and max(self.until_us, self.time_us) >= begin_us

    def as_json(self) -> dict[str, object]:
        """Schema event-1."""
        plain = dataclasses.asdict(dataclasses.replace(self, fields={}))
        return plain | {"fields": dict(self.fields)}


def is_outcome(kind: str) -> bool:
    """Return whether events of a kind report what happened to an application: any kind that is not built in.

    >>> is_outcome("job.failed"), is_outcome("invoice.late"), is_outcome("net.driver_reset")
    (True, True, False)
    """
    return kind.partition(".")[0] not in NAMESPACES


def event_id(host: str, boot: str, kind: str, key: str, monotonic_ns: int) -> str:
    """Return a short id, different for other hosts and other events.

    >>> event_id("db-7", "0123", "cpu.core_pinned", "39", 5)
    'cpu.core_pinned-ddcefd90'
    """
    digest = hashlib.blake2b(
        "\0".join((host, boot, kind, key, str(monotonic_ns))).encode("utf-8", "replace"),
        digest_size=4,
    )
    return f"{kind}-{digest.hexdigest()}"


def boot_name(boot: str) -> str:
    """Return eight hex digits for a boot id.

    >>> boot_name("1A2B3C4D-0000-4000-8000-000000000000")
    '1a2b3c4d'
    """
    short = boot[:8].lower()
    if re.fullmatch("[0-9a-f]{8}", short):
        return short
    return hashlib.blake2b(boot.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
