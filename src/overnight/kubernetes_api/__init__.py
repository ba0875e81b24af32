"""A small client of Kubernetes: objects are dicts, as typed models would drop fields that they do not know."""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import Any

from overnight import errors

Object = dict[str, Any]


class KubernetesError(errors.CannotError):
    """The API server refused or did not answer. `code` is its HTTP status; 0 if it did not answer."""

    def __init__(
        self, what: str, *, why: str, todo: str, code: int = 0, retry: bool = False
    ) -> None:
        super().__init__(what, why=why, todo=todo)
        self.code = code
        self.retry = retry  # whether the same request may succeed later


class accept:  # noqa: N801  used as contextlib.suppress
    """Context that ends, without an error, at a refusal with one of these HTTP statuses."""

    def __init__(self, *codes: int) -> None:
        self._codes = codes

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: object, __: object) -> bool:
        return isinstance(error, KubernetesError) and error.code in self._codes


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of object: `version` is that of its API group, such as coordination.k8s.io/v1."""

    version: str
    plural: str

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """Return the path of an object, or of a list; '' as namespace: of the whole cluster."""
        parts = (
            "apis" if "/" in self.version else "api",
            self.version,
            f"namespaces/{urllib.parse.quote(namespace, safe='')}" if namespace else "",
            self.plural,
            urllib.parse.quote(name, safe=""),
            part,
        )
        return "/" + "/".join(filter(None, parts))


NODES = Kind("v1", "nodes")
PODS = Kind("v1", "pods")
SECRETS = Kind("v1", "secrets")
EVENTS = Kind("v1", "events")
LEASES = Kind("coordination.k8s.io/v1", "leases")
