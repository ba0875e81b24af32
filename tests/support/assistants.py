"""An assistant's side of a server: pools of a scripted provider, and people who confirm."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import poolworld
import serverworld

from overnight.model.control_plane import Role
from overnight.model.pool import MemberState


class Now(poolworld.Clock):
    """The real clock."""

    def __call__(self) -> int:
        return time.time_ns() // 1000


class World(serverworld.World):
    """A server in this process; `pools` boots the members of its pools."""

    def __init__(self, home: pathlib.Path) -> None:
        super().__init__(home)
        self.pools = poolworld.World(f"sqlite:///{home / 'pools' / 'pools.db'}", clock=Now())
        providers: Any = self.server.pools.plane.context.providers
        providers["scripted"] = self.pools.plane.context.provider("scripted")
        self.server.pools.plane.set("endpoint", "http://127.0.0.1:8417")

    def token(self, role: str) -> str:
        """Return the token of a role; `operator, assistant` is one of an assistant."""
        if role not in self.tokens:
            word, _, assistant = role.partition(", ")
            created = self.fleet.tokens.create(
                Role(word),
                name=role.replace(", ", "-"),
                expires_us=self.now_us() + serverworld.YEAR_US,
                assistant=bool(assistant),
            )
            self.tokens[role] = created.text
        return self.tokens[role]

    def filled(self, name: str = "ci", target: int = 3, claims: int = 0) -> list[str]:
        """Make a pool with ready members, some of them claimed; return the ids of those that are left."""
        self.pools.pool(name, target)
        self.pools.fill(name)
        for number in range(claims):
            self.pools.plane.acquire(name, acquired_by=f"job-{number}")
        return sorted(member.id for member in self.pools.members(name, MemberState.READY))

    def code(self, by: str = "admin") -> str:
        """Return the code of the last request, as a person sees it."""
        return str(self.get("/api/v1/confirmations", by)["items"][0]["code"])

    def confirm(self, by: str = "admin") -> Any:
        sent = {"code": self.code(by)}
        return self.ask("POST", "/api/v1/confirmations/confirm", role=by, json=sent)

    def audit(self) -> list[tuple[str, str, str]]:
        """Return who did what to which target, the oldest first."""
        rows = self.get("/api/v1/audit?limit=1000", "admin")["items"]
        return [(row["who"], row["action"], row["target"]) for row in reversed(rows)]

    def close(self) -> None:
        self.pools.close()
        super().close()
