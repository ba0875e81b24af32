"""Operations of agents: enrol, rotate, report, upload, and the state of tasks. JSON in, JSON out.

3,000 agents post a hundred times a second: each call is one job of a worker thread, from the credential to
the bytes of the answer.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

from overnight import errors
from overnight.model import checked_json, uplink

if TYPE_CHECKING:
    from overnight.app import serving_metrics
    from overnight.fleet import control
    from overnight.model.control_plane import AgentIdentity

DOCUMENT_BYTES = 4 << 20  # of a report without a snapshot, decompressed
SNAPSHOT_BYTES = 16 << 20


class TooLargeError(errors.UsageError):
    """A body is too large when it is decompressed."""


class Agents:
    def __init__(self, plane: control.ControlPlane, counters: serving_metrics.Counters) -> None:
        self._plane, self._counters = plane, counters

    def enrol(self, _credential: str, body: bytes, encoding: str) -> bytes:
        given = checked_json.Object(_decode(body, encoding, DOCUMENT_BYTES), "enrolment")
        identity = self._plane.agents.enrol(
            given.text("token", 256), given.text("credential", 256), given.text("host")
        )
        return _encode({"host": identity.host, "host_id": identity.host_id})

    def rotate(self, credential: str, body: bytes, encoding: str) -> bytes:
        identity = self._identify(credential)
        given = checked_json.Object(_decode(body, encoding, DOCUMENT_BYTES), "rotation")
        self._plane.agents.rotate(identity, given.text("credential", 256))
        return _encode({"host": identity.host})

    def report(self, credential: str, body: bytes, encoding: str) -> bytes:
        identity = self._identify(credential)
        # After the credential is checked: nobody else may use the time that this takes.
        document = _decode(body, encoding, SNAPSHOT_BYTES)
        report = uplink.Report.from_json(document)
        reply = self._plane.report(identity, report)
        self._counters.report(len(report.events), report.lost.events, report.lost.rollups)
        return _encode(reply.as_json())

    def put_blob(
        self, credential: str, sha256: str, offset: int, size: int, data: bytes, _encoding: str
    ) -> bytes:
        identity = self._identify(credential)
        put = self._plane.put_blob(identity, sha256, offset, size, data)
        return _encode({"offset": put.offset, "complete": put.complete})

    def report_task(self, credential: str, task_id: str, body: bytes, encoding: str) -> bytes:
        identity = self._identify(credential)
        report = uplink.TaskReport.from_json(_decode(body, encoding, DOCUMENT_BYTES))
        state = self._plane.tasks.report(identity, task_id, report)
        return _encode({"state": state})

    def _identify(self, credential: str) -> AgentIdentity:
        identity = self._plane.agents.authenticate(credential) if credential else None
        if identity is None:
            raise errors.UnauthenticatedError(
                "the credential is not valid",
                why="it is unknown, or it was revoked",
                todo="enrol the agent again with a new token: `overnight token create --role agent`",
            )
        return identity


def _encode(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _decode(body: bytes, encoding: str, limit: int) -> object:
    if encoding == "gzip":
        body = _decompress(body, limit)
    elif encoding not in ("", "identity"):
        raise errors.UsageError(
            f"unknown Content-Encoding {encoding[:40]!r}",
            why="bodies are plain or gzip",
            todo="send Content-Encoding: gzip",
        )
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise errors.UsageError(
            "the body is not JSON", why=str(error)[:200], todo="send a JSON object"
        ) from error
    if len(body) > DOCUMENT_BYTES and not (isinstance(document, dict) and "snapshot" in document):
        raise _too_large(DOCUMENT_BYTES)
    return document


def _decompress(body: bytes, limit: int) -> bytes:
    """Decompress at most `limit` bytes: a small body may expand a thousandfold."""
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error as error:
        raise errors.UsageError(
            "the body is not gzip", why=str(error), todo="send the body without Content-Encoding"
        ) from error
    if len(plain) > limit:
        raise _too_large(limit)
    if not stream.eof or stream.unused_data:
        raise errors.UsageError(
            "the body is not one complete gzip stream",
            why="it is cut short, or something follows it",
            todo="send the body again",
        )
    return plain


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(
        f"the document exceeds {limit >> 20} MiB",
        why="decompressed documents are limited",
        todo="send fewer events or rollups at once",
    )
