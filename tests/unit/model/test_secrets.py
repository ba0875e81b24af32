from __future__ import annotations

import pytest

from overnight.model import secrets


@pytest.mark.parametrize(
    "name",
    ["password", "DB_PASSWD", "net.ipv4.tcp_fastopen_key", "stable_secret", "api-key", "ACCESS_TOKEN", "auth", "rd.luks.key", "netdev_rss_key", "wpa_psk", "credentials"],
)  # fmt: skip
def test_secret_names_are_recognised(name: str) -> None:
    assert secrets.named_secret(name)
    assert secrets.scrub(name, "hunter2") == secrets.MASK


@pytest.mark.parametrize(
    "name",
    ["vm.swappiness", "kernel.keyboard", "author", "monkey", "mitigation spec_store_bypass", "net.core.somaxconn", "compass"],
)  # fmt: skip
def test_ordinary_names_are_not_secret(name: str) -> None:
    assert not secrets.named_secret(name)


SECRETS = [
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "c2VjcmV0LXZhbHVlLWhlcmUtMTIzNDU2Nzg5MA==",
    "$6$saltsalt$kGg2Qv1h0aXqB3h0aXqB3h0aXqB3",
    "s3cr3tT0k3nV4lu3XyZ9Qw",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_secret_values_are_masked(secret: str) -> None:
    for text in (
        secret,
        f"ro {secret} quiet",
        f"console={secret}",
        f"https://x.example/{secret}/y",
    ):
        assert secret not in secrets.scrub("cmdline", text)


@pytest.mark.parametrize(
    "text",
    [
        "BOOT_IMAGE=/boot/vmlinuz-6.1.0-18-amd64 root=UUID=0c8e7f5a-1111-2222-3333-444455556666 ro",
        "1:0.2.33-1ubuntu2~deb12u4+build20231105",
        "Intel(R) Xeon(R) Platinum 8175M CPU @ 2.50GHz",
        "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)",
        "rw,nosuid,nodev,noexec,relatime,size=6553600k,mode=755,inode64",
        "tsc kvm-clock acpi_pm hpet",
        "nf_conntrack_h323.parameters.default_rrq_ttl",
        "/usr/lib/systemd/system/systemd-networkd-wait-online@.service",
        "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; RSB filling; PBRSB-eIBRS: SW sequence",
    ],
)
def test_ordinary_values_are_kept(text: str) -> None:
    assert secrets.scrub("value", text) == text


def test_a_url_loses_its_user() -> None:
    assert secrets.scrub("source", "https://bob:pw@x.example/a") == "https://(masked)@x.example/a"


@pytest.mark.parametrize("text", ["a password=hunter2 b", "token: hunter2", "x.secret='hunter2 and more'", "|/x --password hunter2 %p", "user=u,password=hunter2,vers=3", "audit: key=hunter2", 'op=login: msg="token=hunter2"'])  # fmt: skip
def test_secret_pairs_in_a_text_are_masked(text: str) -> None:
    assert "hunter2" not in secrets.scrub("value", text)
