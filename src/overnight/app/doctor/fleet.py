"""Check credentials for reserving other hosts. Reads files only; makes no network calls."""

from __future__ import annotations

import pathlib
import shutil
from typing import TYPE_CHECKING

from overnight.model.checkup import Check, Question

if TYPE_CHECKING:
    from overnight.app import doctor

GROUP = "Machines and fleet"
ORDER = 5

KUBERNETES = Question("kubernetes", "Kubernetes", "reserves nodes of a cluster", optional=True)
AWS = Question("aws", "AWS", "reserves EC2 instances and ECS hosts", optional=True)


def checks(host: doctor.Surroundings) -> tuple[Check, ...]:
    return _kubernetes(host), _aws(host)


def _kubernetes(host: doctor.Surroundings) -> Check:
    kubectl = shutil.which("kubectl")
    named = [pathlib.Path(p) for p in host.environ.get("KUBECONFIG", "").split(":") if p]
    files = named or [_user_home(host) / ".kube/config"]
    token = host.root / "var/run/secrets/kubernetes.io/serviceaccount/token"
    source = next((str(file) for file in [*files, token] if _readable(file)), None)
    if source is None:
        return KUBERNETES.missing(
            "no credentials" if kubectl else "no kubectl, no credentials",
            "export KUBECONFIG=/path/to/kubeconfig",
            kubectl=kubectl,
        )
    if kubectl is None:
        return KUBERNETES.degraded(
            f"credentials in {source}, no kubectl",
            "install kubectl to inspect the cluster",
            credentials=source,
        )
    return KUBERNETES.ok(f"credentials in {source}", credentials=source, kubectl=kubectl)


def _aws(host: doctor.Surroundings) -> Check:
    source = _aws_credentials(host)
    if source is None:
        return AWS.missing(
            "no credentials", "aws configure sso   (on EC2 the instance role is used)"
        )
    return AWS.ok(f"credentials in {source}", credentials=source)


def _aws_credentials(host: doctor.Surroundings) -> str | None:
    if host.environ.get("AWS_ACCESS_KEY_ID") and host.environ.get("AWS_SECRET_ACCESS_KEY"):
        return "the environment"
    if host.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return "a web identity token"
    files = (
        host.environ.get("AWS_SHARED_CREDENTIALS_FILE") or _user_home(host) / ".aws/credentials",
        host.environ.get("AWS_CONFIG_FILE") or _user_home(host) / ".aws/config",
    )
    return next((str(file) for file in files if _readable(pathlib.Path(file))), None)


def _user_home(host: doctor.Surroundings) -> pathlib.Path:
    return pathlib.Path(host.environ.get("HOME") or "/nonexistent")


def _readable(file: pathlib.Path) -> bool:
    """Whether the file can be opened; not if its folder is closed to this user."""
    try:
        with file.open("rb"):
            return True
    except OSError:
        return False
