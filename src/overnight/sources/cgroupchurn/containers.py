"""Which container a new cgroup belongs to: the state that Docker and containerd keep, read only.

Docker's /var/lib/docker/containers/ID/config.v2.json, of which nothing else is used::

    {"ID": "44c80542…", "Name": "/ecs-agent", "RestartCount": 0, "Config": {"Image": "amazon/amazon-ecs-agent:latest"}}

containerd's /run/containerd/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json::

    {"process": {"args": ["/app/server"]}, "annotations": {"io.kubernetes.cri.container-name": "app",
     "io.kubernetes.cri.sandbox-name": "web-7", "io.kubernetes.cri.sandbox-namespace": "prod"}}

The cgroups are /docker/ID or docker-ID.scope, /NAMESPACE/ID or cri-containerd-ID.scope. A container that was removed before its
file could be read is asked for in Docker's API: GET of its state, and of the events that name it. Of Podman's and CRI-O's
containers only the runtime is known, by libpod-ID.scope and crio-ID.scope.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import socket
import stat
import time
import urllib.parse
from collections.abc import Callable, Mapping

from overnight import errors, sources

DOCKER, API = "var/lib/docker/containers", "run/docker.sock"
SETTINGS = "etc/docker/daemon.json"
BUNDLES = (
    "run/containerd/io.containerd.runtime.v2.task",
    "run/k3s/containerd/io.containerd.runtime.v2.task",
)
MAX_STATE = 1 << 18
MAX_NAMESPACES = 16
# In a poll, of ids and of other names; the other births count below their parent.
MAX_LOOKUPS = 64
MAX_ANSWER = 1 << 16
MAX_TEXT = 100
API_S = 0.2  # the recorder waits for it
API_PAUSE_S = 300.0  # after one that was late or failed
MAX_CALLS = 2  # in a poll

HEX = re.compile(r"[0-9a-f]{64}")
RUNTIMES = {
    "docker": "docker", "nerdctl": "containerd", "cri-containerd": "containerd", "crio": "cri-o", "libpod": "podman",
}  # fmt: skip
SCOPE = re.compile(rf"(?:({'|'.join(RUNTIMES)})-)?(.{{1,128}}?)(?:\.scope)?", re.DOTALL)
# Units without a file, whose names mostly live once; not logind's sessions.
TRANSIENT = re.compile(r"(?!session-).*\.scope|run-.*\.service", re.DOTALL)
TRANSIENT_PARENTS = ("/system.slice", "/machine.slice")
POD = re.compile(r"(?:^|/)(?:kubepods|[^/]*-pod[0-9a-f]{8}[^/]*\.slice)(?:[./-]|$)")
# What differs from one container to the next of the same service, and the names that Docker invents.
RANDOM = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{12,}|(?<=[.-])[a-z0-9]{25}$|\d{3,}"
)
INVENTED = re.compile(r"[a-z]+_[a-z]+\d?")
# Of the CRI's runtimes, and of kubelet's dockershim: the pod's namespace and name, and the container.
POD_NAMES = (
    ("cri.sandbox-namespace", "cri.sandbox-name", "cri.container-name"),
    ("pod.namespace", "pod.name", "container.name"),
)


@dataclasses.dataclass(frozen=True)
class Container:
    """What names a container; `runtime` is also kubernetes, for pods, and systemd, for transient units."""

    runtime: str
    name: str = ""
    image: str = ""
    group: str = ""  # containerd's namespace, the pod as NAMESPACE/NAME, or a user's slice
    restarted: int = 0  # by the runtime itself

    @property
    def key(self) -> str:
        """What the births of one service have in common; never a cgroup's path, which begins with a slash.

        >>> Container("docker", "ecs-agent", "amazon/amazon-ecs-agent").key
        'docker:ecs-agent'
        >>> Container("docker", "quirky_euler", "busybox").key
        'docker:image=busybox'
        """
        name = RANDOM.sub("*", self.name) or "?"
        if self.runtime == "docker" and INVENTED.fullmatch(name) and self.image:
            name = f"image={self.image}"
        parts = (self.group, name)
        return f"{self.runtime}:{'/'.join(part for part in parts if part)}"


def _text(value: object) -> str:
    return sources.clean(value)[:MAX_TEXT] if isinstance(value, str) else ""


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def parse_docker(state: object) -> Container:
    """Name a container by Docker's state of it."""
    table = _table(state)
    settings = _table(table.get("Config"))
    name, image = _text(table.get("Name")).lstrip("/"), _text(settings.get("Image"))
    if pod := _parse_pod(_table(settings.get("Labels")), image):
        return pod
    count = table.get("RestartCount")
    return Container(
        "docker",
        name,
        image,
        restarted=min(count, 1 << 31) if isinstance(count, int) and count > 0 else 0,
    )


def parse_bundle(namespace: str, name: str, bundle: object) -> Container:
    """Name a container by the configuration that containerd gave the runtime."""
    table = _table(bundle)
    noted = _table(table.get("annotations"))
    if pod := _parse_pod(noted, _text(noted.get("io.kubernetes.cri.image-name"))):
        return pod
    if HEX.fullmatch(name):
        name = _text(noted.get("nerdctl/name"))
        arguments = _table(table.get("process")).get("args")
        if not name and isinstance(arguments, list) and arguments:
            name = _text(arguments[0]).rpartition("/")[2]
    return Container("containerd", name, "", namespace)


