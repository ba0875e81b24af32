"""deploy/kubernetes on a real API server: objects are accepted, agents get their nodes, accounts have no rights."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import clusters
import pytest
import yaml

REPOSITORY = pathlib.Path(__file__).parents[2]
FOLDER = REPOSITORY / "deploy/kubernetes"
DOCUMENT = (REPOSITORY / "docs/deployment.md").read_text()
ACCOUNTS = [("overnight", "overnight-server"), ("overnight-agents", "overnight-agent")]
pytestmark = pytest.mark.needs_kubernetes


def list_names(output: str) -> set[str]:
    """Return the objects that `kubectl apply` names in its output."""
    return {line.split()[0] for line in output.splitlines()}


@pytest.fixture(scope="module")
def base(cluster: clusters.Cluster) -> str:
    """The base as kustomize renders it, after its namespaces exist: a dry run does not create them."""
    cluster.kubectl("apply", "-f", FOLDER / "base/namespaces.yaml")
    return cluster.kubectl("kustomize", FOLDER / "base")


@pytest.fixture(scope="module")
def installed(
    cluster: clusters.Cluster, base: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[clusters.Cluster]:
    """The cluster after the commands of docs/deployment.md."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "deploy").symlink_to(REPOSITORY / "deploy")
    (folder / "url").write_text("postgresql://overnight@database/overnight")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=overnight",
            "-keyout",
            "tls.key",
            "-out",
            "tls.crt",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    (folder / "ca.crt").write_bytes((folder / "tls.crt").read_bytes())
    section = DOCUMENT.partition("\n## Kubernetes\n")[2]
    block = section.partition("```\n")[2].partition("```")[0]
    commands = re.findall(r"^\$ (.+)$", block, re.MULTILINE)
    assert commands[-1] == "kubectl apply -k deploy/kubernetes/base"
    subprocess.run(
        ["bash", "-euc", "\n".join(commands)], cwd=folder, env=cluster.environment, check=True
    )
    yield cluster
    # Not the namespaces: other tests have accounts there.
    own = [item for item in yaml.safe_load_all(base) if item["kind"] != "Namespace"]
    cluster.kubectl("delete", "--wait=false", "-f", "-", text=yaml.safe_dump_all(own))
    cluster.kubectl("delete", "--wait=false", "nodes", "--all")
    for namespace in ("overnight", "overnight-agents"):
        # No kubelet would end them.
        cluster.kubectl("delete", "-n", namespace, "pods", "--all", "--force", "--grace-period=0")
        cluster.kubectl("delete", "-n", namespace, "secrets", "--field-selector=type!=kubernetes.io/service-account-token")  # fmt: skip


def test_the_document_names_the_version(cluster: clusters.Cluster) -> None:
    server = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]
    assert f"scheduler {server['gitVersion'].removeprefix('v')}," in DOCUMENT


def test_the_base_passes_a_server_side_dry_run(cluster: clusters.Cluster, base: str) -> None:
    output = cluster.kubectl("apply", "--dry-run=server", "-f", "-", text=base)
    assert len(output.splitlines()) == len(list(yaml.safe_load_all(base))) == 11
    assert {"deployment.apps/overnight-server", "daemonset.apps/overnight-agent"} < list_names(
        output
    )
    assert all(line.endswith("(server dry run)") for line in output.splitlines())


def test_the_overlay_for_the_kernel_log_passes_a_server_side_dry_run(
    cluster: clusters.Cluster, base: str
) -> None:
    # kubectl 1.20 has kustomize 2.0, which does not know `patches`; it applies the same patch to one object.
    (change,) = yaml.safe_load((FOLDER / "kernel-log/kustomization.yaml").read_text())["patches"]
    (agent,) = (m for m in yaml.safe_load_all(base) if m["kind"] == change["target"]["kind"])
    patched = cluster.kubectl(
        *("patch", "--local", "-f", "-", "-o", "yaml", "--type=json", "-p", change["patch"]),
        text=yaml.safe_dump(agent),
    )
    container = yaml.safe_load(patched)["spec"]["template"]["spec"]["containers"][0]
    assert container["securityContext"]["privileged"] is True
    assert "/dev/kmsg" in {mount["mountPath"] for mount in container["volumeMounts"]}
    output = cluster.kubectl("apply", "--dry-run=server", "-f", "-", text=patched)
    assert list_names(output) == {"daemonset.apps/overnight-agent"}


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("readOnlyRootFileSystem", "readOnlyRootFilesystem", "unknown field"),
        ("runAsUser: -1", "runAsUser: 10001", "must be between 0"),
        ("name: Blobs", "name: blobs", "Invalid value"),
        ("volume: tmp", "name: tmp", "unknown field"),
    ],
)
def test_a_dry_run_refuses_mistakes(
    cluster: clusters.Cluster, base: str, wrong: str, right: str, message: str
) -> None:
    assert right in base
    process = cluster.try_kubectl(
        "apply", "--dry-run=server", "-f", "-", text=base.replace(right, wrong)
    )
    assert process.returncode != 0
    assert message in process.stderr


