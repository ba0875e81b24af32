from __future__ import annotations

import pathlib

import images
import pytest

from overnight import errors
from overnight.app import audit
from overnight.app.audit import knowledge, restarts, rules, runtime
from overnight.model.audit import Belonging, Finding
from overnight.sources.image import unitfile


def find(root: pathlib.Path, **options: str) -> dict[tuple[str, str], Finding]:
    return {
        (finding.unit, finding.id): finding for finding in audit.examine(root, **options).findings
    }


def test_findings_of_the_incident_image(tmp_path: pathlib.Path) -> None:
    images.deep_learning(tmp_path)
    report = audit.examine(tmp_path)
    assert report.orchestrator.name == "kubernetes"
    assert any(
        fact.where == "/etc/kubernetes/kubelet.conf" for fact in report.orchestrator.evidence
    )
    assert "ecs" in report.orchestrator.others
    worst = report.findings[0]
    assert (worst.unit, worst.id, worst.risk) == ("ecs.service", "foreign-orchestrator", "high")
    places = {fact.place for fact in worst.evidence}
    assert "/usr/lib/systemd/system-preset/90-ecs.preset:2" in places
    assert "/etc/systemd/system/multi-user.target.wants/ecs.service" in places
    assert "memory cgroup" in worst.why
    assert report.to_turn_off == ("ecs.service",)
    assert report.bad
    ids = {finding.id for finding in report.findings if finding.unit == "ecs.service"}
    assert {"endless-restart", "supervisor-inside"} <= ids


def test_kubelet_is_endless_by_design(tmp_path: pathlib.Path) -> None:
    images.deep_learning(tmp_path)
    finding = find(tmp_path)["kubelet.service", "endless-restart"]
    assert finding.risk == "low"
    assert "StartLimitInterval=0" in {fact.says for fact in finding.evidence}


def test_the_orchestrator_option_overrides_detection(tmp_path: pathlib.Path) -> None:
    images.deep_learning(tmp_path)
    findings = find(tmp_path, orchestrator="ecs")
    assert ("kubelet.service", "foreign-orchestrator") in findings
    assert ("ecs.service", "foreign-orchestrator") not in findings
    with pytest.raises(errors.UsageError, match="mesos"):
        audit.examine(tmp_path, orchestrator="mesos")


def test_an_ecs_host_keeps_its_agent(tmp_path: pathlib.Path) -> None:
    image = images.Image(tmp_path).unit("ecs.service", images.ECS, enabled=True)
    image.file("etc/ecs/ecs.config", "ECS_CLUSTER=batch\n")
    report = audit.examine(tmp_path)
    assert report.orchestrator.name == "ecs"
    assert "batch" not in repr(report)  # the evidence does not quote the rest of the line
    assert not any("orchestrator" in finding.id for finding in report.findings)


def test_an_enabled_agent_does_not_decide_the_orchestrator(tmp_path: pathlib.Path) -> None:
    images.Image(tmp_path).unit("ecs.service", images.ECS, enabled=True).file("etc/ecs/ecs.config")
    report = audit.examine(tmp_path)
    assert report.orchestrator.name == ""
    finding = find(tmp_path)["ecs.service", "unclear-orchestrator"]
    assert finding.risk == "low"
    assert not finding.turn_off


