"""A stand-in for the kubelets of a cluster: real nodes and pods for the control plane, local processes behind them.

It registers nodes, renews their leases and status, reports pods as running and ready, runs the command of a pod as
a process of this host, and finishes deletions. Accounts are used with their own tokens, so with their own rights.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import os
import pathlib
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

# The only import of the control plane by tests of reservations.
import clusters
from lightkube.config import kubeconfig

from overnight import kubernetes_api
from overnight.kubernetes_api import client as api

Cluster = clusters.Cluster
Object = dict[str, Any]

ACCOUNTS = kubernetes_api.Kind("v1", "serviceaccounts")
POLL_SECONDS, HEARTBEAT_SECONDS, PROCESS_SECONDS = 0.1, 10.0, 60.0
GRACE_SECONDS = 10.0
SIZES = {"cpu": "8", "memory": "16Gi", "pods": "50"}
INFORMATION = {
    "kernelVersion": "6.1.0-18-amd64",
    "osImage": "Debian GNU/Linux 12 (bookworm)",
    "containerRuntimeVersion": "containerd://1.6.20",
    "kubeletVersion": "v1.20.2",
    "kubeProxyVersion": "v1.20.2",
    "architecture": "amd64",
    "operatingSystem": "linux",
    "machineID": "1",
    "systemUUID": "1",
    "bootID": "1",
}


def wait_until(holds: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.03)


def connect(path: pathlib.Path) -> api.Client:
    config = kubeconfig.KubeConfig.from_file(path).get()
    assert config is not None
    return api.Client(config)


def write_kubeconfig(
    cluster: Cluster, account: str, path: pathlib.Path, namespace: str = "overnight"
) -> pathlib.Path:
    """Write a kubeconfig with a token of a service account; its context has the name of the account."""
    with contextlib.closing(connect(cluster.kubeconfig)) as admin:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = admin.create(ACCOUNTS, request, namespace, name=account, part="token")
        server = admin.server
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "u", "user": {"token": answer["status"]["token"]}}],
        "contexts": [{"name": account, "context": {"cluster": "c", "user": "u"}}],
        "current-context": account,
    }
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    return path


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kubelets:
    """Nodes whose pods run here; `programs` is first on the PATH of their commands."""

    def __init__(
        self, cluster: Cluster, folder: pathlib.Path, programs: pathlib.Path | None = None
    ) -> None:
        self.admin = connect(cluster.kubeconfig)
        self.problems: list[str] = []
        self.seconds = PROCESS_SECONDS  # of a process, at most
        self._folder = folder
        self._programs = programs
        self._names: set[str] = set()
        self._processes: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def add(
        self, name: str, labels: dict[str, str] | None = None, owners: list[Object] | None = None
    ) -> None:
        """Register a node, and wait until the control plane regards it as ready."""
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/os": "linux", **(labels or {})},
                "ownerReferences": owners or [],
            },
            "status": {
                "capacity": SIZES,
                "allocatable": SIZES,
                "nodeInfo": INFORMATION,
                "conditions": [self._condition()],
            },
        }
        self.admin.create(kubernetes_api.NODES, node)
        self._names.add(name)
        self._renew(name)
        # Admission taints every new node. Controllers remove the taint of a ready one, and add a label and an annotation.
        wait_until(lambda: self._is_settled(name), f"the control plane has seen {name}")

    def _is_settled(self, name: str) -> bool:
        node = self.admin.get(kubernetes_api.NODES, name)
        seen = "node.alpha.kubernetes.io/ttl" in node["metadata"].get("annotations", {})
        labelled = "beta.kubernetes.io/os" in node["metadata"]["labels"]
        return seen and labelled and not node["spec"].get("taints")

    def remove(self, name: str) -> None:
        self._names.discard(name)
        self.admin.delete(kubernetes_api.NODES, name)
        for pod in self.admin.list(kubernetes_api.PODS, fields=f"spec.nodeName={name}"):
            self._finish(pod)

    @staticmethod
    def _condition() -> Object:
        return {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": now_text(),
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }

    def _renew(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": f"{now_text()[:-1]}.000000Z",
        }
        try:
            self.admin.patch(kubernetes_api.LEASES, name, {"spec": spec}, "kube-node-lease")
        except kubernetes_api.KubernetesError as error:
            if error.code != 404:
                raise
            body = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}
            self.admin.create(kubernetes_api.LEASES, body, "kube-node-lease")
        # As a kubelet, which leaves the conditions of others alone.
        status = {"status": {"conditions": [self._condition()]}}
        self.admin.patch_status(kubernetes_api.NODES, name, status, manager="kubelet")

    def _loop(self) -> None:
        beat = time.monotonic()
        while not self._stop.wait(POLL_SECONDS):
            try:
                if time.monotonic() - beat > HEARTBEAT_SECONDS:
                    beat = time.monotonic()
                    for name in list(self._names):
                        self._renew(name)
                for pod in self.admin.list(kubernetes_api.PODS, fields="spec.nodeName!="):
                    if pod["spec"]["nodeName"] in self._names:
                        self._serve(pod)
            except kubernetes_api.KubernetesError as error:
                if error.code not in (
                    0,
                    404,
                    409,
                ):  # no answer in time, gone, or changed since it was listed
                    self.problems.append(f"{error}: {error.why}")

    def _serve(self, pod: Object) -> None:
        uid, phase = pod["metadata"]["uid"], pod["status"].get("phase")
        if pod["metadata"].get("deletionTimestamp"):
            self._finish(pod)
        elif phase == "Pending":
            self._start(pod)
        elif phase == "Running" and uid in self._processes:
            process, began = self._processes[uid]
            limit = min(self.seconds, pod["spec"].get("activeDeadlineSeconds", self.seconds))
            if process.poll() is None and time.monotonic() - began > limit:
                self._end(uid)
                self._report(pod, "Failed", reason="DeadlineExceeded")
            elif process.poll() is not None:
                self._report(pod, "Succeeded" if process.returncode == 0 else "Failed")

    def _start(self, pod: Object) -> None:
        places = self._mount(pod)
        if places is None:
            return  # as a kubelet, which waits for the Secret
        for container in pod["spec"]["containers"]:
            if command := container.get("command"):
                self._run(pod, container, [*command, *container.get("args", ())], places)
        self._report(pod, "Running")

    def _mount(self, pod: Object) -> dict[str, str] | None:
        """Put Secrets and emptyDirs into folders; return the folder of each mount path."""
        folders = {}
        for volume in pod["spec"].get("volumes") or []:
            folder = self._folder / pod["metadata"]["uid"] / volume["name"]
            if "secret" in volume:
                secret = self.admin.find(
                    kubernetes_api.SECRETS,
                    volume["secret"]["secretName"],
                    pod["metadata"]["namespace"],
                )
                if secret is None and not volume["secret"].get("optional"):
                    return None
                folder.mkdir(parents=True, exist_ok=True)
                for key, value in (secret or {}).get("data", {}).items():
                    (folder / key).write_bytes(base64.b64decode(value))
            elif "emptyDir" in volume:
                folder.mkdir(parents=True, exist_ok=True)
            else:
                continue
            folders[volume["name"]] = folder
        return {
            mount["mountPath"]: str(folders[mount["name"]] / mount.get("subPath", ""))
            for container in pod["spec"]["containers"]
            for mount in container.get("volumeMounts") or []
            if mount["name"] in folders
        }

    def _run(
        self, pod: Object, container: Object, command: list[str], places: dict[str, str]
    ) -> None:
        # In one pass: the folders themselves are below /tmp.
        paths = "|".join(map(re.escape, sorted(places, key=len, reverse=True))) or "(?!)"

        def replace(text: str) -> str:
            return re.sub(paths, lambda match: places[match.group()], text)

        given = {
            variable["name"]: replace(variable["value"])
            if "value" in variable
            else pod["spec"]["nodeName"]
            for variable in container.get("env") or []
        }
        path = f"{self._programs}:{os.environ['PATH']}" if self._programs else os.environ["PATH"]
        folder = self._folder / pod["metadata"]["uid"]
        folder.mkdir(parents=True, exist_ok=True)
        self._processes[pod["metadata"]["uid"]] = (
            subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *map(replace, command)],
                env={"PATH": path, "HOME": str(folder), **given},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ),
            time.monotonic(),
        )

    def _report(self, pod: Object, phase: str, reason: str = "") -> None:
        ready = "True" if phase == "Running" else "False"
        kinds = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": ready, "Ready": ready}  # fmt: skip
        status = {
            "phase": phase,
            "reason": reason or None,
            "startTime": now_text(),
            "conditions": [{"type": kind, "status": value} for kind, value in kinds.items()],
        }
        metadata = pod["metadata"]
        change = {"metadata": {"uid": metadata["uid"]}, "status": status}
        self.admin.patch_status(
            kubernetes_api.PODS, metadata["name"], change, metadata["namespace"]
        )

    def _finish(self, pod: Object) -> None:
        self._end(pod["metadata"]["uid"])
        metadata = pod["metadata"]
        only = {"metadata": {"uid": metadata["uid"]}}
        self.admin.delete(
            kubernetes_api.PODS, metadata["name"], metadata["namespace"], only=only, grace_seconds=0
        )

    def _end(self, uid: str) -> None:
        if uid in self._processes:
            process, _ = self._processes.pop(uid)
            process.terminate()
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)
        for uid in list(self._processes):
            self._end(uid)
        self.admin.close()
        assert not self.problems, self.problems


@contextlib.contextmanager
def running(
    cluster: Cluster, folder: pathlib.Path, programs: pathlib.Path | None = None
) -> Iterator[Kubelets]:
    kubelets = Kubelets(cluster, folder, programs)
    kubelets.start()
    try:
        yield kubelets
    finally:
        for name in list(kubelets._names):
            kubelets.remove(name)
        kubelets.close()
