"""Address and credentials of an API server: from a kubeconfig, or from the service account of this pod."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from typing import TYPE_CHECKING

from overnight import errors, kubernetes_api

if TYPE_CHECKING:
    from lightkube.config import kubeconfig

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT = "~/.kube/config"


def require_lightkube() -> None:
    if importlib.util.find_spec("lightkube") is None:
        raise errors.CannotError(
            "Kubernetes needs lightkube, which is not installed",
            why="only Kubernetes needs it, so it is an optional dependency",
            todo="pip install 'overnight[kubernetes]'",
        )


def find_configuration(context: str = "") -> kubeconfig.SingleConfig:
    """Return the configuration of a context; '': KUBECONFIG, then this pod's account, then ~/.kube/config."""
    require_lightkube()
    from lightkube.config import kubeconfig

    given = os.environ.get("KUBECONFIG", "")
    if not (context or given) and (ACCOUNT / "token").exists():
        return _choose([kubeconfig.KubeConfig.from_service_account(ACCOUNT)], "", "this pod")
    # Like kubectl: several files, and those that do not exist are left out.
    named = (given or DEFAULT).split(os.pathsep)
    paths = [path for name in named if (path := pathlib.Path(name).expanduser()).is_file()]
    if not paths:
        why = (
            f"{' and '.join(filter(None, named))} does not exist, and this process is not in a pod"
        )
        raise _unusable("no cluster is configured", why, "export KUBECONFIG=FILE")
    return _choose([_read(path) for path in paths], context, " and ".join(map(str, paths)))


def _read(path: pathlib.Path) -> kubeconfig.KubeConfig:
    import msgspec
    import yaml
    from lightkube.config import kubeconfig

    try:
        return kubeconfig.KubeConfig.from_file(path)
    except OSError as error:
        raise errors.unreadable(path, error, f"ls -l {path}") from None
    except (yaml.YAMLError, msgspec.ValidationError, KeyError, TypeError, AttributeError) as error:
        why = f"it is not a kubeconfig ({type(error).__name__}: {error})"
        todo = f"kubectl --kubeconfig {path} config view"
        raise _unusable(f"cannot use {path}", why, todo) from None


def _choose(
    files: list[kubeconfig.KubeConfig], context: str, where: str
) -> kubeconfig.SingleConfig:
    from lightkube.config import models

    current = context or next((f.current_context for f in files if f.current_context), "")
    file = next((f for f in files if current in f.contexts), None)
    if file is None:
        names = sorted(name for file in files for name in file.contexts)
        what = f"context {current} does not exist" if current else "no context is current"
        why = f"{where} has {', '.join(names) or 'no context'}"
        raise _unusable(what, why, "kubectl config get-contexts")
    try:
        config = file.get(current)
    except KeyError as error:
        why = f"{where} does not have {error}, which the context names"
        raise _unusable(f"cannot use context {current}", why, "kubectl config view") from None
    assert config is not None
    # lightkube asserts that there is a user; an anonymous one has no credentials.
    user = config.user or models.User()
    if user.exec and user.exec.apiVersion == "client.authentication.k8s.io/v1":
        # lightkube 1.0 knows v1beta1 alone; the answer of v1 is the same.
        user.exec.apiVersion = "client.authentication.k8s.io/v1beta1"
    if user.auth_provider:
        why = f"{where} uses auth-provider, which Kubernetes removed in 1.26"
        raise _unusable(f"cannot log in to context {current}", why, "use an exec plug-in")
    return config._replace(user=user)


def _unusable(what: str, why: str, todo: str) -> kubernetes_api.KubernetesError:
    return kubernetes_api.KubernetesError(what, why=why, todo=todo)
