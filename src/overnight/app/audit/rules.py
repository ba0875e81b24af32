"""Findings from unit files. Each rule yields findings; all I/O goes through the tree."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator, Mapping

from overnight.app.audit import knowledge, restarts
from overnight.model import secrets
from overnight.model.audit import Belonging, Evidence, Finding, Risk
from overnight.sources.image import presets, unitfile, unitname, units
from overnight.sources.image import tree as trees

SEARCH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

# Measured with systemd 252: a job that a target pulls in at boot stays although its requirement is
# missing; `systemctl start` and a manual restart are refused.
REFUSED = "systemctl refuses to start units that require it; at boot they may start without it"


@dataclasses.dataclass(frozen=True)
class Scene:
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
        return tuple(unit for unit in self.all if starts(unit))


def starts(unit: units.Unit) -> bool:
    """Return whether a unit starts at boot: by its state, or by a link to an instance."""
    if unit.state == "bad":
        return bool(unit.links and unit.files)
    return unit.enabled or (
        bool(unit.links)
        and unitname.is_instance(unit.name)
        and unit.state in ("static", "indirect")
    )


def enabled_by(scene: Scene, unit: units.Unit) -> tuple[Evidence, ...]:
    """Return what enables a unit: links, and the preset line that creates them."""
    found = [Evidence(link.path, 0, f"wanted by {link.by}") for link in unit.links[:3]]
    action, rule = presets.decide(scene.presets, unit.name)
    if rule is not None and action == "enabled":
        vendor = "" if rule.path.startswith("/etc/") else "vendor "
        found.append(
            Evidence(rule.path, rule.line, f"{vendor}preset: {rule.action} {rule.pattern}")
        )
    elif rule is None and unit.enabled:
        found.append(
            Evidence("systemd.preset(5)", 0, "no preset line matches, so the default is enable")
        )
    return tuple(found)


def foreign(scene: Scene) -> Iterator[Finding]:
    """Find agents of another orchestrator or cloud."""
    for owners, host_owner, kind in (
        (scene.known.orchestrators, scene.orchestrator, "orchestrator"),
        (scene.known.clouds, scene.cloud, "cloud"),
    ):
        for unit in scene.enabled:
            owner = next((known for known in owners if known.owns(unit.name)), None)
            if owner is None or owner.name == host_owner.name:
                continue
            if host_owner.name:
                risk = Risk.HIGH if kind == "orchestrator" else Risk.MEDIUM
                what = f"agent of {owner.title} on a {host_owner.title} host"
            elif len(host_owner.others) > 1:
                risk = Risk.MEDIUM
                what = f"agent of {owner.title}, but this host may belong to another {kind}"
            else:
                risk = Risk.LOW
                what = f"agent of {owner.title}, with no other sign that this host belongs to it"
            yield Finding(
                f"foreign-{kind}" if host_owner.name else f"unclear-{kind}",
                unit.name,
                risk,
                what,
                owner.does,
                f"disable and mask it; if the host belongs to {owner.title}: --{kind} {owner.name}",
                (*enabled_by(scene, unit), *host_owner.evidence),
                turn_off=bool(host_owner.name),
            )


def together(scene: Scene) -> Iterator[Finding]:
    """Find units that conflict on a host of that orchestrator."""
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
    """Find restart limits that can never be reached."""
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
                f"restarts forever (Restart={limit.restart}): {limit.says}",
                design
                or "a program that fails at start is restarted forever; every start costs CPU time, and some leak",
                "none needed if the unit belongs here"
                if design
                else f"systemctl edit {unit.name}: [Unit] StartLimitIntervalSec={needed:g} and StartLimitBurst={limit.burst or 5}",
                limit.evidence,
            )
        for setting in restarts.ignored_settings(unit.settings):
            yield Finding(
                "ignored-limit",
                unit.name,
                Risk.LOW,
                f"{setting.key}={setting.value} is in [Service], where systemd ignores it",
                "the intended limit is not in force",
                "move it to [Unit]",
                (Evidence(setting.path, setting.line, f"[Service] {setting.key}={setting.value}"),),
            )


def supervisor_inside(scene: Scene) -> Iterator[Finding]:
    """Find units that run a supervisor, whose restarts systemd does not count."""
    for unit in scene.enabled:
        for setting in unit.settings.all("Service", "ExecStart"):
            _, command = unitfile.parse_command(setting.value)
            for supervisor in scene.known.supervisors:
                if supervisor.runs(command):
                    yield Finding(
                        "supervisor-inside",
                        unit.name,
                        Risk.LOW,
                        f"runs its own supervisor: {supervisor.says}",
                        "systemd's restart counter stays at 0 however often the child exits, "
                        "and no start limit applies",
                        "monitor how often its containers or cgroups start, not the unit's state",
                        (Evidence(setting.path, setting.line, _written(setting)),),
                    )
                    break


def missing_binary(scene: Scene) -> Iterator[Finding]:
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
                f"its program {program[:200]} does not exist",
                "it fails at every start" if not ignored else "the failure is ignored (-)",
                "install the program, or disable the unit",
                (Evidence(setting.path, setting.line, _written(setting)), *enabled_by(scene, unit)),
                turn_off=not ignored and setting.key == "ExecStart",
            )
            break


def _written(setting: unitfile.Setting) -> str:
    """Return a command as evidence; its arguments may be secret, or a megabyte."""
    return f"{setting.key}={secrets.scrub('', setting.value[:400])}"


def _is_there(tree: trees.Tree, program: str) -> bool:
    if program.startswith("/"):
        return tree.is_executable(program) or tree.is_hidden(program)
    if "/" in program:
        return True  # systemd refuses such a line
    return any(tree.is_executable(f"{folder}/{program}") for folder in SEARCH)


def _conditions_hold(scene: Scene, unit: units.Unit) -> bool:
    """Check conditions on paths; where they fail, systemd skips the unit as intended."""
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
    """Find units that others want or require, but that are masked or missing."""
    needed: dict[str, list[Evidence]] = {}
    for unit in scene.enabled:
        for key in ("Requires", "BindsTo", "Requisite"):
            for setting in unit.settings.all("Unit", key):
                for word in unitfile.split_words(setting.value):
                    says = f"{unit.name} has {key}={word}"
                    needed.setdefault(word, []).append(Evidence(setting.path, setting.line, says))
    there = {unit.name for unit in scene.all}
    for name, evidence in sorted(needed.items()):
        # Other kinds, such as devices and mounts, need no file.
        if name.endswith((".service", ".socket", ".timer")) and not (
            there & {name, unitname.template_of(name)}
        ):
            yield _not_there(name, evidence, [])
    for unit in scene.all:
        required = [*needed.get(unit.name, ())] + [
            Evidence(link.path, 0, f"required by {link.by}") for link in unit.links if link.requires
        ]
        wanted = [Evidence(k.path, 0, f"wanted by {k.by}") for k in unit.links if not k.requires]
        if unit.state.startswith("masked") and (required or wanted):
            yield Finding(
                "masked-yet-wanted",
                unit.name,
                Risk.MEDIUM if required else Risk.LOW,
                "masked, but other units still want or require it",
                REFUSED
                if required
                else "a leftover: it does not start now, but starts again when unmasked",
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
        "other units want or require it, but it does not exist",
        REFUSED if required else "a leftover of a removed package",
        "remove the link or the requirement, or install the unit",
        (*required, *wanted),
    )


def preset_conflict(scene: Scene) -> Iterator[Finding]:
    """Find preset lines that contradict each other or the state of a unit."""
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
                f"contradicting presets; {first.action} wins because it comes first",
                "an update that renames a preset file reverses the result",
                "keep one of the lines; the first file by name wins",
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
                "enabled, but its preset is disable",
                "it was enabled by hand; `systemctl preset-all` disables it",
                "disable it, or change the preset",
                (
                    *(Evidence(link.path, 0, f"wanted by {link.by}") for link in unit.links[:2]),
                    Evidence(decided.path, decided.line, f"disable {decided.pattern}"),
                ),
            )


def outside_links(scene: Scene) -> Iterator[Finding]:
    """Find unit links that climb above the root; they are never followed, and never accidental."""
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
                    "tools that follow it leave the unpacked image",
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
