"""One cluster for all tests of reservations on Kubernetes in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import kube_reservations
import pytest

if TYPE_CHECKING:
    import nodes


@pytest.fixture(scope="session")
def kubernetes_site(
    cluster: nodes.Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kube_reservations.Site]:
    """Create the accounts of deploy/kubernetes/reservations; modules add their nodes."""
    with kube_reservations.running(cluster, tmp_path_factory.mktemp("site")) as site:
        yield site
