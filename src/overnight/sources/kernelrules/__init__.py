"""What lines of the kernel log mean: rules are data, one TOML file a family, samples beside them.

`loading` reads them, `matching` finds them in lines, `npd` translates those of node-problem-detector.
docs/kernel-log.md tells the format and lists the rules that come with overnight.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping

__all__ = ["CONFIDENCES", "FIELD_TYPES", "SEVERITIES", "Rule", "Sample", "Value"]

SEVERITIES = ("info", "warning", "critical")
FIELD_TYPES = ("int", "float", "str")
# "sure": the driver's source was read, or the line seen. "likely": second-hand.
CONFIDENCES = ("sure", "likely")

Value = str | int | float | bool


@dataclasses.dataclass(frozen=True)
class Sample:
    """A line that a rule must match, and the fields it must find there."""

    line: str
    fields: Mapping[str, Value] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Rule:
    """One thing that the kernel says. The regex is searched for anywhere in the line, case counts.

    `incident` makes one event of several lines: a template of fields, as `{device}`. `context` is the
    family's regex for what stands before the message, searched for only in lines that match.
    """

    name: str
    kind: str
    severity: str
    regex: str
    meaning: str
    incident: str = ""
    needles: tuple[str, ...] = ()  # a line that matches contains one of these; none: try every line
    confidence: str = "sure"
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    critical_when: Mapping[str, tuple[Value, ...]] = dataclasses.field(
        default_factory=dict, hash=False
    )
    overlaps: tuple[str, ...] = ()  # kinds of other rules that may see the same line
    matches: tuple[Sample, ...] = ()
    misses: tuple[str, ...] = ()
    untested: str = ""  # why there are no samples
    family: str = ""
    context: str = ""
    origin: str = ""  # the file it came from

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when a line first needs it: all of them at the start would cost the agent 40 ms."""
        return re.compile(self.regex)

    @functools.cached_property
    def context_pattern(self) -> re.Pattern[str] | None:
        """The family's, if it has one."""
        return re.compile(self.context) if self.context else None

    @property
    def can_be_critical(self) -> bool:
        """Whether its lines are looked at in any flood."""
        return self.severity == "critical" or bool(self.critical_when)
