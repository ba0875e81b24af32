"""What causes what, and what to do: data in `knowledge.toml` or a user's file, validated when it is read."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import importlib.resources
import math
import pathlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from overnight import errors
from overnight.detectors import mechanism_table
from overnight.diagnosis import conditions, entries
from overnight.model import host_changes
from overnight.model.event import is_outcome
from overnight.model.finding import Subject
from overnight.model.verdict import Step

NEEDS = ("holds", "open", "soft")
PLACEHOLDER = re.compile(r"\{(\w*)\}")
NUMBER_FORMAT = re.compile(r"[^{}]*\{(?:value(?::[^{}]*)?|percent)\}[^{}]*")
MECHANISMS = "mechanism.*"  # an entry of this kind, root or cause is one for each mechanism
OUTCOME = "outcome"  # an effect, or an event: every kind that is not built in
INCIDENT = "incident"  # a cause: every event of the incident that an outcome falls into
EVENT_EXPLAINS = 0.3  # of an incident by a chain that begins with its own event
MECHANISM_TEXT = re.compile(r"<(\w+)>")
SUBJECTS = tuple(field.name for field in dataclasses.fields(Subject))
ADDED = ("look", "pgrep", "namespace", "pod", "culprit")  # by remedies.py, for commands
# What a `change` may name, with an example of each: the form of its target is checked with them.
CHANGED = {"unit": "a.service", "cgroup": "/a", "interface": "eth0", "queue": "0", "core": "0", "other_core": "1"}  # fmt: skip
between = entries.between


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of finding: how it is shown, and how much a chain that begins with it explains (0 to 1)."""

    kind: str
    name: str
    explains: float = dataclasses.field(metadata=between(0.0, 1.0))
    title: str = ""
    headline: str = ""
    says: str = ""
    says_of_child: str = ""  # where a fix has `for_units` that match: the unit contains others
    detector: str = ""
    cleared: str = ""  # what is ruled out when the detector is clear
    # 1: the first whose core and seconds a report shows; 0: never
    focus: int = dataclasses.field(default=0, metadata=between(0, 1000))
    background: bool = False  # often present without being a problem
    counted: bool = False  # by the kernel itself, so that it is seen without stacks
    effect: bool = False  # it blames nobody: a saturated core, a starved queue
    yields_to: str = ""  # a kind that states the same of a process, or of a core


@dataclasses.dataclass(frozen=True)
class EventKind:
    """Events whose kind matches. `damage`: how close to what users felt; the highest wins."""

    kind: str  # a pattern
    damage: float = dataclasses.field(default=0.0, metadata=between(0.0, 1000.0))
    title: str = ""
    says: str = ""  # the last sentence of the effect


@dataclasses.dataclass(frozen=True)
class Number:
    """How a magnitude of findings is shown; `format` has one {value} or {percent} (of a share)."""

    name: str
    format: str


@dataclasses.dataclass(frozen=True)
class Condition:
    """One condition between a cause and its effect; the comments of knowledge.toml describe the fields."""

    holds: str
    weight: float = dataclasses.field(default=1.0, metadata=between(0.0, 100.0))
    need: str = "open"
    cause: tuple[str, ...] = ()  # the first pair that both findings have counts
    effect: tuple[str, ...] = ()  # as many, or none
    fits: tuple[float, float] = (0.5, 2.0)
    possible: tuple[float, float] = (0.2, 5.0)
    # How much later the cause may be first seen, and how long before the effect it may have ended.
    slack_seconds: float = dataclasses.field(default=2.0, metadata=between(0.0, math.inf))
    gap_seconds: float = dataclasses.field(default=10.0, metadata=between(0.0, math.inf))


@dataclasses.dataclass(frozen=True)
class Rule:
    """Findings of one kind can cause those of others. `base` is the link's strength if all agrees."""

    cause: str
    effects: tuple[str, ...]  # patterns
    why: str
    conditions: tuple[Condition, ...]
    base: float = dataclasses.field(metadata=between(0.05, 1.0))
    one_of: tuple[str, ...] = ()  # at least one of these must be known to agree
    to_event: bool = False  # the effect is the event itself, never an intermediate finding
    headline: str = ""  # replaces the cause's own
    says: str = ""  # replaces the effect's own

    def reaches(self, effect: str, *, event: bool) -> bool:
        """Return whether it covers such an effect; `event`: the effect is the event itself."""
        return (event or not self.to_event) and any(
            covers(pattern, effect) for pattern in self.effects
        )


