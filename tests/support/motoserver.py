"""A moto server that simulates AWS, in its own process on loopback; nothing here reaches Amazon."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

REGION, ELSEWHERE = "eu-west-1", "eu-central-1"
# The same as `moto_server`, on a free port.
SERVE = """
import ctypes, werkzeug.serving
from moto import server
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: not left behind by a killed test
app = server.DomainDispatcherApplication(server.create_backend_app)
serving = werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True)
print(serving.port, flush=True)
serving.serve_forever()
"""


def environment(url: str) -> dict[str, str]:
    """Return variables that point every AWS tool to this server only."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_SESSION_TOKEN": "testing",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Run a server and yield its URL."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    started = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={
            **plain,
            # Thousands of images and types that no test uses.
            "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
            "MOTO_ENABLE_ISO_REGIONS": "false",
        },
    )
    try:
        assert started.stdout is not None
        with started.stdout as output:
            port = output.readline().strip()
        assert port, "moto did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        started.terminate()
        started.wait(20)


def reset(url: str) -> None:
    """Delete everything on the server."""
    request = urllib.request.Request(f"{url}/moto-api/reset", method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200


def client(url: str, region: str = REGION) -> Any:
    """Return an EC2 client for the test, with other credentials than the provider."""
    import boto3.session

    session = boto3.session.Session(aws_access_key_id="other", aws_secret_access_key="other")
    return session.client("ec2", region_name=region, endpoint_url=url)


def template(ec2: Any, name: str = "runner", **data: object) -> str:
    """Create a launch template with an image and return its id."""
    image = ec2.register_image(Name=f"image of {name}", RootDeviceName="/dev/xvda")["ImageId"]
    created = ec2.create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData={"ImageId": image, "InstanceType": "t3.micro", **data},
    )
    return str(created["LaunchTemplate"]["LaunchTemplateId"])


def write_configuration(folder: pathlib.Path, url: str) -> dict[str, str]:
    """Write a profile for this server and return the variables that select it."""
    path = folder / "aws-config"
    path.write_text(
        "[profile pools]\naws_access_key_id = testing\naws_secret_access_key = testing\n"
        f"endpoint_url = {url}\n"
    )
    return {"AWS_CONFIG_FILE": str(path), "AWS_PROFILE": "pools"}


class Account:
    """The content of the account, read without the provider."""

    def __init__(self, url: str) -> None:
        self.ec2 = client(url, REGION)
        self.elsewhere = client(url, ELSEWHERE)

    def instances(self, *states: str) -> dict[str, dict[str, Any]]:
        pages = self.ec2.get_paginator("describe_instances").paginate()
        return {
            instance["InstanceId"]: instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
            if instance["State"]["Name"] in (states or ("pending", "running"))
        }

    def user_data(self, instance: str) -> str:
        attribute = self.ec2.describe_instance_attribute(InstanceId=instance, Attribute="userData")
        return base64.b64decode(attribute["UserData"]["Value"]).decode()
