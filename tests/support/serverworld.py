"""A server on a real database, asked in this process without a socket."""

from __future__ import annotations

import asyncio
import json
import pathlib
import secrets
from typing import Any

import httpx
import pooldatabases

from overnight.app import serving
from overnight.interfaces.http import application, limits
from overnight.model.control_plane import Role

NOW_US = 1_800_000_000_000_000
YEAR_US = 366 * 86_400_000_000


class World:
    """`server` is what `overnight serve` runs; `ask` sends it a request as somebody with a role."""

    def __init__(
        self, home: pathlib.Path, url: str = "", allowed: limits.Limits | None = None
    ) -> None:
        pooldatabases.prepare(url or f"sqlite:///{home / 'pools' / 'pools.db'}")
        self.server = serving.Server(serving.Request(home=home, database=url))
        self.app = application.create_app(self.server, allowed)
        self.tokens: dict[str, str] = {}

    @property
    def fleet(self) -> Any:
        return self.server.fleet

    def now_us(self) -> int:
        return int(self.fleet.context.clock())

    def token(self, role: str) -> str:
        if role not in self.tokens:
            expires = self.now_us() + YEAR_US
            created = self.fleet.tokens.create(Role(role), name=f"{role}-name", expires_us=expires)
            self.tokens[role] = created.text
        return self.tokens[role]

    def ask(
        self, method: str, path: str, *, role: str = "", bearer: str = "", **more: Any
    ) -> httpx.Response:
        credential = bearer or (self.token(role) if role else "")
        headers = {"Authorization": f"Bearer {credential}"} if credential else {}
        headers |= more.pop("headers", {})

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, headers=headers, **more)

        return asyncio.run(send())

    def get(self, path: str, role: str = "viewer", **more: Any) -> Any:
        """Return the document at a path; fail for an error."""
        response = self.ask("GET", path, role=role, **more)
        assert response.status_code == 200, response.text
        return response.json()

    def enrol(self, host: str) -> str:
        """Enrol a host; return its credential."""
        expires = self.now_us() + YEAR_US
        token = self.fleet.tokens.create(Role.AGENT, name="agent", expires_us=expires)
        credential = secrets.token_urlsafe(32)
        sent = {"token": token.text, "credential": credential, "host": host}
        response = self.ask("POST", "/api/v1/agents/enrol", json=sent)
        assert response.status_code == 200, response.text
        return credential

    def report(self, credential: str, **parts: Any) -> httpx.Response:
        document = report(self.now_us(), **parts)
        return self.ask("POST", "/api/v1/agents/report", bearer=credential, json=document)

    def close(self) -> None:
        self.server.stop()


def report(now_us: int, **parts: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "sent_us": now_us,
        "boot": "5f0c9a41",
        "uptime_us": 86_400_000_000,
    } | parts


def event(number: int, time_us: int, **fields: Any) -> dict[str, Any]:
    named = {"id": f"net.driver_reset-{number:08x}", "time_us": time_us}
    return {"kind": "net.driver_reset", "severity": "critical"} | named | fields


def problem(response: httpx.Response) -> dict[str, Any]:
    """Return a problem document; fail unless it says what, why and what to do."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    document = json.loads(response.content)
    assert document["status"] == response.status_code
    assert document["title"]
    assert document["detail"]
    assert document["todo"]
    return dict(document)