@dataclasses.dataclass(frozen=True)
class Remedy:
    """A fix for a root, or the experiment that confirms or refutes it; `for_units` limits it to those units."""

    root: str
    title: str
    steps: tuple[Step, ...]  # templates
    confirm: str = ""
    refute: str = ""
    for_units: tuple[str, ...] = ()
    runtime: str = ""  # of the containers that it is about
    change: tuple[
        str, ...
    ] = ()  # what tests the root on a host; the first that is possible is made


@dataclasses.dataclass(frozen=True)
class FleetRule:
    """What a finding over many hosts means for a step of a chain; see the comments of knowledge.toml."""

    says: str
    of: tuple[str, ...]
    why: str
    doubt: str = ""
    number: str = ""
    fits: tuple[float, float] = (1.0, math.inf)
    same_unit: bool = False
    weight: float = dataclasses.field(default=0.2, metadata=between(0.0, 0.5))


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """The content of one or more knowledge files."""

    kinds: Mapping[str, Kind]
    rules: tuple[Rule, ...]
    fixes: tuple[Remedy, ...]
    experiments: tuple[Remedy, ...]
    fleet: tuple[FleetRule, ...] = ()
    events: Mapping[str, EventKind] = dataclasses.field(default_factory=dict)
    numbers: Mapping[str, Number] = dataclasses.field(default_factory=dict)

    def kind(self, kind: str) -> Kind:
        """Return the entry of a kind of finding; an event that leads to another one blames nobody."""
        if entry := self.kinds.get(kind):
            return entry
        says = self.events[kind].says if kind in self.events else ""
        headline = says[:1].lower() + says[1:].rstrip(".")
        return Kind(kind, self.name(kind), EVENT_EXPLAINS, self.title(kind), headline, says, effect=True)  # fmt: skip

    def name(self, kind: str) -> str:
        """Return the kind as a noun phrase; one that is not known as it is."""
        if entry := self.kinds.get(kind):
            return entry.name
        title = self.events[kind].title if kind in self.events else ""
        return title[0].lower() + title[1:] if title[1:2].islower() else title or kind

    def title(self, kind: str) -> str:
        """Return the kind of a finding or an event as a heading.

        >>> known().title("net.driver_reset"), known().title("gpu.fell_off")
        ('Network driver reset', 'gpu: fell off')
        """
        finding, event = self.kinds.get(kind), self.events.get(kind)
        title = (finding.title or finding.name) if finding else event.title if event else ""
        return title or kind.replace("_", " ").replace(".", ": ", 1)

    def contains_others(self, kind: str, unit: str) -> bool:
        """Return whether a fix of this kind treats the unit as one that contains the culprit."""
        patterns = (
            p for fix in self.fixes if fix.root == kind for p in fix.for_units if not fix.runtime
        )
        return any(fnmatch.fnmatchcase(unit, pattern) for pattern in patterns)

    def find_rule(self, cause: str, effect: str, *, event: bool) -> Rule | None:
        fitting = (rule for rule in self.rules if rule.cause == cause)
        return next((rule for rule in fitting if rule.reaches(effect, event=event)), None)

    def is_effect(self, kind: str) -> bool:
        """Return whether findings of this kind blame nobody."""
        return self.kind(kind).effect

    def damage(self, kind: str) -> float:
        """Return how close an event is to what users felt: a reset is closer than the pinned core before it."""
        matching = (e.damage for e in self.events.values() if covers(e.kind, kind))
        return max(matching, default=0.0)


def covers(pattern: str, kind: str) -> bool:
    """Return whether an event's kind fits a pattern; `outcome` stands for every kind that is not built in."""
    return fnmatch.fnmatchcase(kind, pattern) or (pattern == OUTCOME and is_outcome(kind))


def _parse_condition(entry: entries.Entry) -> Condition:
    holds = entry.one_of("holds", conditions.JUDGES)
    need = "soft" if holds in ("recurrence", "same_culprit") else "open"
    condition = entry.build(Condition, holds=holds, need=entry.one_of("need", NEEDS, need))
    if (holds == "magnitude") != bool(condition.cause):
        raise entry.invalid(
            "`cause` belongs to a magnitude, and a magnitude needs it",
            "name the cause's number in `cause`",
        )
    if condition.effect and len(condition.effect) != len(condition.cause):
        raise entry.invalid(
            "`cause` and `effect` have different lengths",
            "name one number of the effect for each of the cause, or none",
        )
    fits, possible = condition.fits, condition.possible
    if not (possible[0] <= fits[0] and fits[1] <= possible[1]):
        raise entry.invalid(f"`fits` {fits} is not inside `possible` {possible}", "widen `possible`")  # fmt: skip
    return condition


