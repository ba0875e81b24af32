"""scripts/kubernetes: builds leave a whole cache or none, and a control plane leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator

import clusters
import pytest

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
# Stand-ins for apt-get, dpkg and Go: the recipe itself takes minutes. Go waits while $HOLD exists.
APT_GET = """
case "$*" in
*source*) mkdir -p kubernetes/pkg && echo '// +k8s:openapi-gen=true' > kubernetes/pkg/types.go
  mkdir -p kubernetes/{cmd,staging/src/k8s.io,vendor/k8s.io,vendor/github.com/modern-go/reflect2}
  tar czf kubernetes_1.20.5+really1.20.2.orig.tar.gz kubernetes ;;
*download*) touch all.deb ;;
esac
"""
DPKG = """
mkdir -p root/usr/{bin,lib/go-1.19/bin,share/gocode/src/github.com/modern-go/reflect2}
touch root/usr/share/gocode/src/github.com/modern-go/reflect2/x.{go,s}
cp "$TOOLS/etcd" root/usr/bin/
cp "$TOOLS/go" root/usr/lib/go-1.19/bin/
"""
GO = """
while (( $# )) && [ "$1" != -o ]; do shift; done
if [[ $2 == */ ]]; then
  echo compiled >> "$TOOLS/log"
  while [ -e "$TOOLS/hold" ]; do sleep 0.05; done
  [ ! -e "$TOOLS/broken" ] || { echo 'undefined: compiler' >&2; exit 1; }
  to=$2; shift 2
  for package; do cp "$TOOLS/etcd" "$to$(basename "$package")"; done
else
  printf '#!/bin/bash\\nmkdir -p pkg/generated/openapi; touch pkg/generated/openapi/zz_generated.openapi.go\\n' > "$2"
  chmod +x "$2"
fi
"""


class Builder:
    def __init__(self, folder: pathlib.Path) -> None:
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name, text in {"apt-get": APT_GET, "dpkg": DPKG, "go": GO, "etcd": ""}.items():
            (self.tools / name).write_text(f"#!/bin/bash\nset -e\n{text}")
            (self.tools / name).chmod(0o755)
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.environment = {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "TOOLS": str(self.tools),
            "PATH": f"{self.tools}:{os.environ['PATH']}",
        }

    def start(self, verb: str = "build") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [clusters.SCRIPT, verb],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def run(self, verb: str = "build") -> tuple[int, str, str]:
        process = self.start(verb)
        output, errors = process.communicate(timeout=60)
        return process.returncode, output.strip(), errors

    def count_compiled(self) -> int:
        log = self.tools / "log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def list_files(self) -> list[str]:
        (folder,) = self.temporary.iterdir()
        return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


@pytest.fixture
def builder(tmp_path: pathlib.Path) -> Builder:
    return Builder(tmp_path)


def test_a_build_fills_the_cache_once(builder: Builder) -> None:
    status, _, errors = builder.run("path")
    assert (status, "scripts/kubernetes build" in errors) == (3, True)
    status, cache, _ = builder.run()
    assert status == 0
    assert {path.name for path in pathlib.Path(cache).iterdir()} == {*PROGRAMS, "kubectl"}
    assert builder.list_files() == [pathlib.Path(cache).name]
    assert builder.run("path") == builder.run() == (0, cache, "")
    assert builder.count_compiled() == 1
    # A cleaner of the temp folder removed a file.
    (pathlib.Path(cache) / "kubectl").unlink()
    assert builder.run("path")[0] == 3
    assert builder.run()[:2] == (0, cache)
    assert builder.count_compiled() == 2


def test_a_second_build_waits_for_the_first(builder: Builder) -> None:
    (builder.tools / "hold").touch()
    builds = [builder.start() for _ in range(3)]
    clusters.wait_until(lambda: builder.count_compiled() == 1, "a compiler")
    assert builder.run("path")[0] == 3
    (builder.tools / "hold").unlink()
    assert len({build.communicate(timeout=60)[0] for build in builds}) == 1
    assert [build.returncode for build in builds] == [0, 0, 0]
    assert builder.count_compiled() == 1


@pytest.mark.parametrize("everything", [True, False], ids=["with compilers", "shell alone"])
def test_a_killed_build_leaves_no_cache(builder: Builder, everything: bool) -> None:
    (builder.tools / "hold").touch()
    build = builder.start()
    clusters.wait_until(lambda: builder.count_compiled() == 1, "a compiler")
    (os.killpg if everything else os.kill)(build.pid, signal.SIGKILL)
    assert build.wait(timeout=60) == -signal.SIGKILL
    assert builder.run("path")[0] == 3
    (builder.tools / "hold").unlink()
    status, cache, _ = builder.run()
    assert (status, builder.list_files()) == (0, [pathlib.Path(cache).name])
    assert builder.count_compiled() == 2
    build.communicate(timeout=60)


def test_a_failed_build_shows_why_and_leaves_its_log(builder: Builder) -> None:
    (builder.tools / "broken").touch()
    status, _, errors = builder.run()
    assert status == 3
    assert "undefined: compiler" in errors
    assert [pathlib.Path(name).suffix for name in builder.list_files()] == [".log"]
    assert builder.run("path")[0] == 3


@pytest.mark.parametrize(("ci", "builds"), [("true", 1), ("", 0)], ids=["CI", "at home"])
def test_make_test_builds_before_the_tests_only_in_ci(
    builder: Builder, ci: str, builds: int
) -> None:
    repository = clusters.SCRIPT.parents[1]
    assert "\ntest: style kubernetes\n" in (repository / "Makefile").read_text()
    environment = {**builder.environment, "CI": ci}
    subprocess.run(["make", "-s", "kubernetes"], cwd=repository, env=environment, check=True)
    assert builder.count_compiled() == builds


def find_processes(folder: pathlib.Path) -> dict[str, int]:
    """Return name and PID of the programs that run in that folder."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found[(process / "exe").readlink().name] = int(process.name)
    return found


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    folder = tmp_path / "control plane"
    yield folder
    subprocess.run([clusters.SCRIPT, "down", folder], check=True)


@pytest.mark.long  # 8 s, as the next
@pytest.mark.needs_kubernetes
def test_down_ends_its_own_programs_and_removes_its_folder(folder: pathlib.Path) -> None:
    output = subprocess.run(
        [clusters.SCRIPT, "up", folder], capture_output=True, text=True, check=True
    ).stdout
    assert output == f"{folder}/kubeconfig\n"
    assert set(find_processes(folder)) == set(PROGRAMS)
    again = subprocess.run([clusters.SCRIPT, "up", folder], capture_output=True, check=False)
    assert (again.returncode, b"not empty" in again.stderr) == (3, True)
    assert len(find_processes(folder)) == 4
    os.kill(find_processes(folder)["kube-scheduler"], signal.SIGKILL)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        # Its PID was that of the scheduler, before.
        (folder / "kube-scheduler.pid").write_text(f"{stranger.pid} 1\n")
        subprocess.run([clusters.SCRIPT, "down", folder], check=True)
        assert stranger.poll() is None
        stranger.kill()
    assert find_processes(folder) == {}
    assert not folder.exists()


def test_down_leaves_other_folders_alone(tmp_path: pathlib.Path) -> None:
    (tmp_path / "thesis").touch()
    down = subprocess.run([clusters.SCRIPT, "down", tmp_path], capture_output=True, check=False)
    assert down.returncode == 3
    assert (tmp_path / "thesis").exists()
    subprocess.run([clusters.SCRIPT, "down", tmp_path / "missing"], check=True)


@pytest.mark.needs_kubernetes
def test_down_ends_what_a_killed_up_has_started(folder: pathlib.Path) -> None:
    with subprocess.Popen([clusters.SCRIPT, "up", folder], stdout=subprocess.PIPE) as up:
        clusters.wait_until(lambda: "kube-apiserver" in find_processes(folder), "an API server")
        up.kill()
    subprocess.run([clusters.SCRIPT, "down", folder], check=True)
    assert find_processes(folder) == {}
    assert not folder.exists()


@pytest.mark.long
@pytest.mark.needs_kubernetes
def test_programs_end_with_a_killed_run(folder: pathlib.Path) -> None:
    # Without a kill, `clusters.running` shows it: the folder is gone when the input ends.
    with subprocess.Popen(
        [clusters.SCRIPT, "run", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline()
        assert set(PROGRAMS) < set(find_processes(folder))
        run.kill()
    clusters.wait_until(lambda: find_processes(folder) == {}, "no programs")