def _parse_pod(noted: Mapping[str, object], image: str) -> Container | None:
    for names in POD_NAMES:
        namespace, pod, container = (_text(noted.get(f"io.kubernetes.{name}")) for name in names)
        if namespace and pod:
            return Container("kubernetes", container or "sandbox", image, f"{namespace}/{pod}")
    return None


class Containers:
    """Looks containers up by the path of a new cgroup, and remembers them."""

    def __init__(
        self, root: pathlib.Path = sources.ROOT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = os.fspath(root)
        moved = _text(_table(_read_json(f"{self._root}/{SETTINGS}")).get("data-root"))
        self._docker = f"{self._root}/{f'{moved}/containers' if moved else DOCKER}"
        self._clock = clock
        self._pause_until = 0.0
        self.begin_poll()

    def begin_poll(self) -> None:
        self._known: dict[str, Container | None] = {}  # it has a cgroup per hierarchy
        self._lookups = [0, 0]
        self._calls = 0

    def find(self, parent: str, directory: str) -> Container | None:
        """Return the container of a new cgroup; None where it is none, or the runtime cannot be asked.

        Users name the cgroups below their own slice themselves, so none of these is looked up: rootless containers
        have a runtime and the user's slice.
        """
        match = SCOPE.fullmatch(directory)
        prefix, name = (match[1] or "", match[2]) if match else ("", "")
        is_id = HEX.fullmatch(name) is not None
        if parent.startswith("/user.slice/"):
            user = _text(parent.split("/")[2])
            return Container(RUNTIMES[prefix], group=user) if prefix and is_id else None
        if name and name not in self._known and self._lookups[is_id] < MAX_LOOKUPS:
            self._lookups[is_id] += 1
            self._known[name] = self._look_up(parent, prefix, name, is_id=is_id)
        container = self._known.get(name)
        is_unit = parent in TRANSIENT_PARENTS and not prefix and TRANSIENT.fullmatch(directory)
        if container is None and is_unit:
            container = Container("systemd", re.sub(r"^run-.*\.", "run-*.", _text(directory)))
        return container

    def _look_up(self, parent: str, prefix: str, name: str, *, is_id: bool) -> Container | None:
        container = (self._read_docker(name) if is_id else None) or self._read_bundle(name)
        if container is None and is_id and POD.search(parent) is None:
            if prefix in ("", "docker"):
                container = self._ask_docker(name)
            if container is None and (prefix or parent.endswith("/docker")):
                container = Container(RUNTIMES[prefix or "docker"])
        return container

    def _read_docker(self, name: str) -> Container | None:
        state = _read_json(f"{self._docker}/{name}/config.v2.json")
        return None if state is None else parse_docker(state)

    def _read_bundle(self, name: str) -> Container | None:
        for folder in BUNDLES:
            for namespace in sources.list_folder(f"{self._root}/{folder}")[:MAX_NAMESPACES]:
                bundle = _read_json(f"{self._root}/{folder}/{namespace}/{name}/config.json")
                if bundle is not None and namespace != "moby":  # Docker's own knows no names
                    return parse_bundle(_text(namespace), _text(name), bundle)
        return None

    def _ask_docker(self, name: str) -> Container | None:
        """Ask the API for a container; one that was removed is still named by the last 256 events."""
        now = self._clock()
        if now < self._pause_until or self._calls >= MAX_CALLS:
            return None
        self._calls += 1
        try:
            state = _parse(self._get(f"/containers/{name}/json"))
            if _table(state).get("Name"):
                return parse_docker(state)
            filters = urllib.parse.quote(
                json.dumps({"container": [name], "event": ["create", "start"]})
            )
            until = time.time()  # a time to come would let it wait for more
            events = self._get(
                f"/events?since={until - 60:.0f}&until={until:.9f}&filters={filters}"
            )
        except OSError as error:
            errors.raise_own(error)
            self._pause_until = now + API_PAUSE_S
            return None
        if self._clock() - now > API_S:
            self._pause_until = now + API_PAUSE_S
        noted = _table(
            _table(_table(_parse(events.partition(b"\n")[0])).get("Actor")).get("Attributes")
        )
        name, image = _text(noted.get("name")), _text(noted.get("image"))
        return Container("docker", name, image) if name else None

    def _get(self, target: str) -> bytes:
        """Return the body of an answer, as much of it as comes in time."""
        deadline = time.monotonic() + API_S
        answer = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(API_S)
            connection.connect(f"{self._root}/{API}")
            connection.sendall(f"GET {target} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
            while len(answer) < MAX_ANSWER and (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                part = connection.recv(MAX_ANSWER)
                if not part:
                    break
                answer += part
        return answer.partition(b"\r\n\r\n")[2]


def _parse(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_json(path: str) -> object:
    """Read a small regular file; None where it is missing, larger, or not JSON."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        errors.raise_own(error)
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return _parse(os.read(descriptor, MAX_STATE))
    except OSError as error:
        errors.raise_own(error)
        return None
    finally:
        os.close(descriptor)