def _parse_link(entry: entries.Entry) -> tuple[Rule, ...]:
    """Return a rule for each of its causes."""
    causes, effects = entry.texts("cause"), entry.texts("effect")
    entry.place += f" ({', '.join(causes)} -> {', '.join(effects)})"
    if not causes or not effects:
        raise entry.invalid("`cause` or `effect` is missing", "name the kinds")
    when = tuple(_parse_condition(each) for each in entry.entries("when"))
    named = {condition.holds for condition in when}
    # Nothing is caused on another host, or before its cause: no entry may forget this.
    added = tuple(
        Condition(name, weight)
        for name, weight in (("time_order", 1.0), ("same_host", 0.0))
        if name not in named
    )
    rule = entry.build(Rule, cause="", effects=effects, conditions=(*added, *when))
    if unknown := sorted(set(rule.one_of) - named):
        raise entry.invalid(f"`one_of` names {unknown[0]}", "name conditions that are in `when`")
    if set(causes) & set(effects) and not rule.to_event:
        raise entry.invalid("a kind cannot cause itself", "add to_event = true, or use another effect")  # fmt: skip
    if any("*" in effect for effect in effects) and not rule.to_event:
        raise entry.invalid("a pattern can only match events", "add to_event = true")
    return tuple(dataclasses.replace(rule, cause=cause) for cause in causes)


def _parse_remedy(entry: entries.Entry, *, experiment: bool) -> Remedy:
    root = entry.text("root")
    entry.place += f" ({root})"
    steps = []
    for each in entry.entries("steps"):
        step = each.build(Step)
        _check_quotes(each, step.command)
        steps.append(step)
    if not steps:
        raise entry.invalid("it has no steps", 'add steps = [{ what = "...", command = "..." }]')
    outcomes = {name: entry.text(name) if experiment else "" for name in ("confirm", "refute")}
    remedy = entry.build(Remedy, root=root, steps=tuple(steps), **outcomes)
    if remedy.change and not experiment:
        raise entry.invalid("`change` belongs to an experiment", "remove it from the fix")
    for text in remedy.change:
        _check_change(entry, text)
    return remedy


def _check_change(entry: entries.Entry, text: str) -> None:
    try:
        for each in text.split(host_changes.THEN):
            builtin, _, target = each.partition(" ")
            host_changes.parse(builtin, PLACEHOLDER.sub(lambda match: CHANGED[match[1]], target))
    except KeyError as error:
        raise entry.invalid(f"`change` contains {{{error.args[0]}}}", f"use one of {', '.join(CHANGED)}") from error  # fmt: skip
    except ValueError as error:
        raise entry.invalid(f"`change` is {text!r}: {error}", 'write "mask-unit {unit}", or "mask-unit {unit} then purge"') from error  # fmt: skip


def _check_quotes(entry: entries.Entry, command: str) -> None:
    """Names are quoted when they are filled in, which does not work inside quotes."""
    for match in PLACEHOLDER.finditer(command):
        before = command[: match.start()]
        if match[1] not in (known := (*SUBJECTS, *ADDED)):
            raise entry.invalid(f"`command` contains {match[0]}", f"use one of {', '.join(known)}")
        if before.count("'") % 2 or before.count('"') % 2:
            raise entry.invalid(
                f"{match[0]} is inside quotes", "leave the quotes out: names are quoted anyway"
            )


def _parse_fleet(entry: entries.Entry) -> FleetRule:
    rule = entry.build(FleetRule)
    if not rule.of:
        raise entry.invalid("`of` is missing", "name the kinds of findings that it is about")
    if rule.doubt and not rule.number:
        raise entry.invalid(
            "a `doubt` needs a `number`: a unit that is not named contradicts nothing",
            "add `number`, or remove `doubt`",
        )
    return rule


def _parse_number(entry: entries.Entry) -> Number:
    number = entry.build(Number)
    try:
        number.format.format(value=1.0, percent="")
    except (ValueError, LookupError, AttributeError):
        usable = False
    else:
        usable = NUMBER_FORMAT.fullmatch(number.format) is not None
    if not usable:
        raise entry.invalid(
            f"`format` is {number.format!r}", "use one placeholder: {value:.2f} or {percent}"
        )
    return number


