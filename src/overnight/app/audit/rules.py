"""What the files alone tell: each rule looks at the units and gives findings. Pure but for the tree."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator, Mapping

from overnight.app.audit import knowledge, restarts
from overnight.model import secrets
from overnight.model.audit import Belonging, Evidence, Finding, Risk
from overnight.sources.image import presets, unitfile, unitname, units
from overnight.sources.image import tree as trees

__all__ = ["RULES", "Scene", "enabled_by"]

SEARCH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

# Measured with systemd 252: a job that a target pulls in at boot stays though its requirement cannot
# be had; `systemctl start` and a restart by hand are refused.
REFUSED = "starting what requires it by hand is refused; at boot it may start without it"


@dataclasses.dataclass(frozen=True)
class Scene:
    """Everything that the rules look at."""

    tree: trees.Tree
    all: tuple[units.Unit, ...]
    presets: tuple[presets.Rule, ...]
    known: knowledge.Knowledge
    orchestrator: Belonging
    cloud: Belonging
    defaults: restarts.Defaults
    live: bool
    running: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    journal: Mapping[str, int] = dataclasses.field(default_factory=dict)
    uptime: float = 0.0

    @property
    def enabled(self) -> tuple[units.Unit, ...]:
        """Units that start by themselves."""
        return tuple(unit for unit in self.all if starts(unit))


def starts(unit: units.Unit) -> bool:
    """Whether something starts a unit at boot: its state, or for an instance a link."""
    if unit.state == "bad":
        return bool(unit.links and unit.files)
    return unit.enabled or (
        bool(unit.links)
        and unitname.is_instance(unit.name)
        and unit.state in ("static", "indirect")
    )


def enabled_by(scene: Scene, unit: units.Unit) -> tuple[Evidence, ...]:
    """What enables a unit: links, and the preset line that made or would make them again."""
    found = [Evidence(link.path, 0, f"{link.by} pulls it in") for link in unit.links[:3]]
    action, rule = presets.decide(scene.presets, unit.name)
    if rule is not None and action == "enabled":
        vendor = "" if rule.path.startswith("/etc/") else "vendor "
        found.append(
            Evidence(rule.path, rule.line, f"{vendor}preset: {rule.action} {rule.pattern}")
        )
    elif rule is None and unit.enabled:
        found.append(
            Evidence("systemd.preset(5)", 0, "no preset line fits, so it is to be enabled")
        )
    return tuple(found)


def foreign(scene: Scene) -> Iterator[Finding]:
    """Agents of another orchestrator or cloud than the host's."""
    for owners, mine, kind in (
        (scene.known.orchestrators, scene.orchestrator, "orchestrator"),
        (scene.known.clouds, scene.cloud, "cloud"),
    ):
        for unit in scene.enabled:
            owner = next((one for one in owners if one.owns(unit.name)), None)
            if owner is None or owner.name == mine.name:
                continue
            if mine.name:
                risk = Risk.HIGH if kind == "orchestrator" else Risk.MEDIUM
                what = f"it is an agent of {owner.title}, and this is a host of {mine.title}"
            elif len(mine.others) > 1:
                risk = Risk.MEDIUM
                what = f"it is an agent of {owner.title}, and this host could as well belong to another {kind}"
            else:
                risk = Risk.LOW
                what = f"it is an agent of {owner.title}, and nothing else says that this host belongs there"
            yield Finding(
                f"foreign-{kind}" if mine.name else f"unclear-{kind}",
                unit.name,
                risk,
                what,
                owner.does,
                f"disable and mask it; if the host does belong to {owner.title}: --{kind} {owner.name}",
                (*enabled_by(scene, unit), *mine.evidence),
                turn_off=bool(mine.name),
            )


def together(scene: Scene) -> Iterator[Finding]:
    """Units that do not go together on a host of that orchestrator."""
    enabled = {unit.name: unit for unit in scene.enabled}
    for pair in scene.known.together:
        if scene.orchestrator.name == pair.orchestrator and all(n in enabled for n in pair.units):
            yield Finding(
                "together",
                pair.turn_off,
                Risk.MEDIUM,
                pair.what,
                pair.why,
                f"disable and mask {pair.turn_off}, unless something here needs it",
                tuple(e for name in pair.units for e in enabled_by(scene, enabled[name])[:1]),
                turn_off=False,
            )


