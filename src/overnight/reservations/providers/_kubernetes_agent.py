"""Pod of an agent on a reserved node, and the Secret with its token.

The same container as that of deploy/kubernetes/base/agent.yaml; a test compares them. It differs in what must not
stay: its data is in an emptyDir, and the pod ends when no lease can last longer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from overnight.model.reservation import LEASE_ID, MAX_SECONDS, Lease
from overnight.reservations.providers import _kubernetes_marks as marks
from overnight.reservations.providers import _kubernetes_pods as pods

if TYPE_CHECKING:
    from overnight import reservations

Object = dict[str, Any]

# Not the label of the DaemonSet: that would adopt the pod, and delete it.
NAME_LABEL = "app.kubernetes.io/name"
LABELS = {NAME_LABEL: "overnight-reserved-agent", **marks.PART_OF}
DAEMONSET = "overnight-agent"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOME, TOKENS, AUTHORITY = "/var/lib/overnight-agent", "/var/run/secrets/overnight", "/etc/overnight/ca"  # fmt: skip
TASKS = "lease.toml"  # in the Secret, and in a folder that only root can write
TASKS_PATH = f"/etc/overnight/{TASKS}"


def build_name(host: str, lease_id: str) -> str:
    """Return the name of the pod and of its Secret, for any text as id."""
    safe = lease_id if LEASE_ID.fullmatch(lease_id) else "unknown"
    return f"overnight-agent-{safe}-{hashlib.sha256(host.encode()).hexdigest()[:10]}"


def is_of_daemon_set(pod: Object) -> bool:
    """Return whether a pod is a running agent of deploy/kubernetes/base."""
    return (
        marks.labels_of(pod).get(NAME_LABEL) == DAEMONSET
        and pods.find_controller(pod) == "DaemonSet"
        and pod.get("status", {}).get("phase") == "Running"
        and not pod["metadata"].get("deletionTimestamp")
    )


def list_files(setup: reservations.AgentSetup) -> dict[str, str]:
    """Return the files of the Secret."""
    return {"token": setup.token, **({TASKS: setup.tasks.format()} if setup.tasks else {})}


def build_secret(pod: Object, files: Mapping[str, str]) -> Object:
    """Return the Secret; it goes with its pod, whoever deletes that."""
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": metadata["labels"],
            "ownerReferences": [owner],
        },
        "stringData": dict(files),
    }


def build_pod(
    host: str, namespace: str, image: str, lease: Lease, setup: reservations.AgentSetup
) -> Object:
    own = build_name(host, lease.id)
    here = {
        "matchExpressions": [{"key": marks.KEY, "operator": "In", "values": [lease.id]}],
        # The other nodes of the reservation have the same label.
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}],
    }
    environment: list[Object] = [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "OVERNIGHT_SERVER", "value": setup.server},
    ]
    volumes: list[tuple[str, str, bool, Object]] = [
        ("data", HOME, False, {"emptyDir": {"sizeLimit": "10Gi"}}),
        ("cgroups", "/sys/fs/cgroup", True, {"hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}}),
        ("tmp", "/tmp", False, {"emptyDir": {"sizeLimit": "1Gi"}}),  # noqa: S108  of the container
        ("tokens", TOKENS, True, {"secret": {"secretName": own, "defaultMode": 0o400}}),
    ]  # fmt: skip
    if setup.server.startswith("https://"):
        environment.append({"name": "SSL_CERT_FILE", "value": f"{AUTHORITY}/ca.crt"})
        authority = {"secret": {"secretName": "overnight-ca", "defaultMode": 0o444}}
        volumes.append(("ca", AUTHORITY, True, authority))
    mounts: list[Object] = [
        {"name": volume, "mountPath": path, **({"readOnly": True} if fixed else {})}
        for volume, path, fixed, _ in volumes
    ]
    # As a file of its own: the files of a whole Secret are links, which the agent refuses.
    if setup.tasks:
        mounts.append({"name": "tokens", "mountPath": TASKS_PATH, "subPath": TASKS, "readOnly": True})  # fmt: skip
    container = {
        "name": "agent",
        "image": image,
        "command": [
            "overnight",
            f"--home={HOME}",
            "agent",
            f"--token-file={TOKENS}/token",
            *setup.options(TASKS_PATH),
        ],
        "env": environment,
        "resources": {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            # A load uses the cores of the node.
            "limits": {**({} if setup.tasks else {"cpu": "1"}), "memory": "2Gi"},
        },
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["PERFMON", "SYSLOG", "SYS_PTRACE"]},
        },
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": own,
            "namespace": namespace,
            "labels": {**LABELS, marks.KEY: lease.id},
            "annotations": {marks.NODE: host},
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostPID": True,
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [here]}}},
            "tolerations": [{"key": marks.KEY, "operator": "Equal", "value": lease.id}],
            "restartPolicy": "OnFailure",
            # If nothing deletes it. The API refuses to raise it, so it is later than any extended lease.
            "activeDeadlineSeconds": MAX_SECONDS,
            "terminationGracePeriodSeconds": 60,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [{"name": volume, **source} for volume, _, _, source in volumes],
        },
    }
