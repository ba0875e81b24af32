"""Requests to an API server, with errors that name the missing right or the next command."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from overnight import errors, kubernetes_api
from overnight.kubernetes_api import configuration

if TYPE_CHECKING:
    import httpx2
    from lightkube.config import kubeconfig

SECONDS = 10.0  # to connect, and for each read of an answer
PAGE = 500
ATTEMPTS = 3  # of a read, and of a request that an overloaded server throttles
EDITS = 30  # of one object against other writers
MAX_WAIT_SECONDS = 5.0
VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}

Kind = kubernetes_api.Kind
Object = kubernetes_api.Object
Change = Callable[[Object], Object | None]


def connect(context: str = "", *, seconds: float = SECONDS) -> Client:
    """Return a client of a context of the kubeconfig, or of the cluster of this pod."""
    return Client(configuration.find_configuration(context), seconds)


class Client:
    """Objects of one cluster. Every failure is a KubernetesError; threads may share it."""

    def __init__(self, config: kubeconfig.SingleConfig, seconds: float = SECONDS) -> None:
        import httpx2
        from lightkube.config import client_adapter
        from lightkube.core import exceptions

        self.context = config.context_name
        self.server = config.cluster.server
        # The configuration of a pod has the context "default", which no kubeconfig has.
        self._kubectl = "kubectl" + f" --context {self.context}" * (self.context != "default")
        parameters = client_adapter.ConnectionParams(timeout=httpx2.Timeout(seconds))
        try:
            self._http = client_adapter.Client(config, parameters)
        except (OSError, ValueError, exceptions.ConfigError) as error:
            raise self._cannot_log_in(error) from None

    def close(self) -> None:
        self._http.close()

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        return self._request("GET", kind, namespace, name)

    def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return the object, or None if there is none."""
        with kubernetes_api.accept(404):
            return self.get(kind, name, namespace)
        return None

    def list(
        self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """List objects of a namespace, or of all of them, that the two selectors match."""
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE)}
        found: list[Object] = []
        while True:
            try:
                page = self._request("GET", kind, namespace, query=query, verb="list")
            except kubernetes_api.KubernetesError as error:
                if error.code != 410 or "limit" not in query:
                    raise
                # The next page is of a state that the server has forgotten: all at once.
                query = {"labelSelector": labels, "fieldSelector": fields}
                found = []
                continue
            found += page.get("items") or []
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return found
            query["continue"] = more

    def create(
        self, kind: Kind, body: Object, namespace: str = "", *, name: str = "", part: str = ""
    ) -> Object:
        """Create an object, or with `name` and `part` a subresource such as an eviction."""
        return self._request("POST", kind, namespace, name, part=part, body=body)

    def patch(self, kind: Kind, name: str, change: Object, namespace: str = "") -> Object:
        """Apply a JSON merge patch; one with metadata.resourceVersion fails with 409 if it is not the latest."""
        return self._request("PATCH", kind, namespace, name, body=change)

    def patch_status(
        self, kind: Kind, name: str, change: Object, namespace: str = "", *, manager: str = ""
    ) -> Object:
        """Apply a strategic merge patch to a status: lists are merged by their keys.

        The server records the manager for the fields that change.
        """
        return self._request(
            "PATCH", kind, namespace, name, part="status", query={"fieldManager": manager},
            body=change, style="strategic-merge",
        )  # fmt: skip

    def edit(self, kind: Kind, name: str, change: Change, namespace: str = "") -> Object:
        """Read an object, and write the merge patch that `change` returns for exactly this version of it.

        `change` is pure: it is called again for the newer version if another writer was first. None: no change.
        """
        for attempt in range(EDITS):
            current = self.get(kind, name, namespace)
            wanted = change(current)
            if wanted is None:
                return current
            version = {"resourceVersion": current["metadata"]["resourceVersion"]}
            wanted = {**wanted, "metadata": {**wanted.get("metadata", {}), **version}}
            try:
                return self.patch(kind, name, wanted, namespace)
            except kubernetes_api.KubernetesError as error:
                if error.code != 409 or attempt == EDITS - 1:
                    raise
            time.sleep(random.uniform(0, 0.01 * (attempt + 1)))  # noqa: S311  against other writers
        raise AssertionError

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        only: Object | None = None,
        grace_seconds: int | None = None,
    ) -> bool:
        """Delete an object; False if it is gone. With `only`: this very object in this version, else 409."""
        options: Object = {}
        if only is not None:
            metadata = only["metadata"]
            options["preconditions"] = {
                key: metadata[key] for key in ("uid", "resourceVersion") if key in metadata
            }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        with kubernetes_api.accept(404):
            self._request("DELETE", kind, namespace, name, body=options)
            return True
        return False

    def find_part_version(self, part: str) -> str:
        """Return the version of objects that a subresource takes, such as of pods/eviction; '' if there is none."""
        for resource in self._request("GET", Kind("v1", ""), "")["resources"]:
            if resource["name"] == part:
                return "/".join(filter(None, (resource.get("group"), resource.get("version"))))
        return ""

    def _request(
        self,
        method: str,
        kind: Kind,
        namespace: str,
        name: str = "",
        *,
        part: str = "",
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        verb: str = "",
        style: str = "merge",
    ) -> Object:
        import httpx2
        from lightkube.core import exceptions

        path = kind.path(namespace, name, part)
        style = f"{style}-patch+json" if method == "PATCH" else "json"
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = self._http.request(
                    method,
                    path,
                    params={key: value for key, value in (query or {}).items() if value},
                    content=None if body is None else json.dumps(body).encode(),
                    headers=None if body is None else {"Content-Type": f"application/{style}"},
                )
            except httpx2.TransportError as error:
                # Only a read is repeated: whether a write arrived is not known. A server that is silent stays so.
                silent = isinstance(error, httpx2.TimeoutException)
                if method == "GET" and not silent and attempt < ATTEMPTS:
                    continue
                raise kubernetes_api.KubernetesError(
                    f"{self.server} does not answer (context {self.context})",
                    why=str(error) or type(error).__name__,
                    todo=f"{self._kubectl} get --raw /readyz",
                    retry=True,
                ) from None
            except (exceptions.ConfigError, OSError, ValueError, KeyError) as error:
                raise self._cannot_log_in(error) from None  # a plug-in that logs in failed
            if response.status_code != 429 or part == "eviction" or attempt == ATTEMPTS:
                break
            time.sleep(_read_wait(response))
        try:
            document: Any = response.json()
        except ValueError:
            document = None
        if isinstance(document, dict) and response.status_code < 300:
            return document
        message = document.get("message", "") if isinstance(document, dict) else ""
        resource = "/".join(filter(None, (kind.plural, part)))
        raise self._refused(
            response.status_code, message or response.text[:200], path,
            (verb or VERBS[method], resource, name, namespace),
        )  # fmt: skip

    def _refused(
        self, code: int, message: str, path: str, asked: tuple[str, str, str, str]
    ) -> kubernetes_api.KubernetesError:
        verb, resource, name, namespace = asked
        what = f"cannot {verb} {resource or path} {name}".rstrip()
        what += f" in namespace {namespace}" if namespace else ""
        todo = f"{self._kubectl} get --raw {path}"
        if code == 401:
            what = f"{self.server} refused the credentials of context {self.context}"
            message = f"they have expired or are not valid: {message or 'Unauthorized'}"
            todo = f"log in again, then check: {self._kubectl} get nodes"
        elif code == 403:
            scope = f" -n {namespace}" if namespace else ""
            todo = f"{self._kubectl} auth can-i {verb} {resource}{scope}   (rights: deploy/kubernetes/reservations)"
        elif code == 404 and verb == "create" and namespace:
            todo = f"{self._kubectl} apply -f deploy/kubernetes/base/namespaces.yaml"
        return kubernetes_api.KubernetesError(
            what,
            why=f"{message} (HTTP {code})",
            todo=todo,
            code=code,
            # 401: a person or a plug-in may log in again while a reservation waits to be released.
            retry=code in (401, 408, 409, 429) or code >= 500,
        )

    def _cannot_log_in(self, error: Exception) -> kubernetes_api.KubernetesError:
        errors.raise_own(error)
        return kubernetes_api.KubernetesError(
            f"cannot log in to {self.server} (context {self.context})",
            why=errors.reason(error) or type(error).__name__,
            todo=f"{self._kubectl} get nodes",
            retry=True,
        )


def _read_wait(response: httpx2.Response) -> float:
    text = response.headers.get("Retry-After", "1")
    return min(float(text), MAX_WAIT_SECONDS) if text.isdigit() else 1.0
