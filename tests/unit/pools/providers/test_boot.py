"""The script that starts a member's agent: small, self-contained, and it leaves no token behind."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import json
import shutil
import ssl
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import bootedagents
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from overnight import pools
from overnight.pools.providers import _boot

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

TOKEN = "5" * 64


def order(**changes: str) -> pools.Order:
    plain = {"owner": "me", "member_id": "m-1", "pool": "ci", "template": "runner", "token": TOKEN}
    return pools.Order(**{**plain, "endpoint": "http://127.0.0.1:9", **changes})  # type: ignore[arg-type]


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 8
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def booted(tmp_path: pathlib.Path) -> Iterator[bootedagents.Booted]:
    machine = bootedagents.Booted(tmp_path / "machine", _boot.script(order()))
    yield machine
    machine.switch_off()


def test_the_script_is_far_below_the_limit_of_ec2() -> None:
    longest = order(
        pool="ü" * 236,
        template="t" * 128,
        endpoint=f"https://{'n' * 253}:65535",
        member_id="m" * 64,
    )
    assert len(_boot.script(order()).encode()) < 7000
    assert len(_boot.script(longest).encode()) < 10_000  # of 16,384


def test_the_same_order_gives_the_same_script() -> None:
    """Otherwise EC2 would refuse a retried launch, as its parameters differ."""
    assert _boot.script(order()) == _boot.script(order())


def test_the_script_writes_the_agent_the_order_and_the_unit(booted: bootedagents.Booted) -> None:
    booted.run_script()
    assert (booted.place / "agent.py").read_bytes() == _boot.AGENT.read_bytes()
    written = json.loads((booted.place / "order.json").read_text())
    assert (written["token"], written["endpoint"]) == (TOKEN, "http://127.0.0.1:9")
    assert booted.place.stat().st_mode & 0o777 == 0o700
    assert (booted.place / "order.json").stat().st_mode & 0o777 == 0o600
    calls = (booted.root / "systemctl").read_text().splitlines()
    assert calls == [
        "daemon-reload",
        "enable overnight-member.service",
        "start --no-block overnight-member.service",
    ]
    # The copy of cloud-init contains the token too.
    assert list((booted.root / "var/lib/cloud/instance").iterdir()) == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this host")
def test_systemd_accepts_the_unit(booted: bootedagents.Booted, tmp_path: pathlib.Path) -> None:
    booted.run_script()
    assert "Restart=on-failure" in booted.unit
    unit = tmp_path / "overnight-member.service"
    unit.write_text(booted.unit)
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "overnight-member" not in result.stderr, result.stderr


@pytest.mark.parametrize(
    "pool", ["ci'; touch /tmp/x; '", "ORDER\nfalse\nAGENT\nUNIT", "$(id)", "%s {x}"]
)
def test_no_pool_name_escapes_its_quoting(pool: str, tmp_path: pathlib.Path) -> None:
    """Names are checked earlier; the script is safe with any name."""
    text = _boot.script(order(pool=pool, member_id="m-1"))
    [line] = [candidate for candidate in text.splitlines() if candidate.startswith("{")]
    assert json.loads(line)["pool"] == pool
    machine = bootedagents.Booted(tmp_path / "machine", text)
    machine.run_script()
    assert json.loads((machine.place / "order.json").read_text())["pool"] == pool


def test_an_image_without_python_is_an_error(booted: bootedagents.Booted) -> None:
    tools = booted.root / "tools"
    for name in ("sh", "mkdir", "cat", "chmod", "rm"):
        (tools / name).symlink_to(str(shutil.which(name)))
    result = subprocess.run(
        ["/bin/sh", str(booted.script)], env={"PATH": str(tools), "OVERNIGHT_ROOT": str(booted.root)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert "no python3" in result.stderr
    assert not booted.place.exists()


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Answers 200 to everything and records the requests."""

    requests: list[tuple[str, dict[str, str], str]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append((self.path, body, self.headers.get("Authorization", "")))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def endpoint() -> Iterator[http.server.ThreadingHTTPServer]:
    kind = type("Kind", (Endpoint,), {"requests": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_restarted_agent_is_the_same_member(
    tmp_path: pathlib.Path, endpoint: http.server.ThreadingHTTPServer
) -> None:
    """After a reboot the token is used; the credential is in a file only root can read."""
    text = _boot.script(order(endpoint=f"http://127.0.0.1:{endpoint.server_address[1]}"))
    machine = bootedagents.Booted(tmp_path / "machine", text).boot()
    requests = endpoint.RequestHandlerClass.requests
    try:
        until(lambda: [path for path, *_ in requests] == ["/v1/enrol", "/v1/phase"])
        credential = requests[0][1]["credential"]
        assert requests[0][1]["token"] == TOKEN
        assert requests[1][2] == f"Bearer {credential}"
        assert TOKEN not in (machine.place / "order.json").read_text()
        assert (machine.place / "credential").stat().st_mode & 0o777 == 0o600
        machine.switch_off()
        machine.start()
        until(lambda: len(requests) == 3)
        assert requests[2] == ("/v1/phase", {"phase": "ready"}, f"Bearer {credential}")
    finally:
        machine.switch_off()


def write_certificate(path: pathlib.Path) -> pathlib.Path:
    """Write a key and a self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "endpoint")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(key.private_bytes(pem, *plain) + certificate.public_bytes(pem))
    return path


@pytest.mark.parametrize("trusted", [True, False])
def test_the_certificate_of_a_tls_endpoint_is_verified(
    trusted: bool, tmp_path: pathlib.Path, endpoint: http.server.ThreadingHTTPServer
) -> None:
    certificate = write_certificate(tmp_path / "endpoint.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
    text = _boot.script(order(endpoint=f"https://127.0.0.1:{endpoint.server_address[1]}"))
    machine = bootedagents.Booted(tmp_path / "machine", text)
    machine.run_script()
    machine.start(**({"SSL_CERT_FILE": str(certificate)} if trusted else {}))
    requests = endpoint.RequestHandlerClass.requests
    try:
        if trusted:
            until(lambda: len(requests) == 2)
        else:
            until(lambda: "CERTIFICATE_VERIFY_FAILED" in (machine.root / "log").read_text())
            assert requests == []
    finally:
        machine.switch_off()
