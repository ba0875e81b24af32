"""Images to audit: from a vendor, from a distribution, and from an attacker."""

from __future__ import annotations

import os
import pathlib

SYSTEM = "usr/lib/systemd/system"
ETC = "etc/systemd/system"
PRESETS = "usr/lib/systemd/system-preset"

ECS = """[Unit]
Description=Amazon Elastic Container Service - container agent
Documentation=https://aws.amazon.com/documentation/ecs/
Requires=docker.service
After=docker.service
After=cloud-final.service

[Service]
Type=simple
Restart=on-failure
RestartPreventExitStatus=5
RestartSec=10s
EnvironmentFile=-/var/lib/ecs/ecs.config
ExecStartPre=/usr/libexec/amazon-ecs-init pre-start
ExecStart=/usr/libexec/amazon-ecs-init start
ExecStop=/usr/libexec/amazon-ecs-init stop

[Install]
WantedBy=multi-user.target
"""

KUBELET = """[Unit]
Description=kubelet: The Kubernetes Node Agent

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""

SSH = """[Unit]
Description=OpenBSD Secure Shell server

[Service]
ExecStart=/usr/sbin/sshd -D $SSHD_OPTS
Restart=on-failure

[Install]
WantedBy=multi-user.target
Alias=sshd.service
"""


class Image:
    """A tree that is filled step by step."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def file(self, path: str, text: str = "", mode: int = 0o644) -> Image:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
        return self

    def program(self, path: str) -> Image:
        return self.file(path, "#!/bin/sh\nexit 0\n", 0o755)

    def link(self, path: str, target: str) -> Image:
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        return self

    def unit(self, name: str, text: str, *, enabled: bool = False) -> Image:
        self.file(f"{SYSTEM}/{name}", text)
        if enabled:
            self.link(f"{ETC}/multi-user.target.wants/{name}", f"/{SYSTEM}/{name}")
        return self


def deep_learning(root: pathlib.Path) -> Image:
    """The image of the reference incident: the vendor's preset enables ecs.service, and the host
    is one of Kubernetes.
    """
    image = Image(root)
    image.unit("ecs.service", ECS, enabled=True).unit("kubelet.service", KUBELET, enabled=True)
    image.unit("docker.service", "[Service]\nExecStart=/usr/bin/dockerd\n")
    image.file(f"{PRESETS}/90-ecs.preset", "# of the vendor\nenable ecs.service\n")
    image.file(f"{PRESETS}/99-default.preset", "disable *\n")
    image.file("etc/kubernetes/kubelet.conf", "apiVersion: v1\nkind: Config\n")
    image.file("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
    image.file("etc/ecs/ecs.config", "# ECS_CLUSTER=\n")
    for program in ("usr/bin/kubelet", "usr/bin/dockerd", "usr/libexec/amazon-ecs-init"):
        image.program(program)
    image.file("usr/lib/os-release", 'ID=amzn\nNAME="Amazon Linux"\n')
    return image


def debian(root: pathlib.Path) -> Image:
    """A plain Debian without findings."""
    image = Image(root)
    image.unit("ssh.service", SSH, enabled=True).program("usr/sbin/sshd")
    image.link(f"{ETC}/sshd.service", f"/{SYSTEM}/ssh.service")
    image.unit(
        "getty@.service",
        "[Service]\nExecStart=-/sbin/agetty - $TERM\nRestart=always\nRestartSec=0\n"
        "[Install]\nWantedBy=getty.target\nDefaultInstance=tty1\n",
    )
    image.link(f"{ETC}/getty.target.wants/getty@tty1.service", f"/{SYSTEM}/getty@.service")
    image.program("usr/sbin/agetty").link("sbin", "usr/sbin").link("lib", "usr/lib")
    image.unit(
        "systemd-networkd.service", "[Service]\nExecStart=/bin/x\n[Install]\nWantedBy=a.target\n"
    )
    image.file(
        f"{PRESETS}/90-systemd.preset", "disable systemd-networkd.service\nenable getty@.service\n"
    )
    return image


def hostile(root: pathlib.Path, outside: pathlib.Path) -> Image:
    """Links out of the image, loops, a fifo, a device's name, junk, and names with terminal escapes."""
    (outside / "secret.service").write_text(
        "[Service]\nExecStart=/leaked-from-outside\nRestart=always\n"
    )
    (outside / "wants").mkdir()
    (outside / "wants/leaked.service").symlink_to("/leaked.service")
    image = Image(root)
    climb = "../" * 30 + str(outside).lstrip("/")
    image.link(f"{ETC}/absolute.service", f"{outside}/secret.service")
    image.link(f"{ETC}/climbing.service", f"{climb}/secret.service")
    image.link(f"{ETC}/multi-user.target.wants/absolute.service", f"{outside}/secret.service")
    image.link(f"{ETC}/multi-user.target.wants/climbing.service", f"{climb}/secret.service")
    image.link(f"{ETC}/graphical.target.wants", f"{climb}/wants")
    image.link(f"{ETC}/absolute.service.d", str(outside))
    image.link("usr/local/lib/systemd", climb)
    image.link("run", str(outside))
    image.link(f"{ETC}/one.service", "two.service").link(f"{ETC}/two.service", "one.service")
    image.link(f"{ETC}/loop.service.d", "loop.service.d")
    os.mkfifo(root / ETC / "fifo.service")
    image.link(f"{ETC}/multi-user.target.wants/fifo.service", "../fifo.service")
    (root / ETC / "folder.service").mkdir()
    (root / ETC / "junk.service").write_bytes(bytes(range(256)) * 64)
    image.file(f"{ETC}/long.service", "[Service]\nExecStart=" + "x" * 900_000 + "\\\n" * 1000)
    image.file(f"{ETC}/huge.service").link(
        f"{ETC}/multi-user.target.wants/huge.service", "../huge.service"
    )
    os.truncate(root / ETC / "huge.service", 1 << 33)
    image.file(f"{PRESETS}/10-x.preset", "enable " + "*a" * 2000 + "\nenable [\ndisable [!\n")
    image.link(f"{PRESETS}/20-out.preset", f"{climb}/secret.service")
    escape = os.fsdecode(b"esc\x1b[31m\xff.service")
    image.link(f"{ETC}/multi-user.target.wants/{escape}", "/x")
    return image
