"""The application: every operation, and the OpenAPI document that describes them."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Any

import fastapi

import overnight
from overnight.interfaces.http import (
    admin,
    agents,
    assistants,
    fleet,
    limits,
    pages,
    problems,
    questions,
    use_cases,
)

if TYPE_CHECKING:
    from overnight.app import serving

MODULES = (agents, fleet, questions, use_cases, admin, assistants, pages)
ABOUT = """Hosts, events, windows and tasks of a fleet.

Send a token with each request: `Authorization: Bearer TOKEN`. `overnight token create --role viewer` makes one. A **viewer** reads,
an **operator** also gives tasks to hosts, claims members of pools and reserves hosts, an **admin** also manages tokens,
hosts, pools, and reservations of others.

Lists have at most `limit` items; while `next` is not null, ask again with `cursor` set to it. Times are microseconds
since 1970 (UTC). Errors are problem documents (RFC 9457) that say what failed, why, and what to do. Unknown query
parameters are refused.
"""
TAGS = [
    {"name": "hosts", "description": "Hosts and their CPU time."},
    {"name": "events", "description": "Events, their windows and their diagnosis."},
    {"name": "tasks", "description": "Requests to hosts; agent.toml on the host allows each kind."},
    {"name": "questions", "description": "Comparisons of hosts that fail with others."},
    {"name": "pools", "description": "Warm pools, their members and claims."},
    {"name": "reservations", "description": "Hosts that are taken out of production for a while."},
    {"name": "admin", "description": "Tokens and the audit log."},
    {"name": "agents", "description": "Operations of agents. Each agent has its own credential."},
    {"name": "server", "description": "State of the server."},
]


PROBLEM = {
    "description": "The request was refused, or it failed.",
    "content": {problems.CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
}  # fmt: skip


def create_app(server: serving.Server, allowed: limits.Limits | None = None) -> fastapi.FastAPI:
    """Return the application behind its limits."""
    app = build()
    app.state.server = server
    app.state.workers = workers = agents.Workers()
    app.state.slots = use_cases.Slots()
    app.state.prober, app.state.probe = concurrent.futures.ThreadPoolExecutor(1, "readiness"), None

    async def is_known(path: str, credential: str) -> bool:
        of_agents = path.startswith(limits.AGENTS)
        find = (server.fleet.agents if of_agents else server.fleet.tokens).authenticate
        return bool(credential) and await workers.run(find, credential) is not None

    app.add_middleware(
        limits.Gate, limits=allowed or limits.Limits(), counters=server.counters,
        is_known=is_known, proxies=server.request.trusted_proxies,
    )  # fmt: skip
    return app


def build() -> fastapi.FastAPI:
    app = Application(
        title="overnight",
        version=overnight.__version__,
        description=ABOUT,
        openapi_url="/api/v1/openapi.json",
        openapi_tags=TAGS,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        responses={"default": PROBLEM},
        exception_handlers=problems.HANDLERS,
    )
    for module in MODULES:
        app.include_router(module.ROUTER)
    return app


class Application(fastapi.FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Add what no operation returns by its type."""
        document = super().openapi()
        schema = problems.ProblemDocument.model_json_schema()
        document["components"]["schemas"]["ProblemDocument"] = schema  # a pool has a Problem, too
        return document
