"""`overnight serve` as a process of its own, and raw HTTP for it."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import ipaddress
import json
import os
import pathlib
import secrets
import signal
import ssl
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from overnight.app import pools, tokens
from overnight.model.control_plane import Role
from overnight.pools import control, pool_errors

OVERNIGHT = [sys.executable, "-m", "overnight"]


class Server:
    """A running server; `log` has what it printed after it ended."""

    def __init__(
        self, home: pathlib.Path, *options: str, database: str = "", command: Sequence[str] = OVERNIGHT
    ) -> None:  # fmt: skip
        self.home = home
        self.environment = os.environ | {"OVERNIGHT_POOLS_DATABASE": database}
        self.log = ""
        listen = () if "--listen" in options else ("--listen", "127.0.0.1:0")
        self.process = subprocess.Popen(
            [*command, "--home", str(home), "serve", *listen, *options],
            env=self.environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.url = ""
        assert self.process.stderr is not None
        while not self.url:
            line = self.process.stderr.readline()
            self.log += line
            if not line:
                self.process.wait()
                self.process.stderr.close()
                raise RuntimeError(self.log)
            if line.startswith("serving at "):
                self.url = line.removeprefix("serving at ").strip()

    def run(self, *words: str) -> str:
        """Run a command with the home and database of the server; return what it prints."""
        command = [*OVERNIGHT, "--home", str(self.home), *words]
        done = subprocess.run(command, env=self.environment, check=True, stdout=subprocess.PIPE, text=True)  # fmt: skip
        return done.stdout.strip()

    def create_token(self, role: str, name: str = "") -> str:
        """Create a token as `overnight token create` does, without a process."""
        where = pools.Pools(self.home, self.environment["OVERNIGHT_POOLS_DATABASE"])
        try:
            opened = tokens.open_tokens(where)
            return tokens.create(opened, Role(role), by=tokens.local_user(), name=name).text
        finally:
            where.plane.context.database.close()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stderr is not None
        # Not communicate: it loses what readline has read ahead.
        with self.process.stderr as output:
            self.log += output.read()
        return code


@contextlib.contextmanager
def running(
    home: pathlib.Path, *options: str, database: str = "", command: Sequence[str] = OVERNIGHT
) -> Iterator[Server]:
    server = Server(home, *options, database=database, command=command)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
        assert server.process.stderr is not None
        server.process.stderr.close()


def end_members(home: pathlib.Path, seconds: float = 30) -> None:
    """Terminate every member of the pools of a running server: they would outlive it."""
    plane = pools.Pools(home).plane
    deadline = time.monotonic() + seconds
    with contextlib.closing(plane.context.database):
        while _end_members(plane):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _end_members(plane: control.ControlPlane) -> int:
    """Ask for the end of all members; return how many are left."""
    left = 0
    for details in plane.list(archived=True):
        with contextlib.suppress(pool_errors.MemberStateError):  # of a cluster
            plane.drain(details.pool.name)
        members = plane.show(details.pool.name).members
        left += len(members)
        for member in members:
            plane.terminate(member.id)
    return left


class Client:
    """One kept connection; `close_all` closes those of a test."""

    opened: ClassVar[list[http.client.HTTPConnection]] = []

    def __init__(self, url: str, credential: str = "", tls: ssl.SSLContext | None = None) -> None:
        where = urllib.parse.urlsplit(url)
        self.credential = credential
        if where.scheme == "https":
            self.connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                str(where.hostname), where.port, timeout=60, context=tls
            )
        else:
            self.connection = http.client.HTTPConnection(
                str(where.hostname), where.port, timeout=60
            )

        self.opened.append(self.connection)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Return the status and the document, or bytes."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if isinstance(body, dict):
            headers["Content-Type"] = "application/json"
        if self.credential:
            headers["Authorization"] = f"Bearer {self.credential}"
        self.connection.request(method, path, data, headers)
        response = self.connection.getresponse()
        content = response.read()
        is_json = "json" in (response.headers["content-type"] or "")
        return response.status, json.loads(content) if is_json else content

    def get(self, path: str) -> Any:
        status, document = self.ask("GET", path)
        assert status == 200, document
        return document

    @classmethod
    def close_all(cls) -> None:
        while cls.opened:
            cls.opened.pop().close()


def enrolled(server: Server, host: str, tls: ssl.SSLContext | None = None) -> Client:
    """Enrol a host over HTTP; return its client."""
    token = server.create_token("agent")
    client = Client(server.url, tls=tls)
    sent = {"token": token, "credential": secrets.token_urlsafe(32), "host": host}
    status, answer = client.ask("POST", "/api/v1/agents/enrol", sent)
    assert (status, answer["host"]) == (200, host), answer
    client.credential = sent["credential"]
    return client


def make_certificate(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Write a certificate for loopback and its key, both PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "overnight test")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "tls.crt", folder / "tls.key"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return cert_file, key_file
