"""Findings on a running host: units that never became active, fail, or crash-loop."""

from __future__ import annotations

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
        finding = (
            _looping(scene, unit, properties)
            or _failed(scene, unit, properties)
            or _never(scene, unit, properties)
        )
        if finding is not None:
            yield finding


def _looping(scene: rules.Scene, unit: units.Unit, properties: Mapping[str, str]) -> Finding | None:
    restarts = max(_number(properties, "NRestarts"), scene.journal.get(unit.name, 0))
    if restarts < RESTARTS and properties.get("SubState") != "auto-restart":
        return None
    evidence = [_property(unit, properties, name) for name in ("NRestarts", "SubState", "Result")]
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
    if properties.get("ActiveState") != "failed" and properties.get("Result", "success") in (
        "",
        "success",
    ):
        return None
    if properties.get("ActiveState") == "active":
        return None
    return Finding(
        "failing",
        unit.name,
        Risk.MEDIUM,
        f"failed: {properties.get('Result', 'unknown')}",
        "it is enabled, so it fails at every boot",
        f"journalctl -u {unit.name} shows why; disable it if it is not needed",
        (
            *(
                _property(unit, properties, name)
                for name in ("ActiveState", "Result", "ExecMainStatus")
            ),
            *rules.enabled_by(scene, unit),
        ),
    )


def _never(scene: rules.Scene, unit: units.Unit, properties: Mapping[str, str]) -> Finding | None:
    if _number(properties, "ActiveEnterTimestampMonotonic") or scene.uptime < SETTLED:
        return None
    if properties.get("LoadState") != "loaded":
        return None
    if unit.links and not any(link.by.endswith(".target") for link in unit.links):
        return None  # pulled in by another unit, which may have no reason to start
    if properties.get("ConditionResult") == "no" and _number(
        properties, "ConditionTimestampMonotonic"
    ):
        return None  # its conditions do not hold here: skipped as intended
    if (
        properties.get("ActiveState") == "inactive"
        and properties.get("Result") == "success"
        and _ran(properties)
    ):
        return None  # a oneshot that is done
    return Finding(
        "never-active",
        unit.name,
        Risk.MEDIUM,
        f"enabled, but not active once since boot {scene.uptime / 3600:.1f} h ago",
        "something keeps it from starting; once that is fixed, it starts on every host at the same time",
        f"systemctl status {unit.name} shows why; disable it if it is not needed",
        (
            *(_property(unit, properties, n) for n in ("ActiveEnterTimestampMonotonic", "ActiveState", "SubState")),
            *rules.enabled_by(scene, unit),
        ),
    )  # fmt: skip


def _ran(properties: Mapping[str, str]) -> bool:
    # A oneshot without RemainAfterExit goes from activating to inactive and is never "active".
    return (
        properties.get("SubState") == "dead"
        and _number(properties, "ConditionTimestampMonotonic") > 0
    )


def _property(unit: units.Unit, properties: Mapping[str, str], name: str) -> Evidence:
    return Evidence(f"systemctl show {unit.name}", 0, f"{name}={properties.get(name, '')}")


def _number(properties: Mapping[str, str], name: str) -> int:
    try:
        return int(properties.get(name, "0"))
    except ValueError:
        return 0


RULES = (failing,)
