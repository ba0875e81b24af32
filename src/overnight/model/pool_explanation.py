"""Explanations of failures of pools, members and claims. Times are µs since 1970.

`host_text` holds text of hosts and providers: it is data, and never part of a sentence.
"""

from __future__ import annotations

import dataclasses
import enum


class Cause(enum.StrEnum):
    """What a failure is attributed to: the rows of the runbook's table, and others. The first explains most."""

    REAPER_NOT_RUNNING = "reaper_not_running"
    QUOTA_EXHAUSTED = "quota_exhausted"
    CAPACITY_EXHAUSTED = "capacity_exhausted"
    TEMPLATE_MISSING = "template_missing"  # or a module that it names
    TOKEN_EXPIRED = "token_expired"  # noqa: S105  not a secret
    BOOTSTRAP_FAILED = "bootstrap_failed"
    PROVIDER_FAILED = "provider_failed"
    TEARDOWN_STALLED = "teardown_stalled"
    CLAIMS_RUNNING = "claims_running"
    AT_MAXIMUM = "at_maximum"
    SIZE_TOO_TIGHT = "size_too_tight"
    CLAIMS_TOO_FAST = "claims_too_fast"  # members are claimed faster than they come up
    STILL_WARMING = "still_warming"
    NOT_ACTIVE = "not_active"
    HEARTBEAT_LOST = "heartbeat_lost"
    MACHINE_LOST = "machine_lost"
    LEASE_EXPIRED = "lease_expired"
    HELD_FOR_INSPECTION = "held_for_inspection"
    SIZE_TOO_LARGE = "size_too_large"
    UNKNOWN = "unknown"
    ENDED_AS_INTENDED = "ended_as_intended"  # returned, replaced, or terminated by an operator
    NONE = "none"  # nothing has failed


class Subject(enum.StrEnum):
    POOL = "pool"
    MEMBER = "member"
    CLAIM = "claim"
    REQUEST = "request"  # a caller that waited in the queue


class Source(enum.StrEnum):
    """What reported a row of evidence."""

    REAPER = "reaper"
    PROVIDER = "provider"
    AGENT = "agent"
    CALLER = "caller"
    OPERATOR = "operator"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """One fact: `what` is a word of ours, such as the kind of an event, and `reason` the word recorded with it."""

    at_us: int
    source: Source
    what: str
    reason: str = ""
    detail: str = ""  # the numbers of a decision
    host_text: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """The cause, in one sentence; the evidence, oldest first; and the command to run next."""

    subject: Subject
    name: str
    pool: str
    cause: Cause
    summary: str
    todo: str
    evidence: tuple[Evidence, ...] = ()
    console: tuple[str, ...] = ()  # the last lines, host text
    console_missing: str = ""  # why there is none
    others: tuple[Cause, ...] = ()  # of a pool: what else is wrong