def test_an_agent_of_another_cloud_is_a_finding(tmp_path: pathlib.Path) -> None:
    image = images.deep_learning(tmp_path)
    image.unit("google-guest-agent.service", images.SSH, enabled=True)
    image.file("sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
    finding = find(tmp_path)["google-guest-agent.service", "foreign-cloud"]
    assert finding.turn_off
    assert "Amazon EC2" in finding.what


def test_docker_and_containerd_on_kubernetes_are_a_finding(tmp_path: pathlib.Path) -> None:
    image = images.deep_learning(tmp_path)
    image.link("etc/systemd/system/multi-user.target.wants/docker.service", "/x")
    assert ("docker.service", "together") not in find(tmp_path)
    (tmp_path / "usr/lib/systemd/system/docker.service").write_text(images.SSH)
    image.unit("containerd.service", images.SSH, enabled=True)
    assert ("docker.service", "together") in find(tmp_path)


def test_a_plain_debian_has_no_findings(tmp_path: pathlib.Path) -> None:
    images.debian(tmp_path)
    report = audit.examine(tmp_path)
    assert report.findings == ()
    assert report.gaps == ()
    assert not report.bad


@pytest.mark.timeout(20)
def test_a_hostile_image_is_audited_and_leaks_nothing(tmp_path: pathlib.Path) -> None:
    root, outside = tmp_path / "image", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    images.hostile(root, outside)
    report = audit.examine(root)
    assert "leaked" not in repr(report)
    assert {finding.unit for finding in report.findings} >= {"absolute.service", "climbing.service"}
    assert any(finding.id == "outside-link" for finding in report.findings)


def test_a_root_without_units_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CannotError, match="no systemd units"):
        audit.examine(tmp_path)
    with pytest.raises(errors.CannotError, match="cannot be read"):
        audit.examine(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "endless"),
    [
        ("", False),
        ("Restart=no\nRestartSec=60", False),
        ("Restart=always", False),  # 5 x 100 ms < 10 s
        ("Restart=always\nRestartSec=1999ms", False),
        ("Restart=always\nRestartSec=2", True),  # 5 x 2 s = 10 s
        ("Restart=on-failure\nRestartSec=10s", True),
        ("Restart=always\n[Unit]\nStartLimitIntervalSec=0", True),
        ("Restart=always\n[Unit]\nStartLimitBurst=0", True),
        ("Restart=always\nRestartSec=10\n[Unit]\nStartLimitIntervalSec=1min", False),
        ("Restart=always\nRestartSec=10\nStartLimitInterval=60", False),  # the old name
        # systemd reads StartLimitIntervalSec= only in [Unit].
        ("Restart=always\nRestartSec=10\nStartLimitIntervalSec=60", True),
        ("Restart=always\nRestartSec=1\nRestartSteps=3\nRestartMaxDelaySec=8", True),  # 1+2+4+8+8
        ("Restart=always\nRestartSec=1\nRestartSteps=9\nRestartMaxDelaySec=2", False),
    ],
)
def test_endless_restarts(text: str, endless: bool) -> None:
    settings = unitfile.Settings(unitfile.parse_unit(f"[Service]\n{text}\n", "x"))
    assert restarts.limit_of(settings, restarts.Defaults()).endless is endless


def test_manager_defaults_set_the_restart_limit(tmp_path: pathlib.Path) -> None:
    image = images.Image(tmp_path)
    image.unit("a.service", "[Service]\nExecStart=/a\nRestart=always\nRestartSec=3\n[Install]\nWantedBy=x.target\n", enabled=True)  # fmt: skip
    image.program("a")
    assert ("a.service", "endless-restart") in find(tmp_path)
    image.file("etc/systemd/system.conf", "[Manager]\nDefaultStartLimitIntervalSec=1h\n")
    assert ("a.service", "endless-restart") not in find(tmp_path)
    image.file("etc/systemd/system.conf.d/x.conf", "[Manager]\nDefaultStartLimitIntervalSec=5\n")
    assert ("a.service", "endless-restart") in find(tmp_path)


SERVICE = "[Unit]\n{unit}\n[Service]\nExecStart={command}\n[Install]\nWantedBy=multi-user.target\n"


@pytest.mark.parametrize(
    ("command", "unit", "risk"),
    [
        ("/opt/gone --x", "", "medium"),
        ("-/opt/gone", "", "low"),
        ("gone", "", "medium"),
        ("/opt/here", "", None),
        ("here", "", None),
        ("/opt/gone", "ConditionPathExists=/nowhere", None),
        ("/opt/gone", "ConditionPathExists=!/nowhere", "medium"),
        ("/opt/gone", "ConditionPathExists=|/nowhere\nConditionPathExists=|/opt", "medium"),
        ("/opt/%h/gone", "", None),
        ("/opt/%p", "", "medium"),
        ("/opt", "", "medium"),
    ],
)
def test_missing_programs(
    tmp_path: pathlib.Path, command: str, unit: str, risk: str | None
) -> None:
    image = images.Image(tmp_path).program("opt/here").program("usr/bin/here")
    image.unit("a.service", SERVICE.format(command=command, unit=unit), enabled=True)
    finding = find(tmp_path).get(("a.service", "missing-binary"))
    assert (finding.risk if finding else None) == risk


def test_evidence_has_no_secrets(tmp_path: pathlib.Path) -> None:
    image = images.Image(tmp_path)
    command = "/opt/gone --token hunter2 s3cr3tT0k3nV4lu3XyZ9Qw"
    image.unit("a.service", SERVICE.format(command=command, unit=""), enabled=True)
    finding = find(tmp_path)["a.service", "missing-binary"]
    assert "hunter2" not in repr(finding)
    assert "s3cr3t" not in repr(finding)
    assert finding.evidence[0].line == 4


