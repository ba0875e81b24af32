"""The reference incident with the agent's cgroups where runtimes create them, never below the agent's unit."""

from __future__ import annotations

import pathlib
import shlex
import subprocess

import pytest

import scenarios
from overnight.app import diagnose
from scenarios import incidents

LAYOUTS = [layout for layout in incidents.LAYOUTS if layout != "own"]
SHORT = {"minutes": 16.0, "cores": 8}


def diagnose_reference(home: pathlib.Path, layout: str, every: float = 14.0, **changes: object):
    truth = scenarios.build(
        "reference", home, seed=11, layout=layout, every=every, **SHORT, **changes
    )
    verdict, _ = diagnose.diagnose_event(truth.home, truth.event)
    return truth, verdict


@pytest.mark.parametrize("every", [9.0, 14.0])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_unit_is_named_with_its_container_and_the_fix_is_that_of_the_runtime(
    tmp_path: pathlib.Path, layout: str, every: float
) -> None:
    truth, verdict = diagnose_reference(tmp_path, layout, every)
    assert truth.problems(verdict) == []
    unit, runtime = str(truth.facts["loop"]), layout.partition("-")[0]
    assert verdict.narrative.headline == f"Cause found: {unit} leaks memory cgroups"
    assert "as container ecs-agent" in verdict.narrative.root_cause
    assert ("of image amazon/amazon-ecs-agent:latest" in verdict.narrative.root_cause) == (
        runtime == "docker"
    )
    root = verdict.chain.steps[0]
    assert any("births fell within 2 s" in fact.text for fact in root.evidence)
    commands = [step.command for step in verdict.fix if step.command]
    assert commands[0] == f"systemctl disable --now -- {unit} && systemctl mask -- {unit}"
    removal = {
        "docker": "docker rm --force ecs-agent",
        "containerd": "ctr --namespace default containers delete ecs-agent",
    }
    assert commands[1] == removal[runtime]
    other = {"docker": ("ctr ", "crictl"), "containerd": ("docker",)}[runtime]
    assert not any(word in command for command in commands for word in other)
    for command in commands:
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0
        assert shlex.split(command)


@pytest.mark.parametrize(
    "supervisors",
    [
        pytest.param({}, id="nobody"),
        pytest.param({"metrics.service": (0.5, 0.4)}, id="by chance"),
        pytest.param(
            {"sync.service": (0.95, 0.03), "metrics.service": (0.93, 0.02)}, id="two units"
        ),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_one_unit_that_coincides_the_container_is_named_and_no_unit(
    tmp_path: pathlib.Path, layout: str, supervisors: dict[str, tuple[float, float]]
) -> None:
    truth, verdict = diagnose_reference(tmp_path / "a", layout, supervisors=supervisors)
    _, sure = diagnose_reference(tmp_path / "b", layout)
    assert [problem for problem in truth.problems(verdict) if "unit is None" not in problem] == []
    assert "container ecs-agent" in verdict.narrative.headline
    assert "An unknown unit starts container ecs-agent" in verdict.narrative.root_cause
    assert "find what has" in verdict.narrative.fix.lower()
    commands = [step.command for step in verdict.fix]
    assert not any("mask" in command or "metrics" in command for command in commands)
    assert any(
        ("docker" if layout.startswith("docker") else "ctr") in command for command in commands
    )
    assert verdict.score < sure.score
    assert verdict.confidence < sure.confidence


def test_seeds_choose_every_layout(tmp_path: pathlib.Path) -> None:
    chosen = set()
    for seed in range(40):
        setup = scenarios.host_setup.make(seed, story="reference", minutes=1.0, cores=2)
        _, births = incidents.hidden_loop(setup)
        runtime = births.creator.fact["runtime"] if births.creator else "own"
        chosen.add((runtime, births.parent.startswith("/system.slice")))
    assert chosen == {
        ("own", True), ("docker", True), ("docker", False), ("containerd", True), ("containerd", False),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("process", "unit", "restarted"),
    [("kubelet", "ecs.service", 0), ("plain", "", 0), ("kubelet", "", 200)],
    ids=["kubelet runs", "no orchestrator", "Docker restarts it"],
)
def test_of_two_units_the_one_that_does_not_belong_on_the_host_is_blamed(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    process: str,
    unit: str,
    restarted: int,
) -> None:
    sure = (0.95, 0.03)
    monkeypatch.setattr(incidents, "WALKING", (process,))
    monkeypatch.setattr(incidents, "LOOPING", ("ecs.service",))
    _, verdict = diagnose_reference(
        tmp_path,
        "docker-cgroupfs",
        supervisors={"ecs.service": sure, "metrics.service": sure},
        restarted=restarted,
    )
    root = verdict.chain.steps[0]
    assert (root.kind, root.subject.unit) == ("unit.hidden_crash_loop", unit)
    reasons = [fact.text for fact in root.evidence if "Amazon ECS" in fact.text]
    assert bool(reasons) == bool(unit)
    assert any("mask -- ecs.service" in step.command for step in verdict.fix) == bool(unit)
