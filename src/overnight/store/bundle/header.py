"""Header and manifest of a bundle: parsing and encoding, without I/O."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

FORMAT, VERSION = "overnight.bundle", 1
HEADER, MANIFEST, HOME = "bundle.json", "manifest.json", "home/"
MAX_HEADER = 4 << 20
MAX_NUMBER = 1 << 62
TEXTS = ("overnight", "event", "kind", "host", "manifest_sha256")
NUMBERS = ("created_us", "time_us", "recurrences", "left_out", "members")
SHA256 = re.compile("[0-9a-f]{64}")


class NoBundleError(Exception):
    """Not a valid bundle; the message says why."""


class FutureError(Exception):
    """A later version of overnight wrote the bundle; version `needs` can read it."""

    def __init__(self, version: int, needs: str) -> None:
        super().__init__(f"version {version}")
        self.version = version
        self.needs = needs


@dataclasses.dataclass(frozen=True)
class Span:
    """A window of one host with all signals and stacks; wall clock, µs."""

    host: str
    begin_us: int
    end_us: int


@dataclasses.dataclass(frozen=True)
class Header:
    overnight: str  # the version that wrote it
    created_us: int
    event: str  # id
    kind: str
    host: str  # of the event
    time_us: int
    hosts: tuple[str, ...]  # every host with data in the bundle
    windows: tuple[Span, ...]
    recurrences: int  # other events of the kind whose windows are included
    left_out: int  # other events of the kind whose windows are not included
    masked: Mapping[str, int]  # distinct texts that were masked, by place
    notes: tuple[str, ...]  # what is missing, and why
    members: int = 0
    manifest_sha256: str = ""

    @property
    def end_us(self) -> int:
        """Return the end of the window around the event; 0 without one."""
        own = (each for each in self.windows if each.host == self.host)
        return max((each.end_us for each in own if each.begin_us <= self.time_us), default=0)

    def encode(self) -> bytes:
        """Return the text of bundle.json: the same header always gives the same bytes."""
        form = {"format": FORMAT, "version": VERSION, "needs": self.overnight}
        return _text({**form, **dataclasses.asdict(self)})


def _text(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode("ascii") + b"\n"


def parse_header(data: bytes) -> Header:
    """Parse bundle.json; raise NoBundleError, or FutureError for a later version."""
    document = _object(data, HEADER)
    version = document.get("version")
    if document.get("format") != FORMAT or type(version) is not int or version < 1:
        raise NoBundleError(f"its {HEADER} has another format")
    if version > VERSION:
        raise FutureError(version, str(document.get("needs", ""))[:40])
    try:
        plain = {name: _is(str, document[name]) for name in TEXTS}
        plain |= {name: _is(int, document[name]) for name in NUMBERS}
        spans = [(span["host"], span["begin_us"], span["end_us"]) for span in document["windows"]]
        return Header(
            **plain,
            hosts=tuple(_is(str, host) for host in document["hosts"]),
            windows=tuple(Span(_is(str, a), _is(int, b), _is(int, c)) for a, b, c in spans),
            masked={_is(str, k): _is(int, n) for k, n in document["masked"].items()},
            notes=tuple(_is(str, note) for note in document["notes"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NoBundleError(f"its {HEADER} is incomplete ({error})") from error


def encode_manifest(members: Mapping[str, tuple[int, str]]) -> tuple[bytes, str]:
    """Return the text of manifest.json and its checksum; `members` has size and SHA-256 by name."""
    text = _text(
        {"members": {name: {"bytes": n, "sha256": sha} for name, (n, sha) in members.items()}}
    )
    return text, hashlib.sha256(text).hexdigest()


def parse_manifest(data: bytes, header: Header) -> dict[str, tuple[int, str]]:
    """Return size and SHA-256 of each member; raise NoBundleError."""
    if hashlib.sha256(data).hexdigest() != header.manifest_sha256:
        raise NoBundleError(f"its {MANIFEST} has changed since it was written")
    try:
        members = {
            _is(str, name): (_is(int, entry["bytes"]), _is(str, entry["sha256"]))
            for name, entry in _object(data, MANIFEST)["members"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NoBundleError(f"its {MANIFEST} is invalid ({error})") from error
    if len(members) != header.members or not all(
        SHA256.fullmatch(sha) for _, sha in members.values()
    ):
        raise NoBundleError(f"its {MANIFEST} does not fit its {HEADER}")
    return members


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NoBundleError(f"its {name} is invalid") from error
    if not isinstance(document, dict):
        raise NoBundleError(f"its {name} is invalid")
    return document


def _is(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:40]!r} is not {kind.__name__}")
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise ValueError("a number is out of range")
    return value
