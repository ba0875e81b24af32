"""An inventory of a host, and what differs between two."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

SCHEMA = "overnight.snapshot/1"
DIFF_SCHEMA = "overnight.snapshot-diff/1"
# What runs comes first: a step of the boot that failed is the cause of much that differs below it.
PARTS = (
    "bootstrap", "running", "listening", "loaded", "taint", "os", "kernel", "cmdline", "cpu", "memory", "clock", "versions", "packages", "units", "presets",
    "modules", "sysctl", "mounts", "cgroups", "nics",
)  # fmt: skip

Value = str | dict[str, str]
Part = dict[str, Value]


@dataclasses.dataclass(frozen=True)
class Gap:
    """A part, or something of it, that could not be read, and why."""

    part: str
    what: str
    why: str


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Parts by name, each a mapping from a thing to its value or its properties, all text, sorted.

    Two snapshots of a host that did not change differ in the header alone.
    """

    header: dict[str, object]
    parts: dict[str, Part]
    gaps: tuple[Gap, ...]

    def as_json(self) -> dict[str, object]:
        """Return the document; docs/schemas/snapshot-1.json describes it."""
        return {
            "schema": SCHEMA,
            "header": self.header,
            "parts": {name: _sorted(self.parts[name]) for name in PARTS if name in self.parts},
            "gaps": [dataclasses.asdict(gap) for gap in sorted(self.gaps, key=dataclasses.astuple)],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Snapshot:
        """Read what as_json returned; raise ValueError for anything else."""
        header, parts, gaps = (document.get(key) for key in ("header", "parts", "gaps"))
        if (
            document.get("schema") != SCHEMA
            or not isinstance(header, dict)
            or not isinstance(parts, dict)
            or not isinstance(gaps, list)
        ):
            raise ValueError(f"not a document of {SCHEMA}")
        for part in parts.values():
            if not isinstance(part, dict) or not all(map(_is_value, part.values())):
                raise ValueError("its parts are not those of a snapshot")
        try:
            return cls(header, parts, tuple(Gap(**gap) for gap in gaps))
        except TypeError as error:
            raise ValueError("its gaps are not those of a snapshot") from error


def _is_value(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(text, str) for text in value.values())
    return isinstance(value, str)


def _sorted(part: Part) -> Part:
    return {
        key: dict(sorted(value.items())) if isinstance(value, dict) else value
        for key, value in sorted(part.items())
    }


@dataclasses.dataclass(frozen=True)
class Change:
    """One difference; None: absent."""

    part: str
    key: str
    property: str
    before: str | None
    after: str | None


@dataclasses.dataclass(frozen=True)
class Difference:
    before: dict[str, object]
    after: dict[str, object]
    changes: tuple[Change, ...]
    # Parts that one of the two could not read completely: only what both have is compared.
    unknown: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Schema docs/schemas/snapshot-diff-1.json."""
        return {"schema": DIFF_SCHEMA, **dataclasses.asdict(self)}


def band_restarts(count: str) -> str:
    """Return the band of a restart count: the count itself differs on every host.

    >>> [band_restarts(count) for count in ("0", "7", "40", "1834", "x")]
    ['0', '1 to 9', '10 to 99', '100 or more', 'x']
    """
    if not count.isdecimal() or int(count) == 0:
        return count
    return {1: "1 to 9", 2: "10 to 99"}.get(len(str(int(count))), "100 or more")


def _comparable(key: tuple[str, str], text: str | None) -> str | None:
    return band_restarts(text) if text is not None and key[1] == "restarts" else text


def compare(before: Snapshot, after: Snapshot) -> Difference:
    """Return the differences. A part that one of the two does not have is unknown, not removed.

    >>> a = Snapshot({}, {"sysctl": {"vm.swappiness": "60"}}, ())
    >>> b = Snapshot({}, {"sysctl": {"vm.swappiness": "10"}}, ())
    >>> compare(a, b).changes
    (Change(part='sysctl', key='vm.swappiness', property='', before='60', after='10'),)
    """
    names = [*PARTS, *sorted({*before.parts, *after.parts} - {*PARTS})]
    changes: list[Change] = []
    unknown = []
    for name in names:
        if name not in before.parts or name not in after.parts:
            if name in before.parts or name in after.parts:
                unknown.append(name)
            continue
        # What one of them could not read is neither removed nor added.
        unread = {gap.what for gap in (*before.gaps, *after.gaps) if gap.part == name}
        old, new = _flat(before.parts[name]), _flat(after.parts[name])
        whole = not any(what.startswith("/") or what == name for what in unread)
        if not whole:
            unknown.append(name)
        changes += [
            Change(name, *key, old.get(key), new.get(key))
            for key in sorted({*old, *new})
            if _comparable(key, old.get(key)) != _comparable(key, new.get(key))
            and not _is_unread(key, unread)
            and (whole or (key in old and key in new))
        ]
    return Difference(before.header, after.header, tuple(changes), tuple(unknown))


def _is_unread(key: tuple[str, str], unread: set[str]) -> bool:
    """Return whether a gap names this value or a prefix: `net.ipv6` covers all below it."""
    words = ".".join(filter(None, key)).split(".")
    return key[0] in unread or any(".".join(words[:n]) in unread for n in range(1, len(words) + 1))


def _flat(part: Part) -> dict[tuple[str, str], str]:
    return {
        (key, name): text
        for key, value in part.items()
        for name, text in ({"": value} if isinstance(value, str) else value).items()
    }
