"""What is written on AWS about a reservation: the claim, and the tags of an instance."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping
from typing import Any

from overnight import aws
from overnight.model.reservation import Lease

LEASE, RECORD = "overnight:lease", "overnight:lease-record"
UNDO, WHERE = "overnight:lease-undo", "overnight:lease-where"
TAGS = (LEASE, RECORD, UNDO, WHERE)
LAG_SECONDS = 60.0  # tags that are not visible after this time do not exist


@dataclasses.dataclass(frozen=True, kw_only=True)
class Undo:
    """What a release has to restore. None: nothing to restore."""

    by: str  # name of the provider
    how: str  # standby, detach, drain
    scale_in: bool | None = None  # protection from scale-in before the reservation
    termination: bool | None = None  # protection from termination before the reservation
    agent: bool = False  # whether an agent was started

    def text(self) -> str:
        return json.dumps({name: value for name, value in vars(self).items() if value is not None})

    @classmethod
    def parse(cls, text: str) -> Undo | None:
        try:
            given = json.loads(text)
            return cls(**{f.name: given[f.name] for f in dataclasses.fields(cls) if f.name in given})  # fmt: skip
        except (ValueError, TypeError, RecursionError):
            return None


@dataclasses.dataclass(frozen=True)
class Marks:
    """A claim, or the tags of an instance; `id` is '', and the rest None, where they cannot be read."""

    id: str = ""
    lease: Lease | None = None
    undo: Undo | None = None
    where: str = ""
    tags: Mapping[str, str] = dataclasses.field(default_factory=dict)  # none of a claim
    age_seconds: float = 0.0  # of a claim


def read_tags(instance: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}


def write_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def read_marks(instance: Mapping[str, Any]) -> Marks | None:
    """Return our tags, also if only some are left; None without any."""
    tags = read_tags(instance)
    found = {key: tags[key] for key in TAGS if key in tags}
    if not found:
        return None
    lease = Lease.parse(found.get(RECORD, ""))
    identity = found.get(LEASE, "") or (lease.id if lease else "")
    if lease is not None and lease.id != identity:
        lease = None
    where = found.get(WHERE, "") or tags.get("aws:autoscaling:groupName", "")
    return Marks(identity, lease, Undo.parse(found.get(UNDO, "")), where, found)


def build_claim(lease: Lease, where: str, undo: Undo) -> str:
    return json.dumps({"by": undo.by, "where": where, "how": undo.how, "lease": vars(lease)})


def parse_claim(parameter: Mapping[str, Any]) -> Marks:
    made = parameter.get("LastModifiedDate")
    age = (datetime.datetime.now(datetime.UTC) - made).total_seconds() if made else LAG_SECONDS
    try:
        given = json.loads(parameter["Value"])
        undo, where = Undo(by=str(given["by"]), how=str(given["how"])), str(given["where"])
        lease = Lease.parse(json.dumps(given["lease"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        lease = None
    return Marks(lease.id, lease, undo, where, age_seconds=age) if lease else Marks(age_seconds=age)


def shorten(lease: Lease) -> str:
    """Return the lease as text that fits into a tag: the end of the purpose, then of the owner, is cut."""
    while len(text := lease.text()) > aws.MAX_TAG:
        cut = max(1, (len(text) - aws.MAX_TAG) // 12)  # a character has at most 12 in JSON
        field = "purpose" if lease.purpose else "owner"
        lease = dataclasses.replace(lease, **{field: getattr(lease, field)[:-cut]})
    return text
