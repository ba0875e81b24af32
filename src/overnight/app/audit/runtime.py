"""Findings on a running host: units that never became active, fail, or crash-loop."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from overnight.app.audit import rules
from overnight.model.audit import Evidence, Finding, Risk

if TYPE_CHECKING:
    from overnight.sources.image import units

SETTLED = 600.0  # seconds after boot, when enabled units have started
RESTARTS = 3


def failing(scene: rules.Scene) -> Iterator[Finding]:
    """Find units that crash-loop, failed, or never became active."""
    for unit in scene.enabled:
        properties = scene.running.get(unit.name)
        if properties is None or unit.kind not in ("service", "socket", "timer", "path", "mount"):
            continue
        findings = (check(scene, unit, properties) for check in (_looping, _failed, _never))
        yield from itertools.islice(filter(None, findings), 1)


def _looping(scene: rules.Scene, unit: units.Unit, properties: Mapping[str, str]) -> Finding | None:
    restarts = max(_number(properties, "NRestarts"), scene.journal.get(unit.name, 0))
    if restarts < RESTARTS and properties.get("SubState") != "auto-restart":
        return None
    evidence = _shown(unit, properties, "NRestarts", "SubState", "Result")
    if logged := scene.journal.get(unit.name):
        evidence.append(Evidence("journal", 0, f"restart counter is at {logged}"))
    return Finding(
        "looping",
        unit.name,
        Risk.HIGH,
        f"restarted {restarts} times; state is {properties.get('SubState', 'unknown')}",
        "every start costs CPU time, and can leave a dying memory cgroup",
        f"journalctl -u {unit.name} shows why it exits; disable and mask it if it is not needed",
        (*evidence, *rules.enabled_by(scene, unit)),
    )


def _failed(scene: rules.Scene, unit: units.Unit, properties: Mapping[str, str]) -> Finding | None:
    state, result = properties.get("ActiveState"), properties.get("Result", "success")
    if state == "active" or (state != "failed" and result in ("", "success")):
        return None
    evidence = _shown(unit, properties, "ActiveState", "Result", "ExecMainStatus")
    return Finding(
        "failing",
        unit.name,
        Risk.MEDIUM,
        f"failed: {properties.get('Result', 'unknown')}",
        "it is enabled, so it fails at every boot",
        f"journalctl -u {unit.name} shows why; disable it if it is not needed",
        (*evidence, *rules.enabled_by(scene, unit)),
    )


def _never(scene: rules.Scene, unit: units.Unit, properties: Mapping[str, str]) -> Finding | None:
    if _number(properties, "ActiveEnterTimestampMonotonic") or scene.uptime < SETTLED:
        return None
    if properties.get("LoadState") != "loaded":
        return None
    if unit.links and not any(link.by.endswith(".target") for link in unit.links):
        return None  # pulled in by another unit, which may have no reason to start
    tried = _number(properties, "ConditionTimestampMonotonic") > 0
    if tried and properties.get("ConditionResult") == "no":
        return None  # its conditions do not hold here: skipped as intended
    # A oneshot without RemainAfterExit goes from activating to inactive and is never "active".
    done = {"ActiveState": "inactive", "SubState": "dead", "Result": "success"}
    if tried and done.items() <= properties.items():
        return None
    evidence = _shown(unit, properties, "ActiveEnterTimestampMonotonic", "ActiveState", "SubState")
    return Finding(
        "never-active",
        unit.name,
        Risk.MEDIUM,
        f"enabled, but not active once since boot {scene.uptime / 3600:.1f} h ago",
        "something keeps it from starting; once that is fixed, it starts on every host at the same time",
        f"systemctl status {unit.name} shows why; `overnight drift --unit {unit.name}` compares hosts where it "
        "is active with the others; disable it if it is not needed",
        (*evidence, *rules.enabled_by(scene, unit)),
    )


def _shown(unit: units.Unit, properties: Mapping[str, str], *names: str) -> list[Evidence]:
    command = f"systemctl show {unit.name}"
    return [Evidence(command, 0, f"{name}={properties.get(name, '')}") for name in names]


def _number(properties: Mapping[str, str], name: str) -> int:
    try:
        return int(properties.get(name, "0"))
    except ValueError:
        return 0


RULES = (failing,)
