"""What explains what, and what to do about it: data in `knowledge.toml`, checked when it is read.

A wrong entry is a `UsageError` that names it, in the file that comes with overnight as in one of a user's.
"""

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

from overnight import errors
from overnight.diagnosis import entries
from overnight.model.finding import Subject
from overnight.model.verdict import Step

__all__ = [
    "Condition",
    "FleetRule",
    "Kind",
    "Knowledge",
    "Remedy",
    "Rule",
    "known",
    "merge",
    "parse_knowledge",
    "read_knowledge",
]

HOLDS = (
    "time_order",
    "same_host",
    "same_core",
    "same_unit",
    "same_process",
    "same_cgroup",
    "parent_of",
    "same_interface",
    "same_queue",
    "same_culprit",
    "waited",
    "magnitude",
    "recurrence",
)
NEEDS = ("holds", "open", "soft")
PLACEHOLDER = re.compile(r"\{(\w*)\}")
SUBJECTS = tuple(field.name for field in dataclasses.fields(Subject))


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of finding. `explains`: how much is explained when a chain begins with it (0 to 1).

    A `background` kind is often there and no trouble by itself; one that is `counted` by the kernel itself is
    seen without stacks, too.
    """

    kind: str
    name: str
    explains: float
    says: str = ""  # one clause of the summary
    background: bool = False
    counted: bool = False


@dataclasses.dataclass(frozen=True)
class Condition:
    """One thing that must agree between a cause and its effect.

    `need`: "holds" refuses the link unless it is known to agree, "open" unless it disagrees, "soft" never.
    A magnitude is the quotient of the cause's number and the effect's (or the cause's alone): in `fits` it
    agrees, outside `possible` it disagrees, and between them it agrees in part.
    """

    holds: str
    weight: float = 1.0
    need: str = "open"
    cause: tuple[str, ...] = ()  # of several the first that both have counts
    effect: tuple[str, ...] = ()  # as many, or none
    fits: tuple[float, float] = (0.5, 2.0)
    possible: tuple[float, float] = (0.2, 5.0)
    slack_seconds: float = 2.0  # by how much later the cause may be seen to begin
    gap_seconds: float = 10.0  # how long before the effect it may have ended


@dataclasses.dataclass(frozen=True)
class Rule:
    """That findings of one kind can cause those of others. `base` is its strength if all agrees."""

    cause: str
    effects: tuple[str, ...]  # patterns
    why: str
    base: float
    conditions: tuple[Condition, ...]
    one_of: tuple[str, ...] = ()  # of these at least one must be known to agree
    to_event: bool = False  # the effect is the event itself, never a finding on the way

    def reaches(self, effect: str, *, event: bool) -> bool:
        """Whether it speaks of such an effect; `event`: it is the event itself."""
        return (event or not self.to_event) and any(
            fnmatch.fnmatchcase(effect, pattern) for pattern in self.effects
        )

    @property
    def label(self) -> str:
        """As messages name it."""
        return f"{self.cause} -> {', '.join(self.effects)}"


@dataclasses.dataclass(frozen=True)
class Remedy:
    """What to do about a root: a fix, or the experiment that confirms or refutes it.

    One with `for_units` is for roots whose unit matches, and then in place of the general one.
    """

    root: str
    title: str
    steps: tuple[Step, ...]  # templates
    confirm: str = ""
    refute: str = ""
    for_units: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class FleetRule:
    """What a finding over many hosts says of a step of a chain.

    With a `number`: that it is in `fits` speaks for the step, that it is not speaks against it. Without:
    that the finding names the step's unit speaks for it.
    """

    says: str
    of: tuple[str, ...]
    why: str
    doubt: str = ""
    number: str = ""
    fits: tuple[float, float] = (1.0, math.inf)
    weight: float = 0.2


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """All of it."""

    kinds: Mapping[str, Kind]
    rules: tuple[Rule, ...]
    fixes: tuple[Remedy, ...]
    experiments: tuple[Remedy, ...]
    fleet: tuple[FleetRule, ...] = ()

    def name(self, kind: str) -> str:
        """The kind in words; an unknown one is its own name."""
        told = self.kinds.get(kind)
        return told.name if told else kind


def _condition(entry: entries.Entry) -> Condition:
    holds = entry.text("holds")
    if holds not in HOLDS:
        raise entry.wrong(f"`holds` is {holds!r}", f"one of {', '.join(HOLDS)}")
    need = entry.text("need", "soft" if holds in ("recurrence", "same_culprit") else "open")
    if need not in NEEDS:
        raise entry.wrong(f"`need` is {need!r}", f"one of {', '.join(NEEDS)}")
    told = Condition(
        holds,
        entry.number("weight", 1.0, 0.0, 100.0),
        need,
        entry.texts("cause"),
        entry.texts("effect"),
        entry.span("fits", Condition.fits),
        entry.span("possible", Condition.possible),
        entry.number("slack_seconds", Condition.slack_seconds, 0.0, math.inf),
        entry.number("gap_seconds", Condition.gap_seconds, 0.0, math.inf),
    )
    entry.done()
    if (holds == "magnitude") != bool(told.cause):
        raise entry.wrong(
            "a magnitude, and nothing else, compares numbers", "name the cause's number in `cause`"
        )
    if told.effect and len(told.effect) != len(told.cause):
        raise entry.wrong(
            "`cause` and `effect` are not equally many numbers",
            "name one of the effect for each of the cause, or none",
        )
    if not (told.possible[0] <= told.fits[0] and told.fits[1] <= told.possible[1]):
        raise entry.wrong(
            f"`fits` {told.fits} is not inside `possible` {told.possible}", "widen `possible`"
        )
    return told


def _rules(entry: entries.Entry) -> tuple[Rule, ...]:
    """One for each of its causes."""
    causes, effects = entry.texts("cause"), entry.texts("effect")
    entry.place += f" ({', '.join(causes)} -> {', '.join(effects)})"
    if not causes or not effects:
        raise entry.wrong("it has no `cause` or no `effect`", "name the kinds")
    why, base = entry.text("why"), entry.number("base", None, 0.05, 1.0)
    one_of, to_event = entry.texts("one_of"), entry.flag("to_event")
    conditions = tuple(_condition(one) for one in entry.entries("when"))
    entry.done()
    there = {one.holds for one in conditions}
    if unknown := sorted(set(one_of) - there):
        raise entry.wrong(f"`one_of` names {unknown[0]}", "name conditions that `when` has")
    if set(causes) & set(effects) and not to_event:
        raise entry.wrong("it says that a kind causes itself", "to_event = true, or another effect")
    if any("*" in one for one in effects) and not to_event:
        raise entry.wrong("a pattern stands for events only", "add to_event = true")
    # Nothing is caused on another host, or before its cause: not to be forgotten in any entry.
    added = tuple(
        Condition(name, weight)
        for name, weight in (("time_order", 1.0), ("same_host", 0.0))
        if name not in there
    )
    return tuple(
        Rule(cause, effects, why, base, (*added, *conditions), one_of, to_event) for cause in causes
    )


def _remedy(entry: entries.Entry, *, experiment: bool) -> Remedy:
    root = entry.text("root")
    entry.place += f" ({root})"
    title = entry.text("title")
    steps = []
    for one in entry.entries("steps"):
        step = Step(one.text("what"), one.text("command", ""), one.text("expect", ""))
        one.done()
        _quotable(one, step.command)
        steps.append(step)
    if not steps:
        raise entry.wrong("it has no steps", 'add steps = [{ what = "...", command = "..." }]')
    confirm = entry.text("confirm") if experiment else ""
    refute = entry.text("refute") if experiment else ""
    for_units = entry.texts("for_units")
    entry.done()
    return Remedy(root, title, tuple(steps), confirm, refute, for_units)


def _quotable(entry: entries.Entry, command: str) -> None:
    """Names are quoted when they are filled in, which does not work between quotes."""
    for found in PLACEHOLDER.finditer(command):
        before = command[: found.start()]
        if found[1] not in SUBJECTS:
            raise entry.wrong(
                f"`command` asks for {found[0]}", f"ask for one of {', '.join(SUBJECTS)}"
            )
        if before.count("'") % 2 or before.count('"') % 2:
            raise entry.wrong(
                f"{found[0]} stands between quotes", "leave the quotes out: names are quoted anyway"
            )


def _fleet(entry: entries.Entry) -> FleetRule:
    told = FleetRule(
        entry.text("says"),
        entry.texts("of"),
        entry.text("why"),
        entry.text("doubt", ""),
        entry.text("number", ""),
        entry.span("fits", FleetRule.fits),
        entry.number("weight", FleetRule.weight, 0.0, 0.5),
    )
    entry.done()
    if not told.of:
        raise entry.wrong("it has no `of`", "name the kinds of findings that it speaks of")
    if told.doubt and not told.number:
        raise entry.wrong(
            "that no unit is named is no doubt", "give `number`, or leave out `doubt`"
        )
    return told


def _kind(entry: entries.Entry) -> Kind:
    told = Kind(
        entry.text("kind"),
        entry.text("name"),
        entry.number("explains", None, 0.0, 1.0),
        entry.text("says", ""),
        entry.flag("background"),
        entry.flag("counted"),
    )
    entry.done()
    return told


def parse_knowledge(
    text: str, source: str = "the knowledge", base: Knowledge | None = None
) -> Knowledge:
    """A file's entries; those of `base` are kept, and its kinds may be spoken of."""
    try:
        document = entries.Entry(tomllib.loads(text), source)
    except tomllib.TOMLDecodeError as error:
        raise errors.UsageError(
            f"{source} cannot be read", why=f"it is no TOML: {error}", todo="mend that line"
        ) from error
    tables = {}
    for name in ("kind", "link", "fix", "experiment", "fleet"):
        tables[name] = document.entries(name)
        for count, entry in enumerate(tables[name], 1):
            entry.place = f"{source}, {name} {count}"
    document.done()
    told = Knowledge(
        {one.kind: one for one in map(_kind, tables["kind"])},
        tuple(rule for one in tables["link"] for rule in _rules(one)),
        tuple(_remedy(one, experiment=False) for one in tables["fix"]),
        tuple(_remedy(one, experiment=True) for one in tables["experiment"]),
        tuple(_fleet(one) for one in tables["fleet"]),
    )
    whole = merge((base, told)) if base else told
    _spoken_of(whole, source)
    return whole


def _spoken_of(told: Knowledge, source: str) -> None:
    for rule in told.rules:
        kinds = (rule.cause,) if rule.to_event else (rule.cause, *rule.effects)
        for kind in kinds:
            if kind not in told.kinds:
                raise errors.UsageError(
                    f"{source}, link {rule.label} cannot be used",
                    why=f"no [[kind]] says what {kind} is",
                    todo="mend its spelling, add the [[kind]], or to_event = true for an event",
                )
    for one in told.fleet:
        for kind in one.of:
            if kind not in told.kinds:
                raise errors.UsageError(
                    f"{source}, fleet {one.says} cannot be used",
                    why=f"no [[kind]] says what {kind} is",
                    todo="mend its spelling, or add the [[kind]]",
                )
    for remedy in (*told.fixes, *told.experiments):
        if remedy.root not in told.kinds:
            raise errors.UsageError(
                f"{source}, what to do about {remedy.root} cannot be used",
                why=f"no [[kind]] says what {remedy.root} is",
                todo="mend its spelling, or add the [[kind]]",
            )


def merge(many: Iterable[Knowledge]) -> Knowledge:
    """All of it; a later kind, or a later fix or experiment of a root, replaces an earlier one."""
    all_of = tuple(many)
    kinds = {kind: one for told in all_of for kind, one in told.kinds.items()}
    return Knowledge(
        kinds,
        tuple(rule for told in all_of for rule in told.rules),
        _latest([told.fixes for told in all_of]),
        _latest([told.experiments for told in all_of]),
        tuple(rule for told in all_of for rule in told.fleet),
    )


def _latest(many: list[tuple[Remedy, ...]]) -> tuple[Remedy, ...]:
    by_root: dict[str, tuple[Remedy, ...]] = {}
    for remedies in many:
        for root in dict.fromkeys(one.root for one in remedies):
            by_root[root] = tuple(one for one in remedies if one.root == root)
    return tuple(one for remedies in by_root.values() for one in remedies)


@functools.cache
def known() -> Knowledge:
    """What comes with overnight."""
    file = importlib.resources.files("overnight.diagnosis") / "knowledge.toml"
    return parse_knowledge(file.read_text("utf-8"), "knowledge.toml")


def read_knowledge(path: pathlib.Path) -> Knowledge:
    """What comes with overnight, and a user's own file on top of it."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UsageError(
            f"{path} cannot be read", why=str(error), todo="give a TOML file in UTF-8"
        ) from error
    return parse_knowledge(text, str(path), known())
