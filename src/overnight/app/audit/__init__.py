"""`overnight audit`: units of a host or an image that do not belong there, loop, or cannot start."""

from __future__ import annotations

import pathlib
import platform

from overnight import errors, sources
from overnight.app.audit import knowledge, owners, restarts, rules, runtime
from overnight.model.audit import Report, Risk
from overnight.sources import systemd
from overnight.sources.image import presets, unit_states, unitfile, units
from overnight.sources.image import tree as trees

__all__ = ["examine"]

ORDER = {Risk.HIGH: 0, Risk.MEDIUM: 1, Risk.LOW: 2}
CONF = ("/usr/lib/systemd/system.conf.d", "/usr/local/lib/systemd/system.conf.d", "/run/systemd/system.conf.d", "/etc/systemd/system.conf.d")  # fmt: skip


def examine(
    root: pathlib.Path = sources.ROOT,
    *,
    orchestrator: str | None = None,
    cloud: str | None = None,
) -> Report:
    """Everything about the units below a root. The running manager is asked for `/` alone."""
    tree = trees.Tree(root)
    if not tree.is_folder("/"):
        raise errors.CannotError(
            f"{root} cannot be looked at",
            why="it is no folder, or may not be entered",
            todo="name the folder that an image was unpacked into",
        )
    loaded = units.Units(tree)
    if not any(loaded.folders.values()):
        raise errors.CannotError(
            f"there are no units in {root}",
            why="none of systemd's folders is there: another init runs it, or it is no root of a system",
            todo="name the folder that holds etc and usr of the image with --root",
        )
    every = loaded.all()
    enabled = tuple(unit for unit in every if rules.starts(unit))
    rules_of_presets, unread = presets.read_presets(tree)
    known = knowledge.known()
    gaps = [*unread]
    live = root.resolve() == sources.ROOT
    facts = _running(enabled, gaps) if live else ({}, {}, 0.0)
    scene = rules.Scene(
        tree=tree,
        all=every,
        presets=rules_of_presets,
        known=known,
        orchestrator=owners.find_owner(known.orchestrators, tree, enabled, orchestrator),
        cloud=owners.find_owner(known.clouds, tree, enabled, cloud),
        defaults=restarts.Defaults.of(_manager_settings(tree)),
        live=live,
        running=facts[0],
        journal=facts[1],
        uptime=facts[2],
    )
    found = [one for rule in (*rules.RULES, *runtime.RULES) for one in rule(scene)]
    found.sort(key=lambda one: (ORDER[one.risk], one.unit, one.id))
    return Report(
        host=platform.node() if live else root.name,
        root=str(root),
        live=live,
        units=len(every),
        enabled=len(enabled),
        orchestrator=scene.orchestrator,
        cloud=scene.cloud,
        findings=tuple(found),
        gaps=(*gaps, *sorted(loaded.gaps.items())),
    )


Facts = tuple[dict[str, dict[str, str]], dict[str, int], float]


def _running(enabled: tuple[units.Unit, ...], gaps: list[tuple[str, str]]) -> Facts:
    if not systemd.booted():
        gaps.append(("running units", "systemd does not run this host: only files were looked at"))
        return {}, {}, 0.0
    shown: dict[str, dict[str, str]] = {}
    told: dict[str, int] = {}
    try:
        shown = {name: dict(said) for name, said in unit_states.read_show(u.name for u in enabled).items()}  # fmt: skip
    except sources.NoDataError as error:
        gaps.append(("running units", str(error)))
    try:
        told = dict(unit_states.read_journal())
    except sources.NoDataError as error:
        gaps.append(("journal", str(error)))
    try:
        uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        uptime = 0.0
    return shown, told, uptime


def _manager_settings(tree: trees.Tree) -> unitfile.Settings:
    """system.conf and its drop-ins: they change the limits of every unit."""
    files: dict[str, str] = {}
    for folder in CONF:
        try:
            names = tree.names(folder)
        except OSError:
            continue
        files.update((name, f"{folder}/{name}") for name in names if name.endswith(".conf"))
    main = next(
        (path for path in ("/etc/systemd/system.conf", "/run/systemd/system.conf", "/usr/local/lib/systemd/system.conf", "/usr/lib/systemd/system.conf") if tree.exists(path)),
        None,
    )  # fmt: skip
    assigned: list[unitfile.Setting] = []
    for path in (*((main,) if main else ()), *(files[name] for name in sorted(files))):
        try:
            assigned += unitfile.parse_unit(tree.text(path), path)
        except OSError:
            continue
    return unitfile.Settings(assigned)
