"""Resources: what an assistant may read without a tool. All of them are JSON or YAML."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from overnight import errors
from overnight.app import investigations
from overnight.interfaces.mcp import catalogue, vocabulary

if TYPE_CHECKING:
    from overnight.app import concierge

SCHEME = "overnight://"
JSON, YAML = "application/json", "application/yaml"
EXAMPLES = ("driver-resets", "this-machine")


@dataclasses.dataclass(frozen=True)
class Resource:
    """`path` may have one `{name}`; `read` gets its value."""

    path: str
    name: str
    about: str
    media: str
    read: Callable[[concierge.Backend, str], str]

    @property
    def uri(self) -> str:
        return SCHEME + self.path

    @property
    def is_template(self) -> bool:
        return "{" in self.path

    def match(self, uri: str) -> str | None:
        """Return the value of the name in a URI, '' for a path without one; None for another URI."""
        before, _, after = self.uri.partition("{name}")
        pattern = re.escape(before) + (r"([A-Za-z0-9_.:%-]{1,200})" if self.is_template else "()") + re.escape(after)  # fmt: skip
        found = re.fullmatch(pattern, uri)
        return found[1] if found else None


def _vocabulary(_: concierge.Backend, __: str) -> str:
    tables = {
        "pool": vocabulary.POOL,
        "counts": vocabulary.COUNTS,
        "instance": vocabulary.INSTANCE,
        "claim": vocabulary.CLAIM,
        "status": {str(state): status for state, status in vocabulary.STATUSES.items()},
        "metadata": vocabulary.DEFAULTS,
    }
    return json.dumps(tables)


def _call(tool: str, argument: str) -> Callable[[concierge.Backend, str], str]:
    def read(backend: concierge.Backend, name: str) -> str:
        return json.dumps(catalogue.call(backend, catalogue.TOOLS[tool], {argument: name}).document)

    return read


def _plan(_: concierge.Backend, name: str) -> str:
    return investigations.find_example(name)


RESOURCES = (
    Resource("vocabulary", "vocabulary", "The runbook's names of fields and overnight's.", JSON, _vocabulary),
    Resource("pools", "pools", "All pools with their counts.", JSON, lambda backend, _: json.dumps(catalogue.call(backend, catalogue.TOOLS["system_list_instance_pools"], {}).document)),
    Resource("pools/{name}", "pool", "A pool with its members and problems.", JSON, _call("system_get_instance_pool", "id")),
    Resource("verdicts/{name}", "verdict", "The verdict on an event.", JSON, _call("diagnose", "event")),
    Resource("plans/{name}", "plan", f"An example plan: {', '.join(EXAMPLES)}.", YAML, _plan),
)  # fmt: skip


def read(backend: concierge.Backend, uri: str) -> tuple[str, str]:
    """Return the text of a resource, and its media type."""
    for resource in RESOURCES:
        name = resource.match(uri)
        if name is not None:
            return resource.read(backend, name), resource.media
    raise errors.NotFoundError(
        f"no resource {uri[:200]!r}",
        why=f"there are {', '.join(each.uri for each in RESOURCES)}",
        todo="read one of these",
    )
