"""Secrets are masked; names that look random are not, because findings are joined by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.store.bundle import scrubber

HEX = "3f2a9c" * 11
CONTAINER = HEX[:64]
TASK = HEX[:32]
POD = "0c8e7f5a-1111-2222-3333-4444aa55bb66"
TOKEN = "ghp_A1b2C3d4E5f6G7h8J9k0"


@pytest.mark.parametrize(
    "name",
    [
        "kubelet",
        "kworker/u8:3-events_unbound",
        "eth0 rx_key_err",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
        f"/kubepods/besteffort/pod{POD}/{CONTAINER}",
        f"/system.slice/docker-{CONTAINER}.scope",
        f"/ecs/{TASK}/{CONTAINER}",
        f"/ecstasks.slice/ecstasks-{TASK}.slice",
        f"run-r{TASK}.scope",
        "/overnight-f0df0a26/system.slice/agent.service",
        "TX q 1 is paused for too long [overnight rehearsal overnight-f0df0a26]",
        "ip-10-0-12-7.ec2.internal",
        "systemd-networkd-wait-online.service",
    ],
)
def test_names_on_a_host_are_not_masked(name: str) -> None:
    masks = scrubber.Scrubber()
    assert masks.name("unit names", name) == name
    assert masks.text("event texts", f"something of {name} ended") == f"something of {name} ended"
    assert masks.masked == {}


@pytest.mark.parametrize(
    "label",
    ["ami-0a1b2c3d4e5f67890", "i-0a1b2c3d", "us-east-1a", "5.10.234-225.910.amzn2.x86_64", POD],
)
def test_labels_of_a_host_are_not_masked(label: str) -> None:
    assert scrubber.Scrubber().fact("image", label) == label


@pytest.mark.parametrize(
    ("name", "left"),
    [
        (f"job@{TOKEN}.service", "(masked)"),
        (f"/user.slice/{TOKEN}.scope/x", "/user.slice/(masked)/x"),
        (f"/docker/{HEX}", "/docker/(masked)"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "(masked)"),
        ("app --password hunter2", "app --password (masked)"),
        (f"password={CONTAINER}", "password=(masked)"),
        ("\0" + CONTAINER, "(masked)"),
    ],
)
def test_secrets_in_names_are_masked(name: str, left: str) -> None:
    assert scrubber.Scrubber().name("unit names", name) == left


def test_a_secret_pair_inside_another_pair_is_masked() -> None:
    masks = scrubber.Scrubber()
    line = 'audit: op=login: password=hunter2 msg="token=hunter3"'
    assert "hunter" not in masks.text("event texts", line)
    assert masks.masked == {"event texts": 1}


def test_mangled_and_java_function_names_are_not_masked() -> None:
    masks = scrubber.Scrubber()
    for name in (
        "_ZN4core3ptr85drop_in_place$LT$std..rt..lang_start$LT$$LP$$RP$$GT$17h0a1b2c3d4e5f6a7bE",
        "Lio/netty/Foo$$Lambda$14$0x0000000800c0a840;::run",
        "_ZNSt6vectorIiSaIiEE9push_backEOi",
    ):
        assert masks.function("function names", name) == name
    assert masks.function("function names", f"f_{TOKEN}") == "(masked)"


@given(st.lists(st.text(max_size=60)))
def test_different_names_stay_different(names: list[str]) -> None:
    masks = scrubber.Scrubber()
    secret = [f"{name}{TOKEN}{n}" for n, name in enumerate(names)]
    secret = ["(masked) 2", *secret, "(masked)", "(masked) 3"]
    masked = [masks.name("x", name) for name in secret]
    assert len(set(masked)) == len(set(secret))
    assert masked == [masks.name("x", name) for name in secret]
    assert not any(TOKEN in name for name in masked)


@given(st.text())
def test_any_text_is_scrubbed(text: str) -> None:
    masks = scrubber.Scrubber()
    masks.name("x", text)
    masks.function("x", text)
    masks.fact("image", text)
    once = masks.text("x", text)
    assert masks.text("x", once) == once
