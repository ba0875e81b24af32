"""The script that starts a member's agent: small enough, self-contained, and it leaves no token about."""

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


def order(**given: str) -> pools.Order:
    plain = {"owner": "me", "member_id": "m-1", "pool": "ci", "template": "runner", "token": TOKEN}
    return pools.Order(**{**plain, "endpoint": "http://127.0.0.1:9", **given})  # type: ignore[arg-type]


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 8
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def booted(tmp_path: pathlib.Path) -> Iterator[bootedagents.Booted]:
    made = bootedagents.Booted(tmp_path / "machine", _boot.script(order()))
    yield made
    made.switch_off()


def test_it_is_far_below_what_ec2_takes() -> None:
    longest = order(
        pool="ü" * 236,
        template="t" * 128,
        endpoint=f"https://{'n' * 253}:65535",
        member_id="m" * 64,
    )
    assert len(_boot.script(order()).encode()) < 6000
    assert len(_boot.script(longest).encode()) < 16384 / 2


def test_the_same_order_is_the_same_text() -> None:
    """Or a launch that is made again would be another one, and EC2 would refuse it."""
    assert _boot.script(order()) == _boot.script(order())


def test_what_it_writes(booted: bootedagents.Booted) -> None:
    booted.run_script()
    assert (booted.place / "agent.py").read_bytes() == _boot.AGENT.read_bytes()
    asked = json.loads((booted.place / "order.json").read_text())
    assert (asked["token"], asked["endpoint"]) == (TOKEN, "http://127.0.0.1:9")
    assert booted.place.stat().st_mode & 0o777 == 0o700
    assert (booted.place / "order.json").stat().st_mode & 0o777 == 0o600
    said = (booted.root / "systemctl").read_text().splitlines()
    assert said == [
        "daemon-reload",
        "enable overnight-member.service",
        "start --no-block overnight-member.service",
    ]
    # The copy that cloud-init keeps has the token too.
    assert list((booted.root / "var/lib/cloud/instance").iterdir()) == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this host")
def test_systemd_takes_the_unit(booted: bootedagents.Booted, tmp_path: pathlib.Path) -> None:
    booted.run_script()
    assert "Restart=on-failure" in booted.unit
    unit = tmp_path / "overnight-member.service"
    unit.write_text(booted.unit)
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "overnight-member" not in said.stderr, said.stderr


@pytest.mark.parametrize(
    "pool", ["ci'; touch /tmp/x; '", "ORDER\nfalse\nAGENT\nUNIT", "$(id)", "%s {x}"]
)
def test_no_name_gets_out_of_its_place(pool: str, tmp_path: pathlib.Path) -> None:
    """Names are checked before; here they would do no harm either."""
    text = _boot.script(order(pool=pool, member_id="m-1"))
    [line] = [one for one in text.splitlines() if one.startswith("{")]
    assert json.loads(line)["pool"] == pool
    machine = bootedagents.Booted(tmp_path / "machine", text)
    machine.run_script()
    assert json.loads((machine.place / "order.json").read_text())["pool"] == pool


def test_an_image_without_python_says_so(booted: bootedagents.Booted) -> None:
    tools = booted.root / "tools"
    for name in ("sh", "mkdir", "cat", "chmod", "rm"):
        (tools / name).symlink_to(str(shutil.which(name)))
    said = subprocess.run(
        ["/bin/sh", str(booted.script)], env={"PATH": str(tools), "OVERNIGHT_ROOT": str(booted.root)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 1
    assert "no python3" in said.stderr
    assert not booted.place.exists()


class Door(http.server.BaseHTTPRequestHandler):
    """Says yes, and writes down what it was asked."""

    asked: list[tuple[str, dict[str, str], str]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body, self.headers.get("Authorization", "")))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def door() -> Iterator[http.server.ThreadingHTTPServer]:
    kind = type("Kind", (Door,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_agent_that_is_started_again_is_the_same_member(
    tmp_path: pathlib.Path, door: http.server.ThreadingHTTPServer
) -> None:
    """After a reboot the token is used up; the credential is kept, where only root can read it."""
    text = _boot.script(order(endpoint=f"http://127.0.0.1:{door.server_address[1]}"))
    machine = bootedagents.Booted(tmp_path / "machine", text).boot()
    asked = door.RequestHandlerClass.asked
    try:
        until(lambda: [path for path, *_ in asked] == ["/v1/enrol", "/v1/phase"])
        credential = asked[0][1]["credential"]
        assert asked[0][1]["token"] == TOKEN
        assert asked[1][2] == f"Bearer {credential}"
        assert TOKEN not in (machine.place / "order.json").read_text()
        assert (machine.place / "credential").stat().st_mode & 0o777 == 0o600
        machine.switch_off()
        machine.start()
        until(lambda: len(asked) == 3)
        assert asked[2] == ("/v1/phase", {"phase": "ready"}, f"Bearer {credential}")
    finally:
        machine.switch_off()


def certified(path: pathlib.Path) -> pathlib.Path:
    """A key and a certificate for 127.0.0.1 that nobody signed but itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "door")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(key.private_bytes(pem, *plain) + made.public_bytes(pem))
    return path


@pytest.mark.parametrize("trusted", [True, False])
def test_an_endpoint_with_tls_is_held_to_its_certificate(
    trusted: bool, tmp_path: pathlib.Path, door: http.server.ThreadingHTTPServer
) -> None:
    certificate = certified(tmp_path / "door.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    door.socket = context.wrap_socket(door.socket, server_side=True)
    text = _boot.script(order(endpoint=f"https://127.0.0.1:{door.server_address[1]}"))
    machine = bootedagents.Booted(tmp_path / "machine", text)
    machine.run_script()
    machine.start(**({"SSL_CERT_FILE": str(certificate)} if trusted else {}))
    asked = door.RequestHandlerClass.asked
    try:
        if trusted:
            until(lambda: len(asked) == 2)
        else:
            until(lambda: "CERTIFICATE_VERIFY_FAILED" in (machine.root / "log").read_text())
            assert asked == []
    finally:
        machine.switch_off()
