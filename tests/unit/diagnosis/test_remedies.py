"""Names from the evidence in commands: quoted, from the root cause only, or left out."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess

import findings
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.diagnosis import decision, knowledge, remedies
from overnight.model import programs
from overnight.model.verdict import Chain, Link, Step


def decide(detected):
    return decision.decide(findings.RESET, findings.answers(detected))


def reference_of(unit: str, cgroup: str = "/docker"):
    detected = [
        finding for finding in findings.reference() if finding.kind != "unit.hidden_crash_loop"
    ]
    return decide([*detected, findings.hidden_loop(unit, 330, cgroup)])


def test_the_unit_to_mask_is_the_one_that_loops_not_the_one_that_walks() -> None:
    verdict = reference_of("ecs.service")
    commands = " ".join(step.command for step in (*verdict.fix, *verdict.next))
    assert "systemctl mask -- ecs.service" in commands
    assert "kubelet" not in commands


@pytest.mark.parametrize("unit", ["containerd.service", "kubelet.service", "kubepods.slice", ""])
def test_a_unit_that_contains_others_is_never_masked(unit: str) -> None:
    verdict = reference_of(unit)
    assert verdict.chain.steps[0].kind == "unit.hidden_crash_loop"
    assert not any("mask" in step.command for step in (*verdict.fix, *verdict.next))
    assert any("docker ps -a" in step.command for step in verdict.fix)


def test_zombies_without_a_known_creator_name_no_unit() -> None:
    detected = [
        finding for finding in findings.reference() if finding.kind != "unit.hidden_crash_loop"
    ]
    verdict = decide(detected)
    assert verdict.chain.steps[0].kind == "memory.zombie_cgroups"
    assert not any("kubelet" in step.command for step in (*verdict.fix, *verdict.next))


@pytest.mark.parametrize(
    "unit",
    ["a; reboot", "$(reboot)", "`reboot`", "-x", "a\nb", "a'b", 'a"b', "../etc", "x" * 300, "\x1b[2J"],
)  # fmt: skip
def test_an_unsafe_name_is_left_out_of_commands(unit: str) -> None:
    verdict = reference_of(unit)
    assert verdict.fix
    for step in (*verdict.fix, *verdict.next):
        assert unit not in step.command
        assert "reboot)" not in step.command
        assert step.what.isprintable()
    assert verdict.summary.isprintable()


NAMES = st.one_of(st.text(max_size=30), st.text("ab-/.:@ ;$'\\()", min_size=1, max_size=8))


@settings(max_examples=60)
@given(NAMES)
def test_any_name_is_quoted_or_left_out(name: str) -> None:
    detected = [findings.reset(), findings.starved(), findings.saturated()]
    magnitude = {"cores_burnt": 0.99}
    detected.append(
        findings.make_finding("cpu.rt_hog", -6, 1, 0.9, magnitude, core=39, process=name)
    )
    verdict = decide(detected)
    assert verdict.chain.steps[0].kind == "cpu.rt_hog"
    template = next(
        step.command
        for fix in knowledge.known().fixes
        if fix.root == "cpu.rt_hog"
        for step in fix.steps
    )
    arguments = programs.pgrep_arguments(name)
    assert len(shlex.split(arguments)) == 3  # the name is one word, whatever it contains
    whole = template.replace("{pgrep}", arguments)
    commands = {step.command for step in verdict.fix} - {""}
    assert commands == ({whole} if name and remedies.is_safe("process", name) else set())
    assert all(step.what.isprintable() for step in verdict.fix)


POD, CONTAINER = "monitoring/node-agent-x7k2p", f"/docker/{'3fa9' * 16}"


def steps_for(kind: str, unit: str) -> tuple[Step, ...]:
    subject = {
        "process": "kworker/3:1",
        "unit": unit,
        "cgroup": "/a/b c",
        "core": 39,
        "interface": "eth0",
    }
    root = findings.make_finding(kind, **subject)
    event = findings.reset()
    link = Link(root.id, event.id, 1.0, ())
    chain = Chain((root, event), (link,), 1.0)
    known = knowledge.known()
    return (*remedies.fix(chain, known), *remedies.experiment(chain, known))


@pytest.mark.parametrize("kind", sorted({fix.root for fix in knowledge.known().fixes}))
def test_every_command_is_valid_shell(kind: str) -> None:
    for unit in ("a@b.service", POD, CONTAINER):
        steps = steps_for(kind, unit)
        assert steps
        for step in steps:
            assert "{" not in step.what + step.command + step.expect
        commands = "\n".join(step.command for step in steps)
        subprocess.run(["bash", "-n", "-c", commands], check=True, timeout=8)


DESCRIBE = "kubectl --namespace monitoring describe pod node-agent-x7k2p"
INSPECT = "crictl inspect 3fa93fa93fa9 || docker inspect 3fa93fa93fa9"


# How many steps have a command for the pod or container, instead of one of systemctl for a unit.
@pytest.mark.parametrize(
    ("kind", "of_pod", "of_container"),
    [
        ("mechanism.smaps-reading", 1, 1),
        ("process.spawn_storm", 2, 1),
        ("memory.reclaim", 2, 1),
        ("memory.cgroup_walk", 1, 0),
        ("cpu.rt_hog", 1, 0),
    ],
)
def test_a_root_in_a_pod_or_container_gets_commands_for_it(
    kind: str, of_pod: int, of_container: int
) -> None:
    of_unit = steps_for(kind, "batch.service")
    assert any("systemctl" in step.command for step in of_unit) == (
        not kind.startswith("mechanism.")
    )
    for unit, command, count in ((POD, DESCRIBE, of_pod), (CONTAINER, INSPECT, of_container)):
        steps = steps_for(kind, unit)
        assert [step.command for step in steps].count(command) == count
        assert not any("systemctl" in step.command or "by hand" in step.what for step in steps)
    assert not any("kubectl" in step.command or "inspect" in step.command for step in of_unit)


def test_a_crash_loop_in_a_pod_is_not_masked() -> None:
    verdict = reference_of("/kubepods/burstable/pod7f")
    assert not any("mask" in step.command for step in (*verdict.fix, *verdict.next))
    assert any("crictl ps -a" in step.command for step in verdict.fix)


def test_text_in_brackets_is_left_out_when_a_value_is_missing() -> None:
    assert remedies.fill("[{a}|some][ of {b}]", {}) == "some"
    assert remedies.fill("[{a}|some][ of {b}]", {"a": "1", "b": "{a}"}) == "1 of {a}"
    assert remedies.fill("{a}", {}) == ""


def container_loop(container: str, unit: str = "", image: str = "", restarted: int = 0):
    loop = findings.hidden_loop(unit, 330, "/docker")
    subject = dataclasses.replace(loop.subject, container=container, image=image)
    magnitude = {**loop.magnitude, "restarted": restarted}
    rest = [each for each in findings.reference() if each.kind != loop.kind]
    return decide([*rest, dataclasses.replace(loop, subject=subject, magnitude=magnitude)])


@pytest.mark.parametrize(
    ("container", "unit", "first", "never"),
    [
        ("docker:ecs-agent", "", "docker ps --all --no-trunc", ("ctr ", "crictl", "mask")),
        ("docker:?", "", "docker ps --all --no-trunc", ("ctr ", "crictl", "mask", "inspect")),
        ("docker:image=a/b:1", "", "docker ps --all --no-trunc", ("ctr ", "crictl", "inspect")),
        ("docker:ecs-agent", "session-3.scope", "docker ps --all --no-trunc", ("ctr ", "mask")),
        ("docker:ecs-agent", "ecs.service", "systemctl disable --now -- ecs.service && systemctl mask -- ecs.service", ("ctr ",)),
        ("docker:?", "ecs.service", "systemctl disable --now -- ecs.service && systemctl mask -- ecs.service", ("ctr ", "docker rm")),
        ("containerd:default/a", "", "ctr --namespace default containers list", ("docker", "crictl", "mask")),
        ("containerd:default/a", "a.service", "systemctl disable --now -- a.service && systemctl mask -- a.service", ("docker",)),
        ("kubernetes:prod/web-7/app", "prod/web-7", "kubectl --namespace prod describe pod web-7", ("docker", "ctr ", "mask")),
        ("podman:?", "", "podman ps --all --no-trunc", ("docker", "crictl", "mask")),
        ("podman:?", "a.service", "systemctl disable --now -- a.service && systemctl mask -- a.service", ("docker", "crictl")),
        ("systemd:run-*.service", "", "systemctl list-units --all --type=service,scope", ("mask", "docker", "crictl")),
    ],
)  # fmt: skip
def test_the_fix_of_a_container_is_that_of_its_runtime(
    container: str, unit: str, first: str, never: tuple[str, ...]
) -> None:
    commands = [step.command for step in container_loop(container, unit).fix if step.command]
    assert commands[0] == first
    assert not [command for command in commands for word in never if word in command]


@pytest.mark.parametrize(
    ("container", "unit", "restarted", "says"),
    [
        ("docker:web", "", 0, "An unknown unit starts container web, which is crash-looping"),
        ("docker:web", "", 40, "Docker itself starts container web, which is crash-looping"),
        ("docker:image=a/b:1", "", 0, "An unknown unit starts a container of image a/b:1, which"),
        ("docker:?", "", 0, "An unknown unit starts a container of Docker, which"),
        ("podman:user-7.slice/?", "", 0, "An unknown unit starts a container of Podman, which"),
        ("systemd:run-*.scope", "", 0, "An unknown unit starts transient unit run-*.scope, which"),
        ("kubernetes:prod/web-7/app", "prod/web-7", 40, "Container app of prod/web-7 is"),
        ("", "user@7.service", 0, "A child of user@7.service is crash-looping"),
        ("docker:web", "a.service", 0, "own supervisor, as container web of image a/b:1"),
        ("docker:image=a/b:1", "a.service", 0, "own supervisor, as a container of image a/b:1"),
        ("podman:?", "a.service", 0, "own supervisor, as a container of Podman"),
        ("systemd:run-*.scope", "a.service", 0, "own supervisor, as transient unit run-*.scope"),
        (
            "",
            "a.service",
            0,
            "a.service is crash-looping 330 times an hour under its own supervisor",
        ),
    ],
)
def test_the_cause_says_what_is_known_of_the_container_and_of_its_starter(
    container: str, unit: str, restarted: int, says: str
) -> None:
    image = "a/b:1" if container.startswith("docker:") and container != "docker:?" else ""
    verdict = container_loop(container, unit, image, restarted)
    assert says in verdict.narrative.root_cause
    assert verdict.narrative.root_cause.count("a/b:1") <= 1


@pytest.mark.parametrize(
    "name",
    [
        "a; reboot",
        "$(reboot)",
        "`reboot`",
        "--help",
        "a\nb",
        "a'b",
        'a"b',
        "x" * 300,
        "\x1b[2J",
        "web-*",
    ],
)
@pytest.mark.parametrize(
    "runtime", ["docker:", "docker:image=", "containerd:default/", "kubernetes:p/q/"]
)
def test_an_unsafe_name_of_a_container_is_left_out_of_commands(name: str, runtime: str) -> None:
    verdict = container_loop(f"{runtime}{name}", image=name)
    assert verdict.fix
    for step in (*verdict.fix, *verdict.next):
        assert name not in step.command
        assert "reboot)" not in step.command
        assert "\x1b" not in step.command + step.what + step.expect


@pytest.mark.parametrize(
    ("container", "unit", "expected"),
    [
        ("docker:ecs", "", {"culprit": "container ecs", "container": "ecs"}),
        ("docker:ecs", "ecs.service", {"culprit": "ecs.service", "container": "ecs"}),
        ("docker:image=a/b:1", "", {"culprit": "a container of image a/b:1"}),
        ("docker:?", "", {"culprit": "a container of Docker"}),
        ("", "ecs.service", {"culprit": "ecs.service"}),
    ],
)
def test_the_culprit_is_its_unit_else_its_container_else_its_image(
    container: str, unit: str, expected: dict[str, str]
) -> None:
    loop = findings.make_finding("unit.hidden_crash_loop", container=container, unit=unit)
    names = remedies.values(loop)
    assert {name: names[name] for name in ("culprit", "container") if name in names} == expected


def test_names_with_a_slash_are_safe_where_they_have_one() -> None:
    for name, is_safe in (
        ("image", True),
        ("process", True),
        ("unit", False),
        ("container", False),
    ):
        assert remedies.is_safe(name, "a/b:1") is is_safe, name


def test_the_image_in_a_command_is_that_of_the_root() -> None:
    verdict = container_loop("docker:?", image="")
    steps = [dataclasses.replace(step, subject=dataclasses.replace(step.subject, image="kubelet-image", container="docker:kubelet")) if n else step for n, step in enumerate(verdict.chain.steps)]  # fmt: skip
    chain = dataclasses.replace(verdict.chain, steps=tuple(steps))
    commands = " ".join(step.command for step in remedies.fix(chain, knowledge.known()))
    assert "kubelet" not in commands
