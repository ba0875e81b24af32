"""Requests to a control plane: repeated where its answer is lost or it is busy, and decoded strictly."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from overnight import errors, http_client
from overnight.app import server_settings
from overnight.model import decoding
from overnight.model.uplink import MAX_WINDOW_BYTES

API = "/api/v1"
PAGE = "1000"  # items
MAX_ANSWER = 256 << 20
ANSWER_SECONDS = 120.0
ATTEMPTS, AWAY_SECONDS = 3, 1.0
BUSY_SECONDS = 60.0  # at most, for a server that answers 429 or 503

Kind = TypeVar("Kind")


@dataclasses.dataclass(frozen=True)
class _Page:
    items: tuple[object, ...]
    next: str | None = None


class Requests:
    """One connection to one server; not for several threads at once."""

    def __init__(self, settings: server_settings.Settings) -> None:
        self.url = settings.url
        try:
            self._client = http_client.Client(
                settings.url, bearer=settings.token, ca=settings.ca, insecure=settings.insecure,
                seconds=ANSWER_SECONDS,
            )  # fmt: skip
        except errors.UsageError as error:
            if "plain HTTP" not in error.what:
                raise
            file = server_settings.config_file()
            todo = f"use https, or write insecure = true beside url = {self.url!r} in {file}"
            raise errors.UsageError(error.what, why=error.why, todo=todo) from None

    def close(self) -> None:
        self._client.close()

    def get(self, *path: str, parameters: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Return the document at a path below /api/v1, given as its parts."""
        return self.send("GET", path, parameters=parameters)

    def send(
        self,
        method: str,
        path: Sequence[str],
        body: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        parameters: Sequence[tuple[str, str]] = (),
        seconds: float = ANSWER_SECONDS,
        again: bool = True,
    ) -> dict[str, Any]:
        """Send a request and return the document of its answer; send it once unless it may be sent `again`."""
        whole = _join(path) + (f"?{urllib.parse.urlencode(parameters)}" if parameters else "")
        data = json.dumps(body).encode() if body else b""
        sent = {**(headers or {}), "Content-Type": "application/json"} if body else headers
        answer = self._repeat(
            lambda: self._client.request(
                method, whole, data, sent, repeatable=again, max_bytes=MAX_ANSWER, seconds=seconds
            ),
            ATTEMPTS if again else 1,
        )
        return answer.document()

    def download(self, *path: str, file: pathlib.Path, show: Callable[[int, int], None]) -> None:
        whole = _join(path)
        self._repeat(lambda: self._client.download(whole, file, show, max_bytes=MAX_WINDOW_BYTES))

    def pages(
        self, kind: type[Kind], /, *path: str, **parameters: str | Sequence[str]
    ) -> Iterator[Kind]:
        """Yield the items of a list, page by page."""
        pairs = [
            (name, text)
            for name, value in parameters.items()
            for text in ((value,) if isinstance(value, str) else value)
        ]
        cursor = ""
        while True:
            given = [*pairs, ("cursor", cursor)] if cursor else pairs
            page = self.decode(_Page, self.get(*path, parameters=given))
            yield from (self.decode(kind, item) for item in page.items)
            if not page.next or page.next == cursor:
                return
            cursor = page.next

    def _repeat(self, send: Callable[[], Kind], most: int = ATTEMPTS) -> Kind:
        """Send a request; again if its answer was lost, or if the server is busy."""
        attempts, waited = 0, 0.0
        while True:
            try:
                return send()
            except http_client.ServerAwayError as error:
                attempts += 1
                is_untrusted = "--ca" in error.todo  # an option of the agent
                if is_untrusted:
                    error.todo = f"name its authority: ca_file in {server_settings.config_file()}"
                if is_untrusted or attempts >= most:
                    raise
                time.sleep(AWAY_SECONDS)
            except http_client.RefusedError as error:
                wait = max(1.0, error.retry_after or AWAY_SECONDS)
                if error.status not in (429, 503) or waited + wait > BUSY_SECONDS:
                    raise self._explain(error) from None
                waited += wait
                time.sleep(wait)

    def _explain(self, error: http_client.RefusedError) -> errors.CannotError:
        if error.status == 401:
            return errors.CannotError(
                f"{self.url} refuses the token",
                why=error.why,
                todo="set OVERNIGHT_TOKEN, or name a file with --token-file FILE; an admin creates tokens",
            )
        if error.status == 403:
            return errors.MissingPermissionError(error.what, why=error.why, todo=error.todo)
        return error

    def decode(self, kind: type[Kind], value: object, **names: Any) -> Kind:
        with self.understood():
            return decoding.decode(kind, value, **names)

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Report a document of another form as an answer of another version."""
        try:
            yield
        except decoding.ShapeError as error:
            raise self.changed(str(error)) from error

    def changed(self, why: str) -> errors.CannotError:
        return errors.CannotError(
            f"the answer of {self.url} is not understood",
            why=why,
            todo="use the same version here and on the server",
        )


def _join(path: Sequence[str]) -> str:
    return "/".join([API, *(urllib.parse.quote(part, safe="") for part in path)])