def test_wanted_units_that_are_masked_or_missing(tmp_path: pathlib.Path) -> None:
    image = images.Image(tmp_path).program("a")
    image.unit(
        "a.service",
        SERVICE.format(
            command="/a",
            unit="Requires=m.service no.service x@1.service d.device\nRequires=y@1.service",
        ),
        enabled=True,
    )
    image.unit("y@.service", SERVICE.format(command="/a", unit=""))
    image.link("etc/systemd/system/m.service", "/dev/null")
    image.link("etc/systemd/system/n.service", "/dev/null")
    image.link("etc/systemd/system/x.target.wants/n.service", "/usr/lib/systemd/system/n.service")
    image.link("etc/systemd/system/x.target.requires/gone.service", "/gone.service")
    risks = {key: finding.risk for key, finding in find(tmp_path).items()}
    assert risks == {
        ("m.service", "masked-yet-wanted"): "medium",
        ("n.service", "masked-yet-wanted"): "low",
        ("gone.service", "wanted-missing"): "medium",
        ("no.service", "wanted-missing"): "medium",
        ("x@1.service", "wanted-missing"): "medium",
    }


def test_contradicting_presets(tmp_path: pathlib.Path) -> None:
    image = images.debian(tmp_path)
    image.file("etc/systemd/system-preset/10-x.preset", "disable ssh.service\n")
    image.file("usr/lib/systemd/system-preset/20-y.preset", "enable ssh*\n")
    image.file("usr/lib/systemd/system-preset/99.preset", "disable *\n")
    findings = find(tmp_path)
    assert "disable wins" in findings["ssh.service", "preset-conflict"].what
    assert ("ssh.service", "against-preset") in findings
    assert ("getty@.service", "preset-conflict") not in findings


@pytest.mark.parametrize(
    ("command", "inside"),
    [
        ("/usr/libexec/amazon-ecs-init start", True),
        ("/usr/libexec/amazon-ecs-init pre-start", False),
        ("/usr/bin/docker run --name x --restart=always img", True),
        ("/usr/bin/docker run img", False),
        ("/bin/bash -c 'while true; do x; done'", True),
        ("/usr/bin/supervisord -n", True),
    ],
)
def test_supervisors_are_recognised(command: str, inside: bool) -> None:
    words = unitfile.parse_command(command)[1]
    assert any(supervisor.runs(words) for supervisor in knowledge.known().supervisors) is inside


RUNNING = {"Id": "ssh.service", "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "Result": "success", "NRestarts": "0", "ActiveEnterTimestampMonotonic": "99", "ConditionResult": "yes", "ConditionTimestampMonotonic": "98", "ExecMainStatus": "0"}  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "journal", "uptime", "finding"),
    [
        ({}, 0, 9999, None),
        ({"NRestarts": "1834", "SubState": "auto-restart"}, 0, 9999, "looping"),
        ({}, 1834, 9999, "looping"),
        ({"NRestarts": "2"}, 2, 9999, None),
        ({"ActiveState": "failed", "Result": "exit-code"}, 0, 9999, "failing"),
        ({"ActiveState": "activating", "SubState": "start", "ActiveEnterTimestampMonotonic": "0"}, 0, 9999, "never-active"),
        ({"ActiveState": "inactive", "SubState": "dead", "ActiveEnterTimestampMonotonic": "0", "ConditionTimestampMonotonic": "0"}, 0, 9999, "never-active"),
        ({"ActiveState": "activating", "SubState": "start", "ActiveEnterTimestampMonotonic": "0"}, 0, 30, None),
        ({"ActiveState": "inactive", "SubState": "dead", "ActiveEnterTimestampMonotonic": "0", "ConditionResult": "no"}, 0, 9999, None),
        ({"ActiveState": "inactive", "SubState": "dead", "ActiveEnterTimestampMonotonic": "0"}, 0, 9999, None),
        ({"NRestarts": "many"}, 0, 9999, None),
    ],
)  # fmt: skip
def test_findings_from_a_running_manager(
    tmp_path: pathlib.Path,
    properties: dict[str, str],
    journal: int,
    uptime: float,
    finding: str | None,
) -> None:
    images.debian(tmp_path)
    scene = make_scene(
        tmp_path, {"ssh.service": {**RUNNING, **properties}}, {"ssh.service": journal}, uptime
    )
    assert [result.id for result in runtime.failing(scene)] == ([finding] if finding else [])


def make_scene(
    root: pathlib.Path, running: dict[str, dict[str, str]], journal: dict[str, int], uptime: float
) -> rules.Scene:
    from overnight.sources.image import tree, units

    unknown = Belonging("", "", (), {})
    image = tree.Tree(root)
    return rules.Scene(image, units.Units(image).all(), (), knowledge.known(), unknown, unknown, restarts.Defaults(), True, running, journal, uptime)  # fmt: skip