def endless_restart(scene: Scene) -> Iterator[Finding]:
    """Restart limits that can never trip."""
    for unit in scene.all:
        if unit.kind != "service" or not (starts(unit) or unit.links):
            continue
        limit = restarts.limit_of(unit.settings, scene.defaults)
        if limit.endless:
            design = scene.known.endless_by_design(unit.name)
            needed = max(60.0, 2 * limit.delay)
            yield Finding(
                "endless-restart",
                unit.name,
                Risk.LOW if design else Risk.MEDIUM,
                f"Restart={limit.restart}, and it is never given up: {limit.says}",
                design
                or "a program that fails at each start is started for ever; each start costs, and some leak",
                "none while the unit belongs here"
                if design
                else f"systemctl edit {unit.name}: [Unit] StartLimitIntervalSec={needed:g} and StartLimitBurst={limit.burst or 5}",
                limit.evidence,
            )
        for one in restarts.ignored_settings(unit.settings):
            yield Finding(
                "ignored-limit",
                unit.name,
                Risk.LOW,
                f"{one.key}={one.value} stands in [Service], where systemd does not read it",
                "the limit that somebody meant is not in force",
                "move it to [Unit]",
                (Evidence(one.path, one.line, f"[Service] {one.key}={one.value}"),),
            )


def supervisor_inside(scene: Scene) -> Iterator[Finding]:
    """Units that run a supervisor: systemd counts none of its restarts."""
    for unit in scene.enabled:
        for setting in unit.settings.all("Service", "ExecStart"):
            _, command = unitfile.parse_command(setting.value)
            for one in scene.known.supervisors:
                if one.runs(command):
                    yield Finding(
                        "supervisor-inside",
                        unit.name,
                        Risk.LOW,
                        f"it supervises by itself: {one.says}",
                        "systemd sees one unit that runs: NRestarts stays 0 however often the child dies, "
                        "and no start limit ends it",
                        "watch births and deaths of its containers or cgroups, not the unit's state",
                        (Evidence(setting.path, setting.line, _written(setting)),),
                    )
                    break


def missing_binary(scene: Scene) -> Iterator[Finding]:
    """Enabled units whose program is not there."""
    for unit in scene.enabled:
        if unit.kind != "service" or not _conditions_hold(scene, unit):
            continue
        if unit.settings.last("Service", "RootDirectory", "RootImage"):
            continue
        for setting in unit.settings.all("Service", "ExecStart", "ExecStartPre"):
            ignored, command = unitfile.parse_command(setting.value)
            program = unitname.specify(command[0], unit.name) if command else None
            if not program or "$" in program or _is_there(scene.tree, program):
                continue
            yield Finding(
                "missing-binary",
                unit.name,
                Risk.LOW if ignored else Risk.MEDIUM,
                f"its program {program[:200]} is not there",
                "it fails at each start" if not ignored else "the failure is ignored (-)",
                "install the program, or disable the unit",
                (
                    Evidence(setting.path, setting.line, _written(setting)),
                    *enabled_by(scene, unit),
                ),
                turn_off=not ignored and setting.key == "ExecStart",
            )
            break


def _written(setting: unitfile.Setting) -> str:
    """A command as evidence; what it is given may be secret, or a megabyte."""
    return f"{setting.key}={secrets.scrub('', setting.value[:400])}"


def _is_there(tree: trees.Tree, program: str) -> bool:
    if program.startswith("/"):
        return tree.is_executable(program)
    if "/" in program:
        return True  # systemd refuses such a line itself
    return any(tree.is_executable(f"{folder}/{program}") for folder in SEARCH)


def _conditions_hold(scene: Scene, unit: units.Unit) -> bool:
    """Conditions on paths: where they fail the unit is passed over, and that is as meant."""
    either = []
    for key in ("ConditionPathExists", "ConditionPathIsDirectory", "ConditionFileNotEmpty", "ConditionFileIsExecutable"):  # fmt: skip
        for setting in unit.settings.all("Unit", key):
            value = setting.value
            trigger = value.startswith("|")
            negated = value.lstrip("|").startswith("!")
            path = unitname.specify(value.lstrip("|!"), unit.name)
            if path is None:
                continue
            holds = _holds(scene.tree, key, path) != negated
            if trigger:
                either.append(holds)
            elif not holds:
                return False
    return not either or any(either)


def _holds(tree: trees.Tree, key: str, path: str) -> bool:
    if key == "ConditionFileIsExecutable":
        return tree.is_executable(path)
    if key == "ConditionPathIsDirectory":
        return tree.is_folder(path)
    found = tree.stat(path)
    return found is not None and (key == "ConditionPathExists" or found.st_size > 0)


