"""Names of the evidence in commands: quoted, the root's own, or not at all."""

from __future__ import annotations

import shlex
import subprocess

import findings
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.diagnosis import decision, knowledge, remedies
from overnight.model.verdict import Chain, Link


def judged(many):
    return decision.decide(findings.RESET, findings.answers(many))


def reference_of(unit: str, cgroup: str = "/docker"):
    many = [one for one in findings.reference() if one.kind != "unit.hidden_crash_loop"]
    return judged([*many, findings.hidden_loop(unit, 330, cgroup)])


def test_the_unit_to_mask_is_the_one_that_loops_not_the_one_that_walks() -> None:
    said = reference_of("ecs.service")
    commands = " ".join(step.command for step in (*said.fix, *said.next))
    assert "systemctl mask -- ecs.service" in commands
    assert "kubelet" not in commands


@pytest.mark.parametrize("unit", ["containerd.service", "kubelet.service", "kubepods.slice", ""])
def test_what_others_live_in_is_never_masked(unit: str) -> None:
    said = reference_of(unit)
    assert said.chain.steps[0].kind == "unit.hidden_crash_loop"
    assert not any("mask" in step.command for step in (*said.fix, *said.next))
    assert any("docker ps -a" in step.command for step in said.fix)


def test_zombies_without_a_known_creator_blame_no_unit() -> None:
    many = [one for one in findings.reference() if one.kind != "unit.hidden_crash_loop"]
    said = judged(many)
    assert said.chain.steps[0].kind == "memory.zombie_cgroups"
    assert not any("kubelet" in step.command for step in (*said.fix, *said.next))


@pytest.mark.parametrize(
    "unit",
    ["a; reboot", "$(reboot)", "`reboot`", "-x", "a\nb", "a'b", 'a"b', "../etc", "x" * 300, "\x1b[2J"],
)  # fmt: skip
def test_an_odd_name_is_in_no_command(unit: str) -> None:
    said = reference_of(unit)
    assert said.fix
    for step in (*said.fix, *said.next):
        assert unit not in step.command
        assert "reboot)" not in step.command
        assert step.what.isprintable()
    assert said.summary.isprintable()


NAMES = st.one_of(st.text(max_size=30), st.text("ab-/.:@ ;$'\\()", min_size=1, max_size=8))


@settings(max_examples=60)
@given(NAMES)
def test_whatever_the_name_it_is_quoted_or_left_out(name: str) -> None:
    many = [findings.reset(), findings.starved(), findings.saturated()]
    told = {"cores_burnt": 0.99}
    many.append(findings.make_finding("cpu.rt_hog", -6, 1, 0.9, told, core=39, process=name))
    said = judged(many)
    assert said.chain.steps[0].kind == "cpu.rt_hog"
    template = next(
        step.command
        for one in knowledge.known().fixes
        if one.root == "cpu.rt_hog"
        for step in one.steps
    )
    whole = template.replace("{process}", shlex.quote(name))
    commands = {step.command for step in said.fix} - {""}
    assert commands == ({whole} if name and remedies.is_safe("process", name) else set())
    assert all(step.what.isprintable() for step in said.fix)


@pytest.mark.parametrize("kind", sorted({one.root for one in knowledge.known().fixes}))
def test_every_command_is_shell(kind: str) -> None:
    """The shell reads them all, with names filled in."""
    who = {
        "process": "kworker/3:1",
        "unit": "a@b.service",
        "cgroup": "/a/b c",
        "core": 39,
        "interface": "eth0",
    }
    root = findings.make_finding(kind, **who)
    event = findings.reset()
    link = Link(root.id, event.id, 1.0, ())
    chain = Chain((root, event), (link,), 1.0)
    known = knowledge.known()
    steps = (*remedies.fix(chain, known), *remedies.experiment(chain, known))
    assert steps
    for step in steps:
        assert "{" not in step.what + step.command + step.expect
        subprocess.run(["bash", "-n", "-c", step.command], check=True, timeout=8)


def test_text_in_brackets_is_left_out_where_it_cannot_be_said() -> None:
    assert remedies.fill("[{a}|some][ of {b}]", {}) == "some"
    assert remedies.fill("[{a}|some][ of {b}]", {"a": "1", "b": "{a}"}) == "1 of {a}"
    assert remedies.fill("{a}", {}) == ""
