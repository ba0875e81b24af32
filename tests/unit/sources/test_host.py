from __future__ import annotations

import http.server
import json
import pathlib
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight import sources
from overnight.sources import host

INSTANCE = {
    "v1": {
        "instance_id": "i-0abc",
        "region": "us-east-1",
        "availability_zone": "us-east-1a",
        "cloud_name": "aws",
        "userdata": "SECRET",
    },
    "ds": {
        "meta_data": {
            "ami-id": "ami-1",
            "instance-type": "p4d.24xlarge",
            "iam": {"security-credentials": {"SecretAccessKey": "SECRET"}},
            "public-keys": {"k": "SECRET"},
        },
        "user_data": "SECRET",
    },
}


def plant(root: pathlib.Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    plant(
        tmp_path,
        {
            "proc/sys/kernel/random/boot_id": "07ef-boot\n",
            "proc/sys/kernel/osrelease": "5.4.0-1103-aws\n",
            "proc/sys/kernel/hostname": "gpu-7\n",
            "proc/self/mountinfo": "1 1 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            "proc/stat": "cpu  1\ncpu0 1\ncpu1 1\nintr 5\nbtime 1700000000\n",
            "proc/meminfo": "MemTotal:  1000 kB\nMemFree: 5 kB\n",
            "etc/os-release": 'ID=ubuntu\nPRETTY_NAME="Ubuntu 20.04"\nVERSION_ID="20.04"\n',
            "etc/image-id": 'image_name="dlami"\nimage_version="61"\n',
            "sys/class/dmi/id/product_name": "p4d.24xlarge\n",
            "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
            "sys/class/net/eth0/speed": "-1\n",
            "sys/class/net/lo/speed": "0\n",
            "run/cloud-init/instance-data.json": json.dumps(INSTANCE),
        },
    )
    (tmp_path / "sys/class/net/eth0/device").mkdir()
    (tmp_path / "sys/class/net/eth0/device/driver").symlink_to("../../../../bus/pci/drivers/ena")
    return tmp_path


def test_a_host_with_more_mounts_than_fit_into_one_read(
    root: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = root / "proc/self/mountinfo"
    mounts.write_text("2 1 0:2 / /mnt/x rw - tmpfs tmpfs rw\n" * 200 + mounts.read_text())
    whole = sources.read_once
    # The kernel returns at most a page of mountinfo per read (seq_read_iter).
    monkeypatch.setattr(sources, "read_once", lambda *a: (whole(*a) or b"")[:4096])
    assert host.read_host(root)[""]["cgroups"] == "v1"


def test_the_labels_of_a_cloud_host(root: pathlib.Path) -> None:
    assert host.read_host(root) == {
        "": {
            "boot": "07ef-boot",
            "booted_at": 1_700_000_000,
            "kernel": "5.4.0-1103-aws",
            "cgroups": "v1",
            "memory_controller": "v1",
            "system": "Ubuntu 20.04",
            "image_id": 'image_name="dlami"; image_version="61"',
            "name": "gpu-7",
            "vendor": "Amazon EC2",
            "product": "p4d.24xlarge",
            "cores": 2,
            "memory_kb": 1000,
            "instance": "i-0abc",
            "cloud": "aws",
            "region": "us-east-1",
            "zone": "us-east-1a",
            "image": "ami-1",
            "instance_type": "p4d.24xlarge",
        },
        "eth0": {"driver": "ena", "speed_mbit": -1},
    }


def test_no_secret_of_the_instance_data_is_a_label(root: pathlib.Path) -> None:
    assert "SECRET" not in json.dumps(host.read_host(root))


def test_without_instance_data_the_id_is_read_from_its_file(root: pathlib.Path) -> None:
    (root / "run/cloud-init/instance-data.json").unlink()
    assert "instance" not in host.read_host(root)[""]
    plant(root, {"var/lib/cloud/data/instance-id": "i-9\n"})
    labels = host.read_host(root)[""]
    assert (labels["instance"], labels["instance_type"]) == ("i-9", "p4d.24xlarge")


def test_a_slewed_clock_does_not_change_the_boot_time(root: pathlib.Path) -> None:
    read = host.SIGNALS[0].open(root)
    before = read()[""]["booted_at"]
    (root / "proc/stat").write_text("cpu  1\nbtime 1700000001\n")
    assert read()[""]["booted_at"] == before
    (root / "proc/sys/kernel/random/boot_id").write_text("another\n")
    assert read()[""]["booted_at"] == 1_700_000_001


def test_hostile_texts_become_printable_and_short(root: pathlib.Path) -> None:
    (root / "sys/class/dmi/id/product_name").write_bytes(b"\x1b[31m\xff" + b"x" * 8000)
    product = host.read_host(root)[""]["product"]
    assert isinstance(product, str)
    assert product.isprintable()
    assert len(product) <= host.MAX_LABEL


def test_an_empty_tree_has_no_data(tmp_path: pathlib.Path) -> None:
    with pytest.raises(sources.NoDataError):
        host.read_host(tmp_path)


def test_labels_of_this_host() -> None:
    assert host.read_host()[""]["boot"]


@given(st.text(max_size=200) | st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["v1", "ds", "meta_data", "region", "ami-id", "instance-type"]), inner)).map(json.dumps))  # fmt: skip
def test_any_instance_data_gives_strings_or_nothing(text: str) -> None:
    labels = host.parse_instance_data(text)
    assert all(isinstance(value, str) and value for value in labels.values())


class Metadata(http.server.BaseHTTPRequestHandler):
    """A fake metadata service that requires a token first, as IMDSv2 does."""

    requests: list[str]
    token = "TOKEN=="

    def do_PUT(self) -> None:
        assert self.path == "/latest/api/token"
        assert int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"]) <= 21600
        self.answer(200, self.token)

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.headers["X-aws-ec2-metadata-token"] != self.token:
            return self.answer(401, "")
        words = {"instance-id": "i-1", "placement/availability-zone": "us-east-1a", "ami-id": "ami-7"}  # fmt: skip
        path = self.path.removeprefix("/latest/meta-data/")
        return self.answer(200 if path in words else 404, words.get(path, "<html>"))

    def answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None: ...

    protocol_version = "HTTP/1.1"


@pytest.fixture
def service() -> Iterator[http.server.ThreadingHTTPServer]:
    Metadata.requests = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_metadata_service_is_queried_only_on_request(
    service: http.server.ThreadingHTTPServer,
) -> None:
    port = service.server_port
    assert host.read_metadata(address="127.0.0.1", port=port) == {}
    assert Metadata.requests == []
    assert host.read_metadata(ask=True, address="127.0.0.1", port=port) == {
        "instance": "i-1",
        "zone": "us-east-1a",
        "image": "ami-7",
    }


def test_without_a_metadata_service_there_are_no_labels() -> None:
    import socket

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but not listening
        assert host.read_metadata(ask=True, address="127.0.0.1", port=unused.getsockname()[1]) == {}


@pytest.mark.parametrize("token", ["tökén", "a\nb", ""])
def test_a_token_that_no_header_can_carry_gives_no_labels(
    service: http.server.ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setattr(Metadata, "token", token)
    assert host.read_metadata(ask=True, address="127.0.0.1", port=service.server_port) == {}
    assert Metadata.requests == []


def test_a_metadata_service_that_refuses_a_token_gives_no_labels(
    service: http.server.ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Metadata, "do_PUT", lambda self: self.answer(403, ""))
    assert host.read_metadata(ask=True, address="127.0.0.1", port=service.server_port) == {}
    assert Metadata.requests == []
