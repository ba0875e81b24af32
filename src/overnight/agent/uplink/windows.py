"""The bundles of HOME/uplink/windows: asked for, offered, uploaded in pieces, forgotten.

NAME.request     a bundle to make of an event, by `task_runner`, at `due_us` or later; NAME is the id of the event, or
                 that with `.first`: a first one, of what is recorded so far
NAME.overnight   a bundle, and NAME.json: its event, digest, size and times
NAME.done        it was uploaded: an event that goes on is not bundled again; has the digest, unless it was refused
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

from overnight import http_client
from overnight.model import files, protocol

REQUEST, BUNDLE, OFFER, DONE = ".request", ".overnight", ".json", ".done"
FIRST = ".first"
FIRST_AGE_US = 60_000_000  # of its event, at most
FIRST_US = {
    "warning": 60_000_000,
    "critical": 15_000_000,
}  # between two of them: each takes seconds of CPU time
MAX_DONE = 500
MAX_OFFERS = 50  # of a report
OFFER_SECONDS = 3600.0  # between two offers of the same bundle
PIECE, LEAST_PIECE = 256 << 10, 64 << 10  # the server takes up to 1 MiB
OFFSET_SECONDS = 0.2  # between two pieces when the server names another offset
# A bundle has 15 minutes before its event, and 2 minutes after it or its first 10 minutes (app.bundles).
BEFORE_US, AFTER_US, MAX_EVENT_US = 900_000_000, 120_000_000, 600_000_000
# Older events, as on the first day with a server, are bundled when somebody asks.
MAX_AGE_US = 6 * 3_600_000_000
DELAY_US = 60_000_000

Offer = dict[str, Any]


def find_whole_end(begin_us: int, until_us: int) -> int:
    """Return when the whole window of an event ends."""
    return max(begin_us, min(until_us, begin_us + MAX_EVENT_US)) + AFTER_US


class Windows:
    """The uplink's side of the folder; `wanted` are digests that the server asked for."""

    def __init__(self, folder: pathlib.Path, bytes_per_second: float) -> None:
        self.wanted: set[str] = set()
        self._folder = folder
        self._rate = bytes_per_second
        self._changed = -1
        self._offers: dict[str, Offer] = {}  # by digest
        self._stems: dict[str, str] = {}  # names of bundles, by digest
        self._names: set[str] = set()
        self._due_us: dict[str, int] = {}  # of requests that this process made
        self._first_us: dict[str, int] = {}  # of the last one, by severity
        self._offered: dict[str, float] = {}
        self._offset: dict[str, int] = {}
        self._piece = LEAST_PIECE
        self.next = 0.0  # when the next piece may be sent
        files.make_folder(folder)

    def request(self, event: dict[str, Any], now_us: int) -> None:
        """Ask for the bundle of an event that is at least a warning, when its time has passed."""
        name, begin_us = str(event["id"]), event.get("time_us")
        severity = str(event.get("severity", "warning"))
        if severity == "info" or not protocol.ID.fullmatch(name):
            return
        if not isinstance(begin_us, int) or not now_us - MAX_AGE_US < begin_us:
            return
        self.refresh()
        due_us = find_whole_end(begin_us, int(event.get("until_us") or 0))
        path = self._folder / (name + REQUEST)
        # The request of an event that goes on is put off, but not each time that it is emitted again.
        if name in self._names and not (
            due_us > self._due_us.get(name, due_us) + DELAY_US and path.exists()
        ):
            return
        with contextlib.suppress(OSError):  # a full disk: asked for when the event is sent again
            is_new = name not in self._names and now_us - begin_us < FIRST_AGE_US
            files.write_atomically(path, json.dumps({"event": name, "due_us": due_us}))
            self._names.add(name)
            self._due_us[name] = due_us
            since_us = now_us - self._first_us.get(severity, 0)
            if is_new and not 0 <= since_us < FIRST_US.get(severity, FIRST_AGE_US):
                self._first_us[severity] = now_us
                first = {"event": name, "due_us": now_us}
                files.write_atomically(self._folder / (name + FIRST + REQUEST), json.dumps(first))

    def refresh(self) -> None:
        """Read the folder, if it changed."""
        with contextlib.suppress(OSError):
            changed = self._folder.stat().st_mtime_ns
            if changed != self._changed:
                names = sorted(os.listdir(self._folder))  # noqa: PTH208 - each second
                self._names = {name.rpartition(".")[0] for name in names}
                stems = [name.removesuffix(OFFER) for name in names if name.endswith(OFFER)]
                offers = [(stem, _read(self._folder / (stem + OFFER))) for stem in stems]
                self._offers = {offer["sha256"]: offer for _, offer in offers if offer}
                self._stems = {offer["sha256"]: stem for stem, offer in offers if offer}
                self._changed = changed
        self.wanted &= self._offers.keys()

    def choose_offers(self, now: float) -> list[Offer]:
        """Return the bundles to name in the next report."""
        due = [
            offer
            for digest, offer in self._offers.items()
            if now >= self._offered.get(digest, -OFFER_SECONDS) + OFFER_SECONDS
        ]
        return due[:MAX_OFFERS]

    def note_offered(self, offers: Sequence[Offer], now: float) -> None:
        self._offered |= {offer["sha256"]: now for offer in offers}

    def holds(self, digest: str) -> bool:
        """Return whether a bundle is still to be uploaded."""
        return digest in self._offers

    def upload_piece(self, client: http_client.Client, now: float) -> None:
        """Send the next piece of a wanted bundle, if it is time."""
        if not self.wanted or now < self.next:
            return
        digest = min(self.wanted)
        offer = self._offers[digest]
        offset = self._offset.get(digest, 0)
        try:
            with self._file(digest, BUNDLE).open("rb") as file:
                file.seek(offset)
                data = file.read(self._piece)
        except OSError:
            self._forget(digest)
            return
        path = f"/api/v1/agents/blobs/{digest}?offset={offset}&size={offer['bytes']}"
        kind = {"Content-Type": "application/octet-stream"}
        began = time.monotonic()
        try:
            answer = client.request("PUT", path, data, kind).document()
        except http_client.RefusedError as error:
            answer = error.document
            if error.status != 409 or not isinstance(answer.get("offset"), int):
                if error.status in (400, 403, 404, 413, 422):  # not this one, whenever it is sent
                    self._forget(digest)
                raise
            # So that a server that names one offset for ever is not asked in a loop.
            self.next = now + OFFSET_SECONDS
        self._adapt(time.monotonic() - began)
        self._offset[digest] = min(max(int(answer.get("offset", 0)), 0), offer["bytes"])
        # Nothing else says that the server has published it: one killed before that has all of the bytes, too.
        if answer.get("complete") is True:
            self._forget(digest, uploaded=True)
        self.next = max(self.next, now + len(data) / self._rate)

    def _adapt(self, seconds: float) -> None:
        """Choose the size of the next piece by how long the last one took: events wait for it on a slow line."""
        self._piece = min(2 * self._piece, PIECE) if seconds < 0.5 else self._piece
        if seconds > 1:
            self._piece = max(LEAST_PIECE, int(self._piece / seconds))

    def _forget(self, digest: str, *, uploaded: bool = False) -> None:
        """Remove a bundle that the server has, or never takes."""
        self.wanted.discard(digest)
        self._offset.pop(digest, None)
        with contextlib.suppress(OSError):
            files.write(self._file(digest, DONE), digest.encode() if uploaded else b"")
            self._file(digest, OFFER).unlink(missing_ok=True)
            self._file(digest, BUNDLE).unlink(missing_ok=True)
            done = sorted(self._folder.glob("*" + DONE), key=lambda path: path.stat().st_mtime_ns)
            for path in done[:-MAX_DONE]:
                path.unlink(missing_ok=True)
        self._changed = -1
        self.refresh()

    def _file(self, digest: str, suffix: str) -> pathlib.Path:
        return self._folder / f"{self._stems[digest]}{suffix}"


def read_digest(folder: pathlib.Path, name: str) -> str:
    """Return the digest of a bundle that is offered, or that the server has by now; '': it has refused it."""
    if offer := _read(folder / (name + OFFER)):
        return str(offer["sha256"])
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (folder / (name + DONE)).read_text()
    return ""


def _read(path: pathlib.Path) -> Offer | None:
    try:
        offer = json.loads(path.read_bytes())
        fields = {name: int(offer[name]) for name in ("bytes", "begin_us", "end_us")}
        return {"event": str(offer["event"]), "sha256": str(offer["sha256"]), **fields}
    except (OSError, ValueError, KeyError, TypeError):
        return None
