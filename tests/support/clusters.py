"""A real control plane for tests (scripts/kubernetes): API server, controllers and scheduler, no nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/kubernetes"


@dataclasses.dataclass(frozen=True)
class Cluster:
    kubeconfig: pathlib.Path
    programs: pathlib.Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a shell in which `kubectl` is that of the cluster, and writes to its folder alone."""
        return {
            **os.environ,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self.kubeconfig.parent),
        }

    def kubectl(self, *arguments: str | pathlib.Path, text: str = "") -> str:
        """Run kubectl with that text as its input; return its output."""
        process = self.try_kubectl(*arguments, text=text)
        assert process.returncode == 0, (arguments, process.stderr)
        return process.stdout

    def try_kubectl(
        self, *arguments: str | pathlib.Path, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", *arguments],
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def get(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the objects that `kubectl get` lists."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "-o", "json", *arguments))[
            "items"
        ]
        return found

    def create_node(
        self,
        name: str,
        taints: list[dict[str, str]] | None = None,
        labels: dict[str, str] | None = None,
    ) -> None:
        """Create a Node without a kubelet. It stays Ready, and its pods stay Pending."""
        sizes = {"cpu": "8", "memory": "16Gi", "pods": "50"}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", **(labels or {})}},
            "spec": {"taints": taints or []},
            "status": {
                "capacity": sizes,
                "allocatable": sizes,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
            },
        }
        self.kubectl("create", "-f", "-", text=json.dumps(node))


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """Start a control plane from the cache. It ends with this process, even if that is killed."""
    path = subprocess.run([SCRIPT, "path"], capture_output=True, text=True, check=True)
    folder = tempfile.mkdtemp(prefix="overnight-cluster-")
    with subprocess.Popen(
        [SCRIPT, "run", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        kubeconfig = process.stdout.readline().strip()
        assert kubeconfig, "scripts/kubernetes run failed"
        yield Cluster(pathlib.Path(kubeconfig), pathlib.Path(path.stdout.strip()))
    assert process.returncode == 0
    assert not pathlib.Path(folder).exists()