def _expand_mechanisms(document: dict[str, Any]) -> dict[str, Any]:
    """Replace each entry for all mechanisms by one for each, with its <texts> filled in."""
    return {
        name: [
            entry
            for table in tables
            for entry in (
                [_fill_texts(table, mechanism) for mechanism in mechanism_table.mechanisms()]
                if isinstance(table, dict) and MECHANISMS in table.values()
                else [table]
            )
        ]
        if isinstance(tables, list)
        else tables
        for name, tables in document.items()
    }


def _fill_texts(value: Any, mechanism: mechanism_table.Mechanism) -> Any:
    if isinstance(value, dict):
        return {name: _fill_texts(item, mechanism) for name, item in value.items()}
    if isinstance(value, list):
        return [_fill_texts(item, mechanism) for item in value]
    if not isinstance(value, str):
        return value
    text = value.replace(MECHANISMS, mechanism.kind)
    texts = {**vars(mechanism), "noun": mechanism.noun}
    return MECHANISM_TEXT.sub(
        lambda match: found if isinstance(found := texts.get(match[1]), str) else match[0], text
    )


def parse_knowledge(
    text: str, source: str = "the knowledge", base: Knowledge | None = None
) -> Knowledge:
    """Parse a file's entries on top of those of `base`."""
    try:
        document = entries.Entry(_expand_mechanisms(tomllib.loads(text)), source)
    except tomllib.TOMLDecodeError as error:
        raise errors.UsageError(
            f"{source} cannot be parsed", why=f"invalid TOML: {error}", todo="correct that line"
        ) from error
    kinds, events, numbers, links, fixes, experiments, fleet = map(
        document.entries, ("kind", "event", "number", "link", "fix", "experiment", "fleet")
    )
    document.finish()
    own = Knowledge(
        {kind.kind: kind for kind in (entry.build(Kind) for entry in kinds)},
        tuple(rule for entry in links for rule in _parse_link(entry)),
        tuple(_parse_remedy(entry, experiment=False) for entry in fixes),
        tuple(_parse_remedy(entry, experiment=True) for entry in experiments),
        tuple(map(_parse_fleet, fleet)),
        {event.kind: event for event in (entry.build(EventKind) for entry in events)},
        {number.name: number for number in map(_parse_number, numbers)},
    )
    whole = _merge(base, own) if base else own
    _check_kinds(whole, source)
    return whole


def _check_kinds(knowledge: Knowledge, source: str) -> None:
    """Refuse entries about kinds that no [[kind]] defines."""
    named = [
        (f"link {rule.cause} -> {', '.join(rule.effects)}", kind)
        for rule in knowledge.rules
        for kind in ((rule.cause,) if rule.to_event else (rule.cause, *rule.effects))
        if not (rule.effects == (OUTCOME,) and kind in (INCIDENT, *knowledge.events))
    ]
    named += [(f"fleet {rule.says}", kind) for rule in knowledge.fleet for kind in rule.of]
    named += [(f"fix {remedy.root}", remedy.root) for remedy in knowledge.fixes]
    named += [(f"experiment {remedy.root}", remedy.root) for remedy in knowledge.experiments]
    for place, kind in named:
        if kind not in knowledge.kinds:
            raise errors.UsageError(
                f"{source}, {place} is invalid",
                why=f"no [[kind]] defines {kind}",
                todo="correct its spelling, add the [[kind]], or to_event = true for the effect of a link that is an event",
            )


def _merge(base: Knowledge, own: Knowledge) -> Knowledge:
    """Merge; a kind, event or number of `own`, and its fixes and experiments of a root, replace those of `base`."""
    return Knowledge(
        {**base.kinds, **own.kinds},
        base.rules + own.rules,
        _replace(base.fixes, own.fixes),
        _replace(base.experiments, own.experiments),
        base.fleet + own.fleet,
        {**base.events, **own.events},
        {**base.numbers, **own.numbers},
    )


def _replace(base: tuple[Remedy, ...], own: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    roots = {remedy.root for remedy in own}
    return (*(remedy for remedy in base if remedy.root not in roots), *own)


@functools.cache
def known() -> Knowledge:
    """Return the built-in knowledge."""
    file = importlib.resources.files("overnight.diagnosis") / "knowledge.toml"
    return parse_knowledge(file.read_text("utf-8"), "knowledge.toml")


def read_knowledge(paths: Iterable[pathlib.Path] = ()) -> Knowledge:
    """Read the built-in knowledge and, in their order, the files on top of it."""
    whole = known()
    for path in paths:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise errors.UsageError(
                f"{path} cannot be read", why=str(error), todo="give a TOML file in UTF-8"
            ) from error
        whole = parse_knowledge(text, str(path), whole)
    return whole
