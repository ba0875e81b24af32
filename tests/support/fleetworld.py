"""A control plane of a fleet in a test: its database, its blob folder, a manual clock."""

from __future__ import annotations

import hashlib
import pathlib
import tempfile
from typing import TYPE_CHECKING

import pooldatabases
from poolworld import START, Clock, S

from overnight.fleet import blobs, context, control
from overnight.model import uplink
from overnight.model.control_plane import AgentIdentity, Role
from overnight.model.event import Event
from overnight.store.bundle import header, packer

if TYPE_CHECKING:
    from collections.abc import Callable

    from overnight.database import engine

BOOT, OTHER_BOOT = "0000000a-1b", "0000000b-1b"
DAY = 86_400 * S
FAR = START + 1_000 * DAY


class World:
    """One database and one blob folder; `plane` is the first server, `another` adds more."""

    def __init__(
        self, url: str, folder: pathlib.Path, *, limits: context.Limits | None = None
    ) -> None:
        self.url, self.folder, self.limits = url, folder, limits
        pooldatabases.prepare(url)
        self.clock = Clock()
        self._open: list[engine.Database] = []
        self.plane = self.another()

    def another(self, steps: Callable[[str], None] | None = None) -> control.ControlPlane:
        db = pooldatabases.opened(self.url, steps=steps or (lambda _: None))
        self._open.append(db)
        store = blobs.Blobs(self.folder)
        return control.ControlPlane(db, store, clock=self.clock, limits=self.limits)

    def close(self) -> None:
        for db in self._open:
            db.close()

    def token(self, role: Role = Role.AGENT, host: str = "") -> str:
        return self.plane.tokens.create(role, name="test", expires_us=FAR, host=host).text

    def enrol(self, host: str = "db-7", credential: str = "") -> AgentIdentity:
        credential = credential or credential_of(host)
        return self.plane.agents.enrol(self.token(), credential, host)


def credential_of(host: str, number: int = 0) -> str:
    return hashlib.sha256(f"{host}/{number}".encode()).hexdigest()


def report(at: float = 100, **fields: object) -> uplink.Report:
    """Return a report of the given second of a boot that began at START."""
    us = START + int(at * S)
    given: dict[str, object] = {"sent_us": us, "boot": BOOT, "uptime_us": int(at * S), **fields}
    return uplink.Report(**given)  # type: ignore[arg-type]


def spell(begin: float, end: float, boot: str = BOOT) -> uplink.Observed:
    return uplink.Observed(boot, START + int(begin * S), START + int(end * S), int(begin * S))


def event(number: int = 1, at: float = 50, kind: str = "cpu.core_pinned", **fields: object) -> Event:  # fmt: skip
    return Event(START + int(at * S), kind, id=f"{kind}-{number:08x}", boot=BOOT, **fields)  # type: ignore[arg-type]


def rollup(at: int = 0, busy: int = 10, cores: int = 2) -> uplink.Rollup:
    all_of = (tuple(range(cores)), (busy // 2,) * cores, (busy,) * cores, (busy // 3,) * cores)
    return uplink.Rollup(START + at * S, 30, *all_of, (1_000,) * cores)


def bundle(
    host: str = "db-7",
    event_id: str = "e-1",
    content: str = "data",
    *,
    event: str = "",
    hosts: str = "",
    spans: str = "",
) -> bytes:
    """Return a small but valid bundle; a part of its header may name another host."""
    with tempfile.TemporaryDirectory() as name:
        home = pathlib.Path(name, "home", "snapshots", host)
        home.mkdir(parents=True)
        (home / "x.json").write_text(content)
        span = header.Span(spans or host, START, START + 60 * S)
        of = header.Header(
            "0.1", 1, event_id, "cpu.stall", event or host, START, (hosts or host,), (span,), 0, 0, {}, ()
        )  # fmt: skip
        packer.pack(pathlib.Path(name, "home"), pathlib.Path(name, "b"), of)
        return pathlib.Path(name, "b").read_bytes()


def offer(data: bytes, event_id: str = "e-1") -> uplink.Offer:
    digest = hashlib.sha256(data).hexdigest()
    return uplink.Offer(event_id, digest, len(data), START, START + 60 * S)
