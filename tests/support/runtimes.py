"""Real Docker and containerd in folders of their own, with an image that they never have to download.

`scripts/container-runtimes unpack` has the programs. Networks, iptables and the host's own daemons are not touched.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator

from overnight.model import mounts

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/container-runtimes"
IMAGE = "amazon/amazon-ecs-agent:latest"
AGENT = """
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) { usleep(1000 * (count > 1 ? atoi(words[1]) : 500)); return 5; }
"""
# Like amazon-ecs-init: one container with a fixed name; a new connection for each call, the last until the container ends.
SUPERVISOR = """
import http.client, json, socket, sys, time
class Docker(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
def call(method, target, body=None):
    docker = Docker("docker")
    docker.request(method, target, body and json.dumps(body), {"Content-Type": "application/json"})
    docker.getresponse().read()
    docker.close()
while True:
    call("DELETE", "/containers/ecs-agent?force=1")
    call("POST", "/containers/create?name=ecs-agent", {"Image": sys.argv[2], "Cmd": ["/bin/agent", sys.argv[3]],
         "HostConfig": {"NetworkMode": "host", "Init": True}})
    call("POST", "/containers/ecs-agent/start")
    call("POST", "/containers/ecs-agent/wait")
    time.sleep(0.5)
"""


def unpacked() -> pathlib.Path | None:
    """Return the folder of the programs; None where they were not unpacked."""
    done = subprocess.run([SCRIPT, "path"], capture_output=True, text=True, check=False)
    return pathlib.Path(done.stdout.strip()) if done.returncode == 0 else None


class Runtimes:
    """A running dockerd and containerd; `root` is what a recorder sees of them, with the real /proc and /sys."""

    def __init__(self, folder: pathlib.Path, programs: pathlib.Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": f"{programs}/usr/sbin:{programs}/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        }
        self.docker_socket = folder / "docker.sock"
        self.containerd_socket = folder / "containerd.sock"
        self.root = folder / "root"
        for link, target in (
            ("proc", "/proc"),
            ("sys", "/sys"),
            ("var/lib/docker", folder / "data"),
            ("run/docker.sock", self.docker_socket),
            ("run/containerd", folder / "state"),
        ):
            (self.root / link).parent.mkdir(parents=True, exist_ok=True)
            (self.root / link).symlink_to(target)

    def start(self, stack: contextlib.ExitStack) -> None:
        folder = self.folder
        self._daemon(
            stack, "containerd", "--root", f"{folder}/containers", "--state", f"{folder}/state",
            "--address", f"{self.containerd_socket}", waits_for=self.containerd_socket,
        )  # fmt: skip
        self._daemon(
            stack, "dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs",
            "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid",
            "--host", f"unix://{self.docker_socket}", "--containerd", f"{self.containerd_socket}",
            waits_for=self.docker_socket,
        )  # fmt: skip
        self._import_image()

    def _daemon(self, stack: contextlib.ExitStack, *words: str, waits_for: pathlib.Path) -> None:
        log = stack.enter_context((self.folder / f"{words[0]}.log").open("wb"))
        process = subprocess.Popen(
            words, env=self.environment, stdout=log, stderr=log, cwd=self.folder
        )
        stack.callback(_end, process)
        deadline = time.monotonic() + 30
        while not waits_for.exists() and time.monotonic() < deadline:
            assert process.poll() is None, (self.folder / f"{words[0]}.log").read_text()[-2000:]
            time.sleep(0.1)

    def _import_image(self) -> None:
        source, program = self.folder / "agent.c", self.folder / "agent"
        source.write_text(AGENT)
        subprocess.run(["gcc", "-static", "-o", program, source], check=True)
        image = io.BytesIO()
        with tarfile.open(fileobj=image, mode="w") as archive:
            archive.add(program, "bin/agent")
        self.docker("import", "-", IMAGE, stdin=image.getvalue())
        self.docker("save", "--output", f"{self.folder}/image.tar", IMAGE)
        self.ctr("images", "import", f"{self.folder}/image.tar")

    def docker(self, *words: str, stdin: bytes = b"", code: int = 0) -> bytes:
        return self._run(
            "docker", "--host", f"unix://{self.docker_socket}", *words, stdin=stdin, code=code
        )

    def ctr(self, *words: str) -> bytes:
        return self._run("ctr", "--address", f"{self.containerd_socket}", *words)

    def _run(self, *words: str, stdin: bytes = b"", code: int = 0) -> bytes:
        done = subprocess.run(
            words, env=self.environment, input=stdin, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr.decode()
        return done.stdout


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def running() -> Iterator[Runtimes]:
    """Start both daemons below the temp folder; end them, and remove their containers and folders."""
    programs = unpacked()
    assert programs is not None
    # Not the test's own folder: the path of a socket is short.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="runtimes-"))
    parents = [path / name for path in _hierarchies() for name in ("docker", "default")]
    made = [path for path in parents if not path.exists()]
    try:
        with contextlib.ExitStack() as stack:
            runtimes = Runtimes(folder, programs)
            runtimes.start(stack)
            stack.callback(_remove_containers, runtimes)
            yield runtimes
    finally:
        _clean(folder)
        for path in made:  # the parent of all containers stays when the daemons end
            for below in (*path.glob("*/"), path):
                with contextlib.suppress(OSError):
                    below.rmdir()


def _clean(folder: pathlib.Path) -> None:
    """End the containers that outlived their client, and remove mounts and files."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if b"containerd-shim" in command and os.fsencode(folder) in command:
                os.kill(int(process.name), signal.SIGKILL)
    for mount in mounts.read_mounts():
        if pathlib.Path(mount.path).is_relative_to(folder):
            subprocess.run(["umount", "--lazy", mount.path], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _hierarchies() -> list[pathlib.Path]:
    top = pathlib.Path("/sys/fs/cgroup")
    return [path for path in (top, *top.iterdir()) if (path / "cgroup.procs").exists()]


def _remove_containers(runtimes: Runtimes) -> None:
    if names := runtimes.docker("ps", "--all", "--quiet").decode().split():
        runtimes.docker("rm", "--force", *names)


@contextlib.contextmanager
def as_unit(unit: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a cgroup like a unit's, in systemd's hierarchy and in cgroup v2's."""
    tops = [path for path in map(pathlib.Path, ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"))
            if (path / "cgroup.procs").exists()]  # fmt: skip
    made = []
    for top in tops:
        for folder in (top / "system.slice", top / "system.slice" / unit):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
    enter = "; ".join(f"echo $$ > {top}/system.slice/{unit}/cgroup.procs" for top in tops)
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'{enter}; exec "$@"', "unit", *words], start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for folder in reversed(made):
            for _ in range(50):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.1)


def supervisor_words(runtimes: Runtimes, life_ms: int) -> tuple[str, ...]:
    return (
        sys.executable,
        "-I",
        "-S",
        "-c",
        SUPERVISOR,
        str(runtimes.docker_socket),
        IMAGE,
        str(life_ms),
    )
