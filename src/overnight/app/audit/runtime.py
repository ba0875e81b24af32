"""What a running manager adds: units that never became active, fail, or restart again and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from overnight.app.audit import rules
from overnight.model.audit import Evidence, Finding, Risk

if TYPE_CHECKING:
    from overnight.sources.image import units

__all__ = ["RULES"]

SETTLED = 600.0  # seconds after boot, when what starts by itself has started
RESTARTS = 3


def failing(scene: rules.Scene) -> Iterator[Finding]:
    """Units that restart again and again, failed, or never became active."""
    for unit in scene.enabled:
        said = scene.running.get(unit.name)
        if said is None or unit.kind not in ("service", "socket", "timer", "path", "mount"):
            continue
        found = (
            _looping(scene, unit, said) or _failed(scene, unit, said) or _never(scene, unit, said)
        )
        if found is not None:
            yield found


def _looping(scene: rules.Scene, unit: units.Unit, said: Mapping[str, str]) -> Finding | None:
    counted = _number(said, "NRestarts")
    told = scene.journal.get(unit.name, 0)
    if max(counted, told) < RESTARTS and said.get("SubState") != "auto-restart":
        return None
    evidence = [_property(unit, said, name) for name in ("NRestarts", "SubState", "Result")]
    if told:
        evidence.append(Evidence("journal", 0, f"restart counter is at {told}"))
    return Finding(
        "looping",
        unit.name,
        Risk.HIGH,
        f"it was restarted {max(counted, told)} times, and is {said.get('SubState', 'unknown')} now",
        "each start costs, and some leave a memory cgroup behind",
        f"journalctl -u {unit.name} says why it ends; disable and mask it if nobody needs it",
        (*evidence, *rules.enabled_by(scene, unit)),
    )


def _failed(scene: rules.Scene, unit: units.Unit, said: Mapping[str, str]) -> Finding | None:
    if said.get("ActiveState") != "failed" and said.get("Result", "success") in ("", "success"):
        return None
    if said.get("ActiveState") == "active":
        return None
    return Finding(
        "failing",
        unit.name,
        Risk.MEDIUM,
        f"it failed: {said.get('Result', 'unknown')}",
        "it is enabled, so it fails at each boot",
        f"journalctl -u {unit.name} says why; disable it if nobody needs it",
        (
            *(_property(unit, said, name) for name in ("ActiveState", "Result", "ExecMainStatus")),
            *rules.enabled_by(scene, unit),
        ),
    )


def _never(scene: rules.Scene, unit: units.Unit, said: Mapping[str, str]) -> Finding | None:
    if _number(said, "ActiveEnterTimestampMonotonic") or scene.uptime < SETTLED:
        return None
    if said.get("LoadState") != "loaded":
        return None
    if unit.links and not any(link.by.endswith(".target") for link in unit.links):
        return None  # pulled in by another unit, which may have no reason to start
    if said.get("ConditionResult") == "no" and _number(said, "ConditionTimestampMonotonic"):
        return None  # its conditions do not hold here: passed over, as meant
    if said.get("ActiveState") == "inactive" and said.get("Result") == "success" and _ran(said):
        return None  # a oneshot that is done
    return Finding(
        "never-active",
        unit.name,
        Risk.MEDIUM,
        f"it is enabled and never became active since boot, {scene.uptime / 3600:.1f} h ago",
        "something keeps it from starting; when that is mended, it starts on every host at once",
        f"systemctl status {unit.name} says why; disable it if nobody needs it",
        (
            *(_property(unit, said, n) for n in ("ActiveEnterTimestampMonotonic", "ActiveState", "SubState")),
            *rules.enabled_by(scene, unit),
        ),
    )  # fmt: skip


def _ran(said: Mapping[str, str]) -> bool:
    # A oneshot without RemainAfterExit goes from activating to inactive and is never "active".
    return said.get("SubState") == "dead" and _number(said, "ConditionTimestampMonotonic") > 0


def _property(unit: units.Unit, said: Mapping[str, str], name: str) -> Evidence:
    return Evidence(f"systemctl show {unit.name}", 0, f"{name}={said.get(name, '')}")


def _number(said: Mapping[str, str], name: str) -> int:
    try:
        return int(said.get(name, "0"))
    except ValueError:
        return 0


RULES = (failing,)