def test_agents_get_their_nodes_and_the_server_its_replicas(installed: clusters.Cluster) -> None:
    def list_pods(namespace: str) -> list[dict[str, Any]]:
        return installed.get("pods", "-n", namespace)

    def agents_are_on(*names: str) -> bool:
        nodes = sorted(str(pod["spec"].get("nodeName")) for pod in list_pods("overnight-agents"))
        (agents,) = installed.get("daemonsets", "-n", "overnight-agents")
        return nodes == sorted(names) and agents["status"]["desiredNumberScheduled"] == len(names)

    def are_ready() -> bool:
        taints = [t["key"] for n in installed.get("nodes") for t in n["spec"].get("taints", ())]
        return "node.kubernetes.io/not-ready" not in taints

    lease = {"key": "overnight.dev/lease", "value": "claim-7"}
    other = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}
    installed.create_node("dedicated", [other])
    installed.create_node("windows", labels={"kubernetes.io/os": "windows"})
    installed.create_node("leased", [{**lease, "effect": "NoSchedule"}])
    installed.create_node("emptied", [{**lease, "effect": "NoExecute"}])
    clusters.wait_until(lambda: agents_are_on("leased", "emptied"), "agents on leased nodes")
    clusters.wait_until(are_ready, "nodes without the taint of new nodes")
    # Events of nodes come in order: with an agent on the last one, the controller has seen the others.
    installed.create_node("plain")
    clusters.wait_until(
        lambda: agents_are_on("leased", "emptied", "plain"), "an agent on a plain node"
    )
    installed.kubectl("taint", "node", "dedicated", f"{other['key']}-")
    clusters.wait_until(
        lambda: agents_are_on("leased", "emptied", "plain", "dedicated"),
        "an agent where the other taint is gone",
    )
    clusters.wait_until(lambda: len(list_pods("overnight")) == 2, "two servers")
    # No pod has a token for the API server.
    for pod in list_pods("overnight-agents") + list_pods("overnight"):
        volumes = [volume for volume in pod["spec"]["volumes"] if "secret" in volume]
        assert not [v for v in volumes if "token" in v["secret"]["secretName"].split("-")], pod
        (container,) = pod["spec"]["containers"]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert "/var/run/secrets/kubernetes.io/serviceaccount" not in mounts


def list_rights(cluster: clusters.Cluster, account: str, namespace: str) -> set[str]:
    output = cluster.kubectl(
        "auth", "can-i", "--list", "--no-headers", "-n", namespace, f"--as=system:serviceaccount:{account}"
    )  # fmt: skip
    return {" ".join(line.split()) for line in output.splitlines()}


@pytest.mark.parametrize(("namespace", "account"), ACCOUNTS)
def test_accounts_have_the_rights_of_every_account(
    installed: clusters.Cluster, namespace: str, account: str
) -> None:
    for where in (namespace, "default", "kube-system"):
        rights = list_rights(installed, f"{namespace}:{account}", where)
        # What every account may ask: what am I allowed to do; and the version and health of the server.
        resources = {right for right in rights if not right.startswith("[")}
        assert resources == {
            "selfsubjectaccessreviews.authorization.k8s.io [] [] [create]",
            "selfsubjectrulesreviews.authorization.k8s.io [] [] [create]",
        }
        assert {right.rsplit(" ", 1)[1] for right in rights - resources} == {"[get]"}
        assert rights == list_rights(installed, "default:default", where)
    # The question finds rights where there are some.
    controller = list_rights(installed, "kube-system:daemon-set-controller", namespace)
    assert any(right.startswith("pods ") for right in controller)
