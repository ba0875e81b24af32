"""Rules that turn kernel-log lines into events: data, one TOML file per family, with sample lines.

`rulefiles` reads them, `matcher` matches lines against them, `npd` imports node-problem-detector's.
docs/kernel-log.md documents the format and the built-in rules.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping

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
    """One kind of kernel-log line. The regex is searched anywhere in the line, case-sensitive.

    `incident` folds several lines into one event: a template of fields, such as `{device}`. `context` is
    the family's regex for the text before the message, searched only in lines that match.
    """

    name: str
    kind: str
    severity: str
    regex: str
    meaning: str
    incident: str = ""
    needles: tuple[str, ...] = ()  # a matching line contains one of these; empty: try every line
    confidence: str = "sure"
    fields: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    critical_when: Mapping[str, tuple[Value, ...]] = dataclasses.field(
        default_factory=dict, hash=False
    )
    overlaps: tuple[str, ...] = ()  # kinds of other rules that may match the same line
    matches: tuple[Sample, ...] = ()
    misses: tuple[str, ...] = ()
    untested: str = ""  # why there are no samples
    family: str = ""
    context: str = ""
    origin: str = ""  # the file it came from

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        # Compiled when a line first needs it: all of them at the start would cost the agent 40 ms.
        return re.compile(self.regex)

    @functools.cached_property
    def context_pattern(self) -> re.Pattern[str] | None:
        return re.compile(self.context) if self.context else None

    @property
    def can_be_critical(self) -> bool:
        """Return whether its lines are processed even in a flood."""
        return self.severity == "critical" or bool(self.critical_when)
