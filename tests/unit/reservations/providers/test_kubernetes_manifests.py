"""deploy/kubernetes/reservations: no right too many, and a janitor of the restricted profile."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import yaml

from overnight import __version__

REPOSITORY = pathlib.Path(__file__).parents[4]
FOLDER = REPOSITORY / "deploy/kubernetes/reservations"
DOCUMENT = (REPOSITORY / "docs/reservations-kubernetes.md").read_text()
RIGHTS: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "rights.yaml").read_text()))
JANITOR: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "janitor.yaml").read_text()))


def rights() -> set[tuple[str, str, str, tuple[str, ...]]]:
    return {
        (
            item["metadata"]["name"].removeprefix("overnight-"),
            item["metadata"].get("namespace", ""),
            resource,
            tuple(rule["verbs"]),
        )
        for item in RIGHTS
        for rule in item.get("rules", ())
        for resource in rule["resources"]
    }


def test_rights_are_as_documented() -> None:
    rows = re.findall(r"^\| `(\S+)` \| (\S+) \| ([a-z, ]+) \| ([a-z, ]+|-) \|", DOCUMENT, re.MULTILINE)  # fmt: skip
    documented = set()
    for resource, where, *verbs in rows:
        for account, text in zip(("reserver", "janitor"), verbs, strict=True):
            if text != "-":
                namespace = "" if where == "cluster" else where.strip("`")
                documented.add((account, namespace, resource, tuple(text.split(", "))))
    assert documented == rights()


def test_nobody_may_delete_nodes_or_pods_of_others_or_read_secrets() -> None:
    for _, namespace, resource, verbs in rights():
        assert "*" not in (resource, *verbs)
        assert not {"update", "deletecollection", "escalate", "bind", "impersonate"} & {*verbs}
        if resource == "secrets":
            assert not {"get", "list", "watch"} & {*verbs}
        if not namespace:
            assert "delete" not in verbs


def test_every_role_is_bound_to_its_account_alone() -> None:
    bindings = [item for item in RIGHTS if item["kind"].endswith("Binding")]
    roles = [item for item in RIGHTS if item["kind"] in ("Role", "ClusterRole")]
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert subject["name"] == binding["roleRef"]["name"] == binding["metadata"]["name"]
        assert subject["namespace"] == "overnight"
    keys = [(b["roleRef"]["kind"], b["metadata"]["name"], b["metadata"].get("namespace")) for b in bindings]  # fmt: skip
    assert sorted(keys, key=str) == sorted(
        ((r["kind"], r["metadata"]["name"], r["metadata"].get("namespace")) for r in roles), key=str
    )


def test_the_janitor_meets_the_restricted_profile_and_does_not_overlap() -> None:
    job, policy = JANITOR
    assert (job["apiVersion"], job["spec"]["concurrencyPolicy"]) == ("batch/v1", "Forbid")
    template = job["spec"]["jobTemplate"]["spec"]["template"]
    pod = template["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["command"][0] == "overnight"
    assert container["command"][2:] == ["janitor", "--provider=kubernetes"]
    assert {key for volume in pod["volumes"] for key in volume} == {"name", "emptyDir"}
    selector = policy["spec"]["podSelector"]["matchLabels"]
    assert selector.items() <= template["metadata"]["labels"].items()


def test_the_image_has_the_version_of_the_package() -> None:
    (image,) = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["images"]
    assert image["newTag"] == __version__


def test_the_server_of_the_overlay_is_that_of_the_base_with_rights() -> None:
    overlay = FOLDER.parent / "reservations-server"
    made = yaml.safe_load((overlay / "kustomization.yaml").read_text())
    assert made["resources"] == ["../base", "../reservations", "network.yaml"]
    assert made["patches"] == [{"path": "server.yaml"}]
    assert made["images"][0]["newTag"] == __version__
    base = FOLDER.parent / "base/server.yaml"
    (server,) = (m for m in yaml.safe_load_all(base.read_text()) if m["kind"] == "Deployment")
    policy = yaml.safe_load((overlay / "network.yaml").read_text())["spec"]
    assert policy["podSelector"]["matchLabels"] == server["spec"]["selector"]["matchLabels"]
    assert policy["policyTypes"] == ["Egress"]
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {443, 6443}
