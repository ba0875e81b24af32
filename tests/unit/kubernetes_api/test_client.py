"""The client against a played API server: what it sends, what it repeats, and what its errors say."""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from overnight import errors, kubernetes_api
from overnight.kubernetes_api import client as api
from overnight.kubernetes_api import configuration

Answer = tuple[int, Any] | None
Asked = tuple[str, str, Any]


class Server:
    """Answers with what `answers` has, one after the other; None closes the connection without one."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[Asked] = []
        self.headers: list[dict[str, str]] = []
        played = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                played.asked.append((self.command, self.path, body))
                played.headers.append(dict(self.headers))
                answer = played.answers.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
                text = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(text)))
                if answer[0] == 429:
                    self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *_: object) -> None: ...

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def write(path: pathlib.Path, url: str, user: Any = None, **change: Any) -> pathlib.Path:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "prod",
        **change,
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def client(
    server: Server, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[api.Client]:
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "config", server.url)))
    with contextlib.closing(api.connect("prod")) as client:
        yield client


def refuse(client: api.Client, call: Callable[[], object]) -> kubernetes_api.KubernetesError:
    with pytest.raises(kubernetes_api.KubernetesError) as caught:
        call()
    return caught.value


def status(code: int, message: str) -> Answer:
    return code, {"kind": "Status", "code": code, "message": message}


def test_an_edit_names_the_version_that_it_read_and_is_repeated_on_a_conflict(
    server: Server, client: api.Client
) -> None:
    for version, answer in (("1", status(409, "changed")), ("2", (200, {"done": True}))):
        node = {"metadata": {"resourceVersion": version}, "spec": {"taints": [version]}}
        server.answers += [(200, node), answer]

    def change(node: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {"labels": {"a": "b"}}, "spec": {"taints": [*node["spec"]["taints"], "x"]}}  # fmt: skip

    assert client.edit(kubernetes_api.NODES, "n", change) == {"done": True}
    patches = [body for method, _, body in server.asked if method == "PATCH"]
    assert patches == [
        {
            "metadata": {"labels": {"a": "b"}, "resourceVersion": version},
            "spec": {"taints": [version, "x"]},
        }
        for version in ("1", "2")
    ]
    assert server.headers[1]["Content-Type"] == "application/merge-patch+json"
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer t"}


def test_an_edit_without_a_change_writes_nothing(server: Server, client: api.Client) -> None:
    server.answers = [(200, {"metadata": {"resourceVersion": "1"}})]
    client.edit(kubernetes_api.NODES, "n", lambda _: None)
    assert [method for method, _, _ in server.asked] == ["GET"]


def test_an_edit_ends_after_many_conflicts(
    server: Server, client: api.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "EDITS", 3)
    node = {"metadata": {"resourceVersion": "1"}}
    server.answers = [(200, node), status(409, "changed")] * 3
    error = refuse(client, lambda: client.edit(kubernetes_api.NODES, "n", lambda _: {"a": 1}))
    assert (error.code, error.retry) == (409, True)


def test_lists_have_pages_and_start_again_when_the_server_forgot_one(
    server: Server, client: api.Client
) -> None:
    first = (200, {"metadata": {"continue": "next"}, "items": [1]})
    server.answers = [first, (200, {"metadata": {}, "items": [2]})]
    assert client.list(kubernetes_api.PODS, fields="spec.nodeName=n") == [1, 2]
    assert server.asked[1][1] == "/api/v1/pods?fieldSelector=spec.nodeName%3Dn&limit=500&continue=next"  # fmt: skip
    server.answers = [first, status(410, "expired"), (200, {"metadata": {}, "items": [1, 2]})]
    assert client.list(kubernetes_api.PODS, "ns", labels="a") == [1, 2]
    assert server.asked[-1][1] == "/api/v1/namespaces/ns/pods?labelSelector=a"


def test_a_deletion_can_be_of_one_version_alone(server: Server, client: api.Client) -> None:
    item = {"metadata": {"uid": "u", "resourceVersion": "7"}}
    server.answers = [(200, {}), status(404, "gone"), status(409, "changed")]
    assert client.delete(kubernetes_api.LEASES, "l", "ns", only=item, grace_seconds=0)
    method, path, body = server.asked[0]
    assert (method, path) == ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l")
    assert body == {"preconditions": item["metadata"], "gracePeriodSeconds": 0}
    assert not client.delete(kubernetes_api.LEASES, "l", "ns")
    assert refuse(client, lambda: client.delete(kubernetes_api.LEASES, "l", "ns")).code == 409


def test_names_cannot_leave_their_path(server: Server, client: api.Client) -> None:
    server.answers = [status(404, "none")] * 2
    assert client.find(kubernetes_api.NODES, "../secrets/x?y") is None
    assert client.find(kubernetes_api.PODS, "a/b", "c/../d") is None
    assert [path for _, path, _ in server.asked] == [
        "/api/v1/nodes/..%2Fsecrets%2Fx%3Fy",
        "/api/v1/namespaces/c%2F..%2Fd/pods/a%2Fb",
    ]


def test_a_throttled_request_is_repeated_and_an_eviction_is_not(
    server: Server, client: api.Client
) -> None:
    server.answers = [status(429, "slow"), (200, {"ok": 1})]
    assert client.get(kubernetes_api.NODES, "n") == {"ok": 1}
    server.answers = [status(429, "Cannot evict pod as it would violate the budget")]
    error = refuse(
        client, lambda: client.create(kubernetes_api.PODS, {}, "ns", name="p", part="eviction")
    )
    assert (error.code, error.retry) == (429, True)
    assert "violate the budget (HTTP 429)" in error.why
    assert len(server.asked) == 3


def test_a_lost_answer_is_asked_for_again_only_when_reading(
    server: Server, client: api.Client
) -> None:
    server.answers = [None, (200, {"ok": 1})]
    assert client.get(kubernetes_api.NODES, "n") == {"ok": 1}
    server.answers = [None]
    error = refuse(client, lambda: client.patch(kubernetes_api.NODES, "n", {}))
    assert (error.code, error.retry) == (0, True)
    assert [method for method, _, _ in server.asked] == ["GET", "GET", "PATCH"]
    assert "does not answer (context prod)" in error.what
    assert error.todo == "kubectl --context prod get --raw /readyz"


def test_errors_name_the_missing_right_and_the_next_command(
    server: Server, client: api.Client
) -> None:
    server.answers = [
        status(403, 'nodes "n" is forbidden: User "u" cannot patch resource "nodes"'),
        status(401, "Unauthorized"),
        (502, b"<html>bad gateway</html>"),
        (200, b"not json"),
    ]
    error = refuse(client, lambda: client.patch(kubernetes_api.NODES, "n", {}))
    assert (error.what, error.retry) == ("cannot patch nodes n", False)
    assert error.todo.startswith("kubectl --context prod auth can-i patch nodes ")
    error = refuse(client, lambda: client.list(kubernetes_api.NODES))
    assert "refused the credentials of context prod" in error.what
    assert (error.code, error.retry) == (401, True)
    error = refuse(client, lambda: client.get(kubernetes_api.SECRETS, "s", "ns"))
    assert (error.what, error.retry) == ("cannot get secrets s in namespace ns", True)
    assert "bad gateway" in error.why
    assert "HTTP 200" in refuse(client, lambda: client.get(kubernetes_api.NODES, "n")).why


def test_the_version_of_a_subresource_comes_from_the_server(
    server: Server, client: api.Client
) -> None:
    parts = [
        {"name": "pods"},
        {"name": "pods/eviction", "group": "policy", "version": "v1beta1", "kind": "Eviction"},
    ]
    server.answers = [(200, {"resources": parts}), (200, {"resources": []})]
    assert client.find_part_version("pods/eviction") == "policy/v1beta1"
    assert client.find_part_version("pods/eviction") == ""


def test_an_unreachable_server_is_reported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "config", "http://127.0.0.1:9")))
    with contextlib.closing(api.connect(seconds=0.5)) as client:
        error = refuse(client, lambda: client.list(kubernetes_api.NODES))
    assert error.what == "http://127.0.0.1:9 does not answer (context prod)"
    assert error.retry


def test_a_silent_server_is_asked_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "config", url)))
        with contextlib.closing(api.connect(seconds=0.1)) as client:
            error = refuse(client, lambda: client.list(kubernetes_api.NODES))
            assert (error.code, error.retry) == (0, True)
        listener.accept()[0].close()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_plug_in_logs_in_also_with_version_1_and_its_failure_is_reported(
    server: Server, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "login"
    program.write_text('#!/bin/sh\n[ -e ok ] || { echo "session expired" >&2; exit 1; }\ncat ok\n')
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    plug_in = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}
    monkeypatch.setenv(
        "KUBECONFIG", str(write(tmp_path / "config", server.url, user={"exec": plug_in}))
    )
    with contextlib.closing(api.connect()) as client:
        error = refuse(client, lambda: client.get(kubernetes_api.NODES, "n"))
        assert "cannot log in" in error.what
        assert "session expired" in error.why
        (tmp_path / "ok").write_text('{"status": {"token": "fresh"}}')
        server.answers = [(200, {})]
        client.get(kubernetes_api.NODES, "n")
    assert server.headers[0]["Authorization"] == "Bearer fresh"


@pytest.fixture
def no_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(configuration, "ACCOUNT", tmp_path / "no-account")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)


def find(context: str = "") -> Any:
    return configuration.find_configuration(context)


@pytest.mark.usefixtures("no_pod")
def test_no_configuration_is_reported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(kubernetes_api.KubernetesError, match="no cluster is configured") as caught:
        find()
    assert caught.value.todo == "export KUBECONFIG=FILE"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(kubernetes_api.KubernetesError) as caught:
        find("prod")
    assert f"{tmp_path}/a and {tmp_path}/b" in caught.value.why


@pytest.mark.usefixtures("no_pod")
def test_an_unknown_context_is_reported_with_those_that_exist(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "a", "http://a")
    second = write(
        tmp_path / "b",
        "http://b",
        contexts=[{"name": "other", "context": {"cluster": "c", "user": "u"}}],
    )
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path}/none:{second}")
    assert find().cluster.server == "http://a"
    assert find("other").cluster.server == "http://b"
    with pytest.raises(kubernetes_api.KubernetesError, match="context x does not exist") as caught:
        find("x")
    assert "other, prod" in caught.value.why
    assert caught.value.todo == "kubectl config get-contexts"


@pytest.mark.usefixtures("no_pod")
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"contexts": []}, "context prod does not exist"),
        ({"contexts": [], "current-context": ""}, "no context is current"),
        ({"clusters": []}, "cannot use context prod"),
        ({"clusters": 3}, "cannot use "),
        ({"clusters": [{"name": "c"}]}, "cannot use "),
        ({"users": [{"name": "u", "user": {"auth-provider": {"name": "gcp"}}}]}, "cannot log in to context prod"),
    ],
)  # fmt: skip
def test_a_broken_configuration_is_reported(
    tmp_path: pathlib.Path, change: dict[str, Any], what: str
) -> None:
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube/config", "http://a", **change)
    with pytest.raises(kubernetes_api.KubernetesError, match=f"^{what}"):
        find()


@pytest.mark.usefixtures("no_pod")
@pytest.mark.parametrize("text", ["", "[", "a: [b", "- 1", "\x00"])
def test_a_file_that_is_not_a_configuration_is_reported(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").write_text(text)
    with pytest.raises(errors.CannotError, match=r"cannot use .*\.kube/config"):
        find()


@pytest.mark.usefixtures("no_pod")
def test_a_pod_uses_its_account_unless_a_context_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "namespace").write_text("overnight")
    monkeypatch.setattr(configuration, "ACCOUNT", account)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert find().cluster.server == "https://10.0.0.1:443"
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube/config", "http://a")
    assert find().cluster.server == "https://10.0.0.1:443"
    assert find("prod").cluster.server == "http://a"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / ".kube/config"))
    assert find().cluster.server == "http://a"


def test_a_missing_lightkube_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(errors.CannotError) as caught:
        find()
    assert caught.value.todo == "pip install 'overnight[kubernetes]'"
