"""The manifests of deploy/kubernetes: references resolve, and containers have what they need and no more."""

from __future__ import annotations

import copy
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from overnight import __version__

REPOSITORY = pathlib.Path(__file__).parents[2]
FOLDER = REPOSITORY / "deploy/kubernetes"
DOCUMENT = (REPOSITORY / "docs/deployment.md").read_text()
UNIT = (REPOSITORY / "src/overnight/app/unit_files/host_access.conf").read_text()
Manifest = dict[str, Any]


def read(path: pathlib.Path) -> Manifest:
    document = yaml.safe_load(path.read_text())
    assert isinstance(document, dict)
    return document


BASE = read(FOLDER / "base/kustomization.yaml")
MANIFESTS: list[Manifest] = [
    manifest
    for name in BASE["resources"]
    for manifest in yaml.safe_load_all((FOLDER / "base" / name).read_text())
]


def find(kind: str, name: str, namespace: str | None = None) -> Manifest:
    (found,) = [
        m
        for m in MANIFESTS
        if (m["kind"], m["metadata"]["name"]) == (kind, name)
        and namespace in (None, m["metadata"].get("namespace"))
    ]
    return found


WORKLOADS = {
    "server": find("Deployment", "overnight-server"),
    "agent": find("DaemonSet", "overnight-agent"),
}


def pod_of(name: str) -> Manifest:
    pod = WORKLOADS[name]["spec"]["template"]["spec"]
    assert isinstance(pod, dict)
    return pod


def secrets_of(value: object) -> Iterator[str]:
    """Yield the names of all secrets below a value."""
    if isinstance(value, dict):
        for key, below in value.items():
            if key == "secretName":
                yield below
            elif key in ("secretKeyRef", "secretRef"):
                yield below["name"]
            else:
                yield from secrets_of(below)
    elif isinstance(value, list):
        for below in value:
            yield from secrets_of(below)


def test_every_file_is_part_of_the_base_and_every_object_has_its_namespace() -> None:
    files = {path.name for path in (FOLDER / "base").glob("*.yaml")}
    assert files == {*BASE["resources"], "kustomization.yaml"}
    keys = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in MANIFESTS]
    assert len(set(keys)) == len(keys)
    namespaces = {m["metadata"]["name"] for m in MANIFESTS if m["kind"] == "Namespace"}
    for manifest in MANIFESTS:
        assert set(manifest) <= {
            "apiVersion",
            "kind",
            "metadata",
            "spec",
            "automountServiceAccountToken",
        }
        if manifest["kind"] != "Namespace":
            assert manifest["metadata"]["namespace"] in namespaces
    assert "Secret" not in {m["kind"] for m in MANIFESTS}


def test_images_have_the_version_of_the_package() -> None:
    (image,) = BASE["images"]
    assert image["newTag"] == __version__
    for name in WORKLOADS:
        assert [c["image"] for c in pod_of(name)["containers"]] == [image["name"]]


@pytest.mark.parametrize("name", WORKLOADS)
def test_references_of_a_workload_resolve(name: str) -> None:
    workload, pod = WORKLOADS[name], pod_of(name)
    namespace = workload["metadata"]["namespace"]
    selector = workload["spec"]["selector"]["matchLabels"]
    assert selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    account = find("ServiceAccount", pod["serviceAccountName"], namespace)
    assert account["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is False
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert len(volumes) == len(pod["volumes"])
    (container,) = pod["containers"]
    mounted = [mount["name"] for mount in container["volumeMounts"]]
    assert sorted(mounted) == sorted(volumes)
    for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
            find("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"], namespace)
    ports = {port["name"] for port in container.get("ports", ())}
    probes = [container[key]["httpGet"]["port"] for key in container if key.endswith("Probe")]
    assert set(probes) <= ports
    variables = set(re.findall(r"\$\((\w+)\)", " ".join(container["command"])))
    assert variables <= {variable["name"] for variable in container["env"]}
    # Secrets are not part of the base: the document creates each of them in its namespace.
    for secret in secrets_of(pod):
        assert re.search(rf"kubectl -n {namespace} create secret \w+ {secret}\b", DOCUMENT), secret
    # A command line is readable by every process of a node.
    assert not re.search("postgresql://|ovn_", " ".join(container["command"]))


def test_the_service_selects_the_server_and_policies_let_agents_reach_it() -> None:
    service, pod = find("Service", "overnight-server"), pod_of("server")
    labels = WORKLOADS["server"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (port,) = service["spec"]["ports"]
    (container,) = pod["containers"]
    assert port["targetPort"] in {p["name"] for p in container["ports"]}
    policy = find("NetworkPolicy", "overnight-server")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["ingress"] == [{"ports": [{"port": port["port"], "protocol": "TCP"}]}]
    (agent,) = pod_of("agent")["containers"]
    server = {v["name"]: v.get("value") for v in agent["env"]}["OVERNIGHT_SERVER"]
    namespace = service["metadata"]["namespace"]
    assert server == f"https://{service['metadata']['name']}.{namespace}.svc:{port['port']}"
    for name in (m["metadata"]["name"] for m in MANIFESTS if m["kind"] == "Namespace"):
        rest = find("NetworkPolicy", "deny-the-rest", name)["spec"]
        assert rest == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@pytest.mark.parametrize("name", WORKLOADS)
def test_containers_are_limited_and_cannot_gain_privileges(name: str) -> None:
    pod = pod_of(name)
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"]["drop"] == ["ALL"]
    assert "privileged" not in security
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}