def masked_yet_wanted(scene: Scene) -> Iterator[Finding]:
    """Masked units that others still pull in, and links to units that are not there."""
    needed: dict[str, list[Evidence]] = {}
    for unit in scene.enabled:
        for key in ("Requires", "BindsTo", "Requisite"):
            for setting in unit.settings.all("Unit", key):
                for word in unitfile.split_words(setting.value):
                    says = f"{unit.name} has {key}={word}"
                    needed.setdefault(word, []).append(Evidence(setting.path, setting.line, says))
    there = {unit.name for unit in scene.all}
    for name, evidence in sorted(needed.items()):
        # Other kinds, devices and mounts first, need no file.
        if name.endswith((".service", ".socket", ".timer")) and not (
            there & {name, unitname.template_of(name)}
        ):
            yield _not_there(name, evidence, [])
    for unit in scene.all:
        required = [*needed.get(unit.name, ())] + [
            Evidence(link.path, 0, f"{link.by} requires it") for link in unit.links if link.requires
        ]
        wanted = [Evidence(k.path, 0, f"{k.by} wants it") for k in unit.links if not k.requires]
        if unit.state.startswith("masked") and (required or wanted):
            yield Finding(
                "masked-yet-wanted",
                unit.name,
                Risk.MEDIUM if required else Risk.LOW,
                "it is masked, and something still pulls it in",
                REFUSED
                if required
                else "a leftover: it does not start, and a later unmask brings it back",
                "remove the link or the requirement, or unmask it",
                (Evidence(unit.path, 0, "masked"), *required, *wanted),
            )
        elif not unit.files and (required or wanted):
            yield _not_there(unit.name, required, wanted)


def _not_there(name: str, required: list[Evidence], wanted: list[Evidence]) -> Finding:
    return Finding(
        "wanted-missing",
        name,
        Risk.MEDIUM if required else Risk.LOW,
        "something pulls it in, and there is no such unit",
        REFUSED if required else "a leftover of something removed",
        "remove the link or the requirement, or install the unit",
        (*required, *wanted),
    )


def preset_conflict(scene: Scene) -> Iterator[Finding]:
    """Preset lines that contradict each other, and units that are not as their preset says."""
    for unit in scene.all:
        fitting = [rule for rule in scene.presets if presets.fits(rule, unit.name)]
        # `disable *` at the end is the policy that all other lines are exceptions of.
        named = [rule for rule in fitting if rule.pattern.strip("*")]
        if len({rule.action for rule in named}) > 1:
            first = fitting[0]
            yield Finding(
                "preset-conflict",
                unit.name,
                Risk.LOW,
                f"its presets contradict each other; {first.action} wins, as it comes first",
                "an update that renames a preset file turns it the other way round",
                "keep one of the lines; the first file by name decides",
                tuple(
                    Evidence(rule.path, rule.line, f"{rule.action} {rule.pattern}")
                    for rule in named
                ),
            )
        decided = presets.decide(scene.presets, unit.name)[1]
        if unit.state == "enabled" and decided and decided.action == "disable" and decided.pattern.strip("*"):  # fmt: skip
            yield Finding(
                "against-preset",
                unit.name,
                Risk.LOW,
                "it is enabled, and its preset says disable",
                "somebody enabled it by hand; `systemctl preset-all` turns it off again",
                "disable it, or change the preset",
                (
                    *(Evidence(link.path, 0, f"{link.by} pulls it in") for link in unit.links[:2]),
                    Evidence(decided.path, decided.line, f"disable {decided.pattern}"),
                ),
            )


def outside_links(scene: Scene) -> Iterator[Finding]:
    """Unit links that climb above the root: followed nowhere, and nobody writes them by accident."""
    for unit in scene.all:
        for link in unit.links:
            # From /a/b/c/d five steps up are one too many.
            depth = len(posixpath.dirname(link.path).strip("/").split("/"))
            climbs = posixpath.normpath(link.target).split("/").count("..")
            if not link.target.startswith("/") and climbs > depth:
                yield Finding(
                    "outside-link",
                    unit.name,
                    Risk.LOW,
                    "its link climbs above the root of the file system",
                    "in an unpacked image such a link leads out of it, for tools that follow it",
                    "remove the link",
                    (Evidence(link.path, 0, f"-> {link.target}"),),
                )


RULES = (
    foreign,
    together,
    endless_restart,
    supervisor_inside,
    missing_binary,
    masked_yet_wanted,
    preset_conflict,
    outside_links,
)
