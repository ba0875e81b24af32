"""`overnight audit`: units of a host or an image that do not belong there, loop, or cannot start. No numpy."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import platform

from overnight import errors, sources
from overnight.app.audit import knowledge, owners, restarts, rules, runtime
from overnight.model import times
from overnight.model.audit import Gap, Report, Risk
from overnight.sources import kernel, systemd
from overnight.sources.image import presets, unit_states, unitfile, units
from overnight.sources.image import tree as trees

# The first of these has system.conf; of drop-ins with the same name, that of the first counts.
MAIN = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")


def examine(
    root: pathlib.Path = sources.ROOT, *, orchestrator: str | None = None, cloud: str | None = None
) -> Report:
    """Examine the units below a root; `systemctl` is queried only for `/`."""
    tree = trees.open_tree(root)
    loaded = units.Units(tree)
    if not any(loaded.folders.values()):
        raise errors.CannotError(
            f"no systemd units in {root}",
            why="it has none of systemd's folders: it uses another init, or is not the root of a system",
            todo="name the folder that holds etc and usr with --root",
        )
    every = loaded.all()
    enabled = tuple(unit for unit in every if rules.starts(unit))
    gaps: list[Gap] = []
    rules_of_presets = presets.read_presets(tree, lambda what, why: gaps.append(Gap(what, why)))
    known = knowledge.known()
    live = root.resolve() == sources.ROOT
    if live and os.geteuid():
        gaps.append(Gap("what only root may read", "the audit ran as another user"))
    running, restart_counts, uptime = _running(enabled, gaps) if live else ({}, {}, 0.0)
    scene = rules.Scene(
        tree=tree,
        all=every,
        presets=rules_of_presets,
        known=known,
        orchestrator=owners.find_owner(known.orchestrators, tree, enabled, orchestrator),
        cloud=owners.find_owner(known.clouds, tree, enabled, cloud),
        defaults=restarts.Defaults.of(_manager_settings(tree)),
        live=live,
        running=running,
        journal=restart_counts,
        uptime=uptime,
    )
    findings = [finding for rule in (*rules.RULES, *runtime.RULES) for finding in rule(scene)]
    worst_first = tuple(Risk)
    findings.sort(key=lambda each: (worst_first.index(each.risk), each.unit, each.id))
    report = Report(
        host=platform.node() if live else root.name,
        root=str(root),
        live=live,
        examined_us=times.now_us(),
        units=len(every),
        enabled=len(enabled),
        orchestrator=scene.orchestrator,
        cloud=scene.cloud,
        findings=tuple(findings),
        gaps=(*gaps, *(Gap(*gap) for gap in sorted(loaded.gaps.items()))),
    )
    return dataclasses.replace(
        report, unmaskable=tuple(name for name in report.to_turn_off if _is_local(tree, name))
    )


def _is_local(tree: trees.Tree, name: str) -> bool:
    """Return whether the unit's file is in /etc; `systemctl mask` refuses to replace it."""
    path = f"{units.CONFIG}/{name}"
    return tree.link(path) is None and tree.stat(path, follow=False) is not None


def _running(
    enabled: tuple[units.Unit, ...], gaps: list[Gap]
) -> tuple[dict[str, dict[str, str]], dict[str, int], float]:
    """Return what systemctl shows of each unit, its restarts by the journal, and the uptime in seconds."""
    if not systemd.booted():
        gaps.append(
            Gap("running units", "systemd does not run this host: only files were examined")
        )
        return {}, {}, 0.0
    properties: dict[str, dict[str, str]] = {}
    restart_counts: dict[str, int] = {}
    try:
        properties = {name: dict(values) for name, values in unit_states.read_show(u.name for u in enabled).items()}  # fmt: skip
    except sources.NoDataError as error:
        gaps.append(Gap("running units", str(error)))
    try:
        restart_counts = dict(unit_states.read_journal())
    except sources.NoDataError as error:
        gaps.append(Gap("journal", str(error)))
    return properties, restart_counts, kernel.read_uptime()


def _manager_settings(tree: trees.Tree) -> unitfile.Settings:
    """Read system.conf and its drop-ins, which change the limits of every unit."""
    files: dict[str, str] = {}
    for folder in reversed(MAIN):
        with contextlib.suppress(OSError):
            names = tree.names(f"{folder}/system.conf.d")
            files |= {n: f"{folder}/system.conf.d/{n}" for n in names if n.endswith(".conf")}
    main = [path for path in (f"{folder}/system.conf" for folder in MAIN) if tree.exists(path)][:1]
    assigned: list[unitfile.Setting] = []
    for path in (*main, *(files[name] for name in sorted(files))):
        with contextlib.suppress(OSError):
            assigned += unitfile.parse_unit(tree.text(path), path)
    return unitfile.Settings(assigned)
