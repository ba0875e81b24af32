"""Containers named by the state of real runtimes (tests/fixtures/containers), and by hostile state."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import threading
import uuid
from collections.abc import Iterator

import pytest

from overnight.sources import cgroupchurn
from overnight.sources.cgroupchurn import containers

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures/containers"
STATE = (FIXTURES / "docker-config.v2.json").read_bytes()
BUNDLE = (FIXTURES / "containerd-config.json").read_bytes()
EVENTS = (FIXTURES / "docker-events.jsonl").read_bytes()
ID = json.loads(STATE)["ID"]
TASKS = "run/containerd/io.containerd.runtime.v2.task"
AGENT = containers.Container("docker", "ecs-agent", "amazon/amazon-ecs-agent:latest")
POD = "/kubepods/burstable/pod0f3a1b2c-1111-2222-3333-444455556666"


def write_docker(root: pathlib.Path, state: bytes = STATE, name: str = ID) -> pathlib.Path:
    file = root / containers.DOCKER / name / "config.v2.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(state)
    return file


def write_bundle(root: pathlib.Path, namespace: str, name: str, bundle: bytes = BUNDLE) -> None:
    folder = root / TASKS / namespace / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(bundle)


def find(root: pathlib.Path, path: str) -> containers.Container | None:
    parent, _, directory = path.rpartition("/")
    return containers.Containers(root).find(parent or "/", directory)


@pytest.mark.parametrize(
    "path", [f"/docker/{ID}", f"/system.slice/docker-{ID}.scope", f"/ecs/t/{ID}"]
)
def test_docker_names_its_containers_with_both_drivers(tmp_path: pathlib.Path, path: str) -> None:
    write_docker(tmp_path)
    found = find(tmp_path, path)
    assert found == AGENT
    assert found.key == "docker:ecs-agent"


@pytest.mark.parametrize(
    "path", ["/default/agent-1", "/system.slice/nerdctl-agent-1.scope", "/x.slice/agent-1"]
)
def test_containerd_names_its_containers_with_both_drivers(
    tmp_path: pathlib.Path, path: str
) -> None:
    write_bundle(tmp_path, "default", "agent-1")
    found = find(tmp_path, path)
    assert found
    assert found.key == "containerd:default/agent-1"


@pytest.mark.parametrize(
    "path", [f"{POD}/{ID}", f"/kubepods-burstable-pod0f3a1b2c_1111.slice/cri-containerd-{ID}.scope"]
)
def test_a_container_of_a_pod_has_the_pods_name(tmp_path: pathlib.Path, path: str) -> None:
    noted = {
        "container-name": "app",
        "sandbox-name": "web-7",
        "sandbox-namespace": "prod",
        "image-name": "web:3",
    }
    annotations = {f"io.kubernetes.cri.{name}": text for name, text in noted.items()}
    write_bundle(
        tmp_path,
        "k8s.io",
        ID,
        json.dumps({**json.loads(BUNDLE), "annotations": annotations}).encode(),
    )
    found = find(tmp_path, path)
    assert found == containers.Container("kubernetes", "app", "web:3", "prod/web-7")
    assert found.key == "kubernetes:prod/web-7/app"


def test_docker_is_known_by_the_path_where_its_state_cannot_be_read(tmp_path: pathlib.Path) -> None:
    for path in (f"/docker/{ID}", f"/system.slice/docker-{ID}.scope"):
        found = find(tmp_path, path)
        assert found
        assert found.key == "docker:?"


def test_docker_with_a_data_root_elsewhere_is_read_there(tmp_path: pathlib.Path) -> None:
    write_docker(tmp_path).rename(tmp_path / "state")
    folder = tmp_path / "mnt/docker/containers" / ID
    folder.mkdir(parents=True)
    (tmp_path / "state").rename(folder / "config.v2.json")
    (tmp_path / "etc/docker").mkdir(parents=True)
    (tmp_path / containers.SETTINGS).write_text('{"data-root": "/mnt/docker"}')
    assert find(tmp_path, f"/docker/{ID}") == AGENT


def test_a_container_of_dockershim_is_its_pods(tmp_path: pathlib.Path) -> None:
    """Its name counts the starts: k8s_app_web-7_prod_UID_12."""
    labels = {"pod.namespace": "prod", "pod.name": "web-7", "container.name": "app"}
    for number in range(2):
        state = json.loads(STATE)
        state["Name"] = f"/k8s_app_web-7_prod_0f3a_{number}"
        state["Config"]["Labels"] = {f"io.kubernetes.{key}": text for key, text in labels.items()}
        write_docker(tmp_path, json.dumps(state).encode(), f"{number:064x}")
        found = find(tmp_path, f"{POD}/{number:064x}")
        assert found
        assert found.key == "kubernetes:prod/web-7/app"


USER = "/user.slice/user-1000.slice/user@1000.service/user.slice"


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (f"/machine.slice/libpod-{ID}.scope", "podman:?"),
        (f"/batch.slice/libpod-{ID}.scope", "podman:?"),
        (f"/system.slice/crio-{ID}.scope", "cri-o:?"),
        (f"/system.slice/cri-containerd-{ID}.scope", "containerd:?"),
        (f"{USER}/docker-{ID}.scope", "docker:user-1000.slice/?"),
        (f"{USER}/libpod-{ID}.scope", "podman:user-1000.slice/?"),
        ("/system.slice/run-u71.service", "systemd:run-*.service"),
        ("/system.slice/run-p12-i4.scope", "systemd:run-*.scope"),
        ("/system.slice/agent-48213.scope", "systemd:agent-*.scope"),
        ("/system.slice/agent.scope", "systemd:agent.scope"),
        ("/machine.slice/machine-a.scope", "systemd:machine-a.scope"),
    ],
)
def test_what_no_runtime_names_is_known_by_its_own_name(
    tmp_path: pathlib.Path, path: str, key: str
) -> None:
    write_docker(tmp_path, name=f"{3:064x}")
    found = find(tmp_path, path)
    assert found
    assert found.key == key


@pytest.mark.parametrize(
    "path",
    [
        f"/user.slice/user-1000.slice/{ID}",
        f"{USER}/agent-48213.scope",
        f"/machine.slice/libpod-conmon-{ID}.scope",
        "/system.slice/session-12.scope",
        "/system.slice/run-user-1000.mount",
        f"{POD}/crio-{ID}.scope",
        "/system.slice/cron.service",
        "/user.slice/user-0.slice/session-12.scope",
        f"{POD}/{ID}",
        "/default/other",
        "/system.slice/docker-.scope",
        "/a/\x1b[2J",
        "/a/\udcff\udcfe",
    ],
)
def test_what_is_no_container_of_a_known_runtime_has_no_name(
    tmp_path: pathlib.Path, path: str
) -> None:
    write_bundle(tmp_path, "default", "agent-1")
    if path.startswith("/user"):
        write_docker(tmp_path)
    assert find(tmp_path, path) is None


def test_names_with_random_parts_are_one_service() -> None:
    keys = {containers.Container("docker", f"ecs-web-3-app-{n:020x}", "web").key for n in range(5)}
    assert keys == {"docker:ecs-web-3-app-*"}
    for name in (f"task-{uuid.uuid4()}", f"task-{uuid.uuid4()}", "task-907", "task-15021"):
        assert containers.Container("containerd", name, group="n").key == "containerd:n/task-*"
    assert containers.Container("docker", "keen_curie", "a/b:1").key == "docker:image=a/b:1"
    assert (
        containers.Container("docker", "web-7", "a").key
        != containers.Container("docker", "web-8", "a").key
    )


@pytest.mark.parametrize(
    "state",
    [
        b"", b"null", b"[]", b'"x"', b"{", b"[" * 200_000, b'{"Name": 5, "Config": []}', b"\xff" * 100,
        b'{"Name": {"a": "b"}, "RestartCount": "9"}',
    ],
)  # fmt: skip
def test_damaged_state_names_nothing(tmp_path: pathlib.Path, state: bytes) -> None:
    write_docker(tmp_path, state)
    found = find(tmp_path, f"/docker/{ID}")
    assert found is not None
    assert (found.name, found.image, found.restarted) == ("", "", 0)


def test_hostile_names_are_escaped_and_cut(tmp_path: pathlib.Path) -> None:
    hostile = {
        "Name": "/\x1b[2J\n" + "x" * 9000,
        "Config": {"Image": "\u202e" + "y" * 9000},
        "RestartCount": 10**30,
    }
    write_docker(tmp_path, json.dumps(hostile).encode())
    found = find(tmp_path, f"/docker/{ID}")
    assert found is not None
    assert found.name.isprintable()
    assert found.image.isprintable()
    assert max(len(found.name), len(found.image)) <= containers.MAX_TEXT
    assert found.restarted == 1 << 31


def test_links_pipes_and_large_files_are_not_read(tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(STATE)
    file = write_docker(tmp_path)
    file.unlink()
    file.symlink_to(secret)
    assert find(tmp_path, f"/docker/{ID}") == containers.Container("docker")
    file.unlink()
    os.mkfifo(file)
    assert find(tmp_path, f"/docker/{ID}") == containers.Container("docker")
    file.unlink()
    file.write_bytes(b" " * containers.MAX_STATE + STATE)
    assert find(tmp_path, f"/docker/{ID}") == containers.Container("docker")


def test_100_000_containers_are_not_listed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_docker(tmp_path)
    listed: list[str] = []
    monkeypatch.setattr(
        containers.sources, "list_folder", lambda folder: listed.append(folder) or []
    )
    known = containers.Containers(tmp_path)
    for number in range(1000):
        known.find("/docker", f"{number:064x}")
    assert len(listed) <= 2 * containers.MAX_LOOKUPS
    known.begin_poll()
    assert known.find("/docker", ID) == AGENT


def test_a_storm_of_other_cgroups_hides_no_container(tmp_path: pathlib.Path) -> None:
    """A rehearsal created 14,000 cgroups in one poll; the container born with them was counted below /docker."""
    write_docker(tmp_path)
    known = containers.Containers(tmp_path)
    for number in range(1000):
        known.find("/system.slice/ecs.service", f"past-{number}")
    assert known.find("/docker", ID) == AGENT


@contextlib.contextmanager
def docker_api(root: pathlib.Path, answers: list[bytes]) -> Iterator[list[bytes]]:
    """Answer requests at the socket of Docker's API, one after the other."""
    (root / "run").mkdir()
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(root / containers.API))
        server.listen()

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    asked.append(connection.recv(4096))
                    if answer == b"late":
                        connection.recv(1)  # until the caller gives up
                    with contextlib.suppress(BrokenPipeError):
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        thread.join(5)


HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
GONE = b'HTTP/1.0 404 Not Found\r\n\r\n{"message": "No such container"}'


def test_a_container_with_its_state_elsewhere_is_asked_for(tmp_path: pathlib.Path) -> None:
    with docker_api(tmp_path, [HEAD + STATE]) as asked:
        assert find(tmp_path, f"/docker/{ID}") == AGENT
    assert asked == [f"GET /containers/{ID}/json HTTP/1.0\r\nHost: docker\r\n\r\n".encode()]


def test_a_container_that_is_gone_is_named_by_its_events(tmp_path: pathlib.Path) -> None:
    with docker_api(tmp_path, [GONE, HEAD + EVENTS]) as asked:
        assert find(tmp_path, f"/system.slice/docker-{ID}.scope") == AGENT
    assert [request.split(b" ")[0] for request in asked] == [b"GET", b"GET"]


def test_an_api_that_is_late_is_left_alone(tmp_path: pathlib.Path) -> None:
    with docker_api(tmp_path, [b"late"]) as asked:
        known = containers.Containers(tmp_path)
        for number in range(5):
            known.begin_poll()
            known.find("/docker", f"{number:064x}")
        assert len(asked) == 1


def test_births_of_a_container_count_as_its_own_and_not_below_the_shared_cgroup(
    tmp_path: pathlib.Path,
) -> None:
    top = tmp_path / "cg"
    (top / "system.slice").mkdir(parents=True)
    other = f"{7:064x}"
    write_docker(tmp_path)
    write_docker(tmp_path, json.dumps({"Name": "/web", "Config": {"Image": "web"}}).encode(), other)
    with contextlib.closing(cgroupchurn.Churn((str(top),), root=tmp_path)) as churn:
        churn.read()
        for name in (
            f"docker-{ID}.scope",
            f"docker-{other}.scope",
            *(f"timer-{n}.service" for n in range(6)),
        ):
            (top / f"system.slice/{name}").mkdir()
        churn.read()
        for _ in range(2):
            (top / f"system.slice/docker-{ID}.scope").rmdir()
            (top / f"system.slice/docker-{ID}.scope").mkdir()
            churn.read()
        facts = churn.read_creators()
        rows = churn.read()
    assert rows["/system.slice"][:2] == (6, 0)
    assert rows["docker:ecs-agent"][:3] == (3, 2, 2)
    assert rows["docker:web"][:2] == (1, 0)
    assert facts == {
        "docker:ecs-agent": {
            "runtime": "docker", "cgroup": "/system.slice", "container": "ecs-agent",
            "image": "amazon/amazon-ecs-agent:latest", "group": "", "restarted": 0, "programs": "",
        }
    }  # fmt: skip


def test_what_a_container_creates_inside_is_not_looked_up(tmp_path: pathlib.Path) -> None:
    """A privileged container chooses the names of cgroups inside it: it could name another container's."""
    top = tmp_path / "cg"
    inside = json.dumps({"Name": "/evil", "Config": {"Image": "evil"}}).encode()
    write_docker(tmp_path)
    write_docker(tmp_path, inside, f"{7:064x}")
    (top / "docker").mkdir(parents=True)
    with contextlib.closing(cgroupchurn.Churn((str(top),), root=tmp_path)) as churn:
        churn.read()
        (top / f"docker/{7:064x}").mkdir()
        churn.read()
        for _ in range(3):
            (top / f"docker/{7:064x}/{ID}").mkdir()
            (top / f"docker/{7:064x}/{ID}").rmdir()
        rows = churn.read()
    assert "docker:ecs-agent" not in rows
    assert rows[f"/docker/{7:064x}"][:2] == (3, 3)