def test_the_server_meets_the_restricted_profile() -> None:
    pod = pod_of("server")
    assert find("Namespace", "overnight")["metadata"]["labels"][
        "pod-security.kubernetes.io/enforce"
    ] == ("restricted")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(pod)
    (container,) = pod["containers"]
    assert "add" not in container["securityContext"]["capabilities"]
    assert {key for volume in pod["volumes"] for key in volume} <= {
        "name", "emptyDir", "persistentVolumeClaim", "secret",
    }  # fmt: skip
    paths = {probe: container[probe]["httpGet"]["path"] for probe in container if "Probe" in probe}
    assert paths == {
        "startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz",
    }  # fmt: skip


def test_the_data_home_of_the_server_is_not_a_volume() -> None:
    """A kubelet makes an emptyDir with mode 2777: the server refused it as its data home, and did not start."""
    (container,) = pod_of("server")["containers"]
    (home,) = (w.partition("=")[2] for w in container["command"] if w.startswith("--home="))
    above = {str(path) for path in (pathlib.PurePath(home), *pathlib.PurePath(home).parents)}
    assert not above & {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_agent_has_the_capabilities_of_the_unit_and_stays_on_leased_nodes() -> None:
    pod = pod_of("agent")
    (container,) = pod["containers"]
    added = [f"CAP_{name}" for name in container["securityContext"]["capabilities"]["add"]]
    assert f"\nCapabilityBoundingSet={' '.join(added)}\n" in UNIT
    assert pod["tolerations"] == [{"key": "overnight.dev/lease", "operator": "Exists"}]
    assert (pod["hostPID"], pod["hostNetwork"]) == (True, True)
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    writable = {
        volume["hostPath"]["path"]
        for volume in pod["volumes"]
        if "hostPath" in volume and not mounts[volume["name"]].get("readOnly")
    }
    assert writable == {"/var/lib/overnight-agent"}


def test_the_overlay_for_the_kernel_log_changes_only_the_agent() -> None:
    overlay = read(FOLDER / "kernel-log/kustomization.yaml")
    assert overlay["resources"] == ["../base"]
    (patch,) = overlay["patches"]
    assert patch["target"] == {"kind": "DaemonSet", "name": "overnight-agent"}
    patched = copy.deepcopy(WORKLOADS["agent"])
    for step in yaml.safe_load(patch["patch"]):
        *path, last = step["path"].lstrip("/").split("/")
        target: Any = patched
        for key in path:
            target = target[int(key) if isinstance(target, list) else key]
        if step["op"] == "add" and last == "-":
            target.append(step["value"])
        else:
            assert (step["op"], last in target) == ("replace", True)
            target[last] = step["value"]
    pod = patched["spec"]["template"]["spec"]
    assert pod["containers"][0]["securityContext"]["privileged"] is True
    names = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == names


def test_the_overlay_for_node_events_gives_the_token_to_the_second_container_alone() -> None:
    overlay = read(FOLDER / "node-events/kustomization.yaml")
    assert overlay["resources"] == ["../base", "rights.yaml"]
    assert overlay["images"] == BASE["images"]
    (file,) = overlay["patches"]
    patch = read(FOLDER / "node-events" / file["path"])
    assert patch["metadata"] == {
        key: WORKLOADS["agent"]["metadata"][key] for key in ("name", "namespace")
    }
    pod = patch["spec"]["template"]["spec"]
    assert set(pod) == {"serviceAccountName", "containers", "volumes"}
    (container,) = pod["containers"]
    assert container["name"] not in {c["name"] for c in pod_of("agent")["containers"]}
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    known = {volume["name"] for volume in pod_of("agent")["volumes"]}
    (account,) = pod["volumes"]
    assert account["name"] not in known
    assert {m["name"] for m in container["volumeMounts"]} == {"data", account["name"]}
    assert {key for source in account["projected"]["sources"] for key in source} == {
        "serviceAccountToken", "configMap", "downwardAPI",
    }  # fmt: skip
    rights = list(yaml.safe_load_all((FOLDER / "node-events/rights.yaml").read_text()))
    rules = [rule for manifest in rights for rule in manifest.get("rules", ())]
    assert {(r, verb) for rule in rules for r in rule["resources"] for verb in rule["verbs"]} == {
        ("nodes", "get"), ("nodes/status", "patch"),
        ("events", "get"), ("events", "create"), ("events", "patch"),
    }  # fmt: skip
    subjects = [s for m in rights for s in m.get("subjects", ())]
    assert {(s["name"], s["namespace"]) for s in subjects} == {
        (pod["serviceAccountName"], "overnight-agents")
    }
